// Reads segments out of dense memory and writes results into it.
#include "proto/stream/dense.hpp"

#include <algorithm>
#include <array>

#include "kernels/blocks.hpp"
#include "kernels/kernels.hpp"
#include "proto/stream/by_element.hpp"

namespace sparsewire::proto {
namespace {

// Blocks of the sample.
constexpr std::uint64_t kSampleBlocks = 128;

// Blocks of a chunk that are looked into before all of its elements are.
constexpr std::size_t kProbedBlocks = 4;

// Spreads the sample over the tensor, without a regular stride that a pattern could hide from.
std::uint64_t sample_position(std::uint64_t index, std::uint64_t blocks) {
  return (index + 1) * 0x9E3779B97F4A7C15u % blocks;
}

// Non-zero elements of one block.
std::size_t nonzeros_in(const std::byte* data, std::size_t count, DType dtype) {
  std::array<std::uint64_t, wire::kMaxBlock / 64> marks;
  return kernels().mark(data, count, dtype, marks.data()).nonzero;
}

}  // namespace

bool leaves_out_zeros(const DenseTensor& tensor) {
  if (!skips_zeros(tensor.descriptor.op)) return false;
  const ChunkGrid& grid = tensor.grid;
  const std::uint64_t blocks = ceil_div(grid.count, std::uint64_t{grid.block});
  if (blocks < kSampleBlocks) return true;
  std::uint64_t nonzero_blocks = 0;
  std::uint64_t nonzeros = 0;
  for (std::uint64_t i = 0; i < kSampleBlocks; ++i) {
    const std::uint64_t begin = sample_position(i, blocks) * grid.block;
    const auto count = std::min<std::uint64_t>(grid.block, grid.count - begin);
    const std::size_t found =
        nonzeros_in(tensor.source + begin * grid.element_size, count, tensor.descriptor.dtype);
    nonzero_blocks += found != 0;
    nonzeros += found;
  }
  const auto sampled = static_cast<double>(kSampleBlocks);
  return static_cast<double>(nonzero_blocks) < sampled * kDenseBlocks ||
         static_cast<double>(nonzeros) < sampled * grid.block * kDenseElements;
}

std::optional<Segment> DenseSource::segment(std::uint64_t chunk) {
  if (!scans_) return dense_segment(chunk);
  const BlockLayout layout = tensor_.grid.layout(chunk);
  wire::BlockBitmap bitmap{};
  const ScanResult scan = kernels().scan(at(chunk), layout.count, tensor_.descriptor.dtype,
                                         layout.block, bitmap.data());
  if (scan.nonzero != 0) {
    if (auto segment = segment_by_element(chunk, bitmap)) return segment;
  }
  if (scan.nonzero == layout.blocks()) return dense_segment(chunk);
  std::optional<Segment> segment;
  if (scan.nonzero != 0) {
    segment = segment_of_blocks(bitmap, layout, [&](std::byte* values, std::size_t) {
      pack(values, at(chunk), layout.count, layout.element_size, layout.block, bitmap.data());
    });
  }
  if (scan.negative_zeros || !tensor_.in_place()) {
    clear(tensor_.at(chunk), layout.count, layout.element_size, layout.block, bitmap.data());
  }
  return segment;
}

std::optional<Segment> DenseSource::segment_by_element(std::uint64_t chunk,
                                                       const wire::BlockBitmap& bitmap) const {
  if (!is_scattered(chunk, bitmap)) return {};
  const BlockLayout layout = tensor_.grid.layout(chunk);
  wire::ElementBitmap elements{};
  const ScanResult marks =
      kernels().mark(at(chunk), layout.count, tensor_.descriptor.dtype, elements.data());
  const auto format =
      format_by_element(layout, marks.nonzero, wire::packed_bytes(bitmap, layout), costs_);
  if (!format) return {};
  return segment_of_elements(*format, elements, marks.nonzero, layout, [&](std::byte* values) {
    kernels().gather(values, at(chunk), layout.element_size, bitmap_words(layout.count),
                     elements.data());
    if (marks.negative_zeros || !tensor_.in_place()) keep_elements_only(chunk, elements, values);
  });
}

// Whether blocks that are not zero hold mostly zeros, judged by the first few.
bool DenseSource::is_scattered(std::uint64_t chunk, const wire::BlockBitmap& bitmap) const {
  const BlockLayout layout = tensor_.grid.layout(chunk);
  std::size_t looked = 0;
  std::size_t nonzeros = 0;
  std::size_t probes = 0;
  for (std::size_t block = find_bit(bitmap.data(), 0, layout.blocks(), true);
       block < layout.blocks() && probes < kProbedBlocks; ++probes) {
    const std::size_t begin = block * layout.block;
    const std::size_t count = std::min(layout.block, layout.count - begin);
    nonzeros +=
        nonzeros_in(at(chunk) + begin * layout.element_size, count, tensor_.descriptor.dtype);
    looked += count;
    block = find_bit(bitmap.data(), block + 1, layout.blocks(), true);
  }
  return nonzeros * 2 < looked;
}

// Makes all other elements of the output +0.0, because the results will not name them.
void DenseSource::keep_elements_only(std::uint64_t chunk, const wire::ElementBitmap& elements,
                                     const std::byte* values) const {
  const BlockLayout layout = tensor_.grid.layout(chunk);
  std::memset(tensor_.at(chunk), 0, layout.bytes());
  kernels().scatter(tensor_.at(chunk), values, layout.element_size, bitmap_words(layout.count),
                    elements.data());
}

Segment DenseSource::dense_segment(std::uint64_t chunk) const {
  const std::size_t size = tensor_.grid.layout(chunk).bytes();
  return {wire::Format::dense, Codec::raw, Bytes::borrowed({at(chunk), size})};
}

const std::byte* DenseSource::at(std::uint64_t chunk) const {
  return tensor_.source + tensor_.grid.offset_bytes(chunk);
}

std::byte* DenseSink::place(std::uint64_t chunk, std::size_t size) {
  return size == tensor_.grid.layout(chunk).bytes() ? tensor_.at(chunk) : nullptr;
}

Status DenseSink::write(std::uint64_t chunk, const Segment& segment) {
  if (segment.payload.data() == tensor_.at(chunk)) return {};  // It was received in its place.
  const BlockLayout layout = tensor_.grid.layout(chunk);
  const auto contribution = read_segment(kNoRank, segment, layout);
  if (!contribution) return contribution.error();
  write_named(*contribution, layout, tensor_.at(chunk));
  return {};
}

}  // namespace sparsewire::proto
