// Deltas of weights for Python: one chunk at a time, without the GIL, so that threads share the
// work.
#include <nanobind/stl/pair.h>

#include <span>
#include <vector>

#include "module.hpp"
#include "weights/delta.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsewire::bindings {
namespace {

using weights::Elements;

constexpr const char* kWidth = "an element has 1, 2, 4 or 8 bytes";
constexpr const char* kWhole = "a chunk has whole elements, and not more than DELTA_CHUNK";

Elements elements_of(std::size_t width, bool floating) {
  require(width == 1 || width == 2 || width == 4 || width == 8, kWidth);
  return {width, floating ? weights::Numbers::floating : weights::Numbers::integer};
}

std::size_t count_of(const Memory& memory, const Elements& elements) {
  const std::size_t count = memory.bytes() / elements.width;
  require(memory.bytes() % elements.width == 0 && count <= weights::kDeltaChunk, kWhole);
  return count;
}

std::span<const std::byte> bytes_of(const Memory& memory) {
  return {memory.data(), memory.bytes()};
}

std::pair<nb::bytes, std::size_t> encode(nb::handle base, nb::handle fresh, std::size_t width,
                                         bool floating) {
  const Elements elements = elements_of(width, floating);
  const Input from(base);
  const Input to(fresh);
  const std::size_t count = count_of(from, elements);
  require(from.bytes() == to.bytes(), "both versions of a chunk have the same size");
  std::vector<std::byte> code;
  std::size_t changed = 0;
  {
    const GilRelease release;
    changed = encode_delta(elements, from.data(), to.data(), count, code).changed;
  }
  return {nb::bytes(code.data(), code.size()), changed};
}

bool apply(nb::handle code, nb::handle chunk, std::size_t width, bool floating) {
  const Elements elements = elements_of(width, floating);
  const Input bytes(code);
  const Output target(chunk);
  const std::size_t count = count_of(target, elements);
  const GilRelease release;
  return apply_delta(elements, bytes_of(bytes), target.data(), count);
}

bool check(nb::handle code, std::size_t count, std::size_t width, bool floating) {
  const Elements elements = elements_of(width, floating);
  require(count <= weights::kDeltaChunk, kWhole);
  const Input bytes(code);
  const GilRelease release;
  return is_delta(elements, bytes_of(bytes), count);
}

}  // namespace

void bind_weights(nb::module_& m) {
  m.attr("DELTA_CHUNK") = weights::kDeltaChunk;
  m.def("encode_delta", &encode, "base"_a, "fresh"_a, "width"_a, "floating"_a);
  m.def("apply_delta", &apply, "code"_a, "chunk"_a, "width"_a, "floating"_a);
  m.def("is_delta", &check, "code"_a, "count"_a, "width"_a, "floating"_a);
}

}  // namespace sparsewire::bindings
