// Puts the kernels of one translation unit into a table. Included once per level.
#pragma once

#include "kernels/accumulate.hpp"
#include "kernels/compress/compress_table.hpp"
#include "kernels/kernels.hpp"
#include "kernels/list.hpp"
#include "kernels/mark.hpp"
#include "kernels/pick.hpp"
#include "kernels/quantise_loops.hpp"
#include "kernels/scan.hpp"

namespace sparsewire {
namespace {

constexpr Kernels make_table(SimdLevel level) {
  return {level,
          scan,
          mark,
          start,
          add,
          gather,
          scatter,
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
