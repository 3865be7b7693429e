// Puts the kernels of one translation unit into a table. Included once per level.
#pragma once

#include "kernels/accumulate.hpp"
#include "kernels/flag_loops.hpp"
#include "kernels/kernels.hpp"
#include "kernels/norm_loops.hpp"
#include "kernels/pick.hpp"
#include "kernels/quantise_loops.hpp"
#include "kernels/rans_loops.hpp"
#include "kernels/scan.hpp"
#include "kernels/symbol_loops.hpp"

namespace sparsewire {
namespace {

template <typename T>
constexpr VectorKernels<T> make_vector_table() {
  return {first_not_finite<T>,
          norms<T>,
          means<T>,
          dither<T>,
          undither<T>,
          natural_dither<T>,
          natural_undither<T>,
          nearest_multiples<T>,
          multiples<T>,
          natural_compress<T>,
          natural_decompress<T, std::uint8_t>,
          natural_decompress<T, std::uint16_t>,
          signs<T>,
          reached_by_some<T>,
          reaching<T>};
}

constexpr CompressKernels make_compress_table() {
  return {make_vector_table<float>(), make_vector_table<double>(), bernoulli, rans_encode,
          rans_decode};
}

constexpr Kernels make_table(SimdLevel level) {
  return {level,
          scan,
          mark,
          start,
          add,
          copy_named<true>,
          copy_named<false>,
          list_bits<std::int32_t>,
          list_bits<std::int64_t>,
          list_locals<std::int32_t>,
          list_locals<std::int64_t>,
          add_at,
          finish,
          encode,
          decode,
          make_compress_table()};
}

}  // namespace
}  // namespace sparsewire
