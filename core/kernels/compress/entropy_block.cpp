// The four forms of a block; kernels/compress/entropy.hpp tells what they look like.
#include "kernels/compress/entropy_block.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "base/bitmap.hpp"
#include "base/types.hpp"
#include "kernels/compress/bit_stream.hpp"
#include "kernels/compress/frequencies.hpp"
#include "kernels/compress/positions.hpp"
#include "kernels/compress/rans.hpp"

namespace sparsewire {
namespace {

enum class Form : std::uint8_t { constant = 0, packed, coded, sparse };

// Where fewer than one symbol in so many is not the common one, frequencies of 12 bits are too
// coarse, and the positions of the others cost less.
constexpr std::size_t kSparse = 256;

std::byte* write_byte(std::uint8_t value, std::byte* out) {
  *out = static_cast<std::byte>(value);
  return out + 1;
}

std::byte* write_form(Form form, std::byte* out) {
  return write_byte(static_cast<std::uint8_t>(form), out);
}

unsigned symbol_bits(std::size_t alphabet) {
  return static_cast<unsigned>(std::bit_width(alphabet - 1));
}

std::size_t packed_size(std::size_t count, std::size_t alphabet) {
  return ceil_div(count * symbol_bits(alphabet), std::size_t{8});
}

std::byte* write_packed(const std::uint8_t* symbols, std::size_t count, std::size_t alphabet,
                        std::byte* out) {
  BitWriter bits(write_form(Form::packed, out));
  for (std::size_t i = 0; i < count; ++i) bits.put(symbols[i], symbol_bits(alphabet));
  return bits.finish();
}

// Null where that would not be shorter than packed symbols. How long it gets shows at the end only,
// so it is made in memory of its own.
std::byte* write_coded(const std::uint8_t* symbols, std::size_t count, std::size_t alphabet,
                       const Counts& counts, std::byte* out) {
  const Frequencies frequencies = scale(counts, count);
  std::byte header[kMaxFrequencyBytes];
  BitWriter bits(header);
  write_frequencies(bits, frequencies);
  const auto header_size = static_cast<std::size_t>(bits.finish() - header);
  const std::size_t room = rans_bound(count);
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(room);
  const std::byte* const end = memory.get() + room;
  const std::byte* const code = rans_encode(frequencies, symbols, count, memory.get() + room);
  const auto size = static_cast<std::size_t>(end - code);
  if (header_size + size >= packed_size(count, alphabet)) return nullptr;
  out = write_form(Form::coded, out);
  std::memcpy(out, header, header_size);
  std::memcpy(out + header_size, code, size);
  return out + header_size + size;
}

std::byte* write_sparse(const std::uint8_t* symbols, std::size_t count, std::size_t alphabet,
                        std::uint8_t common, std::byte* out) {
  std::vector<std::uint64_t> bitmap(bitmap_words(count));
  std::vector<std::uint8_t> others;
  for (std::size_t i = 0; i < count; ++i) {
    if (symbols[i] == common) continue;
    bitmap[i / kBitmapWordBits] |= std::uint64_t{1} << (i % kBitmapWordBits);
    others.push_back(symbols[i]);
  }
  out = write_byte(common, write_form(Form::sparse, out));
  store_32(out, static_cast<std::uint32_t>(others.size()));
  out += 4;
  out += encode_positions(bitmap.data(), count, others.size(), out);
  return encode_block(others.data(), others.size(), alphabet, out);
}

const std::byte* read_constant(const std::byte* in, const std::byte* end, std::size_t alphabet,
                               std::uint8_t* symbols, std::size_t count) {
  if (in == end || static_cast<std::size_t>(*in) >= alphabet) return nullptr;
  std::memset(symbols, static_cast<int>(*in), count);
  return in + 1;
}

const std::byte* read_packed(const std::byte* in, const std::byte* end, std::size_t alphabet,
                             std::uint8_t* symbols, std::size_t count) {
  const unsigned width = symbol_bits(alphabet);
  BitReader bits(in, end);
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t symbol = bits.get(width);
    largest = std::max(largest, symbol);
    symbols[i] = static_cast<std::uint8_t>(symbol);
  }
  return largest < alphabet ? bits.finish() : nullptr;
}

const std::byte* read_coded(const std::byte* in, const std::byte* end, std::size_t alphabet,
                            std::uint8_t* symbols, std::size_t count) {
  BitReader bits(in, end);
  const auto frequencies = read_frequencies(bits, alphabet);
  if (!frequencies) return nullptr;
  const std::byte* const code = bits.finish();
  return code ? rans_decode(*frequencies, code, end, symbols, count) : nullptr;
}

// The bound on the number of other symbols ends the recursion.
const std::byte* read_sparse(const std::byte* in, const std::byte* end, std::size_t alphabet,
                             std::uint8_t* symbols, std::size_t count) {
  constexpr std::ptrdiff_t kHeader = 5;
  if (end - in < kHeader) return nullptr;
  const auto common = static_cast<std::uint8_t>(in[0]);
  const std::size_t named = load_32(in + 1);
  if (common >= alphabet || named == 0 || named >= count / kSparse + 1) return nullptr;
  std::vector<std::uint64_t> bitmap(bitmap_words(count));
  in = decode_positions(in + kHeader, end, count, named, bitmap.data());
  if (!in) return nullptr;
  std::vector<std::uint8_t> others(named);
  in = decode_block(in, end, alphabet, others.data(), named);
  if (!in) return nullptr;
  std::memset(symbols, common, count);
  std::size_t next = 0;
  for_each_run(bitmap.data(), count, [&](std::size_t first, std::size_t length) {
    std::memcpy(symbols + first, others.data() + next, length);
    next += length;
  });
  return in;
}

}  // namespace

std::byte* encode_block(const std::uint8_t* symbols, std::size_t count, std::size_t alphabet,
                        std::byte* out) {
  const Counts counts = count_symbols(symbols, count);
  const auto outside = counts.begin() + static_cast<std::ptrdiff_t>(alphabet);
  if (std::any_of(outside, counts.end(), [](std::uint32_t n) { return n != 0; })) return nullptr;
  const auto most = std::max_element(counts.begin(), counts.end());
  const auto common = static_cast<std::uint8_t>(most - counts.begin());
  const std::size_t others = count - *most;
  if (others == 0) return write_byte(common, write_form(Form::constant, out));
  if (others <= count / kSparse) return write_sparse(symbols, count, alphabet, common, out);
  std::byte* const end = write_coded(symbols, count, alphabet, counts, out);
  return end ? end : write_packed(symbols, count, alphabet, out);
}

const std::byte* decode_block(const std::byte* in, const std::byte* end, std::size_t alphabet,
                              std::uint8_t* symbols, std::size_t count) {
  if (in == end) return nullptr;
  switch (static_cast<Form>(*in++)) {
    case Form::constant:
      return read_constant(in, end, alphabet, symbols, count);
    case Form::packed:
      return read_packed(in, end, alphabet, symbols, count);
    case Form::coded:
      return read_coded(in, end, alphabet, symbols, count);
    case Form::sparse:
      return read_sparse(in, end, alphabet, symbols, count);
  }
  return nullptr;
}

}  // namespace sparsewire
