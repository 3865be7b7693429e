// Compression operators for Python. They work on arrays, whose sizes are checked, without the GIL.
#include <algorithm>
#include <bit>
#include <deque>
#include <memory>
#include <vector>

#include "base/bitmap.hpp"
#include "base/types.hpp"
#include "compress/centroids.hpp"
#include "compress/chunks.hpp"
#include "compress/entropy.hpp"
#include "compress/largest.hpp"
#include "compress/leveled.hpp"
#include "compress/marked.hpp"
#include "compress/positions.hpp"
#include "kernels/blocks.hpp"
#include "kernels/kernels.hpp"
#include "module.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsewire::bindings {
namespace {

using Symbol = std::uint8_t;
using Word = std::uint64_t;
using Object = nb::handle;

constexpr const char* kSymbols = "there must be a symbol of a byte for each value";
constexpr const char* kNorms = "there must be a norm for each block, of the type of the values";
constexpr const char* kRoom = "there must be a value for each bit, of the type of the vector";
constexpr const char* kAlike = "two vectors must be of one length";
constexpr const char* kBitmap = "a bitmap must have a bit for each element, in words of 64 bits";

// Runs f, which touches no Python objects, without the GIL.
template <typename F>
auto unlocked(F f) {
  const GilRelease release;
  return f();
}

// The same for f(kernels of T, values), with the type T of the values.
template <typename F>
auto for_type_of(const Memory& values, F f) {
  const GilRelease release;
  const CompressKernels& table = kernels().compress;
  if (values.format() == 'f') return f(table.of<float>(), values.as<float>(0, ""));
  require(values.format() == 'd', "values must be float32 or float64");
  return f(table.of<double>(), values.as<double>(0, ""));
}

// The bytes that f writes to memory of `room` bytes, without the GIL; f returns how many. The
// stable ABI has no way to shorten bytes, so they are copied.
template <typename F>
nb::bytes written(std::size_t room, F f) {
  const auto code = std::make_unique_for_overwrite<std::byte[]>(room);
  const std::size_t size = unlocked([&] { return f(code.get()); });
  return nb::bytes(code.get(), size);
}

std::size_t blocks_of(std::size_t count, std::size_t block) {
  require(block >= 1, "block must be at least 1");
  return ceil_div(count, block);
}

void check_alphabet(std::size_t alphabet) {
  require(alphabet >= 1 && alphabet <= 256, "alphabet must be from 1 to 256 symbols");
}

void check_levels(std::uint32_t levels) {
  require(levels >= 1 && levels <= kMaxDitherLevels, "levels must be from 1 to 127");
}

void check_k(std::size_t count, std::size_t k) { require(k <= count, "k must be at most count"); }

Word* bitmap_of(const Memory& memory, std::size_t count) {
  return memory.as<Word>(bitmap_words(count), kBitmap);
}

nb::bytes encode_symbols(Object symbols, std::size_t alphabet) {
  check_alphabet(alphabet);
  const Input in(symbols);
  const auto* const from = in.as<const Symbol>(0, kSymbols);
  return written(entropy_bound(in.count()), [&](std::byte* out) {
    const auto size = entropy_encode(from, in.count(), alphabet, out);
    require(size.has_value(), "a symbol is outside the alphabet");
    return *size;
  });
}

bool decode_symbols(Object code, std::size_t alphabet, Object symbols) {
  check_alphabet(alphabet);
  const Input in(code);
  const Output out(symbols);
  auto* const to = out.as<Symbol>(0, kSymbols);
  return unlocked([&] { return entropy_decode(in.data(), in.bytes(), alphabet, to, out.count()); });
}

std::size_t first_not_finite(Object values) {
  const Input in(values);
  return for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    return table.first_not_finite(from, in.count());
  });
}

void block_norms(Object values, std::size_t block, double power, Object norms) {
  require(power >= 1, "the power of a norm must be at least 1");
  const Input in(values);
  const Output out(norms);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    T* const to = out.as<T>(blocks_of(in.count(), block), kNorms);
    table.norms(from, in.count(), block, power, to);
  });
}

void block_means(Object values, std::size_t block, Object means) {
  const Input in(values);
  const Output out(means);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    table.means(from, in.count(), block, out.as<T>(blocks_of(in.count(), block), kNorms));
  });
}

