// Passes over large vectors for Python, without the GIL.
#include "compress/passes.hpp"

#include "module.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsewire::bindings {
namespace {

constexpr const char* kAlike = "vectors must be of float32, and of one length";

nb::tuple subtract_into(nb::handle start, nb::handle now, nb::handle added, float beta,
                        nb::handle out) {
  const bool adds = !added.is_none();
  const Input from(start), minus(now), plus(adds ? added : start);
  const Output to(out);
  const std::size_t count = to.count();
  auto* const room = to.as<float>(count, kAlike);
  const auto* const first = from.as<const float>(count, kAlike);
  const auto* const second = minus.as<const float>(count, kAlike);
  const auto* const third = plus.as<const float>(count, kAlike);
  Sizes sizes;
  {
    const GilRelease release;
    sizes = subtract_and_measure(first, second, adds ? third : nullptr, beta, room, count);
  }
  return nb::make_tuple(sizes.moved, sizes.turned);
}

double scale_in_place(nb::handle values, float factor) {
  const Output to(values);
  const std::size_t count = to.count();
  auto* const room = to.as<float>(count, kAlike);
  const GilRelease release;
  return scale_and_measure(room, factor, count);
}

}  // namespace

void bind_passes(nb::module_& m) {
  m.def("subtract_into", &subtract_into, "start"_a, "now"_a, "added"_a.none(), "beta"_a, "out"_a);
  m.def("scale_in_place", &scale_in_place, "values"_a, "factor"_a);
}

}  // namespace sparsewire::bindings
