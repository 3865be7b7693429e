// Prepared changes make the new version, however often they are written, and take no more memory
// than they say.
#include "weights/prepared.hpp"

#include <doctest/doctest.h>

#include <random>

namespace prepared_test {

using namespace sparsewire;
using namespace sparsewire::weights;

using Memory = std::vector<std::byte>;
using Random = std::mt19937_64;

Memory random_bytes(std::size_t size, Random& random) {
  Memory bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// A version in which a share of the elements moved, by little or to anywhere.
Memory changed(std::size_t width, const Memory& base, double share, bool is_step, Random& random) {
  Memory fresh = base;
  std::bernoulli_distribution changes(share);
  for (std::size_t i = 0; i < base.size(); i += width) {
    if (!changes(random)) continue;
    fresh[i] ^= std::byte{1};
    for (std::size_t byte = 0; byte < width && !is_step; ++byte) {
      fresh[i + byte] = static_cast<std::byte>(random());
    }
  }
  return fresh;
}

Memory prepared_of(Elements elements, const Memory& base, const Memory& fresh) {
  const std::size_t count = base.size() / elements.width;
  Memory code;
  encode_delta(elements, base.data(), fresh.data(), count, code);
  Memory prepared;
  REQUIRE(prepare_delta(elements, code, base.data(), count, prepared));
  Memory between;
  prepare_between(elements.width, base.data(), fresh.data(), count, between);
  CHECK(between == prepared);
  return prepared;
}

TEST_CASE("a prepared change makes the new version, and again") {
  Random random(1);
  for (const std::size_t width : {1, 2, 4, 8}) {
    for (const Numbers numbers : {Numbers::floating, Numbers::integer}) {
      for (const std::size_t count : {1, 63, 5000}) {
        for (const double share : {0.0, 0.02, 0.5, 1.0}) {
          for (const bool is_step : {false, true}) {
            const Memory base = random_bytes(width * count, random);
            const Memory fresh = changed(width, base, share, is_step, random);
            const Memory prepared = prepared_of({width, numbers}, base, fresh);
            Memory weights = base;
            REQUIRE(write_prepared(width, prepared, weights.data(), count));
            CHECK(weights == fresh);
            REQUIRE(write_prepared(width, prepared, weights.data(), count));
            CHECK(weights == fresh);
          }
        }
      }
    }
  }
}

TEST_CASE("it takes a position and the bits for each change, or the chunk") {
  Random random(2);
  const Elements elements{2, Numbers::floating};
  const Memory base = random_bytes(20'000, random);
  Memory fresh = base;
  CHECK(prepared_of(elements, base, base).size() == 4);
  for (const std::size_t at : {0, 77, 19'999}) fresh[at] ^= std::byte{1};
  CHECK(prepared_of(elements, base, fresh).size() == 4 + 3 * (4 + 2));
  CHECK(prepared_of(elements, base, random_bytes(20'000, random)).size() == 4 + base.size());
}

TEST_CASE("it takes no more where the code is of the whole") {
  const Elements elements{2, Numbers::floating};
  Memory base(20'000);
  for (std::size_t at = 0; at < base.size(); at += 200) base[at] = static_cast<std::byte>(at / 200);
  const Memory fresh(base.size());
  Memory code;
  encode_delta(elements, base.data(), fresh.data(), 10'000, code);
  REQUIRE(static_cast<Form>(code[0]) == Form::whole);
  CHECK(prepared_of(elements, base, fresh).size() == 4 + 99 * (4 + 2));
}

TEST_CASE("what does not fit the chunk is refused, and writes nothing") {
  Random random(3);
  const Elements elements{4, Numbers::integer};
  const Memory base = random_bytes(4 * 1000, random);
  for (const double share : {0.05, 1.0}) {
    const Memory fresh = changed(4, base, share, false, random);
    const Memory prepared = prepared_of(elements, base, fresh);
    Memory weights = base;
    for (std::size_t size = 0; size < prepared.size(); ++size) {
      CHECK_FALSE(write_prepared(4, {prepared.data(), size}, weights.data(), 1000));
    }
    CHECK_FALSE(write_prepared(4, prepared, weights.data(), 900));
    CHECK(weights == base);
  }
}

}  // namespace prepared_test
