// The order of magnitudes: the k-th largest of few, a bound that few of many reach, and few sorted.
// Every element is compared with every other, or with a guess: what vectorises, and never branches.
#pragma once

#include "kernels/loops/floats.hpp"

namespace sparsewire {
namespace {

// As many as fill one vector of float; and lanes for a larger k, half of which are left out.
inline constexpr std::size_t kMaxima = 16;
inline constexpr std::size_t kMoreMaxima = 128;

// The k-th largest of the maxima: the largest that k of them reach.
template <typename T>
inline IntegerOf<T> kth_of_maxima(const IntegerOf<T>* maxima, IntegerOf<T> k) {
  IntegerOf<T> reached[kMaxima] = {}, found = 0;
  for (std::size_t i = 0; i < kMaxima; ++i) {
    const IntegerOf<T> other = maxima[i];
    for (std::size_t lane = 0; lane < kMaxima; ++lane) {
      reached[lane] += other >= maxima[lane] ? 1 : 0;
    }
  }
  for (std::size_t lane = 0; lane < kMaxima; ++lane) {
    const IntegerOf<T> each = reached[lane] >= k ? maxima[lane] : 0;
    found = each > found ? each : found;
  }
  return found;
}

// The k-th largest of sizes, bit by bit from the top: a bit is set if k of them reach that.
template <typename T, typename SizeAt>
inline IntegerOf<T> kth_by_bits(std::size_t count, std::size_t k, SizeAt size_at) {
  IntegerOf<T> found = 0;
  for (unsigned bit = kSignAt<T>; bit-- != 0;) {
    const IntegerOf<T> larger = found | IntegerOf<T>{1} << bit;
    IntegerOf<T> reached = 0;
    for (std::size_t i = 0; i < count; ++i) reached += size_at(i) >= larger ? 1 : 0;
    found = static_cast<std::size_t>(reached) >= k ? larger : found;
  }
  return found;
}

template <typename T>
T kth_largest(const T* values, std::size_t count, std::size_t k) {
  const IntegerOf<T> found =
      kth_by_bits<T>(count, k, [=](std::size_t i) { return magnitude_bits(values[i]); });
  return of_bits<T>(static_cast<BitsOf<T>>(found));
}

// The largest magnitudes of disjoint lanes; elements that do not fill all lanes are left out.
template <typename T, std::size_t kLanes>
inline void maxima_of_lanes(const T* values, std::size_t count, IntegerOf<T>* maxima) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) maxima[lane] = 0;
  for (std::size_t first = 0; first + kLanes <= count; first += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const IntegerOf<T> bits = magnitude_bits(values[first + lane]);
      maxima[lane] = bits > maxima[lane] ? bits : maxima[lane];
    }
  }
}

// The k-th largest among the maxima of lanes.
template <typename T>
T reached_by_some(const T* values, std::size_t count, std::size_t k) {
  IntegerOf<T> found = 0;
  if (k <= kMaxima) {
    IntegerOf<T> maxima[kMaxima];
    maxima_of_lanes<T, kMaxima>(values, count, maxima);
    found = kth_of_maxima<T>(maxima, static_cast<IntegerOf<T>>(k));
  } else if (k <= kMoreMaxima / 2) {
    IntegerOf<T> maxima[kMoreMaxima];
    maxima_of_lanes<T, kMoreMaxima>(values, count, maxima);
    found = kth_by_bits<T>(kMoreMaxima, k, [&](std::size_t i) { return maxima[i]; });
  }
  return of_bits<T>(static_cast<BitsOf<T>>(found > 0 ? found : 1));
}

// A magnitude's place is how many are larger. Equal ones leave places behind the first empty.
template <typename T>
void sort_magnitudes(const T* values, std::size_t count, T* sorted) {
  IntegerOf<T> places[kMaxSorted] = {};
  for (std::size_t other = 0; other < count; ++other) {
    const IntegerOf<T> size = magnitude_bits(values[other]);
    for (std::size_t i = 0; i < count; ++i) places[i] += size > magnitude_bits(values[i]) ? 1 : 0;
  }
  constexpr T kEmpty = -1;
  for (std::size_t i = 0; i < count; ++i) sorted[i] = kEmpty;
  for (std::size_t i = 0; i < count; ++i) sorted[places[i]] = magnitude(values[i]);
  for (std::size_t i = 1; i < count; ++i) sorted[i] = sorted[i] < 0 ? sorted[i - 1] : sorted[i];
}

}  // namespace
}  // namespace sparsewire
