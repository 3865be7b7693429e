// Puts the kernels of one translation unit into a table. Included once per level.
#pragma once

#include "kernels/accumulate.hpp"
#include "kernels/kernels.hpp"
#include "kernels/scan.hpp"

namespace sparsewire {
namespace {

constexpr Kernels make_table(SimdLevel level) { return {level, scan, start, add, finish}; }

}  // namespace
}  // namespace sparsewire
