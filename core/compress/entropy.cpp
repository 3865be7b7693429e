// Cuts symbols into blocks, each with frequencies of its own, and writes each in the form that
// suits it. Checks everything that it reads.
#include "compress/entropy.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "base/bitmap.hpp"
#include "base/types.hpp"
#include "compress/positions.hpp"
#include "compress/symbol_groups.hpp"
#include "kernels/bit_fields.hpp"
#include "kernels/rans.hpp"

namespace sparsewire {
namespace {

std::byte* encode_block(const std::uint8_t* symbols, std::size_t count, std::size_t alphabet,
                        std::byte* out);
const std::byte* decode_block(const std::byte* in, const std::byte* end, std::size_t alphabet,
                              std::uint8_t* symbols, std::size_t count);

enum class Form : std::uint8_t { constant = 0, packed, coded, sparse, wide, grouped };

// The most bytes that a block has beyond one per symbol.
constexpr std::size_t kBlockHeader = 2;

// If at most one symbol in so many is not the common one, frequencies of 12 bits are too coarse,
// and the positions of the other symbols cost less.
constexpr std::size_t kSparse = 256;

// From so many bytes on, final states cost less than 3%.
constexpr std::size_t kNarrow = 4096;

// From so many symbols on, frequencies of groups cost less than the steps that they save.
constexpr std::size_t kGrouped = std::size_t{1} << 15;

// Bytes of a grouped block before the block of the groups, without the form.
constexpr std::size_t kGroupedHeader = 2;

// Groups may make a code longer by one part in so many, for the steps that they save.
constexpr std::size_t kGroupedMore = 128;

// So many symbols take at least eight bytes.
constexpr std::size_t kWhole = 64;

template <typename Byte>
std::byte* write_byte(Byte value, std::byte* out) {
  *out = static_cast<std::byte>(value);
  return out + 1;
}

unsigned symbol_bits(std::size_t alphabet) {
  return static_cast<unsigned>(std::bit_width(alphabet - 1));
}

std::size_t packed_size(std::size_t count, std::size_t alphabet) {
  return ceil_div(count * symbol_bits(alphabet), std::size_t{8});
}

// Packs eight symbols of `width` bits each from a byte each to one after another; and back.
std::uint64_t squeeze(std::uint64_t bytes, unsigned width) {
  const std::uint64_t pairs =
      (bytes & 0x00ff00ff00ff00ffu) | (bytes & 0xff00ff00ff00ff00u) >> (8 - width);
  const std::uint64_t fours =
      (pairs & 0x0000ffff0000ffffu) | (pairs & 0xffff0000ffff0000u) >> (16 - 2 * width);
  return (fours & 0xffffffffu) | (fours >> 32) << (4 * width);
}

std::uint64_t spread(std::uint64_t bits, unsigned width) {
  const std::uint64_t four = (std::uint64_t{1} << (4 * width)) - 1;
  const std::uint64_t two = (std::uint64_t{1} << (2 * width)) - 1;
  const std::uint64_t one = (std::uint64_t{1} << width) - 1;
  const std::uint64_t fours = (bits & four) | ((bits >> (4 * width)) & four) << 32;
  const std::uint64_t pairs = (fours & (two * 0x0000000100000001u)) |
                              ((fours >> (2 * width)) & (two * 0x0000000100000001u)) << 16;
  return (pairs & (one * 0x0001000100010001u)) | ((pairs >> width) & (one * 0x0001000100010001u))
                                                     << 8;
}

std::byte* write_packed(const std::uint8_t* symbols, std::size_t count, std::size_t alphabet,
                        std::byte* out) {
  const unsigned width = symbol_bits(alphabet);
  out = write_byte(Form::packed, out);
  std::size_t i = 0;
  // Eight bytes are written for each eight symbols.
  for (; count - i >= kWhole; i += 8, out += width) {
    store_64(out, squeeze(load_64(reinterpret_cast<const std::byte*>(symbols + i)), width));
  }
  BitWriter bits(out);
  for (; i < count; ++i) bits.put(symbols[i], width);
  return bits.finish();
}

// The header of a rANS code of symbols, of which at least two differ, and its expected length.
struct Model {
  Model(const Counts& counts, std::size_t count) : frequencies(scale(counts, count)) {
    BitWriter bits(header);
    write_frequencies(bits, frequencies);
    header_size = static_cast<std::size_t>(bits.finish() - header);
    expected = coded_bits(counts, frequencies) / 8;
  }

