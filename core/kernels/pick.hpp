// gather, scatter and add_at: elements that a bitmap names, in their places and packed.
#pragma once

#include "kernels/accumulate.hpp"
#include "kernels/expand.hpp"

namespace sparsewire {
namespace {

inline constexpr std::uint64_t kFullWord = ~std::uint64_t{0};

inline std::size_t bits_in(std::uint64_t word) {
  return static_cast<std::size_t>(__builtin_popcountll(word));
}

// Tells which words are worth moving as a whole. A shuffle may touch elements beyond those that it
// moves, so that near the end of the arrays elements go one by one.
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

template <std::size_t size>
void gather_sized(std::byte* dst, const std::byte* src, std::size_t words,
                  const std::uint64_t* bitmap) {
  for_each_named<size>(
      words, bitmap,
      [=](std::size_t packed, std::size_t element, std::uint64_t bits) {
        std::byte* const to = dst + packed * size;
        const std::byte* const from = src + element * size;
        if (bits == kFullWord) {
          __builtin_memcpy(to, from, 64 * size);
        } else if constexpr (kShuffles<size>) {
          compress_64(to, from, bits);
        }
      },
      [=](std::size_t packed, std::size_t element) {
        __builtin_memcpy(dst + packed * size, src + element * size, size);
      });
}

template <std::size_t size>
void scatter_sized(std::byte* dst, const std::byte* src, std::size_t words,
                   const std::uint64_t* bitmap) {
  for_each_named<size>(
      words, bitmap,
      [=](std::size_t packed, std::size_t element, std::uint64_t bits) {
        std::byte* const to = dst + element * size;
        const std::byte* const from = src + packed * size;
        if (bits == kFullWord) {
          __builtin_memcpy(to, from, 64 * size);
        } else if constexpr (kShuffles<size>) {
          expand_64<true>(to, from, bits);
        }
      },
      [=](std::size_t packed, std::size_t element) {
        __builtin_memcpy(dst + element * size, src + packed * size, size);
      });
}

void gather(std::byte* dst, const std::byte* src, std::size_t element_size, std::size_t words,
            const std::uint64_t* bitmap) {
  if (element_size == 2) return gather_sized<2>(dst, src, words, bitmap);
  if (element_size == 4) return gather_sized<4>(dst, src, words, bitmap);
  gather_sized<8>(dst, src, words, bitmap);
}

void scatter(std::byte* dst, const std::byte* src, std::size_t element_size, std::size_t words,
             const std::uint64_t* bitmap) {
  if (element_size == 2) return scatter_sized<2>(dst, src, words, bitmap);
  if (element_size == 4) return scatter_sized<4>(dst, src, words, bitmap);
  scatter_sized<8>(dst, src, words, bitmap);
}

// Adds the packed values to the 64 elements at `acc`, and zero where no bit is set.
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
        auto* const target = reinterpret_cast<Unaligned<A>*>(acc) + element;
        const auto* const value = reinterpret_cast<const Unaligned<A>*>(x) + packed;
        target->value = plus(target->value, value->value);
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

}  // namespace
}  // namespace sparsewire
