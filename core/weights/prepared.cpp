// Positions are checked before the first bit is written; that also brings them near.
#include "weights/prepared.hpp"

#include <algorithm>
#include <cstdint>

#include "weights/changes.hpp"

namespace sparsewire::weights {
namespace {

constexpr std::size_t kHead = sizeof(std::uint32_t);
constexpr std::size_t kPosition = sizeof(std::uint32_t);

// So many elements ahead are fetched: enough that memory is busy all the time.
constexpr std::size_t kAhead = 24;

// Appends the head and room for so many bytes; returns where these begin.
std::byte* begin(std::uint32_t head, std::size_t size, std::vector<std::byte>& out) {
  const std::size_t at = out.size();
  out.resize(at + kHead + size);
  store(out.data() + at, 0, head);
  return out.data() + at + kHead;
}

template <typename T>
T fresh_bits(const Changes& changes, Numbers numbers, const std::byte* base, std::size_t i) {
  if (changes.form == Form::values) return load<T>(changes.values.data(), i);
  return stepped(load<T>(base, changes.positions[i]), changes.steps[i], numbers);
}

template <typename T>
void put_positions(const Changes& changes, Numbers numbers, const std::byte* base,
                   std::vector<std::byte>& out) {
  const std::size_t changed = changes.positions.size();
  std::byte* const at =
      begin(static_cast<std::uint32_t>(changed), changed * (kPosition + sizeof(T)), out);
  std::copy_n(reinterpret_cast<const std::byte*>(changes.positions.data()), changed * kPosition,
              at);
  std::byte* const bits = at + changed * kPosition;
  for (std::size_t i = 0; i < changed; ++i) {
    store(bits, i, fresh_bits<T>(changes, numbers, base, i));
  }
}

template <typename T>
void put_all(const Changes& changes, Numbers numbers, const std::byte* base, std::size_t count,
             std::vector<std::byte>& out) {
  std::byte* const at = begin(kAllPrepared, count * sizeof(T), out);
  std::copy_n(base, count * sizeof(T), at);
  for (std::size_t i = 0; i < changes.positions.size(); ++i) {
    store(at, changes.positions[i], fresh_bits<T>(changes, numbers, base, i));
  }
}

template <typename T>
bool scatter(std::span<const std::byte> prepared, std::size_t changed, std::byte* weights,
             std::size_t count) {
  if (prepared.size() != changed * (kPosition + sizeof(T))) return false;
  const std::byte* const positions = prepared.data();
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < changed; ++i) {
    last = std::max(last, load<std::uint32_t>(positions, i));
  }
  if (changed != 0 && last >= count) return false;
  const std::byte* const bits = positions + changed * kPosition;
  for (std::size_t i = 0; i < changed; ++i) {
    const std::size_t ahead = std::min(i + kAhead, changed - 1);
    __builtin_prefetch(weights + load<std::uint32_t>(positions, ahead) * sizeof(T), 1);
    store(weights, load<std::uint32_t>(positions, i), load<T>(bits, i));
  }
  return true;
}

}  // namespace

bool prepare_delta(Elements elements, std::span<const std::byte> code, const std::byte* base,
                   std::size_t count, std::vector<std::byte>& out) {
  const std::optional<Changes> changes = read_changes(elements, code, count);
  if (!changes) return false;
  if (changes->form == Form::whole) {
    prepare_whole(elements.width, changes->values.data(), count, out);
    return true;
  }
  const bool is_most =
      changes->positions.size() * (kPosition + elements.width) > count * elements.width;
  for_width(elements.width, [&]<typename T>(T) {
    if (is_most) {
      put_all<T>(*changes, elements.numbers, base, count, out);
    } else {
      put_positions<T>(*changes, elements.numbers, base, out);
    }
  });
  return true;
}

void prepare_whole(std::size_t width, const std::byte* fresh, std::size_t count,
                   std::vector<std::byte>& out) {
  std::copy_n(fresh, count * width, begin(kAllPrepared, count * width, out));
}

bool write_prepared(std::size_t width, std::span<const std::byte> prepared, std::byte* weights,
                    std::size_t count) {
  if (prepared.size() < kHead) return false;
  const auto head = load<std::uint32_t>(prepared.data(), 0);
  const std::span<const std::byte> rest = prepared.subspan(kHead);
  if (head != kAllPrepared) {
    return for_width(width, [&]<typename T>(T) { return scatter<T>(rest, head, weights, count); });
  }
  if (rest.size() != count * width) return false;
  std::copy_n(rest.data(), rest.size(), weights);
  return true;
}

}  // namespace sparsewire::weights
