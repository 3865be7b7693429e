// Symbols go through the entropy coder, and the low bits beside it. Loops over numbers have no
// branches: lengths of numbers cannot be predicted.
#include "weights/numbers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "compress/entropy.hpp"
#include "kernels/bit_fields.hpp"
#include "weights/rice.hpp"
#include "weights/sample.hpp"

namespace sparsewire::weights {
namespace {

constexpr unsigned kDirectBits = 4;
constexpr std::uint64_t kDirect = std::uint64_t{1} << kDirectBits;
// Bits behind the leading one that are part of the symbol.
constexpr unsigned kShownBits = 2;
constexpr std::size_t kAlphabet = 256;
constexpr std::size_t kSizeBytes = 4;

constexpr std::uint32_t kIsRice = std::uint32_t{1} << 31;
// Longer lists of even gaps are hardly shorter in a Rice code, and it takes longer to read.
constexpr std::size_t kRiceCount = std::size_t{1} << 15;
// It must save one part in so many.
constexpr std::size_t kRiceGain = 64;

// Of a symbol: how many low bits follow it, and the least of its numbers.
struct Class {
  std::uint64_t least;
  unsigned low_bits;
};

constexpr Class class_of(std::size_t symbol) {
  if (symbol < kDirect) return {symbol, 0};
  const std::size_t place = symbol - kDirect;
  const auto low = static_cast<unsigned>(place >> kShownBits) + kDirectBits - kShownBits;
  const std::uint64_t leading = (1u << kShownBits) + (place & ((1u << kShownBits) - 1));
  return {leading << low, low};
}

constexpr std::array<Class, kAlphabet> kClasses = [] {
  std::array<Class, kAlphabet> classes{};
  for (std::size_t i = 0; i < kAlphabet; ++i) classes[i] = class_of(i);
  return classes;
}();

constexpr std::uint8_t symbol_of(std::uint64_t number) {
  if (number < kDirect) return static_cast<std::uint8_t>(number);
  const auto length = static_cast<unsigned>(std::bit_width(number));
  const std::uint64_t shown = number >> (length - 1 - kShownBits);  // with the leading one
  const auto place = (std::uint64_t{length} - kDirectBits - 1) << kShownBits;
  return static_cast<std::uint8_t>(kDirect + place + shown - (1u << kShownBits));
}

static_assert(symbol_of(~std::uint64_t{0}) == kAlphabet - 1);

// The same: the length of a number, less one, is the exponent of the double that equals it, and the
// bits behind the leading one begin its mantissa. Not every processor finds a length fast.
constexpr std::uint8_t symbol_of(std::uint32_t number) {
  constexpr unsigned kMantissaBits = 52;
  constexpr std::uint64_t kBias = 1023;
  const auto bits = std::bit_cast<std::uint64_t>(static_cast<double>(number));
  const std::uint64_t shown = bits >> (kMantissaBits - kShownBits);
  const std::uint64_t large = shown - ((kBias + kDirectBits) << kShownBits) + kDirect;
  return static_cast<std::uint8_t>(number < kDirect ? number : large);
}

static_assert(symbol_of(std::uint32_t{16}) == symbol_of(std::uint64_t{16}));
static_assert(symbol_of(~std::uint32_t{0}) == symbol_of(std::uint64_t{0xffffffff}));

// Low bits that one access takes, whatever their place in the first byte.
constexpr unsigned kAccessBits = 32;

// The low bits of all symbols together.
std::size_t low_bits_of(const std::vector<std::uint8_t>& symbols) {
  std::size_t bits = 0;
  for (const std::uint8_t symbol : symbols) bits += kClasses[symbol].low_bits;
  return bits;
}

std::uint8_t largest_of(const std::vector<std::uint8_t>& symbols) {
  std::uint8_t largest = 0;
  for (const std::uint8_t symbol : symbols) largest = std::max(largest, symbol);
  return largest;
}

std::size_t bytes_of(std::size_t bits) { return (bits + 7) / 8; }

// Writes to memory that was zero, and up to eight bytes behind the last bit.
class LowBitsWriter {
 public:
  explicit LowBitsWriter(std::byte* out) : out_(out) {}

  void put(std::uint64_t value, unsigned bits) {
    pending_ |= value << filled_;
    store_64(out_, pending_);
    filled_ += bits;
    out_ += filled_ / 8;
    pending_ >>= filled_ / 8 * 8;
    filled_ %= 8;
  }

 private:
  std::byte* out_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
};

template <typename Number>
void put_low_bits(std::span<const Number> numbers, const std::vector<std::uint8_t>& symbols,
                  std::vector<std::byte>& out) {
  const std::size_t before = out.size();
  const std::size_t size = bytes_of(low_bits_of(symbols));
  if (size == 0) return;
  out.resize(before + size + sizeof(std::uint64_t));
  LowBitsWriter writer(out.data() + before);
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    const Class& of = kClasses[symbols[i]];
    const std::uint64_t low = numbers[i] - of.least;
    if constexpr (sizeof(Number) == 8) {
      const unsigned first = std::min(of.low_bits, kAccessBits);
      writer.put(low & 0xffffffff, first);
      writer.put(low >> kAccessBits, of.low_bits - first);
    } else {
      writer.put(low, of.low_bits);
    }
  }
  out.resize(before + size);
}

// Reads fields of up to kAccessBits bits.
class LowBitsReader {
 public:
  LowBitsReader(const std::byte* in, std::size_t size) : bytes_(size + sizeof(std::uint64_t)) {
    std::memcpy(bytes_.data(), in, size);
  }