// `kernel` takes a kernel from a table.
template <auto kernel>
void dither(Object values, std::size_t block, Object norms, std::uint32_t levels, std::uint64_t key,
            Object symbols) {
  check_levels(levels);
  const Input in(values), scales(norms);
  const Output out(symbols);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    const T* const sizes = scales.as<const T>(blocks_of(in.count(), block), kNorms);
    auto* const to = out.as<Symbol>(in.count(), kSymbols);
    kernel(table)(from, in.count(), block, sizes, levels, key, 0, to);
  });
}

template <auto kernel>
void undither(Object symbols, std::size_t block, Object norms, std::uint32_t levels,
              Object values) {
  check_levels(levels);
  const Input in(symbols), scales(norms);
  const Output out(values);
  for_type_of(out, [&]<typename T>(const VectorKernels<T>& table, T* to) {
    const T* const sizes = scales.as<const T>(blocks_of(out.count(), block), kNorms);
    const auto* const from = in.as<const Symbol>(out.count(), kSymbols);
    kernel(table)(from, out.count(), block, sizes, levels, to);
  });
}

void nearest_multiples(Object values, std::size_t block, std::uint32_t levels, Object steps,
                       Object symbols) {
  check_levels(levels);
  require(std::has_single_bit(levels + 1), "levels must be a power of two less 1");
  const Input in(values);
  const Output sizes(steps), out(symbols);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    T* const each = sizes.as<T>(blocks_of(in.count(), block), kNorms);
    auto* const to = out.as<Symbol>(in.count(), kSymbols);
    table.nearest_multiples(from, in.count(), block, levels, each, to);
  });
}

void nearest_powers(Object values, std::size_t block, std::uint32_t levels, Object scales,
                    Object symbols) {
  require(levels >= 1 && levels <= 64, "levels must be from 1 to 64");
  const Input in(values);
  const Output sizes(scales), out(symbols);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    T* const each = sizes.as<T>(blocks_of(in.count(), block), kNorms);
    auto* const to = out.as<Symbol>(in.count(), kSymbols);
    table.nearest_powers(from, in.count(), block, levels, each, to);
  });
}

constexpr const char* kMatrix = "a matrix of float64 must have as many elements as its transpose";

void transform_square_chunks(Object values, std::size_t side, Object matrix, Object transposed,
                             Object result) {
  require(side >= 1 && side <= 256, "a side must be from 1 to 256");
  const Input in(values), left(matrix), right(transposed);
  const Output out(result);
  const TwoSided transform{left.as<const double>(side * side, kMatrix),
                           right.as<const double>(side * side, kMatrix), side};
  for_type_of(out, [&]<typename T>(const VectorKernels<T>&, T* to) {
    const T* const from = in.as<const T>(in.count(), kAlike);
    transform_chunks<T>(transform, {from, in.count()}, {to, out.count()});
  });
}

constexpr const char* kCodes = "there must be a code for each value, of two bytes, or one to read";

void natural_compress(Object values, std::uint64_t key, Object codes) {
  const Input in(values);
  const Output out(codes);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    auto* const to = out.as<std::uint16_t>(in.count(), kCodes);
    table.natural_compress(from, in.count(), key, to);
  });
}

void natural_decompress(Object codes, std::uint32_t base, Object values) {
  const Input in(codes);
  const Output out(values);
  for_type_of(out, [&]<typename T>(const VectorKernels<T>& table, T* to) {
    if (in.element_bytes() == 1) {
      const auto* const from = in.as<const std::uint8_t>(out.count(), kCodes);
      table.natural_decompress_bytes(from, out.count(), base, to);
    } else {
      const auto* const from = in.as<const std::uint16_t>(out.count(), kCodes);
      table.natural_decompress(from, out.count(), base, to);
    }
  });
}

void take_signs(Object values, Object symbols) {
  const Input in(values);
  const Output out(symbols);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    table.signs(from, in.count(), out.as<Symbol>(in.count(), kSymbols));
  });
}

std::size_t mark_reaching(Object values, double bound, Object bitmap) {
  const Input in(values);
  const Output out(bitmap);
  return for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    return table.reaching(from, in.count(), static_cast<T>(bound), bitmap_of(out, in.count()));
  });
}

