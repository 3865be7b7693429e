// Puts the loops of compression operators of one translation unit into a table.
#pragma once

#include "kernels/compress/dither_loops.hpp"
#include "kernels/compress/flag_loops.hpp"
#include "kernels/compress/natural_loops.hpp"
#include "kernels/compress/norm_loops.hpp"
#include "kernels/compress/rans_loops.hpp"
#include "kernels/compress/sign_loops.hpp"

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

}  // namespace
}  // namespace sparsewire
