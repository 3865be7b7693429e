// Random sparse collectives as all ranks see them, and what they must make of their vectors.
#pragma once

#include <doctest/doctest.h>

#include "proto/sparse/outputs.hpp"
#include "sparse_vectors.hpp"
#include "wire/agreement.hpp"

namespace sparsewire::test {

// What a rank got: one dense array per list.
using Results = std::vector<Buffer>;

inline bool same(const Results& a, const Results& b) {
  return std::ranges::equal(a, b, [](const Buffer& x, const Buffer& y) { return same(x, y); });
}

class SparseCollective {
 public:
  SparseCollective(const wire::Call& call, std::vector<SparseVector> vectors)
      : call_(call), vectors_(std::move(vectors)) {
    for (std::size_t rank = 0; rank < vectors_.size(); ++rank) {
      outputs_.push_back(std::make_unique<proto::Outputs>(call.descriptor, nullptr));
    }
  }

  // As this rank would send it.
  wire::Join join(std::size_t rank) const {
    return {.call = call_, .elements = vectors_[rank].elements()};
  }
  const wire::Descriptor& descriptor() const { return call_.descriptor; }
  const SparseVector& vector(std::size_t rank) const { return vectors_[rank]; }
  std::size_t world_size() const { return vectors_.size(); }
  proto::Outputs& outputs(std::size_t rank) { return *outputs_[rank]; }
  bool is_root(std::size_t rank) const { return rank == call_.root; }
  // Whether the rank gets anything.
  bool receives(std::size_t rank) const {
    return call_.collective != wire::Collective::reduce || is_root(rank);
  }
  const wire::Call& call() const { return call_; }

  // Where the part of the vector starts that a rank gets in a reduce_scatter.
  std::uint64_t begin_of(std::size_t rank) const {
    const std::uint64_t unit = std::uint64_t{call_.descriptor.row} * call_.unit;
    return call_.descriptor.count / unit * rank / world_size() * unit;
  }

  // Of every rank's plain arrays: sums are those of `add`.
  Results expected(std::size_t rank) const {
    if (!receives(rank)) return {};
    std::vector<Buffer> inputs;
    for (const SparseVector& vector : vectors_) inputs.push_back(vector.dense());
    if (call_.collective == wire::Collective::all_gather) return inputs;
    if (call_.collective == wire::Collective::broadcast) return {inputs[call_.root]};
    Buffer sum = reference_all_reduce(call_.descriptor, inputs);
    if (call_.collective != wire::Collective::reduce_scatter) return {sum};
    const std::size_t size = element_size(call_.descriptor.dtype);
    return {Buffer(sum.begin() + static_cast<std::ptrdiff_t>(begin_of(rank) * size),
                   sum.begin() + static_cast<std::ptrdiff_t>(begin_of(rank + 1) * size))};
  }

  Results results(std::size_t rank) const { return results_of(*outputs_[rank], rank); }

  // What the outputs of this rank hold, whichever way they were made.
  Results results_of(const proto::Outputs& outputs, std::size_t rank) const {
    if (!receives(rank)) return {};
    Results results;
    for (const auto& output : outputs.sparse()) {
      const std::uint64_t count = call_.collective == wire::Collective::reduce_scatter
                                      ? begin_of(rank + 1) - begin_of(rank)
                                      : call_.descriptor.count;
      Buffer array(count * element_size(call_.descriptor.dtype), std::byte{0xcd});
      output->write_dense(array.data());
      const std::uint64_t named = output->named();
      const proto::SparseList list = output->take();
      REQUIRE(list.count() <= named);
      check_same(list, array);
      results.push_back(std::move(array));
    }
    return results;
  }

 private:
  static std::int64_t index_of(const proto::SparseList& list, std::size_t i) {
    const std::byte* const indices = list.indices().get();
    return list.is_wide() ? reinterpret_cast<const std::int64_t*>(indices)[i]
                          : reinterpret_cast<const std::int32_t*>(indices)[i];
  }

  // The sparse form of a result must say the same as the dense one.
  void check_same(const proto::SparseList& list, const Buffer& dense) const {
    const std::size_t row = vectors_.front().row_bytes();
    Buffer array(dense.size());
    std::int64_t before = -1;
    for (std::size_t i = 0; i < list.count(); ++i) {
      const std::int64_t index = index_of(list, i);
      const bool is_in_order = index > before;
      before = index;
      if (!is_in_order || static_cast<std::size_t>(before) * row >= array.size()) {
        FAIL("index number " << i << " is " << before);
      }
      std::copy_n(list.values().get() + i * row, row,
                  array.data() + static_cast<std::size_t>(before) * row);
    }
    if (same(array, dense)) return;
    const DType dtype = call_.descriptor.dtype;
    for (std::size_t at = 0; at < array.size(); at += element_size(dtype)) {
      if (std::memcmp(array.data() + at, dense.data() + at, element_size(dtype)) == 0) continue;
      // It may leave out what counts as zero.
      const bool are_zeros =
          is_zero(array.data() + at, 0, dtype) && is_zero(dense.data() + at, 0, dtype);
      if (!are_zeros) FAIL("byte " << at << " differs");
    }
  }

  wire::Call call_;
  std::vector<SparseVector> vectors_;
  std::vector<std::unique_ptr<proto::Outputs>> outputs_;
};

inline constexpr wire::Collective kCollectives[] = {
    wire::Collective::all_reduce, wire::Collective::reduce, wire::Collective::reduce_scatter,
    wire::Collective::broadcast, wire::Collective::all_gather};

// Those that run by exchanges.
inline constexpr wire::Algorithm kExchanges[] = {
    wire::Algorithm::allgather, wire::Algorithm::ssar_recursive_double, wire::Algorithm::ring};

inline wire::Descriptor sparse_descriptor(DType dtype, std::uint64_t length, std::uint32_t row,
                                          Random& random) {
  return {.dtype = dtype,
          .op = pick({ReduceOp::sum, ReduceOp::avg}, random),
          .count = length * row,
          .is_sparse = true,
          .row = row,
          .seed = static_cast<std::uint32_t>(random())};
}

inline wire::Call random_sparse_call(const wire::Descriptor& descriptor, std::size_t world_size,
                                     Random& random) {
  wire::Call call{.descriptor = descriptor,
                  .collective = pick(kCollectives, random),
                  .root = static_cast<std::uint32_t>(below(world_size, random))};
  if (call.collective == wire::Collective::all_reduce) {
    call.algorithm = pick(kExchanges, random);
    call.root = 0;
  }
  const std::uint64_t rows = descriptor.count / descriptor.row;
  if (call.collective == wire::Collective::reduce_scatter && rows % 7 == 0) call.unit = 7;
  return call;
}

// `make_values(count)` gives the values of one rank. In a broadcast only the root brings any.
template <typename MakeValues>
SparseCollective sparse_collective(const wire::Call& call, std::size_t world_size,
                                   std::uint64_t most_named, Random& random,
                                   MakeValues&& make_values) {
  const std::uint64_t length = call.descriptor.count / call.descriptor.row;
  std::vector<SparseVector> vectors;
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    const bool brings = call.collective != wire::Collective::broadcast || rank == call.root;
    const std::uint64_t named =
        !brings || length == 0 || one_in(5, random) ? 0 : below(most_named + 1, random);
    auto positions = random_positions(length, named, random);
    Buffer values = make_values(positions.size() * call.descriptor.row);
    vectors.emplace_back(call.descriptor, std::move(positions), std::move(values),
                         one_in(2, random));
  }
  return {call, std::move(vectors)};
}

}  // namespace sparsewire::test
