// Finds the kernels that the processor can run, and keeps those in use.
#include "kernels/kernels.hpp"

#include <array>
#include <atomic>

namespace sparsewire {
namespace {

struct Available {
  std::array<const Kernels*, 3> tables{};
  std::size_t size = 0;

  Available() {
    tables[size++] = &kPortableKernels;
#if defined(__x86_64__)
    // These also ask whether the operating system saves the wide registers.
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
      tables[size++] = &kAvx2Kernels;
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        tables[size++] = &kAvx512Kernels;
      }
    }
#endif
  }
};

std::atomic<const Kernels*>& selected() {
  static std::atomic<const Kernels*> table{available_kernels().back()};
  return table;
}

}  // namespace

std::span<const Kernels* const> available_kernels() {
  static const Available available;
  return {available.tables.data(), available.size};
}

const Kernels& kernels() { return *selected().load(std::memory_order_relaxed); }

bool select_kernels(SimdLevel level) {
  for (const Kernels* table : available_kernels()) {
    if (table->level == level) {
      selected().store(table, std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

}  // namespace sparsewire
