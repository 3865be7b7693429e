// Compression operators for Python: on arrays, whose sizes are checked, without the GIL.
#include <algorithm>
#include <deque>
#include <vector>

#include "base/bitmap.hpp"
#include "base/types.hpp"
#include "kernels/blocks.hpp"
#include "kernels/compress/entropy.hpp"
#include "kernels/compress/marked.hpp"
#include "kernels/compress/positions.hpp"
#include "kernels/compress/rand_k.hpp"
#include "kernels/compress/top_k.hpp"
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
constexpr const char* kBitmap = "a bitmap must have a bit for each element, in words of 64 bits";

// Runs f, which touches no Python objects, without the GIL.
template <typename F>
auto unlocked(F f) {
  const GilRelease release;
  return f();
}

// f(kernels of T, values) for the type T of the values.
template <typename F>
auto for_type_of(const Memory& values, F f) {
  const CompressKernels& table = kernels().compress;
  if (values.format() == 'f') return f(table.of<float>(), values.as<float>(0, ""));
  require(values.format() == 'd', "values must be float32 or float64");
  return f(table.of<double>(), values.as<double>(0, ""));
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

std::size_t encode_symbols(Object symbols, std::size_t alphabet, Object code) {
  check_alphabet(alphabet);
  const Input in(symbols);
  const Output out(code);
  const auto* const from = in.as<const Symbol>(0, kSymbols);
  require(out.bytes() >= entropy_bound(in.count()), "the code needs entropy_bound(count) bytes");
  const auto size =
      unlocked([&] { return entropy_encode(from, in.count(), alphabet, out.data()); });
  require(size.has_value(), "a symbol is outside the alphabet");
  return *size;
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
    return unlocked([&] { return table.first_not_finite(from, in.count()); });
  });
}

void block_norms(Object values, std::size_t block, double power, Object norms) {
  require(power >= 1, "the power of a norm must be at least 1");
  const Input in(values);
  const Output out(norms);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    T* const to = out.as<T>(blocks_of(in.count(), block), kNorms);
    unlocked([&] { table.norms(from, in.count(), block, power, to); });
  });
}

void block_means(Object values, std::size_t block, Object means) {
  const Input in(values);
  const Output out(means);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    T* const to = out.as<T>(blocks_of(in.count(), block), kNorms);
    unlocked([&] { table.means(from, in.count(), block, to); });
  });
}

template <bool is_natural>
void dither(Object values, std::size_t block, Object norms, std::uint32_t levels, std::uint64_t key,
            Object symbols) {
  check_levels(levels);
  const Input in(values), scales(norms);
  const Output out(symbols);
  auto* const to = out.as<Symbol>(in.count(), kSymbols);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    const T* const sizes = scales.as<const T>(blocks_of(in.count(), block), kNorms);
    const auto kernel = is_natural ? table.natural_dither : table.dither;
    unlocked([&] { kernel(from, in.count(), block, sizes, levels, {key, 0}, to); });
  });
}

template <bool is_natural>
void undither(Object symbols, std::size_t block, Object norms, std::uint32_t levels,
              Object values) {
  check_levels(levels);
  const Input in(symbols), scales(norms);
  const Output out(values);
  const auto* const from = in.as<const Symbol>(out.count(), kSymbols);
  for_type_of(out, [&]<typename T>(const VectorKernels<T>& table, T* to) {
    const T* const sizes = scales.as<const T>(blocks_of(out.count(), block), kNorms);
    const auto kernel = is_natural ? table.natural_undither : table.undither;
    unlocked([&] { kernel(from, out.count(), block, sizes, levels, to); });
  });
}

constexpr const char* kCodes = "there must be a code for each value, of two bytes, or one to read";

void natural_compress(Object values, std::uint64_t key, Object codes) {
  const Input in(values);
  const Output out(codes);
  auto* const to = out.as<std::uint16_t>(in.count(), kCodes);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    unlocked([&] { table.natural_compress(from, in.count(), {key, 0}, to); });
  });
}

void natural_decompress(Object codes, std::uint32_t base, Object values) {
  const Input in(codes);
  const Output out(values);
  const bool is_narrow = in.element_bytes() == 1;
  for_type_of(out, [&]<typename T>(const VectorKernels<T>& table, T* to) {
    if (is_narrow) {
      const auto* const from = in.as<const std::uint8_t>(out.count(), kCodes);
      unlocked([&] { table.natural_decompress_bytes(from, out.count(), base, to); });
    } else {
      const auto* const from = in.as<const std::uint16_t>(out.count(), kCodes);
      unlocked([&] { table.natural_decompress(from, out.count(), base, to); });
    }
  });
}

void take_signs(Object values, Object symbols) {
  const Input in(values);
  const Output out(symbols);
  auto* const to = out.as<Symbol>(in.count(), kSymbols);
  for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    unlocked([&] { table.signs(from, in.count(), to); });
  });
}

