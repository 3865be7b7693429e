// Positions are found by comparing bits. A code is read as a whole, and checked, before the first
// weight changes.
#include "weights/delta.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bitmap.hpp"
#include "compress/positions.hpp"
#include "kernels/bit_fields.hpp"
#include "kernels/kernels.hpp"
#include "weights/changes.hpp"
#include "weights/numbers.hpp"
#include "weights/planes.hpp"

namespace sparsewire::weights {
namespace {

// A code of changes that is shorter than this share of a chunk is taken to be shorter than the
// whole.
constexpr std::size_t kWholeShare = 4;

// The elements that differ, by ascending position.
struct Found {
  std::vector<std::uint32_t> positions;
  std::vector<std::uint64_t> gaps;
};

Found find_changes(std::size_t width, const std::byte* base, const std::byte* fresh,
                   std::size_t count) {
  std::vector<std::uint64_t> bitmap(bitmap_words(count));
  const std::size_t found =
      kernels().compress.differing[std::countr_zero(width)](base, fresh, count, bitmap.data());
  Found changes;
  changes.positions.reserve(found);
  changes.gaps.reserve(found);
  std::size_t next = 0;
  for_each_set(bitmap.data(), count, [&](std::size_t position) {
    changes.positions.push_back(static_cast<std::uint32_t>(position));
    changes.gaps.push_back(position - next);
    next = position + 1;
  });
  return changes;
}

void put_32(std::size_t value, std::vector<std::byte>& out) {
  out.resize(out.size() + kCountBytes);
  store_32(out.data() + out.size() - kCountBytes, static_cast<std::uint32_t>(value));
}

void begin(Form form, std::vector<std::byte>& out) { out.push_back(static_cast<std::byte>(form)); }

void put_changes(Form form, const Found& changes, std::vector<std::byte>& out) {
  begin(form, out);
  put_32(changes.positions.size(), out);
  encode_numbers(changes.gaps, out);
}

template <typename T>
std::vector<std::uint64_t> steps_of(const Found& changes, Numbers numbers, const std::byte* base,
                                    const std::byte* fresh) {
  std::vector<std::uint64_t> steps;
  steps.reserve(changes.positions.size());
  for (const std::uint32_t position : changes.positions) {
    const T from = ordered(load<T>(base, position), numbers);
    const T to = ordered(load<T>(fresh, position), numbers);
    steps.push_back(number_of(static_cast<T>(to - from)));
  }
  return steps;
}

// Puts the shorter of two codes behind `kept`, of which the first ends at `middle`.
void keep_shorter(std::size_t kept, std::size_t middle, Encoded& encoded, Form second,
                  std::vector<std::byte>& out) {
  if (out.size() - middle < middle - kept) {
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(kept),
              out.begin() + static_cast<std::ptrdiff_t>(middle));
    encoded.form = second;
  } else {
    out.resize(middle);
  }
}

template <typename T>
void write(const Changes& changes, Numbers numbers, std::byte* weights) {
  for (std::size_t i = 0; i < changes.positions.size(); ++i) {
    const std::uint32_t at = changes.positions[i];
    store<T>(weights, at,
             changes.form == Form::values
                 ? load<T>(changes.values.data(), i)
                 : stepped(load<T>(weights, at), changes.steps[i], numbers));
  }
}

}  // namespace

Encoded encode_delta(Elements elements, const std::byte* base, const std::byte* fresh,
                     std::size_t count, std::vector<std::byte>& out) {
  const std::size_t width = elements.width;
  const Found changes = find_changes(width, base, fresh, count);
  const std::size_t changed = changes.positions.size();
  const std::size_t kept = out.size();
  if (changed == 0) {
    begin(Form::same, out);
    return {Form::same, 0};
  }
  Encoded encoded{Form::steps, changed};
  put_changes(Form::steps, changes, out);
  const std::size_t steps_begin = out.size();
  encode_numbers(
      for_width(width,
                [&]<typename T>(T) { return steps_of<T>(changes, elements.numbers, base, fresh); }),
      out);
  // Steps that cost as much as the values themselves are no small ones.
  if (2 * (out.size() - steps_begin) > changed * width) {
    const std::size_t middle = out.size();
    put_changes(Form::values, changes, out);
    put_planes(
        width, changed, [&](std::size_t i) { return fresh + changes.positions[i] * width; }, out);
    keep_shorter(kept, middle, encoded, Form::values, out);
  }
  if (out.size() - kept > count * width / kWholeShare) {
    const std::size_t middle = out.size();
    begin(Form::whole, out);
    put_planes(width, count, [&](std::size_t i) { return fresh + i * width; }, out);
    keep_shorter(kept, middle, encoded, Form::whole, out);
  }
  return encoded;
}

bool apply_delta(Elements elements, std::span<const std::byte> code, std::byte* weights,
                 std::size_t count) {
  const std::optional<Changes> changes = read_changes(elements, code, count);
  if (!changes) return false;
  if (changes->form == Form::whole) {
    std::memcpy(weights, changes->values.data(), changes->values.size());
    return true;
  }
  for_width(elements.width, [&]<typename T>(T) { write<T>(*changes, elements.numbers, weights); });
  return true;
}

bool is_delta(Elements elements, std::span<const std::byte> code, std::size_t count) {
  return read_changes(elements, code, count).has_value();
}

}  // namespace sparsewire::weights
