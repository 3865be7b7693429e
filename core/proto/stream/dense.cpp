// Reads segments out of dense memory and writes results into it.
#include "proto/stream/dense.hpp"

#include <algorithm>
#include <array>

#include "kernels/blocks.hpp"

namespace sparsewire::proto {
namespace {

// The sample: so many blocks, and the share of non-zero ones from which scanning cannot pay.
constexpr std::uint64_t kSampleBlocks = 128;
constexpr std::uint64_t kDensePercent = 95;

// Spreads the sample over the tensor without the regular stride that a pattern could hide from.
std::uint64_t sample_position(std::uint64_t index, std::uint64_t blocks) {
  return (index + 1) * 0x9E3779B97F4A7C15u % blocks;
}

bool is_nonzero(const DenseTensor& tensor, std::uint64_t block) {
  const std::uint64_t begin = block * tensor.grid.block;
  const std::uint64_t count = std::min<std::uint64_t>(tensor.grid.block, tensor.grid.count - begin);
  std::uint64_t bit = 0;
  return kernels()
             .scan(tensor.source + begin * tensor.grid.element_size, count, tensor.descriptor.dtype,
                   tensor.grid.block, &bit)
             .nonzero_blocks != 0;
}

}  // namespace

bool leaves_out_zeros(const DenseTensor& tensor) {
  if (!skips_zeros(tensor.descriptor.op)) return false;
  const std::uint64_t blocks = ceil_div(tensor.grid.count, std::uint64_t{tensor.grid.block});
  if (blocks < kSampleBlocks) return true;
  std::uint64_t nonzero = 0;
  for (std::uint64_t i = 0; i < kSampleBlocks; ++i) {
    nonzero += is_nonzero(tensor, sample_position(i, blocks));
  }
  return nonzero * 100 < kSampleBlocks * kDensePercent;
}

std::optional<Segment> DenseSource::segment(std::uint64_t chunk) {
  if (!scans_) return dense_segment(chunk);
  const BlockLayout layout = tensor_.grid.layout(chunk);
  wire::BlockBitmap bitmap{};
  const ScanResult scan = kernels().scan(at(chunk), layout.count, tensor_.descriptor.dtype,
                                         layout.block, bitmap.data());
  if (scan.nonzero_blocks == layout.blocks()) return dense_segment(chunk);
  std::optional<Segment> segment;
  if (scan.nonzero_blocks != 0) segment = blocks_segment(chunk, bitmap);
  if (scan.negative_zeros || !tensor_.in_place()) clear_zero_blocks(chunk, bitmap);
  return segment;
}

Segment DenseSource::dense_segment(std::uint64_t chunk) const {
  const std::size_t size = tensor_.grid.layout(chunk).bytes();
  return {wire::Format::dense, Bytes::borrowed({at(chunk), size})};
}

Segment DenseSource::blocks_segment(std::uint64_t chunk, const wire::BlockBitmap& bitmap) const {
  const BlockLayout layout = tensor_.grid.layout(chunk);
  const std::size_t head = wire::bitmap_bytes(layout);
  const std::size_t size = head + wire::packed_bytes(bitmap, layout);
  auto owner = Bytes::allocate(size);
  wire::encode_bitmap(bitmap, layout, owner.get());
  pack(owner.get() + head, at(chunk), layout.count, layout.element_size, layout.block,
       bitmap.data());
  return {wire::Format::blocks, Bytes::shared(std::move(owner), size)};
}

void DenseSource::clear_zero_blocks(std::uint64_t chunk, const wire::BlockBitmap& bitmap) const {
  const BlockLayout layout = tensor_.grid.layout(chunk);
  clear(tensor_.target + tensor_.grid.offset_bytes(chunk), layout.count, layout.element_size,
        layout.block, bitmap.data());
}

const std::byte* DenseSource::at(std::uint64_t chunk) const {
  return tensor_.source + tensor_.grid.offset_bytes(chunk);
}

std::byte* DenseSink::at(std::uint64_t chunk) const {
  return tensor_.target + tensor_.grid.offset_bytes(chunk);
}

std::byte* DenseSink::place(std::uint64_t chunk, std::size_t size) {
  return size == tensor_.grid.layout(chunk).bytes() ? at(chunk) : nullptr;
}

Status DenseSink::write(std::uint64_t chunk, wire::Format format,
                        std::span<const std::byte> payload) {
  if (payload.data() == at(chunk)) return {};  // It was received in its place.
  const BlockLayout layout = tensor_.grid.layout(chunk);
  const auto segment = wire::decode_segment(format, payload, layout);
  if (!segment) return segment.error();
  unpack(at(chunk), segment->values.data(), layout.count, layout.element_size, layout.block,
         segment->bitmap.data());
  return {};
}

}  // namespace sparsewire::proto
