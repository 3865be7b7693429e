// Kernels of compression operators, for sparsewire.compress.
#pragma once

#include <nanobind/nanobind.h>

namespace sparsewire::bindings {

// Attribute NORMS, and plain functions over addresses.
void bind_compress(nanobind::module_& module);

}  // namespace sparsewire::bindings