void mark_top_k(Object values, std::size_t k, Object bitmap) {
  const Input in(values);
  const Output out(bitmap);
  check_k(in.count(), k);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>&, T* from) {
    top_k(from, in.count(), k, bitmap_of(out, in.count()));
  });
}

std::size_t take_top_k_of_spans(Object values, Object added, std::size_t span, std::size_t k,
                                Object bitmap, Object kept) {
  require(span >= 1 && k >= 1 && k <= span, "k must be from 1 to the span");
  const bool adds = !added.is_none();
  const Memory in(values, adds);
  const Input addend(adds ? added : values);
  const Output out(bitmap), packed(kept);
  const Spans spans{in.count(), span, k};
  return for_type_of(in, [&]<typename T>(const VectorKernels<T>&, T* from) {
    const T* const plus = addend.as<const T>(in.count(), kAlike);
    T* const room = packed.as<T>(spans.most(), kRoom);
    return top_k_of_spans(spans, from, adds ? plus : nullptr, bitmap_of(out, in.count()), room);
  });
}

std::size_t mark_visible(Object values, Object parameters, double rate, Object bitmap) {
  const Input in(values), before(parameters);
  const Output out(bitmap);
  return for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    const T* const old = before.as<const T>(in.count(), kAlike);
    return table.visible(from, in.count(), old, static_cast<T>(rate), bitmap_of(out, in.count()));
  });
}

std::size_t mark_bernoulli(std::size_t count, double probability, std::uint64_t key,
                           Object bitmap) {
  require(probability >= 0 && probability <= 1, "probability must be from 0 to 1");
  const Output out(bitmap);
  return unlocked(
      [&] { return kernels().compress.bernoulli(count, probability, key, bitmap_of(out, count)); });
}

void mark_rand_k(std::size_t count, std::size_t k, std::uint64_t key, Object bitmap) {
  check_k(count, k);
  const Output out(bitmap);
  unlocked([&] { rand_k(count, k, key, bitmap_of(out, count)); });
}

nb::bytes write_positions(Object bitmap, std::size_t count, std::size_t k) {
  check_k(count, k);
  const Input in(bitmap);
  const auto* const bits = bitmap_of(in, count);
  require(count_set(bits, count) == k, "the bitmap does not have k set bits");
  return written(positions_bound(count, k),
                 [&](std::byte* out) { return encode_positions(bits, count, k, out); });
}

bool read_positions(Object code, std::size_t count, std::size_t k, Object bitmap) {
  check_k(count, k);
  const Input in(code);
  const Output out(bitmap);
  auto* const to = bitmap_of(out, count);
  static constexpr std::byte kNothing{};  // The address of no bytes may look like an error.
  const std::byte* const begin = in.bytes() == 0 ? &kNothing : in.data();
  const std::byte* const end = begin + in.bytes();
  return unlocked([&] { return decode_positions(begin, end, count, k, to) == end; });
}

// The loops look at whole words of a bitmap, so no bit after the last may be set.
void require_none_beyond(const Word* bitmap, std::size_t count) {
  const std::size_t rest = count % kBitmapWordBits;
  require(rest == 0 || bitmap[count / kBitmapWordBits] >> rest == 0,
          "a bitmap must not name elements beyond the last");
}

// Elements of the blocks whose bit is set.
std::size_t marked_elements(const Word* bitmap, std::size_t count, std::size_t block) {
  const std::size_t blocks = blocks_of(count, block);
  const std::size_t set = count_set(bitmap, blocks);
  const bool has_last = blocks != 0 && test_bit(bitmap, blocks - 1);
  return set * block - (has_last ? blocks * block - count : 0);
}

std::size_t count_marked(Object bitmap, std::size_t count, std::size_t block) {
  const Input marks(bitmap);
  return marked_elements(bitmap_of(marks, blocks_of(count, block)), count, block);
}

