// Compression operators for Python: on memory given by its address, without the GIL.
#include "compress.hpp"

#include <stdexcept>

#include "base/bitmap.hpp"
#include "conversions.hpp"
#include "kernels/blocks.hpp"
#include "kernels/compress/entropy.hpp"
#include "kernels/compress/positions.hpp"
#include "kernels/compress/rand_k.hpp"
#include "kernels/compress/top_k.hpp"
#include "kernels/kernels.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsewire::bindings {
namespace {

using Address = std::uintptr_t;
using Unlocked = nb::call_guard<nb::gil_scoped_release>;

template <typename T>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

void check_alphabet(std::size_t alphabet) {
  require(alphabet >= 1 && alphabet <= 256, "alphabet must be from 1 to 256 symbols");
}

void check_dither(std::size_t block, std::uint32_t levels) {
  require(block >= 1, "block must be at least 1");
  require(levels >= 1 && levels <= kMaxDitherLevels, "levels must be from 1 to 127");
}

void check_k(std::size_t count, std::size_t k) { require(k <= count, "k must be at most count"); }

std::size_t encode_symbols(Address symbols, std::size_t count, std::size_t alphabet, Address out) {
  check_alphabet(alphabet);
  const auto size =
      entropy_encode(at<const std::uint8_t>(symbols), count, alphabet, at<std::byte>(out));
  require(size.has_value(), "a symbol is outside the alphabet");
  return *size;
}

bool decode_symbols(Address code, std::size_t size, std::size_t alphabet, Address symbols,
                    std::size_t count) {
  check_alphabet(alphabet);
  return entropy_decode(at<const std::byte>(code), size, alphabet, at<std::uint8_t>(symbols),
                        count);
}

std::size_t first_not_finite(Address values, std::size_t count) {
  return kernels().compress.first_not_finite(at<const float>(values), count);
}

void block_norms(Address values, std::size_t count, std::size_t block, int norm, Address norms) {
  require(block >= 1, "block must be at least 1");
  kernels().compress.norms(at<const float>(values), count, block,
                           checked_code<Norm>(norm, kNormCount, "norm"), at<float>(norms));
}

template <auto dither>
void encode_dithered(Address values, std::size_t count, std::size_t block, Address norms,
                     std::uint32_t levels, std::uint64_t key, std::uint64_t first,
                     Address symbols) {
  check_dither(block, levels);
  (kernels().compress.*dither)(at<const float>(values), count, block, at<const float>(norms),
                               levels, {key, first}, at<std::uint8_t>(symbols));
}

template <auto undither>
void decode_dithered(Address symbols, std::size_t count, std::size_t block, Address norms,
                     std::uint32_t levels, Address values) {
  check_dither(block, levels);
  (kernels().compress.*undither)(at<const std::uint8_t>(symbols), count, block,
                                 at<const float>(norms), levels, at<float>(values));
}

void natural_compress(Address values, std::size_t count, std::uint64_t key, std::uint64_t first,
                      Address exponents, Address signs) {
  kernels().compress.natural_compress(at<const float>(values), count, {key, first},
                                      at<std::uint8_t>(exponents), at<std::uint8_t>(signs));
}

void natural_decompress(Address exponents, Address signs, std::size_t count, Address values) {
  kernels().compress.natural_decompress(at<const std::uint8_t>(exponents),
                                        at<const std::uint8_t>(signs), count, at<float>(values));
}

void take_signs(Address values, std::size_t count, Address signs) {
  kernels().compress.signs(at<const float>(values), count, at<std::uint8_t>(signs));
}

void apply_signs(Address signs, std::size_t count, float magnitude, Address values) {
  kernels().compress.apply_signs(at<const std::uint8_t>(signs), count, magnitude,
                                 at<float>(values));
}

std::size_t mark_reaching(Address values, std::size_t count, float magnitude, Address bitmap) {
  return kernels().compress.reaching(at<const float>(values), count, magnitude,
                                     at<std::uint64_t>(bitmap));
}

std::size_t mark_bernoulli(std::size_t count, double probability, std::uint64_t key,
                           std::uint64_t first, Address bitmap) {
  require(probability >= 0 && probability <= 1, "probability must be from 0 to 1");
  return kernels().compress.bernoulli(count, probability, {key, first}, at<std::uint64_t>(bitmap));
}

void mark_rand_k(std::size_t count, std::size_t k, std::uint64_t key, Address bitmap) {
  check_k(count, k);
  rand_k(count, k, key, at<std::uint64_t>(bitmap));
}

void mark_top_k(Address values, std::size_t count, std::size_t k, Address bitmap) {
  check_k(count, k);
  top_k(at<const float>(values), count, k, at<std::uint64_t>(bitmap));
}

std::size_t bound_positions(std::size_t count, std::size_t k) {
  check_k(count, k);
  return positions_bound(count, k);
}

std::size_t write_positions(Address bitmap, std::size_t count, std::size_t k, Address out) {
  check_k(count, k);
  const auto* const bits = at<const std::uint64_t>(bitmap);
  require(count_set(bits, count) == k, "the bitmap does not have k set bits");
  return encode_positions(bits, count, k, at<std::byte>(out));
}

bool read_positions(Address code, std::size_t size, std::size_t count, std::size_t k,
                    Address bitmap) {
  check_k(count, k);
  static constexpr std::byte kNothing{};  // The address of no bytes may look like an error.
  const std::byte* const begin = size == 0 ? &kNothing : at<const std::byte>(code);
  const std::byte* const end = begin + size;
  return decode_positions(begin, end, count, k, at<std::uint64_t>(bitmap)) == end;
}

void check_element(std::size_t bytes) {
  require(bytes == 2 || bytes == 4 || bytes == 8, "elements must have 2, 4 or 8 bytes");
}

void gather_marked(Address elements, std::size_t element_bytes, std::size_t count, Address bitmap,
                   Address out) {
  check_element(element_bytes);
  kernels().gather(at<std::byte>(out), at<const std::byte>(elements), element_bytes,
                   bitmap_words(count), at<const std::uint64_t>(bitmap));
}

void scatter_marked(Address packed, std::size_t element_bytes, std::size_t count, Address bitmap,
                    Address elements) {
  check_element(element_bytes);
  kernels().scatter(at<std::byte>(elements), at<const std::byte>(packed), element_bytes,
                    bitmap_words(count), at<const std::uint64_t>(bitmap));
}

std::size_t gather_blocks(Address elements, std::size_t element_bytes, std::size_t count,
                          std::size_t block, Address bitmap, Address out) {
  require(block >= 1, "block must be at least 1");
  return pack(at<std::byte>(out), at<const std::byte>(elements), count, element_bytes, block,
              at<const std::uint64_t>(bitmap));
}

std::size_t scatter_blocks(Address packed, std::size_t element_bytes, std::size_t count,
                           std::size_t block, Address bitmap, Address elements) {
  require(block >= 1, "block must be at least 1");
  return unpack(at<std::byte>(elements), at<const std::byte>(packed), count, element_bytes, block,
                at<const std::uint64_t>(bitmap));
}

void bind_symbols(nb::module_& m) {
  m.def("entropy_bound", &entropy_bound, "count"_a);
  m.def("entropy_encode", &encode_symbols, "symbols"_a, "count"_a, "alphabet"_a, "out"_a,
        Unlocked());
  m.def("entropy_decode", &decode_symbols, "code"_a, "size"_a, "alphabet"_a, "symbols"_a, "count"_a,
        Unlocked());
  m.def("dither", &encode_dithered<&CompressKernels::dither>, "values"_a, "count"_a, "block"_a,
        "norms"_a, "levels"_a, "key"_a, "first"_a, "symbols"_a, Unlocked());
  m.def("undither", &decode_dithered<&CompressKernels::undither>, "symbols"_a, "count"_a, "block"_a,
        "norms"_a, "levels"_a, "values"_a, Unlocked());
  m.def("natural_dither", &encode_dithered<&CompressKernels::natural_dither>, "values"_a, "count"_a,
        "block"_a, "norms"_a, "levels"_a, "key"_a, "first"_a, "symbols"_a, Unlocked());
  m.def("natural_undither", &decode_dithered<&CompressKernels::natural_undither>, "symbols"_a,
        "count"_a, "block"_a, "norms"_a, "levels"_a, "values"_a, Unlocked());
  m.def("natural_compress", &natural_compress, "values"_a, "count"_a, "key"_a, "first"_a,
        "exponents"_a, "signs"_a, Unlocked());
  m.def("natural_decompress", &natural_decompress, "exponents"_a, "signs"_a, "count"_a, "values"_a,
        Unlocked());
}

void bind_values(nb::module_& m) {
  m.attr("NORMS") = codes<Norm>(kNormCount);
  m.def("first_not_finite", &first_not_finite, "values"_a, "count"_a, Unlocked());
  m.def("block_norms", &block_norms, "values"_a, "count"_a, "block"_a, "norm"_a, "norms"_a,
        Unlocked());
  m.def("take_signs", &take_signs, "values"_a, "count"_a, "signs"_a, Unlocked());
  m.def("apply_signs", &apply_signs, "signs"_a, "count"_a, "magnitude"_a, "values"_a, Unlocked());
}

void bind_positions(nb::module_& m) {
  m.def("mark_reaching", &mark_reaching, "values"_a, "count"_a, "magnitude"_a, "bitmap"_a,
        Unlocked());
  m.def("mark_bernoulli", &mark_bernoulli, "count"_a, "probability"_a, "key"_a, "first"_a,
        "bitmap"_a, Unlocked());
  m.def("mark_rand_k", &mark_rand_k, "count"_a, "k"_a, "key"_a, "bitmap"_a, Unlocked());
  m.def("mark_top_k", &mark_top_k, "values"_a, "count"_a, "k"_a, "bitmap"_a, Unlocked());
  m.def("positions_bound", &bound_positions, "count"_a, "k"_a);
  m.def("encode_positions", &write_positions, "bitmap"_a, "count"_a, "k"_a, "out"_a, Unlocked());
  m.def("decode_positions", &read_positions, "code"_a, "size"_a, "count"_a, "k"_a, "bitmap"_a,
        Unlocked());
  m.def("gather_marked", &gather_marked, "elements"_a, "element_bytes"_a, "count"_a, "bitmap"_a,
        "out"_a, Unlocked());
  m.def("scatter_marked", &scatter_marked, "packed"_a, "element_bytes"_a, "count"_a, "bitmap"_a,
        "elements"_a, Unlocked());
  m.def("gather_blocks", &gather_blocks, "elements"_a, "element_bytes"_a, "count"_a, "block"_a,
        "bitmap"_a, "out"_a, Unlocked());
  m.def("scatter_blocks", &scatter_blocks, "packed"_a, "element_bytes"_a, "count"_a, "block"_a,
        "bitmap"_a, "elements"_a, Unlocked());
}

}  // namespace

void bind_compress(nb::module_& m) {
  bind_symbols(m);
  bind_values(m);
  bind_positions(m);
}

}  // namespace sparsewire::bindings
