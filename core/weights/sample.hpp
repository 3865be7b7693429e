// How long an entropy code of many symbols would be, from a few of them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace sparsewire::weights {

// Of `count` symbols, which are bytes.
class Sample {
 public:
  explicit Sample(std::size_t count) : count_(count) {}

  std::size_t size() const { return std::min(kMost, count_); }

  // Where the i-th symbol of the sample is: spread evenly, with no period that rows could share.
  std::size_t place(std::size_t i) const {
    constexpr std::uint32_t kStep = 0x9e3779b9;  // 2^32 over the golden ratio
    const auto place = static_cast<std::uint32_t>(i) * kStep;
    return static_cast<std::size_t>((std::uint64_t{place} * count_) >> 32);
  }

  void add(std::uint8_t symbol) { ++counts_[symbol]; }

  // For all symbols, with bits beside the code that the sample's have. Symbols that a sample misses
  // make it less than it is.
  std::size_t bytes_of_all(std::size_t bits_beside) const {
    const auto total = static_cast<double>(size());
    auto bits = static_cast<double>(bits_beside);
    for (const std::uint32_t count : counts_) {
      if (count != 0) bits += count * std::log2(total / count);
    }
    return static_cast<std::size_t>(bits / 8 * static_cast<double>(count_) / total);
  }

 private:
  static constexpr std::size_t kMost = 512;

  std::size_t count_;
  std::array<std::uint32_t, 256> counts_{};
};

}  // namespace sparsewire::weights
