// The kernels as the compiler makes them for the level "avx512"; the flags are in CMakeLists.txt.
#include "kernels/loops/table.hpp"

namespace sparsewire {

constinit const Kernels kAvx512Kernels = make_table(SimdLevel::avx512);

}  // namespace sparsewire