std::size_t mark_reaching(Object values, double bound, Object bitmap) {
  const Input in(values);
  const Output out(bitmap);
  auto* const to = bitmap_of(out, in.count());
  return for_type_of(in, [&]<typename T>(const VectorKernels<T>& table, T* from) {
    return unlocked([&] { return table.reaching(from, in.count(), static_cast<T>(bound), to); });
  });
}

void mark_top_k(Object values, std::size_t k, Object bitmap) {
  const Input in(values);
  const Output out(bitmap);
  check_k(in.count(), k);
  auto* const to = bitmap_of(out, in.count());
  for_type_of(in, [&]<typename T>(const VectorKernels<T>&, T* from) {
    unlocked([&] { top_k(from, in.count(), k, to); });
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
  auto* const to = bitmap_of(out, in.count());
  return for_type_of(in, [&]<typename T>(const VectorKernels<T>&, T* from) {
    const T* const plus = addend.as<const T>(in.count(), "two vectors must be of one length");
    T* const room = packed.as<T>(spans.most(), kRoom);
    return unlocked([&] { return top_k_of_spans(spans, from, adds ? plus : nullptr, to, room); });
  });
}

std::size_t mark_bernoulli(std::size_t count, double probability, std::uint64_t key,
                           Object bitmap) {
  require(probability >= 0 && probability <= 1, "probability must be from 0 to 1");
  const Output out(bitmap);
  auto* const to = bitmap_of(out, count);
  return unlocked([&] { return kernels().compress.bernoulli(count, probability, {key, 0}, to); });
}

void mark_rand_k(std::size_t count, std::size_t k, std::uint64_t key, Object bitmap) {
  check_k(count, k);
  const Output out(bitmap);
  auto* const to = bitmap_of(out, count);
  unlocked([&] { rand_k(count, k, key, to); });
}

std::size_t bound_positions(std::size_t count, std::size_t k) {
  check_k(count, k);
  return positions_bound(count, k);
}

std::size_t write_positions(Object bitmap, std::size_t count, std::size_t k, Object code) {
  check_k(count, k);
  const Input in(bitmap);
  const Output out(code);
  const auto* const bits = bitmap_of(in, count);
  require(out.bytes() >= positions_bound(count, k), "the code needs positions_bound bytes");
  require(count_set(bits, count) == k, "the bitmap does not have k set bits");
  return unlocked([&] { return encode_positions(bits, count, k, out.data()); });
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

// Elements of the blocks whose bit is set.
std::size_t marked_elements(const Word* bitmap, std::size_t count, std::size_t block) {
  const std::size_t blocks = blocks_of(count, block);
  const std::size_t set = count_set(bitmap, blocks);
  const bool has_last = blocks != 0 && test_bit(bitmap, blocks - 1);
  return set * block - (has_last ? blocks * block - count : 0);
}

constexpr const char* kElements = "elements must have 2, 4 or 8 bytes, packed ones as many";
constexpr const char* kPacked = "there must be room for the elements of the marked blocks";

void check_elements(const Memory& elements, const Memory& packed) {
  const std::size_t bytes = elements.element_bytes();
  require((bytes == 2 || bytes == 4 || bytes == 8) && packed.element_bytes() == bytes, kElements);
}

std::size_t count_marked(Object bitmap, std::size_t count, std::size_t block) {
  const Input marks(bitmap);
  return marked_elements(bitmap_of(marks, blocks_of(count, block)), count, block);
}

void gather(Object elements, std::size_t block, Object bitmap, Object packed) {
  const Input in(elements), marks(bitmap);
  const Output out(packed);
  check_elements(in, out);
  const auto* const bits = bitmap_of(marks, blocks_of(in.count(), block));
  require(out.count() == marked_elements(bits, in.count(), block), kPacked);
  unlocked([&] {
    if (block == 1) {
      kernels().gather(out.data(), in.data(), in.element_bytes(), bitmap_words(in.count()), bits);
    } else {
      pack(out.data(), in.data(), in.count(), in.element_bytes(), block, bits);
    }
  });
}

void scatter(Object packed, std::size_t block, Object bitmap, Object elements) {
  const Input in(packed), marks(bitmap);
  const Output out(elements);
  check_elements(out, in);
  const auto* const bits = bitmap_of(marks, blocks_of(out.count(), block));
  require(in.count() == marked_elements(bits, out.count(), block), kPacked);
  unlocked([&] {
    if (block == 1) {
      kernels().scatter(out.data(), in.data(), in.element_bytes(), bitmap_words(out.count()), bits);
    } else {
      unpack(out.data(), in.data(), out.count(), in.element_bytes(), block, bits);
    }
  });
}

// Values, and the bitmap of `count` elements that says where they are.
template <typename T>
Marked<T> marked(const Memory& bitmap, const Memory& values, std::size_t count) {
  const Word* const bits = bitmap_of(bitmap, count);
  return {bits, values.as<const T>(count_set(bits, count), kRoom)};
}

std::size_t average_marked(const nb::list& bitmaps, const nb::list& values, std::size_t count,
                           Object bitmap, Object means) {
  require(bitmaps.size() == values.size() && bitmaps.size() != 0,
          "there must be a vector to average");
  const Output to(bitmap), out(means);
  std::deque<Input> held;
  return for_type_of(out, [&]<typename T>(const VectorKernels<T>&, T* room) {
    std::vector<Marked<T>> vectors;
    std::size_t total = 0;
    for (std::size_t i = 0; i < bitmaps.size(); ++i) {
      const Input& bits = held.emplace_back(bitmaps[i]);
      vectors.push_back(marked<T>(bits, held.emplace_back(values[i]), count));
      total += held.back().count();
    }
    require(out.count() >= std::min(count, total), kRoom);
    auto* const any = bitmap_of(to, count);
    return unlocked([&] { return mean_of_marked<T>(vectors, count, any, room); });
  });
}

void feed_marked_back(Object gradient, Object residual, Object own, Object sent, Object bitmap,
                      Object means) {
  const Output to(gradient), rest(residual);
  const Input own_bits(own), own_values(sent), mean_bits(bitmap), mean_values(means);
  const std::size_t count = to.count();
  for_type_of(to, [&]<typename T>(const VectorKernels<T>&, T* out) {
    T* const owed = rest.as<T>(count, "two vectors must be of one length");
    const auto mine = marked<T>(own_bits, own_values, count);
    const auto mean = marked<T>(mean_bits, mean_values, count);
    unlocked([&] { feed_back(out, owed, count, mine, mean); });
  });
}

void bind_symbols(nb::module_& m) {
  m.def("entropy_bound", &entropy_bound, "count"_a);
  m.def("entropy_encode", &encode_symbols, "symbols"_a, "alphabet"_a, "code"_a);
  m.def("entropy_decode", &decode_symbols, "code"_a, "alphabet"_a, "symbols"_a);
  m.def("dither", &dither<false>, "values"_a, "block"_a, "norms"_a, "levels"_a, "key"_a,
        "symbols"_a);
  m.def("undither", &undither<false>, "symbols"_a, "block"_a, "norms"_a, "levels"_a, "values"_a);
  m.def("natural_dither", &dither<true>, "values"_a, "block"_a, "norms"_a, "levels"_a, "key"_a,
        "symbols"_a);
  m.def("natural_undither", &undither<true>, "symbols"_a, "block"_a, "norms"_a, "levels"_a,
        "values"_a);
  m.def("natural_compress", &natural_compress, "values"_a, "key"_a, "codes"_a);
  m.def("natural_decompress", &natural_decompress, "codes"_a, "base"_a, "values"_a);
  m.def("take_signs", &take_signs, "values"_a, "symbols"_a);
}

void bind_values(nb::module_& m) {
  m.def("first_not_finite", &first_not_finite, "values"_a);
  m.def("block_norms", &block_norms, "values"_a, "block"_a, "power"_a, "norms"_a);
  m.def("block_means", &block_means, "values"_a, "block"_a, "means"_a);
  m.def("count_marked", &count_marked, "bitmap"_a, "count"_a, "block"_a);
  m.def("gather_blocks", &gather, "elements"_a, "block"_a, "bitmap"_a, "packed"_a);
  m.def("average_marked", &average_marked, "bitmaps"_a, "values"_a, "count"_a, "bitmap"_a,
        "means"_a);
  m.def("feed_marked_back", &feed_marked_back, "gradient"_a, "residual"_a, "own"_a, "sent"_a,
        "bitmap"_a, "means"_a);
  m.def("scatter_blocks", &scatter, "packed"_a, "block"_a, "bitmap"_a, "elements"_a);
}

void bind_positions(nb::module_& m) {
  m.def("mark_reaching", &mark_reaching, "values"_a, "magnitude"_a, "bitmap"_a);
  m.def("mark_bernoulli", &mark_bernoulli, "count"_a, "probability"_a, "key"_a, "bitmap"_a);
  m.def("mark_rand_k", &mark_rand_k, "count"_a, "k"_a, "key"_a, "bitmap"_a);
  m.def("mark_top_k", &mark_top_k, "values"_a, "k"_a, "bitmap"_a);
  m.def("take_top_k_of_spans", &take_top_k_of_spans, "values"_a, "added"_a.none(), "span"_a, "k"_a,
        "bitmap"_a, "kept"_a);
  m.def("positions_bound", &bound_positions, "count"_a, "k"_a);
  m.def("encode_positions", &write_positions, "bitmap"_a, "count"_a, "k"_a, "code"_a);
  m.def("decode_positions", &read_positions, "code"_a, "count"_a, "k"_a, "bitmap"_a);
}

}  // namespace

void bind_compress(nb::module_& m) {
  bind_symbols(m);
  bind_values(m);
  bind_positions(m);
}

}  // namespace sparsewire::bindings
