// Memory of results: what somebody holds is nobody else's, and what is kept is bounded.
#include "comm/operations/result_pool.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "random.hpp"

namespace result_pool_test {

using namespace sparsewire;
using namespace sparsewire::test;
using comm::ResultPool;

constexpr std::size_t kMib = std::size_t{1} << 20;

struct Held {
  std::shared_ptr<std::byte[]> memory;
  std::size_t size;
  std::byte mark;

  bool is_intact() const {
    for (std::size_t at = 0; at < size; at += 4096) {
      if (memory[at] != mark) return false;
    }
    return memory[size - 1] == mark;
  }
};

Held hold(ResultPool& pool, std::size_t size, std::byte mark) {
  Held held{pool.allocate(size), size, mark};
  std::memset(held.memory.get(), static_cast<int>(mark), size);
  return held;
}

TEST_CASE("memory that was let go of comes again") {
  ResultPool pool(64 * kMib);
  const std::byte* first = nullptr;
  {
    const auto memory = pool.allocate(5 * kMib);
    first = memory.get();
  }
  CHECK(pool.kept() >= 5 * kMib);
  // A size that differs a little.
  CHECK(pool.allocate(5 * kMib + 100'000).get() == first);
  CHECK(pool.allocate(5 * kMib - 100'000).get() == first);
}

TEST_CASE("a small result does not take the memory of a large one") {
  ResultPool pool(64 * kMib);
  pool.allocate(40 * kMib);
  const std::size_t kept = pool.kept();
  const auto small = pool.allocate(2 * kMib);
  CHECK(pool.kept() == kept);
}

TEST_CASE("what is held is never given out again") {
  ResultPool pool(32 * kMib);
  Random random(1);
  std::vector<Held> all;
  for (int round = 0; round < 300; ++round) {
    if (all.size() > 5 || (!all.empty() && below(2, random) == 0)) {
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(below(all.size(), random)));
    } else {
      const std::size_t size = 1 + below(6 * kMib, random);
      all.push_back(hold(pool, size, static_cast<std::byte>(round)));
    }
    for (const Held& held : all) REQUIRE(held.is_intact());
  }
}

TEST_CASE("what is kept is bounded") {
  ResultPool pool(16 * kMib);
  std::vector<std::shared_ptr<std::byte[]>> all;
  for (std::size_t i = 0; i < 8; ++i) all.push_back(pool.allocate(6 * kMib));
  all.clear();
  CHECK(pool.kept() > 0);
  CHECK(pool.kept() <= 16 * kMib);
  pool.allocate(100 * kMib);
  CHECK(pool.kept() <= 16 * kMib);
}

TEST_CASE("threads share it") {
  ResultPool pool(32 * kMib);
  std::vector<std::thread> threads;
  std::vector<char> is_intact(4, 1);
  for (std::size_t i = 0; i < is_intact.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 100; ++round) {
        const Held held = hold(pool, 2 * kMib + i, static_cast<std::byte>(i + 1));
        std::this_thread::yield();
        if (!held.is_intact()) is_intact[i] = 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const char intact : is_intact) CHECK(intact == 1);
}

}  // namespace result_pool_test
