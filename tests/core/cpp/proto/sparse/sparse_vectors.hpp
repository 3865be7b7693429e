// Random sparse vectors, and the plain arrays that they stand for.
#pragma once

#include <map>
#include <numeric>

#include "proto/sparse/sparse_tensor.hpp"
#include "tensors.hpp"

namespace sparsewire::test {

// Ascending positions in [0, length): about `count` of them, all where that is the length.
inline std::vector<std::uint64_t> random_positions(std::uint64_t length, std::uint64_t count,
                                                   Random& random) {
  std::vector<std::uint64_t> positions;
  if (count >= length) {
    positions.resize(length);
    std::iota(positions.begin(), positions.end(), std::uint64_t{0});
    return positions;
  }
  for (std::uint64_t i = 0; i < count; ++i) positions.push_back(below(length, random));
  std::ranges::sort(positions);
  positions.erase(std::ranges::unique(positions).begin(), positions.end());
  return positions;
}

// One rank's vector, in memory of exactly its size. Indices start at `base`.
class SparseVector {
 public:
  SparseVector(const wire::Descriptor& descriptor, std::vector<std::uint64_t> positions,
               Buffer values, bool is_wide = true, std::uint64_t base = 0)
      : descriptor_(descriptor),
        positions_(std::move(positions)),
        values_(std::move(values)),
        is_wide_(is_wide),
        base_(base) {
    for (const std::uint64_t position : positions_) {
      is_wide ? wide_.push_back(static_cast<std::int64_t>(base + position))
              : narrow_.push_back(static_cast<std::int32_t>(base + position));
    }
  }

  proto::SparseTensor tensor() const {
    const void* const indices = is_wide_ ? static_cast<const void*>(wide_.data()) : narrow_.data();
    return {indices, is_wide_, positions_.size(), values_.data(), base_, descriptor_};
  }

  const wire::Descriptor& descriptor() const { return descriptor_; }
  const std::vector<std::uint64_t>& positions() const { return positions_; }
  const Buffer& values() const { return values_; }
  std::size_t row_bytes() const { return descriptor_.row * element_size(descriptor_.dtype); }
  std::uint64_t elements() const { return positions_.size() * descriptor_.row; }

  Buffer dense() const {
    Buffer array(descriptor_.count * element_size(descriptor_.dtype));
    for (std::size_t i = 0; i < positions_.size(); ++i) {
      std::copy_n(values_.data() + i * row_bytes(), row_bytes(),
                  array.data() + positions_[i] * row_bytes());
    }
    return array;
  }

 private:
  wire::Descriptor descriptor_;
  std::vector<std::uint64_t> positions_;
  Buffer values_;
  bool is_wide_;
  std::uint64_t base_;
  std::vector<std::int64_t> wide_;
  std::vector<std::int32_t> narrow_;
};

// Elements of any kind, none of which is a zero: those that are may get lost on the way.
inline Buffer random_nonzeros(std::size_t count, DType dtype, Random& random) {
  Buffer data(count * element_size(dtype));
  const RandomElements elements(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    do {
      elements.put(data.data(), i, random);
    } while (is_zero(data.data(), i, dtype));
  }
  return data;
}

// Small whole numbers, whose sums no type has to round.
inline Buffer random_small_numbers(std::size_t count, DType dtype, Random& random) {
  Buffer data(count * element_size(dtype));
  with_codec(dtype, [&](auto read, auto write) {
    using A = decltype(read(data.data(), 0));
    for (std::size_t i = 0; i < count; ++i) {
      write(data.data(), i, static_cast<A>(static_cast<int>(below(17, random)) - 8));
    }
  });
  return data;
}

inline Buffer random_normals(std::size_t count, Random& random) {
  std::normal_distribution<float> normal;
  Buffer data(count * sizeof(float));
  for (std::size_t i = 0; i < count; ++i) store(data.data(), i, normal(random));
  return data;
}

}  // namespace sparsewire::test