  // The fields read are none behind the end.
  std::uint64_t get(unsigned bits) {
    const std::uint64_t value = load_64(bytes_.data() + at_ / 8) >> (at_ % 8);
    at_ += bits;
    return value & ((std::uint64_t{1} << bits) - 1);
  }

  // Whether the bits that fill the last byte up are zeros.
  bool ends_in_zeros() const {
    return at_ % 8 == 0 || static_cast<unsigned>(bytes_[at_ / 8]) >> (at_ % 8) == 0;
  }

 private:
  std::vector<std::byte> bytes_;  // with what one access may read behind the end
  std::size_t at_ = 0;            // bits
};

template <typename Number>
Number with_low_bits(std::uint8_t symbol, LowBitsReader& reader) {
  const Class& of = kClasses[symbol];
  if constexpr (sizeof(Number) == 8) {
    const unsigned first = std::min(of.low_bits, kAccessBits);
    const std::uint64_t low = reader.get(first);
    return of.least + (low | reader.get(of.low_bits - first) << first);
  } else {
    return static_cast<Number>(of.least + reader.get(of.low_bits));
  }
}

template <typename Number>
std::size_t estimate(std::span<const Number> numbers) {
  Sample symbols(numbers.size());
  std::size_t low_bits = 0;
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    const std::uint8_t symbol = symbol_of(numbers[symbols.place(i)]);
    symbols.add(symbol);
    low_bits += kClasses[symbol].low_bits;
  }
  return symbols.bytes_of_all(low_bits);
}

template <typename Number>
void encode_symbols(std::span<const Number> numbers, std::vector<std::byte>& out) {
  std::vector<std::uint8_t> symbols(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) symbols[i] = symbol_of(numbers[i]);
  const std::size_t at = out.size();
  out.resize(at + kSizeBytes + entropy_bound(symbols.size()));
  std::byte* const code = out.data() + at + kSizeBytes;
  const std::size_t size = *entropy_encode(symbols.data(), symbols.size(), kAlphabet, code);
  store_32(out.data() + at, static_cast<std::uint32_t>(size));
  out.resize(at + kSizeBytes + size);
  put_low_bits(numbers, symbols, out);
}

template <typename Number>
void encode(std::span<const Number> numbers, std::vector<std::byte>& out) {
  const std::size_t before = out.size();
  encode_symbols(numbers, out);
  if (numbers.size() > kRiceCount) return;
  const std::size_t size = out.size() - before - kSizeBytes;
  const Rice rice = best_rice(numbers);
  if (rice.bytes() >= size - size / kRiceGain) return;
  out.resize(before + kSizeBytes);
  store_32(out.data() + before, kIsRice | rice.low);
  put_rice(rice, numbers, out);
}

template <typename Number>
const std::byte* decode_symbols(std::size_t size, const std::byte* in, const std::byte* end,
                                std::size_t count, std::vector<Number>& numbers) {
  if (static_cast<std::size_t>(end - in) < size) return nullptr;
  std::vector<std::uint8_t> symbols(count);
  if (!entropy_decode(in, size, kAlphabet, symbols.data(), count)) return nullptr;
  if (largest_of(symbols) > symbol_of(static_cast<Number>(-1))) return nullptr;
  in += size;
  const std::size_t low_size = bytes_of(low_bits_of(symbols));
  if (static_cast<std::size_t>(end - in) < low_size) return nullptr;
  LowBitsReader reader(in, low_size);
  numbers.resize(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = with_low_bits<Number>(symbols[i], reader);
  return reader.ends_in_zeros() ? in + low_size : nullptr;
}

template <typename Number>
const std::byte* decode(const std::byte* in, const std::byte* end, std::size_t count,
                        std::vector<Number>& numbers) {
  if (static_cast<std::size_t>(end - in) < kSizeBytes) return nullptr;
  const std::uint32_t head = load_32(in);
  in += kSizeBytes;
  if (!(head & kIsRice)) return decode_symbols(head, in, end, count, numbers);
  const std::uint32_t low = head - kIsRice;
  return low <= kRiceLowMax ? take_rice(low, in, end, count, numbers) : nullptr;
}

}  // namespace

std::size_t estimate_numbers(std::span<const std::uint32_t> numbers) { return estimate(numbers); }

std::size_t estimate_numbers(std::span<const std::uint64_t> numbers) { return estimate(numbers); }

void encode_numbers(std::span<const std::uint32_t> numbers, std::vector<std::byte>& out) {
  encode(numbers, out);
}

void encode_numbers(std::span<const std::uint64_t> numbers, std::vector<std::byte>& out) {
  encode(numbers, out);
}

const std::byte* decode_numbers(const std::byte* in, const std::byte* end, std::size_t count,
                                std::vector<std::uint32_t>& numbers) {
  return decode(in, end, count, numbers);
}

const std::byte* decode_numbers(const std::byte* in, const std::byte* end, std::size_t count,
                                std::vector<std::uint64_t>& numbers) {
  return decode(in, end, count, numbers);
}

}  // namespace sparsewire::weights
