// Packed coordinates: their bytes, a decoder that stands any input, and sums of them against a
// plain reference.
#include <doctest/doctest.h>

#include "codecs.hpp"
#include "decoding.hpp"
#include "proto/sparse/outputs.hpp"
#include "sparse_vectors.hpp"
#include "wire/packed_rows.hpp"
#include "wire/segment.hpp"

namespace packed_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::ChunkGrid;
using proto::ChunkRange;
using wire::Descriptor;
using wire::Piece;

constexpr std::uint64_t kChunk = 1024;  // elements

ChunkGrid grid_of(std::uint64_t count, DType dtype) {
  return {.count = count, .chunk_elements = kChunk, .element_size = element_size(dtype)};
}

ChunkRange all_of(const ChunkGrid& grid) { return {0, grid.chunks()}; }

Piece packed(const SparseVector& vector, const ChunkGrid& grid, const ChunkRange& range) {
  const proto::SparseTensor tensor = vector.tensor();
  const std::uint64_t from = proto::lower_bound(tensor, 0, range.first * kChunk);
  const std::uint64_t to = proto::lower_bound(tensor, from, range.end * kChunk);
  return proto::pack_elements(tensor, from, to, grid, range);
}

SparseVector random_vector(std::uint64_t count, DType dtype, Random& random) {
  const Descriptor descriptor{.dtype = dtype, .count = count, .is_sparse = true};
  auto positions = random_positions(
      count, pick<std::uint64_t>({1, 2, 50, 1 + count / 30, count}, random), random);
  Buffer values = random_nonzeros(positions.size(), dtype, random);
  return {descriptor, std::move(positions), std::move(values), one_in(2, random),
          pick({0u, 1u, 999u, 5000u}, random)};
}

// A vector, or several, of one random type and length.
struct RandomCase {
  explicit RandomCase(std::uint64_t seed)
      : random(seed),
        dtype(pick(kDTypes, random)),
        count(1 + below(20'000, random)),
        grid(grid_of(count, dtype)) {}

  SparseVector vector() { return random_vector(count, dtype, random); }

  Random random;
  DType dtype;
  std::uint64_t count;
  ChunkGrid grid;
};

// About `named` values of float32.
SparseVector random_float_vector(std::uint64_t count, std::uint64_t named, Random& random) {
  auto positions = random_positions(count, named, random);
  const Floats values = random_floats(positions.size(), random);
  return {{.count = count, .is_sparse = true},
          std::move(positions),
          buffer_of(std::as_bytes(std::span(values)))};
}

Buffer dense_of(const Piece& piece, const Descriptor& descriptor, const ChunkGrid& grid,
                const ChunkRange& range) {
  Buffer out(descriptor.count * element_size(descriptor.dtype), std::byte{0xcd});
  proto::DenseOutput output(descriptor, grid, out.data());
  REQUIRE_FALSE(output.write_packed(piece, range));
  output.finish();
  return out;
}

// --- Layout ---

TEST_CASE("packed coordinates have the bytes they should") {
  const Descriptor descriptor{.dtype = DType::float16, .count = 2500, .is_sparse = true};
  const SparseVector vector(descriptor, {3, 999, 2499},
                            bytes_of({0x11, 0x12, 0x21, 0x22, 0x31, 0x32}));
  const ChunkGrid grid = grid_of(2500, DType::float16);
  const Piece piece = packed(vector, grid, all_of(grid));
  CHECK(piece.chunk == 0);
  CHECK(piece.format == wire::Format::packed);
  CHECK((buffer_of(piece.payload.view()) ==
         bytes_of({2,    0,    0,    0,    0,    0,   0, 0, 1, 0, 0, 0,  //
                   3,    0,    0xe7, 3,    0xc3, 1,                      //
                   0x11, 0x12, 0x21, 0x22, 0x31, 0x32})));
}

TEST_CASE("packed coordinates come back as they were sent, from any range of chunks") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    RandomCase test(seed);
    const SparseVector vector = test.vector();
    const ChunkGrid& grid = test.grid;
    const std::uint64_t cut = below(grid.chunks() + 1, test.random);
    proto::SparseList list(true, vector.row_bytes());
    if (one_in(2, test.random)) list.reserve(vector.positions().size());
    proto::SparseOutput output(vector.descriptor(), grid, list);
    for (const ChunkRange range : {ChunkRange{0, cut}, {cut, grid.chunks()}}) {
      if (range.chunks() == 0) continue;
      REQUIRE_FALSE(output.write_packed(packed(vector, grid, range), range));
      output.pass(range);
    }
    REQUIRE(output.named() == vector.positions().size());
    Buffer out(vector.dense().size());
    output.write_dense(out.data());
    REQUIRE((out == vector.dense()));
    const proto::SparseList taken = output.take();
    const std::span indices(reinterpret_cast<const std::int64_t*>(taken.indices().get()),
                            taken.count());
    REQUIRE(std::ranges::equal(indices, vector.positions(), [](auto index, auto position) {
      return static_cast<std::uint64_t>(index) == position;
    }));
    REQUIRE((buffer_of({taken.values().get(), vector.values().size()}) == vector.values()));
  }
}