  std::size_t size() const { return header_size + expected; }

  Frequencies frequencies;
  std::byte header[kMaxFrequencyBytes];
  std::size_t header_size;
  std::size_t expected;
};

// Null if the code would not be shorter than `limit`.
std::byte* write_coded(const std::uint8_t* symbols, std::size_t count, const Model& model,
                       std::size_t limit, std::byte* out) {
  if (model.size() >= limit) return nullptr;
  const Rans rans = model.expected < kNarrow ? Rans::narrow : Rans::wide;
  // Its length is known only at the end, so it is made in memory of its own.
  const std::size_t room = rans_bound(rans, count);
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(room);
  std::byte* const end = memory.get() + room;
  const std::byte* const code = rans_encode(rans, model.frequencies, symbols, count, end);
  const auto size = static_cast<std::size_t>(end - code);
  if (model.header_size + size >= limit) return nullptr;
  out = write_byte(rans == Rans::wide ? Form::wide : Form::coded, out);
  std::memcpy(out, model.header, model.header_size);
  std::memcpy(out + model.header_size, code, size);
  return out + model.header_size + size;
}

// Symbols in groups, and how often each group and each symbol occurs.
class Grouping {
 public:
  Grouping(const std::uint8_t* symbols, std::size_t count, SymbolRange range)
      : count_(count),
        range_(range),
        size_(group_count(count, range)),
        groups_(std::make_unique_for_overwrite<std::uint8_t[]>(size_)) {
    group_symbols(symbols, count, range, groups_.get());
    counts_ = count_symbols(groups_.get(), size_);
  }

  Counts counts_of_symbols() const { return count_in_groups(counts_, count_, range_); }

  // Null if the code would be much longer than that of `model`, or longer than `limit`.
  std::byte* write(const Model& model, std::size_t limit, std::byte* out) const {
    // A pattern of several symbols may make just one group, and rANS has no code for that.
    if (*std::max_element(counts_.begin(), counts_.end()) == size_) return nullptr;
    const Model grouped(counts_, size_);
    if (grouped.size() > model.size() + model.size() / kGroupedMore) return nullptr;
    out = write_byte(range_.first, write_byte(Form::grouped, out));
    out = write_byte(range_.size - 1, out);
    return write_coded(groups_.get(), size_, grouped, limit - kGroupedHeader, out);
  }

