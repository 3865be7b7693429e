// Operations for the network of slots, and what must come of them: to the bit the sum in rank
// order, or in fixed point the one that plain arithmetic gives.
#pragma once

#include <cmath>

#include "slot_network.hpp"
#include "tensors.hpp"

namespace sparsewire::test {

// --- Fixed point, by arithmetic instead of by bits ---

inline double widened(const Buffer& data, std::size_t index, DType dtype) {
  double value = 0;
  with_codec(dtype,
             [&](auto read, auto) { value = static_cast<double>(read(data.data(), index)); });
  return value;
}

// Rounds once.
inline void put_rounded(Buffer& data, std::size_t index, DType dtype, double value) {
  const auto nearest = [&](int digits, int smallest) {
    return static_cast<float>(std::isnan(value) ? value : round_to(value, digits, smallest));
  };
  switch (dtype) {
    case DType::float16:
      return store(data.data(), index, float_to_half(nearest(11, -24)));
    case DType::bfloat16:
      return store(data.data(), index, float_to_bfloat16(nearest(8, -133)));
    default:
      return store(data.data(), index, static_cast<float>(value));
  }
}

inline int reference_bits(std::size_t workers) {
  int bits = 0;
  while (std::ldexp(static_cast<double>(workers), bits + 1) <= INT32_MAX) ++bits;
  return bits;
}

inline int reference_exponent(const std::vector<Buffer>& inputs, std::size_t first, std::size_t end,
                              DType dtype) {
  int exponent = -126;
  for (const Buffer& input : inputs) {
    for (std::size_t i = first; i < end; ++i) {
      const double value = widened(input, i, dtype);
      if (value != 0 && std::isfinite(value)) exponent = std::max(exponent, std::ilogb(value));
    }
  }
  return exponent;
}

// Not finite where a value is not; of NaN there is one.
inline double plain_sum(const std::vector<Buffer>& inputs, std::size_t index, DType dtype) {
  double sum = 0;
  for (const Buffer& input : inputs) sum += widened(input, index, dtype);
  return std::isnan(sum) ? std::nan("") : sum;
}

inline Buffer reference_fixed(const wire::Descriptor& descriptor, std::size_t block,
                              const std::vector<Buffer>& inputs) {
  Buffer expected(inputs[0].size());
  const int bits = reference_bits(inputs.size());
  const double divisor = descriptor.op == ReduceOp::avg ? static_cast<double>(inputs.size()) : 1;
  for (std::size_t first = 0; first < descriptor.count; first += block) {
    const std::size_t end = std::min<std::size_t>(descriptor.count, first + block);
    const int shift = bits - reference_exponent(inputs, first, end, descriptor.dtype) - 1;
    for (std::size_t i = first; i < end; ++i) {
      std::int64_t sum = 0;
      if (const double marked = plain_sum(inputs, i, descriptor.dtype); !std::isfinite(marked)) {
        put_rounded(expected, i, descriptor.dtype, marked);
        continue;
      }
      for (const Buffer& input : inputs) {
        sum += std::llrint(std::ldexp(widened(input, i, descriptor.dtype), shift));
      }
      REQUIRE(std::abs(sum) <= INT32_MAX);
      put_rounded(expected, i, descriptor.dtype,
                  std::ldexp(static_cast<double>(sum), -shift) / divisor);
    }
  }
  return expected;
}

inline void make_finite(Buffer& data, std::size_t count, DType dtype) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(widened(data, i, dtype))) put_rounded(data, i, dtype, 1.25);
  }
}

// --- Operations ---

struct SlotOperation {
  Collective collective;
  proto::Arithmetic arithmetic;
  bool scans;

  proto::SlotTensor tensor(std::size_t rank) {
    RankTensor& own = collective.ranks[rank];
    return {.source = own.source(),
            .out = own.out(),
            .dtype = collective.descriptor.dtype,
            .op = collective.descriptor.op,
            .count = collective.descriptor.count,
            .scans = scans,
            .arithmetic = arithmetic};
  }
};

inline SlotOperation operation_of(const proto::SlotPool& pool, const wire::Descriptor& descriptor,
                                  proto::Arithmetic arithmetic, std::vector<Buffer> inputs,
                                  Random& random) {
  const bool is_float = is_floating(descriptor.dtype);
  SlotOperation operation{{descriptor, {}, {}}, arithmetic, !one_in(4, random)};
  if (arithmetic == proto::Arithmetic::fixed && is_float) {
    const std::size_t block = proto::datagram_block(pool, DType::int32);
    operation.collective.expected = reference_fixed(descriptor, block, inputs);
  } else {
    operation.collective.expected = reference_all_reduce(descriptor, inputs);
  }
  for (Buffer& input : inputs) {
    operation.collective.ranks.emplace_back(std::move(input), one_in(2, random));
  }
  return operation;
}

inline SlotOperation random_operation(const proto::SlotPool& pool,
                                      const wire::Descriptor& descriptor,
                                      proto::Arithmetic arithmetic, Density density,
                                      Random& random) {
  std::vector<Buffer> inputs;
  const bool is_finite = arithmetic == proto::Arithmetic::fixed && one_in(2, random);
  for (std::size_t rank = 0; rank < pool.workers; ++rank) {
    inputs.push_back(random_tensor(descriptor, pool.block, density, random));
    if (is_finite) make_finite(inputs.back(), descriptor.count, descriptor.dtype);
  }
  return operation_of(pool, descriptor, arithmetic, std::move(inputs), random);
}

inline SlotOperation any_operation(const proto::SlotPool& pool, std::size_t longest,
                                   Random& random) {
  const DType dtype = pick(kDTypes, random);
  const ReduceOp op = one_in(2, random) ? ReduceOp::sum : pick(kOps, random);
  const bool is_fixed = proto::has_fixed_point(dtype, op) && one_in(2, random);
  const std::size_t count = one_in(8, random) ? below(3, random) : 1 + below(longest, random);
  return random_operation(pool, {dtype, op, count},
                          is_fixed ? proto::Arithmetic::fixed : proto::Arithmetic::exact,
                          pick(kDensities, random), random);
}

template <typename Network>
void begin_everywhere(Network& network, std::size_t workers, SlotOperation& operation,
                      std::uint64_t seq) {
  for (std::size_t rank = 0; rank < workers; ++rank) {
    network.begin(rank, seq, operation.tensor(rank));
  }
}

template <typename Network>
void check_result(const Network& network, const SlotOperation& operation, std::uint64_t seq,
                  std::size_t aggregators) {
  CAPTURE(seq);
  CAPTURE(name_of(operation.collective.descriptor.dtype));
  CAPTURE(name_of(operation.collective.descriptor.op));
  CAPTURE(operation.collective.descriptor.count);
  for (std::size_t rank = 0; rank < operation.collective.ranks.size(); ++rank) {
    CAPTURE(rank);
    const RankTensor& tensor = operation.collective.ranks[rank];
    REQUIRE(network.ends(rank, seq) == aggregators);
    REQUIRE(same(tensor.result(), operation.collective.expected));
    REQUIRE(tensor.source_is_untouched());
  }
}

template <typename Network>
void check_nothing_left(Network& network, std::size_t workers, std::size_t aggregators) {
  for (std::size_t rank = 0; rank < workers; ++rank) {
    for (std::size_t i = 0; i < aggregators; ++i) {
      REQUIRE_FALSE(network.worker(rank, i).next_timer());
      REQUIRE(network.worker(rank, i).take_ended().empty());
    }
  }
}

}  // namespace sparsewire::test