TEST_CASE("unpacked, they are the coordinates of each chunk") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    RandomCase test(seed);
    const SparseVector vector = test.vector();
    const ChunkGrid& grid = test.grid;
    const ChunkRange range = all_of(grid);
    const auto read = proto::read_packed(packed(vector, grid, range), grid, range);
    REQUIRE(read);
    Buffer out(vector.dense().size(), std::byte{0xcd});
    proto::DenseOutput output(vector.descriptor(), grid, out.data());
    for (const Piece& piece : proto::unpack_pieces(*read, range, grid.element_size)) {
      REQUIRE_FALSE(output.write(piece.chunk, {piece.format, piece.codec, piece.payload}));
    }
    output.finish();
    REQUIRE((out == vector.dense()));
  }
}

// --- Sums ---

TEST_CASE("sums of packed parts are those of the plain reference, and leave the scratch memory") {
  proto::Scratch scratch;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    RandomCase test(seed);
    const ChunkGrid& grid = test.grid;
    const ChunkRange range = all_of(grid);
    const proto::Reduction reduction{test.dtype, pick({ReduceOp::sum, ReduceOp::avg}, test.random),
                                     static_cast<std::int32_t>(1 + below(5, test.random))};
    std::vector<Buffer> inputs;
    std::vector<proto::PackedRead> parts;
    for (std::int32_t rank = 0; rank < reduction.world_size; ++rank) {
      const SparseVector vector = test.vector();
      inputs.push_back(vector.dense());
      auto read = proto::read_packed(packed(vector, grid, range), grid, range);
      REQUIRE(read);
      parts.push_back(*std::move(read));
    }
    const Piece sum = proto::add_packed(parts, test.dtype, reduction, range, scratch);
    const Descriptor descriptor{.dtype = test.dtype, .op = reduction.op, .count = test.count};
    REQUIRE((dense_of(sum, descriptor, grid, range) == reference_all_reduce(descriptor, inputs)));
    const std::byte* const memory = scratch.zeros();
    REQUIRE(std::all_of(memory, memory + wire::kMaxChunkElements * 8,
                        [](std::byte byte) { return byte == std::byte{0}; }));
  }
}

// --- Codecs ---

