// gather, scatter and add_at move elements that a bitmap names between their places and packed
// form; list writes their numbers, or packed 16-bit numbers, as indices.
#pragma once

#include "kernels/loops/accumulate.hpp"
#include "kernels/loops/expand.hpp"

namespace sparsewire {
namespace {

inline constexpr std::uint64_t kFullWord = ~std::uint64_t{0};

inline std::size_t bits_in(std::uint64_t word) {
  return static_cast<std::size_t>(__builtin_popcountll(word));
}

// Tells which words are worth moving as a whole. A shuffle may touch elements beyond those that it
// moves, so near the end of the arrays elements are moved one by one.
template <std::size_t size>
class WholeWords {
 public:
  WholeWords(std::size_t words, const std::uint64_t* bitmap) : words_(words) {
    if constexpr (kShuffles<size>) {
      for (std::size_t word = 0; word < words; ++word) left_ += bits_in(bitmap[word]);
    }
  }

  // Once for each word, in order.
  bool next(std::size_t word, std::uint64_t bits) {
    if constexpr (!kShuffles<size>) {
      return bits == kFullWord;
    } else {
      const std::size_t named = bits_in(bits);
      const bool has_room = word + 1 < words_ && left_ >= named + 8;
      left_ -= named;
      return bits == kFullWord || (has_room && named >= kCrowdedWord);
    }
  }

 private:
  std::size_t words_;
  std::size_t left_ = 0;
};

// Calls whole(packed, element, bits) for words to move as a whole, and one(packed, element) for
// each bit of all others; `packed` and `element` are offsets in elements.
template <std::size_t size, typename Whole, typename One>
inline void for_each_named(std::size_t words, const std::uint64_t* bitmap, Whole whole, One one) {
  WholeWords<size> wholes(words, bitmap);
  std::size_t packed = 0;
  for (std::size_t word = 0; word < words; ++word) {
    std::uint64_t bits = bitmap[word];
    if (wholes.next(word, bits)) {
      whole(packed, word * 64, bits);
      packed += bits_in(bits);
      continue;
    }
    for (; bits != 0; bits &= bits - 1, ++packed) {
      one(packed, word * 64 + static_cast<std::size_t>(__builtin_ctzll(bits)));
    }
  }
}

template <bool gathers, std::size_t size>
void copy_sized(std::byte* dst, const std::byte* src, std::size_t words,
                const std::uint64_t* bitmap) {
  const auto to = [=](std::size_t packed, std::size_t element) {
    return dst + (gathers ? packed : element) * size;
  };
  const auto from = [=](std::size_t packed, std::size_t element) {
    return src + (gathers ? element : packed) * size;
  };
  for_each_named<size>(
      words, bitmap,
      [=](std::size_t packed, std::size_t element, std::uint64_t bits) {
        if (bits == kFullWord) {
          __builtin_memcpy(to(packed, element), from(packed, element), 64 * size);
        } else if constexpr (kShuffles<size> && gathers) {
          compress_64(to(packed, element), from(packed, element), bits);
        } else if constexpr (kShuffles<size>) {
          expand_64<true>(to(packed, element), from(packed, element), bits);
        }
      },
      [=](std::size_t packed, std::size_t element) {
        __builtin_memcpy(to(packed, element), from(packed, element), size);
      });
}

// gather if `gathers`, else scatter.
template <bool gathers>
void copy_named(std::byte* dst, const std::byte* src, std::size_t element_size, std::size_t words,
                const std::uint64_t* bitmap) {
  if (element_size == 2) return copy_sized<gathers, 2>(dst, src, words, bitmap);
  if (element_size == 4) return copy_sized<gathers, 4>(dst, src, words, bitmap);
  copy_sized<gathers, 8>(dst, src, words, bitmap);
}

// Adds the packed values to those of the 64 elements at `acc` whose bit is set, and zero to the
// others.
template <typename A>
inline void add_word(std::byte* acc, const std::byte* values, std::uint64_t bits) {
  if constexpr (kShuffles<sizeof(A)>) {
    alignas(32) std::byte spread[64 * sizeof(A)];
    if (bits != kFullWord) {
      expand_64<false>(spread, values, bits);
      values = spread;
    }
    combine<A>(acc, values, 64, [](A a, A b) { return plus(a, b); });
  } else {
    combine<A>(acc, values, 64, [](A a, A b) { return plus(a, b); });
  }
}

template <typename A>
void add_at_sums(std::byte* acc, const std::byte* x, std::size_t words,
                 const std::uint64_t* bitmap) {
  for_each_named<sizeof(A)>(
      words, bitmap,
      [=](std::size_t packed, std::size_t element, std::uint64_t bits) {
        add_word<A>(acc + element * sizeof(A), x + packed * sizeof(A), bits);
      },
      [=](std::size_t packed, std::size_t element) {
        auto* const sum = reinterpret_cast<Unaligned<A>*>(acc) + element;
        const auto* const value = reinterpret_cast<const Unaligned<A>*>(x) + packed;
        sum->value = plus(sum->value, value->value);
      });
}

// Values of another type than the accumulator's are widened a few words at a time.
void add_at(std::byte* acc, const std::byte* x, std::size_t words, const std::uint64_t* bitmap,
            DType dtype) {
  with_type(dtype, [=]<typename T>(T) {
    using A = Accumulator<T>;
    if constexpr (!kConverts<T>) {
      add_at_sums<A>(acc, x, words, bitmap);
    } else {
      constexpr std::size_t kWords = kTile / 64;
      float tile[kTile];
      const std::byte* values = x;
      for (std::size_t first = 0; first < words; first += kWords) {
        const std::size_t length = words - first < kWords ? words - first : kWords;
        std::size_t count = 0;
        for (std::size_t i = 0; i < length; ++i) count += bits_in(bitmap[first + i]);
        widen_all<T>(tile, values, count);
        values += count * sizeof(T);
        add_at_sums<A>(acc + first * 64 * sizeof(A), reinterpret_cast<const std::byte*>(tile),
                       length, bitmap + first);
      }
    }
  });
}

#if defined(__AVX2__)
inline constexpr bool kListsBytes = true;

// Writes base + i for each set bit i of a byte, and then others, so that they are eight.
inline void list_byte(std::int32_t* out, std::int32_t base, unsigned bits) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                      _mm256_add_epi32(lanes_of(kCompress, bits), _mm256_set1_epi32(base)));
}

