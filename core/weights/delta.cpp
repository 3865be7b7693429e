// Positions are found by comparing bits. A code is read as a whole, and checked, before the first
// weight changes.
#include "weights/delta.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bitmap.hpp"
#include "compress/entropy.hpp"
#include "compress/positions.hpp"
#include "kernels/bit_fields.hpp"
#include "kernels/kernels.hpp"
#include "weights/numbers.hpp"

namespace sparsewire::weights {
namespace {

constexpr std::size_t kCountBytes = 4;

// A code of changes that is shorter than this share of a chunk is taken to be shorter than the
// whole.
constexpr std::size_t kWholeShare = 4;

// Calls f of a value of the integer type that has the elements' width.
template <typename F>
auto for_width(std::size_t width, F f) {
  switch (width) {
    case 1:
      return f(std::uint8_t{});
    case 2:
      return f(std::uint16_t{});
    case 4:
      return f(std::uint32_t{});
    default:
      return f(std::uint64_t{});
  }
}

template <typename T>
T load(const std::byte* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* to, std::size_t index, T value) {
  std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

// Numbers in the order of their values: neighbours differ by one. It is its own inverse, and one to
// one for all bits.
template <typename T>
T ordered(T bits, Numbers numbers) {
  constexpr T kSign = static_cast<T>(T{1} << (8 * sizeof(T) - 1));
  const bool flips = numbers == Numbers::floating && (bits & kSign);
  return flips ? static_cast<T>(bits ^ static_cast<T>(kSign - 1)) : bits;
}

// A step that is not zero as a number from 0 on: 1, -1, 2, -2 and so on.
template <typename T>
std::uint64_t number_of(T step) {
  constexpr unsigned kTop = 8 * sizeof(T) - 1;
  const bool is_negative = (step >> kTop) != 0;
  const T magnitude = is_negative ? static_cast<T>(T{0} - step) : step;
  return (std::uint64_t{magnitude} - 1) << 1 | (is_negative ? 1 : 0);
}

template <typename T>
T step_of(std::uint64_t number) {
  const auto magnitude = static_cast<T>((number >> 1) + 1);
  return number & 1 ? static_cast<T>(T{0} - magnitude) : magnitude;
}

// The elements that differ, by ascending position.
struct Changes {
  std::vector<std::uint32_t> positions;
  std::vector<std::uint64_t> gaps;
};

Changes find_changes(std::size_t width, const std::byte* base, const std::byte* fresh,
                     std::size_t count) {
  std::vector<std::uint64_t> bitmap(bitmap_words(count));
  const std::size_t found =
      kernels().compress.differing[std::countr_zero(width)](base, fresh, count, bitmap.data());
  Changes changes;
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

void put_changes(Form form, const Changes& changes, std::vector<std::byte>& out) {
  begin(form, out);
  put_32(changes.positions.size(), out);
  encode_numbers(changes.gaps, out);
}

template <typename T>
std::vector<std::uint64_t> steps_of(const Changes& changes, Numbers numbers, const std::byte* base,
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

// Of `count` elements, the byte of each that `at(i)` points to the first byte of.
template <typename At>
void put_planes(std::size_t width, std::size_t count, At at, std::vector<std::byte>& out) {
  std::vector<std::uint8_t> plane(count);
  for (std::size_t byte = 0; byte < width; ++byte) {
    for (std::size_t i = 0; i < count; ++i) plane[i] = static_cast<std::uint8_t>(at(i)[byte]);
    const std::size_t begin = out.size();
    out.resize(begin + kCountBytes + entropy_bound(count));
    const std::size_t size =
        *entropy_encode(plane.data(), count, 256, out.data() + begin + kCountBytes);
    store_32(out.data() + begin, static_cast<std::uint32_t>(size));
    out.resize(begin + kCountBytes + size);
  }
}

// Calls put(i, byte, value) for all bytes; where the planes end, or null.
template <typename Put>
const std::byte* take_planes(const std::byte* in, const std::byte* end, std::size_t width,
                             std::size_t count, Put put) {
  std::vector<std::uint8_t> plane(count);
  for (std::size_t byte = 0; byte < width; ++byte) {
    if (static_cast<std::size_t>(end - in) < kCountBytes) return nullptr;
    const std::size_t size = load_32(in);
    in += kCountBytes;
    if (static_cast<std::size_t>(end - in) < size) return nullptr;
    if (!entropy_decode(in, size, 256, plane.data(), count)) return nullptr;
    in += size;
    for (std::size_t i = 0; i < count; ++i) put(i, byte, plane[i]);
  }
  return in;
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

// What a code says, read as a whole.
struct Decoded {
  Form form;
  std::vector<std::uint32_t> positions;
  std::vector<std::uint64_t> steps;
  std::vector<std::byte> values;  // of the changed elements, or of all
};

bool take_positions(const std::byte*& in, const std::byte* end, std::size_t count,
                    std::vector<std::uint32_t>& positions) {
  if (static_cast<std::size_t>(end - in) < kCountBytes) return false;
  const std::size_t changed = load_32(in);
  if (changed == 0 || changed > count) return false;
  std::vector<std::uint64_t> gaps;
  in = decode_numbers(in + kCountBytes, end, changed, gaps);
  if (!in) return false;
  positions.resize(changed);
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < changed; ++i) {
    if (gaps[i] >= count - next) return false;
    positions[i] = static_cast<std::uint32_t>(next + gaps[i]);
    next = positions[i] + std::uint64_t{1};
    if (next == count && i + 1 != changed) return false;
  }
  return true;
}

const std::byte* take_values(const std::byte* in, const std::byte* end, std::size_t width,
                             std::size_t count, std::vector<std::byte>& values) {
  values.resize(count * width);
  return take_planes(in, end, width, count, [&](std::size_t i, std::size_t byte, std::uint8_t of) {
    values[i * width + byte] = static_cast<std::byte>(of);
  });
}

bool are_steps(const std::vector<std::uint64_t>& steps, std::size_t width) {
  // The magnitude of the least step is one more than that of the largest.
  const std::uint64_t most = (std::uint64_t{1} << (8 * width - 1));
  return std::ranges::all_of(steps, [&](std::uint64_t step) { return (step >> 1) < most; });
}

bool read(const Elements& elements, std::span<const std::byte> code, std::size_t count,
          Decoded& found) {
  if (code.empty() || static_cast<std::uint8_t>(code[0]) >= kFormCount) return false;
  const std::byte* in = code.data() + 1;
  const std::byte* const end = code.data() + code.size();
  found.form = static_cast<Form>(code[0]);
  switch (found.form) {
    case Form::same:
      break;
    case Form::steps:
      if (!take_positions(in, end, count, found.positions)) return false;
      in = decode_numbers(in, end, found.positions.size(), found.steps);
      if (!in || !are_steps(found.steps, elements.width)) return false;
      break;
    case Form::values:
      if (!take_positions(in, end, count, found.positions)) return false;
      in = take_values(in, end, elements.width, found.positions.size(), found.values);
      break;
    case Form::whole:
      in = take_values(in, end, elements.width, count, found.values);
      break;
  }
  return in == end;
}

template <typename T>
void write(const Decoded& found, Numbers numbers, std::byte* weights) {
  for (std::size_t i = 0; i < found.positions.size(); ++i) {
    const std::uint32_t at = found.positions[i];
    if (found.form == Form::values) {
      store<T>(weights, at, load<T>(found.values.data(), i));
    } else {
      const T moved =
          static_cast<T>(ordered(load<T>(weights, at), numbers) + step_of<T>(found.steps[i]));
      store<T>(weights, at, ordered(moved, numbers));
    }
  }
}

}  // namespace

Encoded encode_delta(Elements elements, const std::byte* base, const std::byte* fresh,
                     std::size_t count, std::vector<std::byte>& out) {
  const std::size_t width = elements.width;
  const Changes changes = find_changes(width, base, fresh, count);
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
  Decoded found;
  if (!read(elements, code, count, found)) return false;
  if (found.form == Form::whole) {
    std::memcpy(weights, found.values.data(), found.values.size());
    return true;
  }
  for_width(elements.width, [&]<typename T>(T) { write<T>(found, elements.numbers, weights); });
  return true;
}

bool is_delta(Elements elements, std::span<const std::byte> code, std::size_t count) {
  Decoded found;
  return read(elements, code, count, found);
}

}  // namespace sparsewire::weights