TEST_CASE("packed values in a codec are what the codec makes of them") {
  for (const Codec codec : kCodecs) {
    Random random(1);
    const ChunkGrid grid = grid_of(20'000, DType::float32);
    const ChunkRange range = all_of(grid);
    const SparseVector vector = random_float_vector(20'000, 3000, random);
    Floats values(vector.positions().size());
    std::memcpy(values.data(), vector.values().data(), vector.values().size());
    const Piece piece = proto::encode_packed(packed(vector, grid, range), codec, range, 7);
    CHECK(piece.codec == codec);
    const auto read = proto::read_packed(piece, grid, range);
    REQUIRE(read);
    const Floats expected = round_trip(codec, values, 7);
    REQUIRE(read->view.values.size() == expected.size() * sizeof(float));
    CHECK(std::memcmp(read->view.values.data(), expected.data(), read->view.values.size()) == 0);
  }
}

// --- Rows ---

// Whole rows of `unit` elements, in chunks that hold whole ones.
Piece packed_rows(std::uint64_t unit, const ChunkGrid& grid, Random& random) {
  const std::uint64_t rows = grid.count / unit;
  std::vector<std::uint64_t> positions;
  for (const std::uint64_t row : random_positions(rows, 1 + below(rows, random), random)) {
    for (std::uint64_t i = 0; i < unit; ++i) positions.push_back(row * unit + i);
  }
  Buffer values = random_nonzeros(positions.size(), DType::float32, random);
  const Descriptor descriptor{.count = grid.count, .is_sparse = true};
  return packed({descriptor, std::move(positions), std::move(values)}, grid, all_of(grid));
}

TEST_CASE("rows have one index on the wire, and one for each element behind it") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::uint64_t unit = pick<std::uint64_t>({2, 4, 8}, random);
    const ChunkGrid grid = grid_of(unit * (1 + below(3000, random)), DType::float32);
    const Piece piece = packed_rows(unit, grid, random);
    const Piece rows = wire::with_rows(piece, grid.chunks(), unit);
    REQUIRE(rows.format == wire::Format::packed_rows);
    const std::size_t elements = (piece.payload.size() - 4 * grid.chunks()) / 6;
    REQUIRE(rows.payload.size() == 4 * grid.chunks() + 2 * (elements / unit) + 4 * elements);
    const auto restored = wire::without_rows(rows, grid.chunks(), unit);
    REQUIRE(restored);
    REQUIRE(restored->format == wire::Format::packed);
    REQUIRE((buffer_of(restored->payload.view()) == buffer_of(piece.payload.view())));
  }
}

TEST_CASE("what is no whole rows, or malformed, stays as it is") {
  const ChunkGrid grid = grid_of(2048, DType::float32);
  const auto vector_at = [&](std::vector<std::uint64_t> positions) {
    Buffer values(4 * positions.size(), std::byte{1});
    const Descriptor descriptor{.count = grid.count, .is_sparse = true};
    return packed({descriptor, std::move(positions), std::move(values)}, grid, all_of(grid));
  };
  CHECK(wire::with_rows(vector_at({4, 5, 6, 7}), 2, 4).format == wire::Format::packed_rows);
  CHECK(wire::with_rows(vector_at({4, 5, 6, 8}), 2, 4).format == wire::Format::packed);
  CHECK(wire::with_rows(vector_at({4, 5, 6}), 2, 4).format == wire::Format::packed);
  CHECK(wire::with_rows(vector_at({1022, 1023, 1024, 1025}), 2, 4).format == wire::Format::packed);
  for (const Buffer& payload : {Buffer(7), bytes_of({4, 0, 0, 0, 0, 0, 0, 0, 1, 1})}) {
    const Piece broken{0, wire::Format::packed, Codec::raw, Bytes::copy_of(payload)};
    CHECK(wire::with_rows(broken, 2, 4).format == wire::Format::packed);
  }
}

bool are_rows(const Buffer& payload, std::size_t unit) {
  const Piece piece{0, wire::Format::packed_rows, Codec::raw, Bytes::copy_of(payload)};
  const auto restored = wire::without_rows(piece, 2, unit);
  if (!restored) REQUIRE(is_refused(restored));
  return static_cast<bool>(restored);
}

