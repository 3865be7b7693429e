// What all layouts have in common: the bounds beyond which a decoder believes no number from the
// wire; and integers in the wire's byte order, independent of the machine's.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tuple>
#include <type_traits>

namespace sparsewire::wire {

// Version of everything in this folder; both ends of a connection must speak the same one.
inline constexpr std::uint32_t kVersion = 9;

inline constexpr std::uint64_t kNoChunk = UINT64_MAX;  // "I contribute nothing further."
inline constexpr std::uint64_t kMaxChunk = (std::uint64_t{1} << 48) - 2;

inline constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 48;
inline constexpr std::uint64_t kMaxSequence = std::uint64_t{1} << 62;

inline constexpr std::size_t kMaxChunkElements = 65536;
inline constexpr std::size_t kMinBlock = 16;
inline constexpr std::size_t kMaxBlock = 4096;

inline constexpr std::size_t kMaxBitmapBytes = kMaxChunkElements / kMinBlock / 8;
inline constexpr std::size_t kMaxPayload = kMaxChunkElements * 8 + kMaxBitmapBytes;
inline constexpr std::size_t kMaxFaultText = 512;

template <std::unsigned_integral T>
constexpr T swapped_on_big_endian(T value) {
  if constexpr (std::endian::native == std::endian::little || sizeof(T) == 1) return value;
  T swapped = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    swapped = static_cast<T>((swapped << 8) | ((value >> (8 * i)) & 0xff));
  }
  return swapped;
}

template <std::unsigned_integral T>
void store(std::byte* out, T value) {
  value = swapped_on_big_endian(value);
  std::memcpy(out, &value, sizeof value);
}

// An enumeration as the number it is.
template <typename Enum>
  requires std::is_enum_v<Enum>
void store(std::byte* out, Enum value) {
  store(out, static_cast<std::underlying_type_t<Enum>>(value));
}

template <std::unsigned_integral T>
T load(const std::byte* in) {
  T value;
  std::memcpy(&value, in, sizeof value);
  return swapped_on_big_endian(value);
}

// All fields of a layout, one after the other.
template <std::size_t size, typename... Fields>
void store_all(std::span<std::byte, size> out, Fields... fields) {
  static_assert((sizeof(Fields) + ...) == size);
  std::byte* at = out.data();
  ((store(at, fields), at += sizeof(Fields)), ...);
}

template <typename... Fields, std::size_t size>
std::tuple<Fields...> load_all(std::span<const std::byte, size> in) {
  static_assert((sizeof(Fields) + ...) == size);
  const std::byte* at = in.data();
  std::tuple<Fields...> fields;
  std::apply([&](auto&... each) { ((each = load<Fields>(at), at += sizeof(Fields)), ...); },
             fields);
  return fields;
}

}  // namespace sparsewire::wire
