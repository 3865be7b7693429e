// Random tensors of a wanted block density, and what an all_reduce must make of them.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "proto/stream/dense.hpp"
#include "random.hpp"

namespace sparsewire::test {

// How many blocks are not zero, a share of them or just one, and how many elements of these.
struct Density {
  double share = 1;
  bool one_block = false;
  double elements = 1;
};
inline constexpr Density kDensities[] = {{0},
                                         {0, true},
                                         {0.1},
                                         {0.5},
                                         {1},
                                         {0, true, 0.02},
                                         {1, false, 0.01},
                                         {1, false, 0.2},
                                         {0.5, false, 0.1}};

inline bool is_zero(const std::byte* data, std::size_t index, DType dtype) {
  const std::size_t size = element_size(dtype);
  std::uint64_t pattern = 0;
  std::memcpy(&pattern, data + index * size, size);
  const bool only_sign = is_floating(dtype) && pattern == std::uint64_t{1} << (8 * size - 1);
  return pattern == 0 || only_sign;
}

inline bool is_zero(const Buffer& data, std::size_t from, std::size_t to, DType dtype) {
  for (std::size_t i = from; i < to; ++i) {
    if (!is_zero(data.data(), i, dtype)) return false;
  }
  return true;
}

// Blocks that are to be zero hold a -0.0 now and then, which must not count.
inline Buffer random_tensor(const wire::Descriptor& descriptor, std::size_t block, Density density,
                            Random& random) {
  const std::size_t count = descriptor.count;
  Buffer data(count * element_size(descriptor.dtype));
  const RandomElements elements(descriptor.dtype);
  const std::uint64_t negative_zero = special_patterns(descriptor.dtype)[1];
  const std::size_t the_one = count == 0 ? 0 : below(ceil_div(count, block), random);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (std::size_t first = 0; first < count; first += block) {
    const std::size_t end = std::min(count, first + block);
    if (density.one_block ? first / block == the_one : uniform(random) < density.share) {
      for (std::size_t i = first; i < end; ++i) {
        if (density.elements == 1 || uniform(random) < density.elements) {
          elements.put(data.data(), i, random);
        } else if (is_floating(descriptor.dtype) && one_in(50, random)) {
          store_pattern(data.data(), i, descriptor.dtype, negative_zero);
        }
      }
    } else if (is_floating(descriptor.dtype) && one_in(8, random)) {
      const std::size_t at = first + below(end - first, random);
      store_pattern(data.data(), at, descriptor.dtype, negative_zero);
    }
  }
  return data;
}

// In rank order from +0 on where zero is neutral, and from rank 0's values where it is not. An
// average is of so many ranks, or of the inputs.
inline Buffer reference_all_reduce(const wire::Descriptor& descriptor,
                                   const std::vector<Buffer>& inputs, std::size_t ranks = 0) {
  Buffer expected(inputs[0].size());
  const auto world_size = static_cast<std::int32_t>(ranks != 0 ? ranks : inputs.size());
  with_codec(descriptor.dtype, [&](auto read, auto write) {
    for (std::size_t i = 0; i < descriptor.count; ++i) {
      auto acc = reference_start(read(inputs[0].data(), i), descriptor.op);
      for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
        acc = reference_add(acc, read(inputs[rank].data(), i), descriptor.op);
      }
      write(expected.data(), i, reference_finish(acc, descriptor.op, world_size));
    }
  });
  return expected;
}

// One rank's tensor in an operation, in place or apart, on heap memory of exactly its size. An
// output apart is NaN before it is written.
class RankTensor {
 public:
  RankTensor(Buffer input, bool in_place)
      : input_(std::move(input)),
        source_(input_),
        out_(in_place ? Buffer{} : Buffer(input_.size(), std::byte{0xff})),
        in_place_(in_place) {}

  const std::byte* source() const { return source_.data(); }
  std::byte* out() { return in_place_ ? source_.data() : out_.data(); }
  const Buffer& input() const { return input_; }
  const Buffer& result() const { return in_place_ ? source_ : out_; }
  bool source_is_untouched() const { return in_place_ || source_ == input_; }

 private:
  Buffer input_;
  Buffer source_;
  Buffer out_;
  bool in_place_;
};

// The source of a tensor as a communicator would make it.
inline std::unique_ptr<proto::DenseSource> source_of(const proto::DenseTensor& tensor) {
  return std::make_unique<proto::DenseSource>(tensor, proto::leaves_out_zeros(tensor));
}

// One operation as all ranks see it.
struct Collective {
  wire::Descriptor descriptor;
  std::vector<RankTensor> ranks;
  Buffer expected;
};

inline Collective random_collective(const wire::Descriptor& descriptor, std::size_t world_size,
                                    std::size_t block, Density density, Random& random) {
  std::vector<Buffer> inputs;
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    inputs.push_back(random_tensor(descriptor, block, density, random));
  }
  Collective collective{descriptor, {}, reference_all_reduce(descriptor, inputs)};
  for (Buffer& input : inputs) {
    collective.ranks.emplace_back(std::move(input), one_in(2, random));
  }
  return collective;
}

}  // namespace sparsewire::test
