// The kernel tables, one per translation unit. Only the x86 build has more than the portable one.
#pragma once

#include "kernels/kernels.hpp"

#if defined(__x86_64__)
#define SPARSEWIRE_X86_KERNELS 1
#else
#define SPARSEWIRE_X86_KERNELS 0
#endif

namespace sparsewire {

extern const Kernels kPortableKernels;
#if SPARSEWIRE_X86_KERNELS
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

}  // namespace sparsewire
