// Kernels of compression operators, for sparsewire.compress.
#pragma once

#include <nanobind/nanobind.h>

namespace sparsewire::bindings {

// Plain functions over arrays.
void bind_compress(nanobind::module_& module);

}  // namespace sparsewire::bindings
