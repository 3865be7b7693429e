// The part of the native module that sparse collectives need.
#pragma once

#include <nanobind/nanobind.h>

#include "comm/communicator.hpp"

namespace sparsewire::bindings {

// Attributes COLLECTIVES, ALGORITHMS and CODECS, and predictions.
void bind_sparse(nanobind::module_& module);

// Adds what hands out the results of a sparse collective.
void bind_results(nanobind::class_<comm::Operation>& operation);

// Adds submit_sparse() and what concerns the choice of algorithms.
void bind_collectives(nanobind::class_<comm::Communicator>& communicator);

}  // namespace sparsewire::bindings
