// Puts the kernels of one translation unit into a table. Included once per level.
#pragma once

#include "kernels/kernels.hpp"
#include "kernels/loops/accumulate.hpp"
#include "kernels/loops/flag_loops.hpp"
#include "kernels/loops/norm_loops.hpp"
#include "kernels/loops/order_loops.hpp"
#include "kernels/loops/pick.hpp"
#include "kernels/loops/product_loops.hpp"
#include "kernels/loops/quantise_loops.hpp"
#include "kernels/loops/rans_loops.hpp"
#include "kernels/loops/scan.hpp"
#include "kernels/loops/symbol_loops.hpp"

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
          nearest_powers<T>,
          natural_compress<T>,
          natural_decompress<T, std::uint8_t>,
          natural_decompress<T, std::uint16_t>,
          signs<T>,
          kth_largest<T>,
          reached_by_some<T>,
          sort_magnitudes<T>,
          reaching<T>,
          visible<T>};
}

constexpr CompressKernels make_compress_table() {
  return {make_vector_table<float>(),
          make_vector_table<double>(),
          bernoulli,
          product,
          {differing<std::uint8_t>, differing<std::uint16_t>, differing<std::uint32_t>,
           differing<std::uint64_t>},
          rans_encode,
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
