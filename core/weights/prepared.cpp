// Positions are checked before the first bit is written; that also brings them near.
#include "weights/prepared.hpp"

#include <algorithm>
#include <cstdint>

#include "weights/changes.hpp"
#include "weights/found.hpp"

namespace sparsewire::weights {
namespace {

constexpr std::size_t kHead = sizeof(std::uint32_t);
constexpr std::size_t kPosition = sizeof(std::uint32_t);

// Appends the head and room for so many bytes; returns where these begin.
std::byte* begin(std::uint32_t head, std::size_t size, std::vector<std::byte>& out) {
  const std::size_t at = out.size();
  out.resize(at + kHead + size);
  store(out.data() + at, 0, head);
  return out.data() + at + kHead;
}

void put_all(std::size_t size, const std::byte* bits, std::vector<std::byte>& out) {
  std::copy_n(bits, size, begin(kAllPrepared, size, out));
}

// Of each position, its bits are fresh(i).
template <typename T, typename Fresh>
void put_some(std::span<const std::uint32_t> positions, Fresh fresh, std::vector<std::byte>& out) {
  const std::size_t size = positions.size_bytes();
  std::byte* const at =
      begin(static_cast<std::uint32_t>(positions.size()), size + positions.size() * sizeof(T), out);
  std::copy_n(reinterpret_cast<const std::byte*>(positions.data()), size, at);
  for (std::size_t i = 0; i < positions.size(); ++i) store<T>(at + size, i, fresh(i));
}

// Writes what is shorter.
template <typename T, typename Fresh>
void put_changes(std::span<const std::uint32_t> positions, const std::byte* base, std::size_t count,
                 Fresh fresh, std::vector<std::byte>& out) {
  const std::size_t size = count * sizeof(T);
  if (positions.size() * (kPosition + sizeof(T)) <= size) {
    put_some<T>(positions, fresh, out);
    return;
  }
  put_all(size, base, out);
  std::byte* const bits = out.data() + out.size() - size;
  for (std::size_t i = 0; i < positions.size(); ++i) store<T>(bits, positions[i], fresh(i));
}

template <typename T>
void prepare(const Changes& changes, Numbers numbers, const std::byte* base, std::size_t count,
             std::vector<std::byte>& out) {
  const bool are_values = changes.form == Form::values;
  const std::span<const std::byte> positions = std::as_bytes(std::span(changes.positions));
  const auto fresh = [&](std::size_t i) {
    fetch_ahead<T>(positions.data(), i, changes.positions.size(), base);
    const T told = load<T>(changes.payload.data(), i);
    return are_values ? told : stepped(load<T>(base, changes.positions[i]), told, numbers);
  };
  put_changes<T>(changes.positions, base, count, fresh, out);
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
    fetch_ahead<T>(positions, i, changed, weights);
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
    // Few elements may have changed: the whole is written where that is shorter, too.
    prepare_between(elements.width, base, changes->payload.data(), count, out);
    return true;
  }
  for_width(elements.width,
            [&]<typename T>(T) { prepare<T>(*changes, elements.numbers, base, count, out); });
  return true;
}

void prepare_between(std::size_t width, const std::byte* base, const std::byte* fresh,
                     std::size_t count, std::vector<std::byte>& out) {
  for_width(width, [&]<typename T>(T) {
    const Found<T> found = find_changes<T>(Numbers::integer, base, fresh, count);
    const std::span<const std::uint32_t> positions = found.all_positions();
    put_changes<T>(
        positions, base, count, [&](std::size_t i) { return load<T>(fresh, positions[i]); }, out);
  });
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
