// The loops that touch every element: scan, accumulate and encode, compiled once per instruction
// set and chosen at run time. Results are the same to the last bit at every level. No pointer but
// those to float needs to be aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/types.hpp"
#include "kernels/compress_kernels.hpp"

namespace sparsewire {

enum class SimdLevel : std::uint8_t { portable = 0, avx2, avx512 };

constexpr std::string_view name_of(SimdLevel level) {
  constexpr std::string_view names[] = {"portable", "avx2", "avx512"};
  return names[static_cast<std::size_t>(level)];
}

// Sums of half types are kept in float32; all other types accumulate in themselves.
constexpr DType accumulator_of(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16 ? DType::float32 : dtype;
}

struct ScanResult {
  std::size_t nonzero;  // blocks
  bool negative_zeros;  // A block that counts as zero holds a -0.0.
};

// In `start`, `add` and `finish`, `acc` holds `count` elements of accumulator_of(dtype) and `x` and
// `out` hold `count` elements of dtype. Integers wrap around. A NaN stays a NaN.
struct Kernels {
  SimdLevel level;

  // Sets bit i of `bitmap` if block i of `data` has a non-zero element, and clears it otherwise, up
  // to the end of the last word. -0.0 counts as zero; NaN and subnormal numbers do not. `block` is
  // a power of two from 16 on, in elements; the last block may be partial.
  ScanResult (*scan)(const std::byte* data, std::size_t count, DType dtype, std::size_t block,
                     std::uint64_t* bitmap);

  // The same with blocks of one element each.
  ScanResult (*mark)(const std::byte* data, std::size_t count, DType dtype, std::uint64_t* bitmap);

  // acc = 0 + x for sum and avg, which turns -0.0 into +0.0; acc = x for the others. `acc` may be
  // `x` if the two types are the same.
  void (*start)(std::byte* acc, const std::byte* x, std::size_t count, DType dtype, ReduceOp op);

  // acc = acc op x. In a sum or product the NaN that came first stays, in min and max the last.
  void (*add)(std::byte* acc, const std::byte* x, std::size_t count, DType dtype, ReduceOp op);

  // Copies the elements of `src` whose bit is set to `dst`, one after another. Elements have 2, 4
  // or 8 bytes; the bitmap has `words` words.
  void (*gather)(std::byte* dst, const std::byte* src, std::size_t element_size, std::size_t words,
                 const std::uint64_t* bitmap);

  // Copies the packed `src` to the elements of `dst` whose bit is set.
  void (*scatter)(std::byte* dst, const std::byte* src, std::size_t element_size, std::size_t words,
                  const std::uint64_t* bitmap);

  // Writes base + i for each set bit i, ascending, and returns how many.
  std::size_t (*list_bits_32)(const std::uint64_t* bitmap, std::size_t words, std::int32_t base,
                              std::int32_t* out);
  std::size_t (*list_bits_64)(const std::uint64_t* bitmap, std::size_t words, std::int64_t base,
                              std::int64_t* out);

  // Writes base + local for each of `count` numbers of 16 bits.
  void (*list_locals_32)(const std::byte* locals, std::size_t count, std::int32_t base,
                         std::int32_t* out);
  void (*list_locals_64)(const std::byte* locals, std::size_t count, std::int64_t base,
                         std::int64_t* out);

  // acc[i] = acc[i] + x[k] for the k-th set bit i of the bitmap: a sum over few elements. `acc`
  // began with zeros, so that it holds no -0.0.
  void (*add_at)(std::byte* acc, const std::byte* x, std::size_t words, const std::uint64_t* bitmap,
                 DType dtype);

  // out = acc, divided by `world_size` for avg (integers truncate), rounded to nearest even. `out`
  // may be `acc`; it need not be called then unless op is avg or the two types differ.
  void (*finish)(std::byte* out, const std::byte* acc, std::size_t count, DType dtype, ReduceOp op,
                 std::int32_t world_size);

  // Writes values of float32 in the layout and size that wire/codec.hpp gives. False, with nothing
  // of use in `out`, if the codec cannot hold one of them: a half type would turn a finite value
  // into an infinity, or a value to be quantised is NaN or infinite. The stochastic codecs round at
  // random, by a generator that `key` alone determines: equal values and keys give equal bytes. A
  // key must not be used again for other values if errors are to be independent. The mean of the
  // decoded value is the value itself. With a span's scale c and levels up to s, an error is at
  // most c / s and its variance at most c^2 / (4 s^2).
  bool (*encode)(Codec codec, const float* in, std::size_t count, std::uint64_t key,
                 std::byte* out);

  // Reads `count` values that `encode` wrote, or that wire::check_values has accepted.
  void (*decode)(Codec codec, const std::byte* in, std::size_t count, float* out);

  CompressKernels compress;
};

// The tables, one per translation unit. Builds for other processors than x86 have only the portable
// one.
extern const Kernels kPortableKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

// What this processor can run, from the slowest level to the fastest.
std::span<const Kernels* const> available_kernels();

// The kernels in use: the fastest that this processor has, unless select_kernels chose others.
const Kernels& kernels();

// Makes kernels() return this level; false, without effect, if the processor lacks it.
bool select_kernels(SimdLevel level);

inline bool encode_values(Codec codec, const float* in, std::size_t count, std::uint64_t key,
                          std::byte* out) {
  return kernels().encode(codec, in, count, key, out);
}

inline void decode_values(Codec codec, const std::byte* in, std::size_t count, float* out) {
  kernels().decode(codec, in, count, out);
}

}  // namespace sparsewire
