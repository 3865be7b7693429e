// Groups of symbols: what comes back is what went in, they are counted as symbols are, and the last
// one is filled up in one way alone.
#include "compress/symbol_groups.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "random.hpp"

namespace symbol_groups_test {

using namespace sparsewire;
using namespace sparsewire::test;

using Symbols = std::vector<std::uint8_t>;

constexpr std::size_t kSizes[] = {1, 2, 3, 4, 5, 6, 7, 15, 16, 17, 256};

Symbols draw(SymbolRange range, std::size_t count, Random& random) {
  Symbols symbols(count);
  for (auto& symbol : symbols) {
    symbol = static_cast<std::uint8_t>(range.first + below(range.size, random));
  }
  return symbols;
}

TEST_CASE("a byte holds as many symbols as it can") {
  const auto size = [](std::size_t range) { return group_size({0, range}); };
  CHECK(size(1) == 8);
  CHECK(size(2) == 8);
  CHECK(size(3) == 5);
  CHECK(size(4) == 4);
  CHECK(size(5) == 3);
  CHECK(size(6) == 3);
  CHECK(size(7) == 2);
  CHECK(size(16) == 2);
  CHECK(size(17) == 1);
  CHECK(group_alphabet({9, 3}) == 243);
  CHECK(group_alphabet({9, 16}) == 256);
}

TEST_CASE("symbols come back from groups, which count them") {
  Random random(1);
  for (const std::size_t size : kSizes) {
    for (std::size_t count = 1; count < 200; count += 1 + count / 20) {
      const SymbolRange range{static_cast<std::uint8_t>(below(257 - size, random)), size};
      const Symbols symbols = draw(range, count, random);
      // In memory of exactly the size that is needed, for an address sanitizer.
      Symbols groups(group_count(count, range));
      group_symbols(symbols.data(), count, range, groups.data());
      CHECK(*std::max_element(groups.begin(), groups.end()) < group_alphabet(range));
      Symbols back(count);
      CHECK(ungroup_symbols(groups.data(), count, range, back.data()));
      CHECK(back == symbols);
      const Counts counted =
          count_in_groups(count_symbols(groups.data(), groups.size()), count, range);
      CHECK(counted == count_symbols(symbols.data(), count));
    }
  }
}

TEST_CASE("the range of symbols is the least") {
  Random random(2);
  for (std::size_t count = 1; count < 300; ++count) {
    Symbols symbols(count);
    for (auto& symbol : symbols) symbol = static_cast<std::uint8_t>(40 + below(100, random));
    const auto [least, most] = std::minmax_element(symbols.begin(), symbols.end());
    const SymbolRange range = range_of(symbols.data(), count);
    CHECK(range.first == *least);
    CHECK(range.size == std::size_t{*most} - *least + 1);
  }
}

TEST_CASE("a last group that is filled up with anything else is refused") {
  const SymbolRange range{4, 3};
  const Symbols symbols{4, 5, 6, 4, 5, 6};
  Symbols groups(2);
  group_symbols(symbols.data(), symbols.size(), range, groups.data());
  Symbols back(symbols.size());
  CHECK(ungroup_symbols(groups.data(), symbols.size(), range, back.data()));
  groups[1] = static_cast<std::uint8_t>(groups[1] + 3);
  CHECK_FALSE(ungroup_symbols(groups.data(), symbols.size(), range, back.data()));
}

}  // namespace symbol_groups_test
