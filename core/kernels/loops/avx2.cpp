// The kernels as the compiler makes them for the level "avx2"; the flags are in CMakeLists.txt.
#include "kernels/loops/table.hpp"

namespace sparsewire {

constinit const Kernels kAvx2Kernels = make_table(SimdLevel::avx2);

}  // namespace sparsewire