// Copies the blocks whose bit is set: packs them, or copies packed ones back to their places.
template <bool packs>
void copy_blocks(Object source, std::size_t block, Object bitmap, Object output) {
  const Input in(source), marks(bitmap);
  const Output out(output);
  const Memory& dense = packs ? static_cast<const Memory&>(in) : out;
  const std::size_t count = dense.count(), bytes = dense.element_bytes();
  require((bytes == 2 || bytes == 4 || bytes == 8) && in.element_bytes() == out.element_bytes(),
          "elements must have 2, 4 or 8 bytes, packed ones as many");
  const auto* const bits = bitmap_of(marks, blocks_of(count, block));
  require_none_beyond(bits, blocks_of(count, block));
  require((packs ? out.count() : in.count()) == marked_elements(bits, count, block),
          "there must be room for the elements of the marked blocks");
  unlocked([&] {
    if (block == 1) {
      const auto copy = packs ? kernels().gather : kernels().scatter;
      copy(out.data(), in.data(), bytes, bitmap_words(count), bits);
    } else {
      (packs ? pack : unpack)(out.data(), in.data(), count, bytes, block, bits);
    }
  });
}

// Values, and the bitmap of their blocks, which must name none beyond the last.
template <typename T>
Marked<T> marked(const Memory& bitmap, const Memory& values, const Cut& cut) {
  const Word* const bits = bitmap_of(bitmap, cut.blocks());
  require_none_beyond(bits, cut.blocks());
  return {bits, values.as<const T>(marked_elements(bits, cut.count, cut.block), kRoom)};
}

Cut cut_of(std::size_t count, std::size_t block) {
  blocks_of(count, block);  // Checks it.
  return {count, block};
}

void add_and_measure_blocks(Object values, Object added, std::size_t block, Object norms) {
  const Input more(added);
  const Output sum(values), out(norms);
  const Cut cut = cut_of(sum.count(), block);
  for_type_of(sum, [&]<typename T>(const VectorKernels<T>&, T* to) {
    add_and_measure(to, more.as<const T>(cut.count, kAlike), cut, out.as<T>(cut.blocks(), kNorms));
  });
}

std::size_t average_marked(const nb::list& bitmaps, const nb::list& values, std::size_t count,
                           std::size_t block, Object bitmap, Object means) {
  const Cut cut = cut_of(count, block);
  const std::size_t size = bitmaps.size();
  require(values.size() == size && size != 0, "there must be a vector to average");
  const Output to(bitmap), out(means);
  std::deque<Input> held;
  for (const auto& each : bitmaps) held.emplace_back(each);
  for (const auto& each : values) held.emplace_back(each);
  return for_type_of(out, [&]<typename T>(const VectorKernels<T>&, T* room) {
    std::vector<Marked<T>> vectors;
    std::size_t total = 0;
    for (std::size_t i = 0; i < size; ++i) {
      vectors.push_back(marked<T>(held[i], held[size + i], cut));
      total += held[size + i].count();
    }
    require(out.count() >= std::min(count, total), kRoom);
    return mean_of_marked<T>(vectors, cut, bitmap_of(to, cut.blocks()), room);
  });
}

void add_marked_blocks(Object values, std::size_t block, Object bitmap, Object total) {
  const Input bits(bitmap), from(values);
  const Output sum(total);
  const Cut cut = cut_of(sum.count(), block);
  for_type_of(sum, [&]<typename T>(const VectorKernels<T>&, T* to) {
    add_marked(to, cut, marked<T>(bits, from, cut));
  });
}

void feed_marked_back(Object gradient, Object residual, std::size_t block, Object own, Object sent,
                      Object bitmap, Object means) {
  const Output to(gradient), rest(residual);
  const Input own_bits(own), own_values(sent), mean_bits(bitmap), mean_values(means);
  const Cut cut = cut_of(to.count(), block);
  for_type_of(to, [&]<typename T>(const VectorKernels<T>&, T* out) {
    T* const owed = rest.as<T>(cut.count, kAlike);
    const auto mine = marked<T>(own_bits, own_values, cut);
    feed_back(out, owed, cut, mine, marked<T>(mean_bits, mean_values, cut));
  });
}

// Returns false if `difference_levels` does.
template <auto kernel>
bool dither_difference(Object values, Object subtracted, std::size_t block, std::uint32_t levels,
                       std::uint64_t key, Object norms, Object symbols) {
  check_levels(levels);
  const Input in(values), minus(subtracted);
  const Output scales(norms), out(symbols);
  const Cut cut = cut_of(in.count(), block);
  return for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    const Difference<T> difference{from, minus.as<const T>(cut.count, kAlike)};
    const RoomForLevels<T> room{scales.as<T>(cut.blocks(), kNorms),
                                out.as<Symbol>(cut.count, kSymbols)};
    return difference_levels<T>(difference, cut, levels, key, kernel(table), room);
  });
}

