// Top-k sparsification for the communication hooks of frameworks.
#pragma once

#include <nanobind/nanobind.h>

namespace sparsewire::bindings {

// Class TopK.
void bind_topk(nanobind::module_& module);

}  // namespace sparsewire::bindings
