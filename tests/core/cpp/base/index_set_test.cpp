// Sets of small numbers against those of the standard library.
#include "base/index_set.hpp"

#include <doctest/doctest.h>

#include <set>

#include "random.hpp"

namespace index_set_test {

using namespace sparsewire;
using namespace sparsewire::test;

std::vector<std::size_t> walk(const IndexSet& set, std::size_t first = 0) {
  std::vector<std::size_t> members;
  set.for_each_from(first, [&](std::size_t index) { members.push_back(index); });
  return members;
}

std::vector<std::size_t> walk(const std::set<std::size_t>& set, std::size_t first) {
  std::vector<std::size_t> members(set.lower_bound(first), set.end());
  members.insert(members.end(), set.begin(), set.lower_bound(first));
  return members;
}

TEST_CASE("it holds what was inserted and not erased, in order from any member on") {
  Random random(1);
  for (const std::size_t size : {1u, 3u, 63u, 64u, 65u, 256u, 1000u}) {
    CAPTURE(size);
    IndexSet set(size);
    std::set<std::size_t> expected;
    for (int i = 0; i < 500; ++i) {
      const std::size_t index = below(size, random);
      if (one_in(2, random)) {
        set.insert(index);
        expected.insert(index);
      } else {
        set.erase(index);
        expected.erase(index);
      }
      CHECK(set.contains(index) == expected.contains(index));
      REQUIRE(set.empty() == expected.empty());
      const std::size_t first = below(size, random);
      REQUIRE(walk(set, first) == walk(expected, first));
      const auto next = expected.lower_bound(first);
      REQUIRE(set.next(first) == (next == expected.end() ? size : *next));
    }
  }
}

TEST_CASE("one that might hold nothing holds nothing") {
  const IndexSet none;
  CHECK(none.empty());
  CHECK(none.next() == 0);
  CHECK(walk(none).empty());
}

TEST_CASE("a walk comes to what is inserted before it, and not to what is erased") {
  IndexSet set(200);
  for (const std::size_t index : {3u, 70u, 150u}) set.insert(index);
  std::vector<std::size_t> seen;
  set.for_each([&](std::size_t index) {
    seen.push_back(index);
    set.erase(index);
    if (index != 70) return;
    set.insert(10);
    set.insert(71);
    set.erase(150);
  });
  CHECK(seen == std::vector<std::size_t>{3, 70, 71});
  CHECK(walk(set) == std::vector<std::size_t>{10});
}

}  // namespace index_set_test