inline void list_byte(std::int64_t* out, std::int64_t base, unsigned bits) {
  const __m128i lanes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&kCompress.lanes[bits]));
#if defined(__AVX512F__)
  _mm512_storeu_si512(
      out, _mm512_add_epi64(_mm512_maskz_cvtepu8_epi64(0xFF, lanes), _mm512_set1_epi64(base)));
#else
  const __m256i bases = _mm256_set1_epi64x(base);
  auto* const to = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(to, _mm256_add_epi64(_mm256_cvtepu8_epi64(lanes), bases));
  _mm256_storeu_si256(to + 1,
                      _mm256_add_epi64(_mm256_cvtepu8_epi64(_mm_srli_si128(lanes, 4)), bases));
#endif
}

#else
inline constexpr bool kListsBytes = false;

// Never called.
template <typename Index>
inline void list_byte(Index*, Index, unsigned) {}
#endif

template <typename Index>
inline Index* list_word(Index* out, Index base, std::uint64_t bits) {
  for (int i = 0; i < 8; ++i, bits >>= 8, base += 8) {
    const unsigned byte = bits & 0xFF;
    list_byte(out, base, byte);
    out += __builtin_popcount(byte);
  }
  return out;
}

// How many words have at least eight more indices after them: for any byte of them, eight may be
// written.
inline std::size_t roomy_words(const std::uint64_t* bitmap, std::size_t words) {
  std::size_t behind = 0;
  while (words > 0 && behind < 8) behind += bits_in(bitmap[--words]);
  return words;
}

template <typename Index>
std::size_t list_bits(const std::uint64_t* bitmap, std::size_t words, Index base, Index* out) {
  Index* at = out;
  const std::size_t roomy = kListsBytes ? roomy_words(bitmap, words) : 0;
  for (std::size_t word = 0; word < words; ++word) {
    const Index first = base + static_cast<Index>(word * 64);
    if (word < roomy) {
      at = list_word(at, first, bitmap[word]);
      continue;
    }
    for (std::uint64_t bits = bitmap[word]; bits != 0; bits &= bits - 1) {
      *at++ = first + static_cast<Index>(__builtin_ctzll(bits));
    }
  }
  return static_cast<std::size_t>(at - out);
}

template <typename Index>
void list_locals(const std::byte* locals, std::size_t count, Index base, Index* out) {
  const auto* const from = reinterpret_cast<const Unaligned<std::uint16_t>*>(locals);
  for (std::size_t i = 0; i < count; ++i) out[i] = base + static_cast<Index>(from[i].value);
}

}  // namespace
}  // namespace sparsewire
