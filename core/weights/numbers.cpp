// Symbols go through the entropy coder, and the low bits beside it.
#include "weights/numbers.hpp"

#include <bit>

#include "compress/entropy.hpp"
#include "kernels/bit_fields.hpp"

namespace sparsewire::weights {
namespace {

constexpr unsigned kDirectBits = 4;
constexpr std::uint64_t kDirect = std::uint64_t{1} << kDirectBits;
// Bits behind the leading one that are part of the symbol.
constexpr unsigned kShownBits = 2;
constexpr std::size_t kAlphabet = 256;
constexpr std::size_t kSizeBytes = 4;

// A number of more than kDirectBits bits: so many low bits are not part of its symbol.
constexpr unsigned low_bits(unsigned length) { return length - 1 - kShownBits; }

constexpr std::uint8_t symbol_of(std::uint64_t number) {
  if (number < kDirect) return static_cast<std::uint8_t>(number);
  const auto length = static_cast<unsigned>(std::bit_width(number));
  const auto shown = (number >> low_bits(length)) & ((1u << kShownBits) - 1);
  return static_cast<std::uint8_t>(kDirect + ((length - kDirectBits - 1) << kShownBits) + shown);
}

// Of a symbol from kDirect on: the bits of its numbers, and the least of these.
struct Class {
  unsigned low_bits;
  std::uint64_t least;
};

constexpr Class class_of(std::uint8_t symbol) {
  const unsigned place = symbol - static_cast<unsigned>(kDirect);
  const unsigned length = (place >> kShownBits) + kDirectBits + 1;
  const std::uint64_t leading = (1u << kShownBits) + (place & ((1u << kShownBits) - 1));
  return {low_bits(length), leading << low_bits(length)};
}

static_assert(symbol_of(~std::uint64_t{0}) == kAlphabet - 1);

void put_low_bits(std::span<const std::uint64_t> numbers, std::vector<std::byte>& out) {
  constexpr std::size_t kMost = 8;  // bytes of a number
  const std::size_t before = out.size();
  out.resize(before + numbers.size() * kMost + kMost);
  BitWriter bits(out.data() + before);
  for (const std::uint64_t number : numbers) {
    if (number < kDirect) continue;
    const unsigned low = low_bits(static_cast<unsigned>(std::bit_width(number)));
    const std::uint64_t value = number & ((std::uint64_t{1} << low) - 1);
    bits.put(static_cast<std::uint32_t>(value), std::min(low, 32u));
    if (low > 32) bits.put(static_cast<std::uint32_t>(value >> 32), low - 32);
  }
  out.resize(static_cast<std::size_t>(bits.finish() - out.data()));
}

std::uint64_t with_low_bits(std::uint8_t symbol, BitReader& bits) {
  if (symbol < kDirect) return symbol;
  const Class of = class_of(symbol);
  std::uint64_t value = bits.get(std::min(of.low_bits, 32u));
  if (of.low_bits > 32) value |= std::uint64_t{bits.get(of.low_bits - 32)} << 32;
  return of.least | value;
}

}  // namespace

void encode_numbers(std::span<const std::uint64_t> numbers, std::vector<std::byte>& out) {
  std::vector<std::uint8_t> symbols(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) symbols[i] = symbol_of(numbers[i]);
  const std::size_t at = out.size();
  out.resize(at + kSizeBytes + entropy_bound(symbols.size()));
  std::byte* const code = out.data() + at + kSizeBytes;
  const std::size_t size = *entropy_encode(symbols.data(), symbols.size(), kAlphabet, code);
  store_32(out.data() + at, static_cast<std::uint32_t>(size));
  out.resize(at + kSizeBytes + size);
  put_low_bits(numbers, out);
}

const std::byte* decode_numbers(const std::byte* in, const std::byte* end, std::size_t count,
                                std::vector<std::uint64_t>& numbers) {
  if (static_cast<std::size_t>(end - in) < kSizeBytes) return nullptr;
  const std::size_t size = load_32(in);
  in += kSizeBytes;
  if (static_cast<std::size_t>(end - in) < size) return nullptr;
  std::vector<std::uint8_t> symbols(count);
  if (!entropy_decode(in, size, kAlphabet, symbols.data(), count)) return nullptr;
  BitReader bits(in + size, end);
  numbers.resize(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = with_low_bits(symbols[i], bits);
  return bits.finish();
}

}  // namespace sparsewire::weights
