// Source and sink over dense memory: an ordinary tensor's values for the stream, and its results.
#pragma once

#include "kernels/kernels.hpp"
#include "proto/stream/by_element.hpp"
#include "proto/stream/source.hpp"

namespace sparsewire::proto {

// The tensor of one operation; source and out are the same memory if it runs in place.
struct DenseTensor {
  const std::byte* source;
  std::byte* out;
  wire::Descriptor descriptor;
  ChunkGrid grid;

  bool in_place() const { return source == out; }
  std::byte* at(std::uint64_t chunk) const { return out + grid.offset_bytes(chunk); }
};

// Shares of a sample's blocks and elements that are not zero. Where both reach these, no scan pays.
inline constexpr double kDenseBlocks = 0.95;
inline constexpr double kDenseElements = 0.5;

// Whether the operation allows to leave out zeros and a sample says that it pays to look for them.
// The sample is of the whole tensor, so it must be taken before any lane writes results into it.
bool leaves_out_zeros(const DenseTensor& tensor);

// Leaves out zeros, whole blocks or single ones, if it is told to scan for them. Then it also
// writes these zeros to the output as +0.0, because results never name them.
class DenseSource final : public Source {
 public:
  DenseSource(const DenseTensor& tensor, bool scans, const Costs& costs = {})
      : tensor_(tensor), scans_(scans), costs_(costs) {}

  std::optional<Segment> segment(std::uint64_t chunk) override;

 private:
  std::optional<Segment> segment_by_element(std::uint64_t chunk,
                                            const wire::BlockBitmap& bitmap) const;
  bool is_scattered(std::uint64_t chunk, const wire::BlockBitmap& bitmap) const;
  void keep_elements_only(std::uint64_t chunk, const wire::ElementBitmap& elements,
                          const std::byte* values) const;
  Segment dense_segment(std::uint64_t chunk) const;
  const std::byte* at(std::uint64_t chunk) const;

  DenseTensor tensor_;
  bool scans_;
  Costs costs_;
};

class DenseSink final : public Sink {
 public:
  explicit DenseSink(const DenseTensor& tensor) : tensor_(tensor) {}

  std::byte* place(std::uint64_t chunk, std::size_t size) override;
  Status write(std::uint64_t chunk, const Segment& segment) override;

 private:
  DenseTensor tensor_;
};

}  // namespace sparsewire::proto
