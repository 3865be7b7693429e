// Tensors beyond 2^32 elements and 2^33 bytes, which nobody has to hold in memory: the offsets and
// chunk numbers that small tensors never reach.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include "simulator.hpp"
#include "tensors.hpp"

namespace stream_huge_test {

using namespace sparsewire;
using namespace sparsewire::test;

constexpr std::uint64_t kCount = (std::uint64_t{1} << 32) + 12'345;
constexpr std::uint64_t kLastChunk = kCount / wire::kMaxChunkElements;

// The chunks around which 32 bits end, for elements and for bytes, signed and not.
constexpr std::uint64_t kFarChunks[] = {0,      1,      8191,   8192,           16'383,    16'384,
                                        32'767, 32'768, 65'535, kLastChunk - 1, kLastChunk};

TEST_CASE("the plan of a huge tensor") {
  const wire::Topology topology{.world_size = 3, .lanes = 2, .owners = 3};
  for (const std::uint64_t count : {kCount, wire::kMaxCount}) {
    const auto grid = proto::make_grid({DType::float64, ReduceOp::sum, count}, topology);
    CHECK(grid.chunk_elements == 65536);
    const std::uint64_t last = grid.chunks() - 1;
    CHECK(last == (count - 1) / 65536);
    CHECK(grid.offset_bytes(last) == last * 65536 * 8);
    CHECK(grid.layout(last).count == count - last * 65536);
    std::uint64_t dealt = 0;
    for (std::uint32_t stream = 0; stream < 6; ++stream) {
      const auto chunks =
          proto::chunks_of(stream % 2, stream / 2, wire::kMaxSequence, grid, topology);
      dealt += ceil_div(grid.chunks() - chunks.first, chunks.step);
      CHECK(chunks.contains(chunks.first));
      CHECK_FALSE(chunks.contains(chunks.first + 1));
    }
    CHECK(dealt == grid.chunks());
  }
}

// What a rank holds: some chunks in which one block is not zero, and nothing else.
using Chunks = std::map<std::uint64_t, float>;

class MadeUpSource final : public proto::Source {
 public:
  MadeUpSource(const Chunks& chunks, const proto::ChunkGrid& grid) : chunks_(chunks), grid_(grid) {}

  std::optional<proto::Segment> segment(std::uint64_t chunk) override {
    const auto at = chunks_.find(chunk);
    if (at == chunks_.end()) return {};
    const BlockLayout layout = grid_.layout(chunk);
    Buffer payload(wire::bitmap_bytes(layout) + layout.block_bytes());
    wire::encode_bitmap({1}, layout, payload.data());
    store(payload.data() + wire::bitmap_bytes(layout), 7, at->second);
    return proto::Segment{wire::Format::blocks, Codec::raw, Bytes::copy_of(payload)};
  }

 private:
  const Chunks& chunks_;
  proto::ChunkGrid grid_;
};

class RememberingSink final : public proto::Sink {
 public:
  RememberingSink(Chunks& chunks, const proto::ChunkGrid& grid) : chunks_(chunks), grid_(grid) {}

  std::byte* place(std::uint64_t, std::size_t) override { return nullptr; }
  Status write(std::uint64_t chunk, const proto::Segment& segment) override {
    const auto view = wire::decode_segment(segment.format, segment.codec, segment.payload.view(),
                                           grid_.layout(chunk));
    REQUIRE(view);
    REQUIRE(view->values.size() == grid_.layout(chunk).block_bytes());
    REQUIRE(chunks_.emplace(chunk, load<float>(view->values.data(), 7)).second);
    return {};
  }

 private:
  Chunks& chunks_;
  proto::ChunkGrid grid_;
};

TEST_CASE("a huge tensor with a few values far out") {
  const wire::Descriptor descriptor{DType::float32, ReduceOp::sum, kCount};
  for (const std::uint32_t lanes : {1u, 2u}) {
    Random random(lanes);
    const wire::Topology topology{
        .world_size = 3, .lanes = lanes, .owners = 3, .window_bytes = 2000};
    std::vector<Chunks> inputs(3);
    std::vector<Chunks> results(3);
    Chunks expected;
    for (const std::uint64_t chunk : kFarChunks) {
      for (Chunks& input : inputs) {
        if (one_in(2, random)) continue;
        input[chunk] = static_cast<float>(1 + below(100, random));
        expected[chunk] += input[chunk];
      }
    }
    Simulator simulator(topology, false, lanes);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      simulator.will_submit(static_cast<Rank>(rank), descriptor,
                            [&, rank](const proto::ChunkGrid& grid) -> Simulator::Ends {
                              return {std::make_unique<MadeUpSource>(inputs[rank], grid),
                                      std::make_unique<RememberingSink>(results[rank], grid)};
                            });
    }
    simulator.run();
    for (std::size_t rank = 0; rank < 3; ++rank) {
      CHECK(simulator.ended(static_cast<Rank>(rank), 0));
      CHECK((results[rank] == expected));
      CHECK(simulator.chunks_empty(static_cast<Rank>(rank)) ==
            kLastChunk + 1 - inputs[rank].size());
    }
    simulator.check_nothing_left();
  }
}

// Address space without memory behind it, but where it is written.
class VirtualTensor {
 public:
  explicit VirtualTensor(std::size_t bytes)
      : bytes_(bytes),
        memory_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~VirtualTensor() {
    if (exists()) ::munmap(memory_, bytes_);
  }
  VirtualTensor(const VirtualTensor&) = delete;
  VirtualTensor& operator=(const VirtualTensor&) = delete;

  bool exists() const { return memory_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  std::size_t bytes_;
  void* memory_;
};

TEST_CASE("dense memory is read and written far out") {
  const VirtualTensor memory(kCount * 4);
  if (!memory.exists()) {
    MESSAGE("left out: the system gives no address space of this size");
    return;
  }
  const wire::Descriptor descriptor{DType::float32, ReduceOp::sum, kCount};
  const auto grid = proto::make_grid(descriptor, {});
  const proto::DenseTensor tensor{memory.data(), memory.data(), descriptor, grid};
  for (const std::uint64_t chunk : kFarChunks) {
    CAPTURE(chunk);
    const std::size_t element = chunk * 65536 + grid.layout(chunk).count - 1;
    const auto value = static_cast<float>(chunk + 1);
    store(memory.data(), element, value);
    proto::DenseSource source(tensor, proto::leaves_out_zeros(tensor));
    const auto segment = source.segment(chunk);
    REQUIRE(segment);
    store(memory.data(), element, 0.0f);
    CHECK_FALSE(source.segment(chunk));

    proto::DenseSink sink(tensor);
    CHECK_FALSE(sink.write(chunk, *segment));
    CHECK(load<float>(memory.data(), element) == value);
    CHECK(sink.place(chunk, grid.layout(chunk).bytes()) == memory.data() + chunk * 65536 * 4);
    store(memory.data(), element, 0.0f);
  }
}

}  // namespace stream_huge_test
