// The kernels as compiled for any processor of the architecture.
#include "kernels/loops/table.hpp"

namespace sparsewire {

constinit const Kernels kPortableKernels = make_table(SimdLevel::portable);

}  // namespace sparsewire