TEST_CASE("each malformed field of packed rows is refused") {
  Buffer valid = bytes_of({2, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0xfe, 0xff});
  valid.resize(valid.size() + 4 * 4);
  CHECK(are_rows(valid, 2));
  CHECK_FALSE(are_rows(changed(valid, {{0, 1}}), 2));     // no whole row
  CHECK_FALSE(are_rows(changed(valid, {{3, 255}}), 2));   // far too many
  CHECK_FALSE(are_rows(changed(valid, {{10, 255}}), 2));  // a row that leaves its chunk
  CHECK_FALSE(are_rows(Buffer(valid.begin(), valid.begin() + 7), 2));
  CHECK_FALSE(are_rows(Buffer(valid.begin(), valid.begin() + 12), 2));
}

// --- What is refused ---

bool is_taken(const Buffer& payload, const ChunkGrid& grid, Codec codec = Codec::raw) {
  const auto view = wire::decode_packed(codec, payload, grid.chunks(), grid.chunk_elements,
                                        grid.layout(grid.chunks() - 1));
  if (!view) REQUIRE(is_refused(view));
  return static_cast<bool>(view);
}

TEST_CASE("each malformed field of packed coordinates is refused") {
  const ChunkGrid grid = grid_of(2500, DType::float16);
  const Buffer valid = bytes_of({2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0xe7, 3, 0xc3, 1,  //
                                 1, 1, 1, 1, 1, 1});
  CHECK(is_taken(valid, grid));
  CHECK_FALSE(is_taken(changed(valid, {{0, 1}}), grid));            // a count too small
  CHECK_FALSE(is_taken(changed(valid, {{0, 3}}), grid));            // too large
  CHECK(is_taken(changed(valid, {{0, 1}, {4, 1}}), grid));          // of other chunks
  CHECK_FALSE(is_taken(changed(valid, {{3, 255}}), grid));          // far too large
  CHECK_FALSE(is_taken(changed(valid, {{15, 4}}), grid));           // an index beyond its chunk
  CHECK_FALSE(is_taken(changed(valid, {{14, 3}, {15, 0}}), grid));  // twice
  CHECK_FALSE(is_taken(changed(valid, {{14, 2}, {15, 0}}), grid));  // descending
  CHECK_FALSE(is_taken(changed(valid, {{16, 0xc4}}), grid));        // beyond the end
  for (std::size_t size = 0; size < valid.size(); ++size) {
    CHECK_FALSE(is_taken(Buffer(valid.begin(), valid.begin() + size), grid));
  }
  Buffer longer = valid;
  longer.push_back({});
  CHECK_FALSE(is_taken(longer, grid));
}

void check_any_packed(const Buffer& input, Codec codec, const ChunkGrid& grid) {
  const ChunkRange range = all_of(grid);
  const Piece piece{0, wire::Format::packed, codec, Bytes::copy_of(input)};
  const auto read = proto::read_packed(piece, grid, range);
  REQUIRE(static_cast<bool>(read) == is_taken(input, grid, codec));
  if (!read) return;
  REQUIRE(read->view.values.size() == read->view.count * grid.element_size);
  std::size_t named = 0;
  for (const Piece& chunk : proto::unpack_pieces(*read, range, grid.element_size)) {
    const auto view = wire::decode_segment(chunk.format, chunk.codec, chunk.payload.view(),
                                           grid.layout(chunk.chunk));
    REQUIRE(view);
    named += view->count;
  }
  REQUIRE(named == read->view.count);
}

TEST_CASE("any bytes are packed coordinates or refused") {
  const ChunkGrid grid = grid_of(3500, DType::float32);
  for (int seed = 0; seed < kInputs / 4; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    const Codec codec = pick(kCodecs, random);
    const SparseVector vector = random_float_vector(3500, 1 + below(60, random), random);
    const ChunkRange range = all_of(grid);
    const Piece valid = proto::encode_packed(packed(vector, grid, range), codec, range, 1);
    const Buffer bytes = buffer_of(valid.payload.view());
    if (seed < 20) {
      for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
        Buffer input = bytes;
        input[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
        check_any_packed(input, codec, grid);
      }
    }
    check_any_packed(mutated(bytes, random), one_in(10, random) ? pick(kCodecs, random) : codec,
                     grid);
  }
}

}  // namespace packed_test