// `kernel` takes the kernel that makes values of levels from a table.
template <auto kernel>
void follow_levels(const nb::list& symbols, const nb::list& scales, std::size_t own,
                   std::size_t block, std::uint32_t levels, double rate, Object shift,
                   Object mean_shift, Object gradient) {
  check_levels(levels);
  const std::size_t ranks = symbols.size();
  require(scales.size() == ranks && own < ranks, "there must be scales and symbols of each rank");
  const Output to(gradient), own_shift(shift), mean(mean_shift);
  const Cut cut = cut_of(to.count(), block);
  std::deque<Input> held;
  for (const auto& each : symbols) held.emplace_back(each);
  for (const auto& each : scales) held.emplace_back(each);
  for_type_of(to, [&]<typename T>(const VectorKernels<T>& table, T* out) {
    std::vector<Leveled<T>> sent;
    for (std::size_t i = 0; i < ranks; ++i) {
      sent.push_back({held[i].as<const Symbol>(cut.count, kSymbols),
                      held[ranks + i].as<const T>(cut.blocks(), kNorms)});
    }
    const Shifts<T> shifts{own_shift.as<T>(cut.count, kAlike), mean.as<T>(cut.count, kAlike), out};
    follow<T>(sent, own, cut, levels, kernel(table), static_cast<T>(rate), shifts);
  });
}

constexpr const char* kCentroids = "there must be two magnitudes for each block, of one type";

void take_centroids_of(Object values, std::size_t block, Object magnitudes, Object symbols) {
  const Input in(values);
  const Output sizes(magnitudes), out(symbols);
  const Cut cut = cut_of(in.count(), block);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>&, T* from) {
    take_centroids<T>(from, cut, sizes.as<T>(2 * cut.blocks(), kCentroids),
                      out.as<Symbol>(cut.count, kSymbols));
  });
}

void write_centroid_values(Object symbols, std::size_t block, Object magnitudes, Object values) {
  const Input in(symbols), sizes(magnitudes);
  const Output out(values);
  const Cut cut = cut_of(out.count(), block);
  const auto* const from = in.as<const Symbol>(cut.count, kSymbols);
  require(std::all_of(from, from + cut.count,
                      [](Symbol symbol) { return symbol <= 2 * kCentroidLevels; }),
          "there must be no symbol beyond 4");
  for_type_of(out, [&]<typename T>(const VectorKernels<T>&, T* to) {
    centroid_values<T>(from, cut, sizes.as<const T>(2 * cut.blocks(), kCentroids), to);
  });
}

