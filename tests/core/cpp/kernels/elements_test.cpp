// Kernels over single elements: which are not zero, and moving, adding and listing those that a
// bitmap names.
#include <doctest/doctest.h>

#include "base/bitmap.hpp"
#include "kernels/kernels.hpp"
#include "tensors.hpp"

namespace elements_test {

using namespace sparsewire;
using namespace sparsewire::test;

constexpr std::size_t kCounts[] = {0, 1, 15, 63, 64, 65, 127, 1000, 8192};

// Words with few bits and with many take different ways.
constexpr double kDensities[] = {0.05, 0.3, 0.95};

Buffer sparse(std::size_t count, DType dtype, double density, Random& random) {
  return random_tensor({dtype, ReduceOp::sum, count}, 16, {0.7, false, density}, random);
}

std::vector<std::uint64_t> marks_of(const Kernels& level, const Buffer& data, std::size_t count,
                                    DType dtype) {
  std::vector<std::uint64_t> marks(bitmap_words(count), ~std::uint64_t{0});
  level.mark(data.data(), count, dtype, marks.data());
  return marks;
}

template <typename Visit>
void for_each_case(Visit visit) {
  Random random(1);
  for (const Kernels* level : available_kernels()) {
    for (const DType dtype : kDTypes) {
      for (const std::size_t count : kCounts) {
        CAPTURE(name_of(level->level));
        CAPTURE(name_of(dtype));
        CAPTURE(count);
        for (const double density : kDensities) {
          CAPTURE(density);
          visit(*level, dtype, count, sparse(count, dtype, density, random));
        }
      }
    }
  }
}

TEST_CASE("mark names the elements that are not zero") {
  for_each_case([](const Kernels& level, DType dtype, std::size_t count, const Buffer& data) {
    std::vector<std::uint64_t> marks(bitmap_words(count), ~std::uint64_t{0});
    const ScanResult result = level.mark(data.data(), count, dtype, marks.data());
    bool negative_zeros = false;
    const Buffer zero(8);
    for (std::size_t i = 0; i < marks.size() * 64; ++i) {
      const bool nonzero = i < count && !is_zero(data.data(), i, dtype);
      REQUIRE(test_bit(marks.data(), i) == nonzero);
      if (i >= count || nonzero) continue;
      const std::size_t size = element_size(dtype);
      negative_zeros |= std::memcmp(data.data() + i * size, zero.data(), size) != 0;
    }
    CHECK(result.nonzero == count_set(marks.data(), count));
    CHECK(result.negative_zeros == negative_zeros);
  });
}

TEST_CASE("gather and scatter move exactly the elements they should") {
  for_each_case([](const Kernels& level, DType dtype, std::size_t count, const Buffer& data) {
    auto marks = marks_of(level, data, count, dtype);
    if (count >= 128) marks[1] = ~std::uint64_t{0};  // A word that is moved whole.
    const std::size_t size = element_size(dtype);
    Buffer expected(data.size());
    Buffer expected_packed;
    for (std::size_t i = 0; i < count; ++i) {
      if (!test_bit(marks.data(), i)) continue;
      const auto at = data.begin() + static_cast<std::ptrdiff_t>(i * size);
      std::copy_n(at, size, expected.begin() + static_cast<std::ptrdiff_t>(i * size));
      expected_packed.insert(expected_packed.end(), at, at + static_cast<std::ptrdiff_t>(size));
    }
    Buffer packed(expected_packed.size());
    level.gather(packed.data(), data.data(), size, marks.size(), marks.data());
    CHECK((packed == expected_packed));
    Buffer scattered(data.size());
    level.scatter(scattered.data(), packed.data(), size, marks.size(), marks.data());
    CHECK((scattered == expected));
  });
}

TEST_CASE("adding named elements is adding the whole, where the rest is zero") {
  for_each_case([](const Kernels& level, DType dtype, std::size_t count, const Buffer& data) {
    const auto marks = marks_of(level, data, count, dtype);
    Buffer packed(count_set(marks.data(), count) * element_size(dtype));
    level.gather(packed.data(), data.data(), element_size(dtype), marks.size(), marks.data());
    const std::size_t bytes = count * element_size(accumulator_of(dtype));
    Buffer named(bytes);
    Buffer whole(bytes);
    for (int twice = 0; twice < 2; ++twice) {
      level.add_at(named.data(), packed.data(), marks.size(), marks.data(), dtype);
      level.add(whole.data(), data.data(), count, dtype, ReduceOp::sum);
    }
    CHECK((named == whole));
  });
}

template <typename Index, typename List>
void check_list(List list, const std::vector<std::uint64_t>& marks, std::size_t count, Index base) {
  const std::size_t named = count_set(marks.data(), count);
  // What follows the last index belongs to somebody else.
  std::vector<Index> listed(named + 8, Index{-7});
  REQUIRE(list(marks.data(), marks.size(), base, listed.data()) == named);
  std::vector<Index> expected;
  for (std::size_t i = 0; i < count; ++i) {
    if (test_bit(marks.data(), i)) expected.push_back(base + static_cast<Index>(i));
  }
  expected.resize(named + 8, Index{-7});
  CHECK((listed == expected));
}

TEST_CASE("list names the set bits, and writes nothing behind them") {
  for_each_case([](const Kernels& level, DType dtype, std::size_t count, const Buffer& data) {
    const auto marks = marks_of(level, data, count, dtype);
    check_list<std::int32_t>(level.list_bits_32, marks, count, 2'000'000'000);
    check_list<std::int64_t>(level.list_bits_64, marks, count, std::int64_t{1} << 44);
  });
}

TEST_CASE("numbers of 16 bits become indices") {
  Random random(3);
  for (const Kernels* level : available_kernels()) {
    for (const std::size_t count : kCounts) {
      std::vector<std::byte> locals(2 * count + 1);
      std::vector<std::int64_t> expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        const auto local = static_cast<std::uint16_t>(below(65'536, random));
        std::memcpy(locals.data() + 1 + 2 * i, &local, 2);
        expected[i] = 5'000'000 + local;
      }
      std::vector<std::int64_t> wide(count);
      level->list_locals_64(locals.data() + 1, count, 5'000'000, wide.data());
      CHECK((wide == expected));
      std::vector<std::int32_t> narrow(count);
      level->list_locals_32(locals.data() + 1, count, 5'000'000, narrow.data());
      CHECK(std::equal(narrow.begin(), narrow.end(), expected.begin(), expected.end()));
    }
  }
}

}  // namespace elements_test
