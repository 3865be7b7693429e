// Deltas of weights for Python: one chunk at a time, without the GIL, so that threads share the
// work.
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "module.hpp"
#include "weights/changes.hpp"
#include "weights/delta.hpp"
#include "weights/prepared.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsewire::bindings {
namespace {

using weights::Elements;

constexpr const char* kWidth = "an element has 1, 2, 4 or 8 bytes";
// By code.
constexpr const char* kForms[] = {"same", "steps", "values", "whole"};
static_assert(std::size(kForms) == weights::kFormCount);

constexpr const char* kAlike = "both versions of a chunk have the same size";
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
  require(from.bytes() == to.bytes(), kAlike);
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

nb::object prepare(nb::handle code, nb::handle base, std::size_t width, bool floating) {
  const Elements elements = elements_of(width, floating);
  const Input bytes(code);
  const Input from(base);
  const std::size_t count = count_of(from, elements);
  std::vector<std::byte> prepared;
  bool is_code = false;
  {
    const GilRelease release;
    is_code = prepare_delta(elements, bytes_of(bytes), from.data(), count, prepared);
  }
  if (!is_code) return nb::none();
  return nb::bytes(prepared.data(), prepared.size());
}

nb::bytes prepare_between(nb::handle base, nb::handle fresh, std::size_t width) {
  const Elements elements = elements_of(width, false);
  const Input from(base);
  const Input to(fresh);
  const std::size_t count = count_of(from, elements);
  require(from.bytes() == to.bytes(), kAlike);
  std::vector<std::byte> prepared;
  {
    const GilRelease release;
    weights::prepare_between(width, from.data(), to.data(), count, prepared);
  }
  return nb::bytes(prepared.data(), prepared.size());
}

bool write(nb::handle prepared, nb::handle chunk, std::size_t width) {
  const Elements elements = elements_of(width, false);
  const Input bytes(prepared);
  const Output target(chunk);
  const std::size_t count = count_of(target, elements);
  const GilRelease release;
  return weights::write_prepared(width, bytes_of(bytes), target.data(), count);
}

// A NumPy array of what the vector holds.
template <typename T>
nb::object array_of(std::vector<T>&& numbers) {
  auto held = std::make_unique<std::vector<T>>(std::move(numbers));
  T* const data = held->data();
  const std::size_t size = held->size();
  const nb::capsule owner(held.release(),
                          [](void* it) noexcept { delete static_cast<std::vector<T>*>(it); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {size}, owner));
}

std::vector<std::int64_t> steps_of(const std::vector<std::byte>& payload, std::size_t width) {
  std::vector<std::int64_t> steps(payload.size() / width);
  weights::for_width(width, [&]<typename T>(T) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      steps[i] = static_cast<std::make_signed_t<T>>(weights::load<T>(payload.data(), i));
    }
  });
  return steps;
}

std::vector<std::uint8_t> plain_bytes(const std::vector<std::byte>& bytes) {
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {begin, begin + bytes.size()};
}

// None, or a tuple of the form's name, the positions or None, and the steps or the values.
nb::object changes(nb::handle code, std::size_t count, std::size_t width, bool floating) {
  const Elements elements = elements_of(width, floating);
  require(count <= weights::kDeltaChunk, kWhole);
  const Input bytes(code);
  std::optional<weights::Changes> found;
  std::vector<std::int64_t> steps;
  {
    const GilRelease release;
    found = read_changes(elements, bytes_of(bytes), count);
    if (found && found->form == weights::Form::steps) steps = steps_of(found->payload, width);
  }
  if (!found) return nb::none();
  const weights::Form form = found->form;
  const bool has_positions = form == weights::Form::steps || form == weights::Form::values;
  return nb::make_tuple(kForms[static_cast<std::size_t>(form)],
                        has_positions ? array_of(std::move(found->positions)) : nb::none(),
                        form == weights::Form::steps ? array_of(std::move(steps))
                                                     : array_of(plain_bytes(found->payload)));
}

}  // namespace

void bind_weights(nb::module_& m) {
  m.attr("DELTA_CHUNK") = weights::kDeltaChunk;
  m.def("encode_delta", &encode, "base"_a, "fresh"_a, "width"_a, "floating"_a);
  m.def("apply_delta", &apply, "code"_a, "chunk"_a, "width"_a, "floating"_a);
  m.def("delta_changes", &changes, "code"_a, "count"_a, "width"_a, "floating"_a);
  m.def("prepare_delta", &prepare, "code"_a, "base_chunk"_a, "width"_a, "floating"_a);
  m.def("prepare_between", &prepare_between, "base_chunk"_a, "fresh"_a, "width"_a);
  m.def("write_prepared", &write, "prepared"_a, "chunk"_a, "width"_a);
  m.def("is_delta", &check, "code"_a, "count"_a, "width"_a, "floating"_a);
}

}  // namespace sparsewire::bindings
