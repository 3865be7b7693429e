// Sparse vectors cut into segments and put together again: what comes out is what went in, whatever
// the type, the shape, the columns and the density.
#include <doctest/doctest.h>

#include "base/bitmap.hpp"
#include "decoding.hpp"
#include "proto/sparse/outputs.hpp"
#include "proto/sparse/splitter.hpp"
#include "sparse_vectors.hpp"

namespace sparse_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::ChunkGrid;
using wire::Descriptor;

constexpr std::uint64_t kDenseBytes = 20'000'000;  // of plain arrays that the tests make

struct Share {
  double of_all = 0;
  std::uint64_t few = 0;
};
constexpr Share kShares[] = {{0}, {0, 1}, {0, 9}, {0.01}, {0.3}, {1}};

wire::Topology random_topology(Random& random) {
  return {.world_size = 16,
          .lanes = pick({1u, 2u}, random),
          .owners = pick({1u, 2u, 3u, 5u, 8u, 16u}, random),
          .block = pick({16u, 256u, 256u, 4096u}, random)};
}

bool fits_in_memory(const Descriptor& descriptor) {
  return descriptor.count * element_size(descriptor.dtype) <= kDenseBytes;
}

SparseVector random_vector(const Descriptor& descriptor, Share share, Random& random) {
  const std::uint64_t length = descriptor.count / descriptor.row;
  // What does not fit in memory gets a few rows only, in all its breadth.
  const std::uint64_t most = kDenseBytes / (8 * descriptor.row);
  const auto wanted =
      share.few + static_cast<std::uint64_t>(share.of_all * static_cast<double>(length));
  auto positions = random_positions(length, std::min(wanted, most), random);
  if (!positions.empty() && one_in(2, random)) positions.back() = length - 1;
  const std::uint64_t base = pick<std::uint64_t>({0, 0, 1, 255, 12'345}, random);
  const bool is_wide = one_in(2, random) || base + length > std::uint64_t{INT32_MAX} + 1;
  Buffer values = random_nonzeros(positions.size() * descriptor.row, descriptor.dtype, random);
  return {descriptor, std::move(positions), std::move(values), is_wide, base};
}

// Splits the vector and gives visit(chunk, segment) what comes out, in order of rows of chunks.
template <typename Visit>
void for_each_segment(const SparseVector& vector, const ChunkGrid& grid, Visit&& visit) {
  proto::Splitter splitter(vector.tensor(), grid);
  std::optional<std::uint64_t> before;
  while (const auto row = splitter.next_row()) {
    REQUIRE((!before || *row > *before));
    REQUIRE(*row * grid.columns < grid.chunks());
    before = row;
    const auto segments = splitter.split(*row);
    REQUIRE(segments.size() == grid.columns);
    REQUIRE(std::ranges::any_of(segments, [](const auto& segment) { return segment.has_value(); }));
    for (std::uint64_t column = 0; column < grid.columns; ++column) {
      if (segments[column]) visit(*row * grid.columns + column, *segments[column]);
    }
  }
}

template <typename Index>
void check_indices(const proto::SparseList& list, const SparseVector& vector) {
  const auto* const indices = reinterpret_cast<const Index*>(list.indices().get());
  for (std::size_t i = 0; i < vector.positions().size(); ++i) {
    if (indices[i] == static_cast<Index>(vector.positions()[i])) continue;
    CAPTURE(i);
    REQUIRE(indices[i] == static_cast<Index>(vector.positions()[i]));
  }
}

void check_list(const proto::SparseList& list, const SparseVector& vector) {
  REQUIRE(list.count() == vector.positions().size());
  list.is_wide() ? check_indices<std::int64_t>(list, vector)
                 : check_indices<std::int32_t>(list, vector);
  const std::size_t bytes = vector.values().size();
  REQUIRE(same({list.values().get(), bytes}, vector.values()));
}

// Writes the vector, and passes what is behind it row by row, but for a few that come late.
void write_all(proto::SparseOutput& output, const SparseVector& vector, const ChunkGrid& grid,
               Random& random) {
  std::vector<proto::ChunkRange> late;
  std::uint64_t passed = 0;
  const auto pass_until = [&](std::uint64_t chunk) {
    const proto::ChunkRange range{passed, chunk};
    passed = chunk;
    one_in(3, random) ? late.push_back(range) : output.pass(range);
  };
  for_each_segment(vector, grid, [&](std::uint64_t chunk, const proto::Segment& segment) {
    const std::uint64_t row = chunk / grid.columns * grid.columns;
    if (passed < row) pass_until(row);
    REQUIRE_FALSE(output.write(chunk, segment));
  });
  if (passed < grid.chunks()) pass_until(grid.chunks());
  for (const proto::ChunkRange& range : late) output.pass(range);
}

// With room for all of the list from the start, for a part of it, or for nothing.
void check_lists(const SparseVector& vector, const ChunkGrid& grid, const Buffer& expected) {
  const std::uint64_t count = vector.positions().size();
  Random random(count);
  for (const std::uint64_t room : {std::uint64_t{0}, count / 2, count}) {
    CAPTURE(room);
    const bool is_wide = vector.descriptor().count > INT32_MAX || one_in(2, random);
    proto::SparseList list(is_wide, vector.row_bytes());
    if (room != 0) list.reserve(room);
    proto::SparseOutput output(vector.descriptor(), grid, list);
    write_all(output, vector, grid, random);
    REQUIRE(output.named() >= count);
    if (!expected.empty()) {
      Buffer out(expected.size(), std::byte{0xab});
      output.write_dense(out.data());
      REQUIRE(same(out, expected));
    }
    check_list(output.take(), vector);
  }
}

void check_round_trip(const SparseVector& vector, const ChunkGrid& grid) {
  const Descriptor& descriptor = vector.descriptor();
  CAPTURE(wire::describe(descriptor));
  CAPTURE(grid.columns);
  CAPTURE(vector.positions().size());
  CAPTURE(vector.tensor().base);
  CAPTURE(vector.tensor().is_wide);
  const bool is_small = fits_in_memory(descriptor);
  const Buffer expected = is_small ? vector.dense() : Buffer{};
  check_lists(vector, grid, expected);
  if (!is_small) return;
  Buffer out(expected.size(), std::byte{0xcd});
  proto::DenseOutput dense(descriptor, grid, out.data());
  for_each_segment(vector, grid, [&](std::uint64_t chunk, const proto::Segment& segment) {
    REQUIRE_FALSE(dense.write(chunk, segment));
  });
  dense.finish();
  REQUIRE(same(out, expected));
}

TEST_CASE("vectors of every length, row and density") {
  std::uint64_t seed = 0;
  for (const std::uint32_t row : {1u, 16u, 64u, 300u, 4096u}) {
    for (const std::uint64_t length :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{255}, std::uint64_t{256},
          std::uint64_t{257}, std::uint64_t{70'000}, std::uint64_t{1'000'003},
          (std::uint64_t{1} << 45) / row}) {
      for (const Share share : kShares) {
        CAPTURE(++seed);
        Random random(seed);
        if (length > 2'000'000 && share.of_all != 0) continue;
        const Descriptor descriptor{
            .dtype = pick(kDTypes, random), .count = length * row, .is_sparse = true, .row = row};
        const ChunkGrid grid = proto::make_grid(descriptor, random_topology(random));
        check_round_trip(random_vector(descriptor, share, random), grid);
      }
    }
  }
}

TEST_CASE("vectors of every type and number of columns") {
  std::uint64_t seed = 1000;
  for (const DType dtype : kDTypes) {
    for (std::uint32_t owners = 1; owners <= 16; ++owners) {
      for (const std::uint32_t row : {1u, 16u}) {
        CAPTURE(++seed);
        Random random(seed);
        const Descriptor descriptor{.dtype = dtype,
                                    .count = 16 * (9000 + below(100'000, random) / row),
                                    .is_sparse = true,
                                    .row = row};
        const ChunkGrid grid = proto::make_grid(descriptor, {.owners = owners});
        check_round_trip(random_vector(descriptor, pick(kShares, random), random), grid);
      }
    }
  }
}

TEST_CASE("indices of 32 bits reach to their end") {
  const Descriptor descriptor{.count = std::uint64_t{1} << 31, .is_sparse = true};
  Random random(1);
  for (const std::uint32_t owners : {1u, 3u, 16u}) {
    const ChunkGrid grid = proto::make_grid(descriptor, {.owners = owners});
    const std::uint64_t last = INT32_MAX;
    std::vector<std::uint64_t> positions{0, 1, last - 300, last - 256, last - 1, last};
    Buffer values = random_nonzeros(positions.size(), descriptor.dtype, random);
    check_round_trip({descriptor, std::move(positions), std::move(values), false}, grid);
  }
}

TEST_CASE("zeros that a vector names are zeros of the array") {
  Random random(2);
  for (const std::uint32_t row : {1u, 16u}) {
    const Descriptor descriptor{.count = 32'000, .is_sparse = true, .row = row};
    const ChunkGrid grid = proto::make_grid(descriptor, {.owners = 3});
    for (const std::uint64_t named : {std::uint64_t{100}, 32'000 / std::uint64_t{row}}) {
      auto positions = random_positions(32'000 / row, named, random);
      Buffer values = random_nonzeros(positions.size() * row, descriptor.dtype, random);
      for (std::size_t i = 0; i < positions.size() * row; ++i) {
        if (one_in(3, random)) store(values.data(), i, 0.0f);
      }
      const SparseVector vector(descriptor, std::move(positions), std::move(values));
      proto::SparseOutput output(descriptor, grid, {true, row * std::size_t{4}});
      for_each_segment(vector, grid, [&](std::uint64_t chunk, const proto::Segment& segment) {
        REQUIRE_FALSE(output.write(chunk, segment));
      });
      Buffer out(32'000 * 4);
      output.write_dense(out.data());
      CHECK((out == vector.dense()));
    }
  }
}

// --- Formats ---

TEST_CASE("segments name what the vector names, in the smaller of the formats by element") {
  const Descriptor descriptor{.dtype = DType::float64, .count = 100'000, .is_sparse = true};
  const ChunkGrid grid = proto::make_grid(descriptor, {.owners = 2});
  for (const Share share : kShares) {
    CAPTURE(share.of_all);
    Random random(3);
    const SparseVector vector = random_vector(descriptor, share, random);
    std::uint64_t named = 0;
    for_each_segment(vector, grid, [&](std::uint64_t chunk, const proto::Segment& segment) {
      const BlockLayout layout = grid.layout(chunk);
      const auto view =
          wire::decode_segment(segment.format, segment.codec, segment.payload.view(), layout);
      REQUIRE(view);
      for (std::size_t i = 0; i < view->count; ++i) {
        named += !is_zero(view->values.data(), i, descriptor.dtype);
      }
      const std::size_t head = std::min(view->count * 2, bitmap_words(layout.count) * 8);
      const std::size_t by_element = head + view->count * layout.element_size;
      CHECK(segment.payload.size() == std::min(by_element, layout.bytes()));
    });
    CHECK(named == vector.positions().size());
  }
}

TEST_CASE("a sink of rows takes no single elements") {
  const Descriptor descriptor{.count = 3200, .is_sparse = true, .row = 32};
  const ChunkGrid grid = proto::make_grid(descriptor, {});
  proto::SparseOutput output(descriptor, grid, {true, 32 * 4});
  Buffer payload(2 + 4);
  const Status error =
      output.write(0, {wire::Format::coordinates, Codec::raw, Bytes::copy_of(payload)});
  REQUIRE(error);
  CHECK(error->code == ErrorCode::protocol);
}

TEST_CASE("sinks refuse segments that are none") {
  Random random(4);
  const Descriptor descriptor{.count = 20'000, .is_sparse = true};
  const ChunkGrid grid = proto::make_grid(descriptor, {.owners = 2});
  Buffer out(20'000 * 4);
  for (int i = 0; i < 2000; ++i) {
    CAPTURE(i);
    proto::SparseOutput sparse(descriptor, grid, {true, 4});
    proto::DenseOutput dense(descriptor, grid, out.data());
    const proto::Segment segment{static_cast<wire::Format>(below(5, random)),
                                 static_cast<Codec>(below(kCodecCount, random)),
                                 Bytes::copy_of(random_bytes(below(100, random), random))};
    const Status a = sparse.write(0, segment);
    const Status b = dense.write(0, segment);
    REQUIRE(a.has_value() == b.has_value());
    if (a) REQUIRE((a->code == ErrorCode::protocol && b->code == ErrorCode::protocol));
  }
}

// --- As a source ---

// Every lane asks for its own chunks, at speeds of their own.
TEST_CASE("a source gives every chunk to the lane that asks for it") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const wire::Topology topology = random_topology(random);
    const Descriptor descriptor{
        .count = 64 * (1 + below(5000, random)), .is_sparse = true, .row = pick({1u, 64u}, random)};
    const ChunkGrid grid = proto::make_grid(descriptor, topology);
    const SparseVector vector = random_vector(descriptor, pick(kShares, random), random);
    proto::SparseOutput output(descriptor, grid, {true, vector.row_bytes()});
    for (std::uint32_t lane = 0; lane < topology.lanes; ++lane) {
      proto::SparseSource source(vector.tensor(), grid, [&](std::uint64_t chunk) {
        return proto::lane_of(chunk, seed, topology) == lane;
      });
      std::vector<proto::ChunkSequence> streams;
      std::vector<std::uint64_t> next;
      for (std::uint32_t owner = 0; owner < topology.owners; ++owner) {
        streams.push_back(proto::chunks_of(lane, owner, seed, grid, topology));
        next.push_back(streams.back().empty() ? wire::kNoChunk : streams.back().first);
      }
      while (std::ranges::min(next) != wire::kNoChunk) {
        const std::size_t at = below(next.size(), random);
        if (next[at] == wire::kNoChunk) continue;
        if (const auto segment = source.segment(next[at])) {
          REQUIRE_FALSE(output.write(next[at], *segment));
        }
        next[at] = streams[at].after(next[at]);
      }
    }
    check_list(output.take(), vector);
  }
}

}  // namespace sparse_test
