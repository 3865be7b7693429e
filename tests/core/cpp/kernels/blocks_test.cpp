// Bitmaps, and the moves of blocks that they tell.
#include "kernels/blocks.hpp"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "base/bitmap.hpp"
#include "elements.hpp"

namespace blocks_test {

using namespace sparsewire;
using namespace sparsewire::test;

// --- pack, unpack, clear ---

TEST_CASE("pack, unpack and clear move exactly the blocks they should") {
  std::mt19937_64 random(4);
  for (const std::size_t size : {2u, 4u, 8u}) {
    for (const std::size_t block : {16u, 256u}) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, block - 1, block, block + 1,
                                      64 * block, 131 * block + 3}) {
        const std::size_t blocks = ceil_div(count, block);
        std::vector<std::uint64_t> bitmap(bitmap_words(blocks));
        for (auto& word : bitmap) word = random() & random();
        Buffer data(count * size);
        for (auto& byte : data) byte = static_cast<std::byte>(random() | 1);

        Buffer expected_packed;
        Buffer expected_cleared = data;
        Buffer expected_unpacked(data.size());
        for (std::size_t b = 0; b < blocks; ++b) {
          const auto begin = static_cast<std::ptrdiff_t>(b * block * size);
          const auto end = static_cast<std::ptrdiff_t>(std::min(count, (b + 1) * block) * size);
          if (test_bit(bitmap.data(), b)) {
            expected_packed.insert(expected_packed.end(), data.begin() + begin, data.begin() + end);
            std::copy(data.begin() + begin, data.begin() + end, expected_unpacked.begin() + begin);
          } else {
            std::fill(expected_cleared.begin() + begin, expected_cleared.begin() + end,
                      std::byte{0});
          }
        }

        Buffer packed(expected_packed.size());
        CHECK(pack(packed.data(), data.data(), count, size, block, bitmap.data()) == packed.size());
        CHECK((packed == expected_packed));
        Buffer unpacked(data.size());
        CHECK(unpack(unpacked.data(), packed.data(), count, size, block, bitmap.data()) ==
              packed.size());
        CHECK((unpacked == expected_unpacked));
        Buffer cleared = data;
        clear(cleared.data(), count, size, block, bitmap.data());
        CHECK((cleared == expected_cleared));
      }
    }
  }
}

// --- Bitmaps ---

TEST_CASE("runs cover the set bits and nothing else") {
  std::mt19937_64 random(5);
  for (const std::size_t count : {0u, 1u, 63u, 64u, 65u, 128u, 300u}) {
    for (int density = 0; density < 4; ++density) {
      std::vector<std::uint64_t> bitmap(bitmap_words(count));
      for (auto& word : bitmap) {
        word = density == 0   ? 0
               : density == 1 ? random() & random()
               : density == 2 ? random()
                              : ~0u;
        if (density == 3) word = ~std::uint64_t{0};
      }
      std::size_t expected = 0;
      for (std::size_t i = 0; i < count; ++i) expected += test_bit(bitmap.data(), i);

      std::size_t next = 0;
      std::size_t covered = 0;
      for_each_run(bitmap.data(), count, [&](std::size_t first, std::size_t length) {
        CHECK(length > 0);
        CHECK((first > next || next == 0));  // Runs are maximal: a clear bit lies between two.
        for (std::size_t i = first; i < first + length; ++i) CHECK(test_bit(bitmap.data(), i));
        next = first + length;
        covered += length;
      });
      CHECK(next <= count);
      CHECK(covered == expected);
      CHECK(count_set(bitmap.data(), count) == expected);
      CHECK(all_set(bitmap.data(), count) == (expected == count));
    }
  }
}

}  // namespace blocks_test