void bind_symbols(nb::module_& m) {
  m.def("entropy_encode", &encode_symbols, "symbols"_a, "alphabet"_a);
  m.def("entropy_decode", &decode_symbols, "code"_a, "alphabet"_a, "symbols"_a);
  m.def("dither", &dither<[](const auto& table) { return table.dither; }>, "values"_a, "block"_a,
        "norms"_a, "levels"_a, "key"_a, "symbols"_a);
  m.def("undither", &undither<[](const auto& table) { return table.undither; }>, "symbols"_a,
        "block"_a, "norms"_a, "levels"_a, "values"_a);
  m.def("natural_dither", &dither<[](const auto& table) { return table.natural_dither; }>,
        "values"_a, "block"_a, "norms"_a, "levels"_a, "key"_a, "symbols"_a);
  m.def("natural_undither", &undither<[](const auto& table) { return table.natural_undither; }>,
        "symbols"_a, "block"_a, "norms"_a, "levels"_a, "values"_a);
  m.def("dither_difference", &dither_difference<[](const auto& table) { return table.dither; }>,
        "values"_a, "subtracted"_a, "block"_a, "levels"_a, "key"_a, "norms"_a, "symbols"_a);
  m.def("natural_dither_difference",
        &dither_difference<[](const auto& table) { return table.natural_dither; }>, "values"_a,
        "subtracted"_a, "block"_a, "levels"_a, "key"_a, "norms"_a, "symbols"_a);
  m.def("follow_levels", &follow_levels<[](const auto& table) { return table.undither; }>,
        "symbols"_a, "norms"_a, "own"_a, "block"_a, "levels"_a, "rate"_a, "shift"_a, "mean_shift"_a,
        "gradient"_a);
  m.def("follow_natural_levels",
        &follow_levels<[](const auto& table) { return table.natural_undither; }>, "symbols"_a,
        "norms"_a, "own"_a, "block"_a, "levels"_a, "rate"_a, "shift"_a, "mean_shift"_a,
        "gradient"_a);
  m.def("nearest_multiples", &nearest_multiples, "values"_a, "block"_a, "levels"_a, "steps"_a,
        "symbols"_a);
  m.def("multiples", &undither<[](const auto& table) { return table.multiples; }>, "symbols"_a,
        "block"_a, "steps"_a, "levels"_a, "values"_a);
  m.def("nearest_powers", &nearest_powers, "values"_a, "block"_a, "levels"_a, "scales"_a,
        "symbols"_a);
  m.def("natural_compress", &natural_compress, "values"_a, "key"_a, "codes"_a);
  m.def("natural_decompress", &natural_decompress, "codes"_a, "base"_a, "values"_a);
  m.def("take_signs", &take_signs, "values"_a, "symbols"_a);
  m.def("take_centroids", &take_centroids_of, "values"_a, "block"_a, "magnitudes"_a, "symbols"_a);
  m.def("centroid_values", &write_centroid_values, "symbols"_a, "block"_a, "magnitudes"_a,
        "values"_a);
}

void bind_values(nb::module_& m) {
  m.def("first_not_finite", &first_not_finite, "values"_a);
  m.def("block_norms", &block_norms, "values"_a, "block"_a, "power"_a, "norms"_a);
  m.def("block_means", &block_means, "values"_a, "block"_a, "means"_a);
  m.def("transform_chunks", &transform_square_chunks, "values"_a, "side"_a, "matrix"_a,
        "transposed"_a, "result"_a);
  m.def("count_marked", &count_marked, "bitmap"_a, "count"_a, "block"_a);
  m.def("gather_blocks", &copy_blocks<true>, "elements"_a, "block"_a, "bitmap"_a, "packed"_a);
  m.def("average_marked", &average_marked, "bitmaps"_a, "values"_a, "count"_a, "block"_a,
        "bitmap"_a, "means"_a);
  m.def("feed_marked_back", &feed_marked_back, "gradient"_a, "residual"_a, "block"_a, "own"_a,
        "sent"_a, "bitmap"_a, "means"_a);
  m.def("add_and_measure_blocks", &add_and_measure_blocks, "values"_a, "added"_a, "block"_a,
        "norms"_a);
  m.def("add_marked_blocks", &add_marked_blocks, "values"_a, "block"_a, "bitmap"_a, "total"_a);
  m.def("scatter_blocks", &copy_blocks<false>, "packed"_a, "block"_a, "bitmap"_a, "elements"_a);
}

void bind_positions(nb::module_& m) {
  m.def("mark_reaching", &mark_reaching, "values"_a, "magnitude"_a, "bitmap"_a);
  m.def("mark_bernoulli", &mark_bernoulli, "count"_a, "probability"_a, "key"_a, "bitmap"_a);
  m.def("mark_rand_k", &mark_rand_k, "count"_a, "k"_a, "key"_a, "bitmap"_a);
  m.def("mark_top_k", &mark_top_k, "values"_a, "k"_a, "bitmap"_a);
  m.def("mark_visible", &mark_visible, "values"_a, "parameters"_a, "rate"_a, "bitmap"_a);
  m.def("take_top_k_of_spans", &take_top_k_of_spans, "values"_a, "added"_a.none(), "span"_a, "k"_a,
        "bitmap"_a, "kept"_a);
  m.def("encode_positions", &write_positions, "bitmap"_a, "count"_a, "k"_a);
  m.def("decode_positions", &read_positions, "code"_a, "count"_a, "k"_a, "bitmap"_a);
}

}  // namespace

void bind_compress(nb::module_& m) {
  bind_symbols(m);
  bind_values(m);
  bind_positions(m);
}

}  // namespace sparsewire::bindings
