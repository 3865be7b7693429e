// Puts the loops of compression operators of one translation unit into a table.
#pragma once

#include "kernels/compress/dither_loops.hpp"
#include "kernels/compress/flag_loops.hpp"
#include "kernels/compress/natural_loops.hpp"
#include "kernels/compress/norm_loops.hpp"

namespace sparsewire {
namespace {

constexpr CompressKernels make_compress_table() {
  return {first_not_finite,
          norms,
          dither,
          undither,
          natural_dither,
          natural_undither,
          natural_compress,
          natural_decompress,
          signs,
          apply_signs,
          reaching,
          bernoulli};
}

}  // namespace
}  // namespace sparsewire
