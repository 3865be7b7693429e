// A source that sends another one's values in a codec of low precision.
#pragma once

#include <memory>

#include "proto/stream/contribution.hpp"
#include "proto/stream/plan.hpp"

namespace sparsewire::proto {

class EncodedSource final : public Source {
 public:
  EncodedSource(std::unique_ptr<Source> source, const wire::Descriptor& descriptor,
                const ChunkGrid& grid, std::uint64_t seq, Rank rank)
      : source_(std::move(source)), descriptor_(descriptor), grid_(grid), seq_(seq), rank_(rank) {}

  std::optional<Segment> segment(std::uint64_t chunk) override {
    auto segment = source_->segment(chunk);
    if (!segment) return {};
    return encode_segment(*segment, descriptor_.segment_codec, grid_.layout(chunk),
                          rounding_key(descriptor_.seed, seq_, rank_, chunk));
  }

 private:
  std::unique_ptr<Source> source_;
  wire::Descriptor descriptor_;
  ChunkGrid grid_;
  std::uint64_t seq_;
  Rank rank_;
};

}  // namespace sparsewire::proto
