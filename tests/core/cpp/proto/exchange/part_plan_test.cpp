// Plans of parts: every element of every list is in exactly one chunk of one part, and the ranks
// agree on who brings and who gets what.
#include "proto/exchange/part_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "sparse_collectives.hpp"

namespace part_plan_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::PartPlan;
using wire::Algorithm;
using wire::Call;
using wire::Collective;

constexpr std::uint64_t kLengths[] = {0,      1,         6,          1000,
                                      65'536, 1'048'577, 70'000'000, std::uint64_t{1} << 40};

template <typename Visit>
void for_each_call(Visit visit) {
  for (const Collective collective : kCollectives) {
    for (const std::uint32_t row : {1u, 300u}) {
      for (const std::uint64_t length : kLengths) {
        for (const std::uint32_t unit : {1u, 6u}) {
          if (length % unit != 0) continue;
          const Call call{.descriptor = {.count = length * row, .is_sparse = true, .row = row},
                          .collective = collective,
                          .root = 1,
                          .unit = unit};
          CAPTURE(wire::describe(call));
          visit(call);
        }
      }
    }
  }
}

PartPlan plan_of(const Call& call, Rank rank, Rank world_size, std::uint64_t most) {
  return {call, Algorithm::allgather, rank, world_size, 5, most};
}

TEST_CASE("the parts of a list hold each of its chunks once") {
  for_each_call([](const Call& call) {
    for (const std::uint64_t most :
         {std::uint64_t{0}, call.descriptor.count / 1000, call.descriptor.count}) {
      const PartPlan plan = plan_of(call, 0, 3, most);
      std::vector<std::uint64_t> next(3);  // chunk, per list
      for (std::uint64_t part = 0; part < plan.parts(); ++part) {
        const std::uint64_t list = plan.list_of(part);
        REQUIRE(list < next.size());
        const proto::ChunkRange range = plan.range_of(part);
        if (range.chunks() == 0) continue;  // beyond a shorter list
        REQUIRE(range.first == next[list]);
        next[list] = range.end;
      }
      for (std::uint64_t list = 0; list < plan.list_of(plan.parts() - 1) + 1; ++list) {
        CHECK(next[list] == plan.grid(list).chunks());
      }
    }
  });
}

TEST_CASE("the ranks' shares of a reduce_scatter make up the vector, in whole units") {
  for_each_call([](const Call& call) {
    const bool scatters = call.collective == Collective::reduce_scatter;
    const std::uint64_t unit = std::uint64_t{call.descriptor.row} * call.unit;
    for (const Rank world_size : {1, 3, 7}) {
      const PartPlan plan = plan_of(call, 0, world_size, 0);
      std::uint64_t at = 0;
      for (std::uint64_t list = 0; list < static_cast<std::uint64_t>(world_size); ++list) {
        if (!scatters) {
          CHECK(plan.begin(list) == 0);
          CHECK(plan.end(list) == call.descriptor.count);
          continue;
        }
        CHECK(plan.begin(list) == at);
        CHECK(plan.begin(list) % unit == 0);
        at = plan.end(list);
        const std::uint64_t share = call.descriptor.count / unit / world_size;
        CHECK(at - plan.begin(list) >= share * unit);
        CHECK(at - plan.begin(list) <= (share + 1) * unit);
      }
      if (scatters) CHECK(at == call.descriptor.count);
    }
  });
}

TEST_CASE("every lane carries parts of every keeper, and the first alone all of few elements") {
  const Call call{.descriptor = {.count = 100'000'000, .is_sparse = true}};
  for (const Rank world_size : {2, 3, 4, 6}) {
    for (const std::uint32_t lanes : {1u, 2u, 3u, 4u}) {
      CAPTURE(world_size);
      CAPTURE(lanes);
      const PartPlan plan{
          call, Algorithm::ssar_split_allgather, 0, world_size, 5, call.descriptor.count};
      const PartPlan few{call, Algorithm::ssar_split_allgather, 0, world_size, 5, 1000};
      std::vector<std::vector<int>> parts(static_cast<std::size_t>(world_size),
                                          std::vector<int>(lanes));
      for (std::uint64_t part = 0; part < plan.parts(); ++part) {
        ++parts[part % static_cast<std::uint64_t>(world_size)][plan.lane_of(part, lanes)];
      }
      for (const auto& of_keeper : parts) {
        CHECK(std::ranges::min(of_keeper) >= std::ranges::max(of_keeper) - 2);
        CHECK(std::ranges::min(of_keeper) > 0);
      }
      CHECK(plan.is_shared_by(lanes) == (lanes > 1));
      CHECK_FALSE(few.is_shared_by(lanes));
      for (std::uint64_t part = 0; part < few.parts(); ++part) CHECK(few.lane_of(part, lanes) == 0);
    }
  }
}

TEST_CASE("who brings and who gets what") {
  constexpr Rank n = 4;
  for_each_call([](const Call& call) {
    const Collective what = call.collective;
    const std::uint64_t parts = plan_of(call, 0, n, 0).parts();
    for (std::uint64_t part = 0; part < parts; ++part) {
      Rank bringing = 0;
      Rank getting = 0;
      for (Rank rank = 0; rank < n; ++rank) {
        const PartPlan plan = plan_of(call, rank, n, 0);
        REQUIRE(plan.parts() == parts);
        bringing += plan.contributes(part);
        getting += plan.receives(part);
        if (what == Collective::reduce_scatter) {
          CHECK(plan.receives(part) == (plan.own_list() == plan.list_of(part)));
        }
      }
      const bool has_one_source = what == Collective::broadcast || what == Collective::all_gather;
      const bool has_one_sink = what == Collective::reduce || what == Collective::reduce_scatter;
      CHECK(bringing == (has_one_source ? 1 : n));
      CHECK(getting == (has_one_sink ? 1 : n));
    }
  });
}

}  // namespace part_plan_test