 private:
  std::size_t count_;
  SymbolRange range_;
  std::size_t size_;
  std::unique_ptr<std::uint8_t[]> groups_;
  Counts counts_;
};

std::byte* write_sparse(const std::uint8_t* symbols, std::size_t count, std::size_t alphabet,
                        std::uint8_t common, std::byte* out) {
  std::vector<std::uint64_t> bitmap(bitmap_words(count));
  std::vector<std::uint8_t> others;
  for (std::size_t i = 0; i < count; ++i) {
    if (symbols[i] == common) continue;
    bitmap[i / kBitmapWordBits] |= std::uint64_t{1} << (i % kBitmapWordBits);
    others.push_back(symbols[i]);
  }
  out = write_byte(common, write_byte(Form::sparse, out));
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
  std::size_t i = 0;
  for (; count - i >= kWhole && end - in >= 8; i += 8, in += width) {
    store_64(reinterpret_cast<std::byte*>(symbols + i), spread(load_64(in), width));
  }
  BitReader bits(in, end);
  for (; i < count; ++i) symbols[i] = static_cast<std::uint8_t>(bits.get(width));
  const SymbolRange range = range_of(symbols, count);
  return range.first + range.size <= alphabet ? bits.finish() : nullptr;
}

const std::byte* read_coded(Rans rans, const std::byte* in, const std::byte* end,
                            std::size_t alphabet, std::uint8_t* symbols, std::size_t count) {
  BitReader bits(in, end);
  const auto frequencies = read_frequencies(bits, alphabet);
  if (!frequencies) return nullptr;
  const std::byte* const code = bits.finish();
  return code ? rans_decode(rans, *frequencies, code, end, symbols, count) : nullptr;
}

// A block of groups can only be coded, which ends the recursion.
const std::byte* read_grouped(const std::byte* in, const std::byte* end, std::size_t alphabet,
                              std::uint8_t* symbols, std::size_t count) {
  constexpr auto kHeader = static_cast<std::ptrdiff_t>(kGroupedHeader);
  if (end - in <= kHeader) return nullptr;
  const SymbolRange range{static_cast<std::uint8_t>(in[0]), static_cast<std::size_t>(in[1]) + 1};
  const auto form = static_cast<Form>(in[kHeader]);
  if (range.first + range.size > alphabet || group_size(range) == 1) return nullptr;
  if (form != Form::coded && form != Form::wide) return nullptr;
  const std::size_t groups = group_count(count, range);
  const auto memory = std::make_unique_for_overwrite<std::uint8_t[]>(groups);
  in = decode_block(in + kHeader, end, group_alphabet(range), memory.get(), groups);
  return in && ungroup_symbols(memory.get(), count, range, symbols) ? in : nullptr;
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

// Writes the code of `count` symbols, from 1 to 2^20, and returns where it ends; null if a symbol
// is not below `alphabet`.
std::byte* encode_block(const std::uint8_t* symbols, std::size_t count, std::size_t alphabet,
                        std::byte* out) {
  const SymbolRange range = range_of(symbols, count);
  if (range.first + range.size > alphabet) return nullptr;
  std::optional<Grouping> grouping;
  if (count >= kGrouped && group_size(range) > 1) grouping.emplace(symbols, count, range);
  const Counts counts = grouping ? grouping->counts_of_symbols() : count_symbols(symbols, count);
  const auto most = std::max_element(counts.begin(), counts.end());
  const auto common = static_cast<std::uint8_t>(most - counts.begin());
  const std::size_t others = count - *most;
  if (others == 0) return write_byte(common, write_byte(Form::constant, out));
  if (others <= count / kSparse) return write_sparse(symbols, count, alphabet, common, out);
  const Model model(counts, count);
  const std::size_t limit = packed_size(count, alphabet);
  std::byte* end = grouping ? grouping->write(model, limit, out) : nullptr;
  if (!end) end = write_coded(symbols, count, model, limit, out);
  return end ? end : write_packed(symbols, count, alphabet, out);
}

// Reads `count` symbols, all of them below `alphabet`, and returns where their code ends; null if
// [in, end) does not start with a code.
const std::byte* decode_block(const std::byte* in, const std::byte* end, std::size_t alphabet,
                              std::uint8_t* symbols, std::size_t count) {
  if (in == end) return nullptr;
  switch (static_cast<Form>(*in++)) {
    case Form::constant:
      return read_constant(in, end, alphabet, symbols, count);
    case Form::packed:
      return read_packed(in, end, alphabet, symbols, count);
    case Form::coded:
      return read_coded(Rans::narrow, in, end, alphabet, symbols, count);
    case Form::wide:
      return read_coded(Rans::wide, in, end, alphabet, symbols, count);
    case Form::sparse:
      return read_sparse(in, end, alphabet, symbols, count);
    case Form::grouped:
      return read_grouped(in, end, alphabet, symbols, count);
  }
  return nullptr;
}

}  // namespace

std::size_t entropy_bound(std::size_t count) {
  return count + ceil_div(count, kEntropyBlock) * kBlockHeader;
}

std::optional<std::size_t> entropy_encode(const std::uint8_t* symbols, std::size_t count,
                                          std::size_t alphabet, std::byte* out) {
  std::byte* at = out;
  for (std::size_t first = 0; first < count; first += kEntropyBlock) {
    at = encode_block(symbols + first, std::min(kEntropyBlock, count - first), alphabet, at);
    if (!at) return {};
  }
  return static_cast<std::size_t>(at - out);
}

bool entropy_decode(const std::byte* in, std::size_t size, std::size_t alphabet,
                    std::uint8_t* symbols, std::size_t count) {
  const std::byte* const end = in + size;
  for (std::size_t first = 0; first < count; first += kEntropyBlock) {
    in = decode_block(in, end, alphabet, symbols + first, std::min(kEntropyBlock, count - first));
    if (!in) return false;
  }
  return in == end;
}

}  // namespace sparsewire
