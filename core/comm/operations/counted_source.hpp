// Counts the elements that an operation's dense input gives to send and, for a timeline, the time
// that this takes.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "comm/records/lane_log.hpp"
#include "proto/stream/source.hpp"

namespace sparsewire::comm {

// Elements of a raw segment: of whole blocks, if it names blocks.
inline std::size_t elements_in(const proto::Segment& segment, const BlockLayout& layout) {
  const std::size_t size = segment.payload.size();
  switch (segment.format) {
    case wire::Format::dense:
      return size / layout.element_size;
    case wire::Format::blocks:
      return (size - wire::bitmap_bytes(layout)) / layout.element_size;
    case wire::Format::bitmap:
      return (size - wire::positions_bytes(segment.format, layout, 0)) / layout.element_size;
    case wire::Format::coordinates:
      return size / (wire::positions_bytes(segment.format, layout, 1) + layout.element_size);
    default:
      return 0;
  }
}

class CountedSource final : public proto::Source {
 public:
  // Several lanes share the counter. The log may be null.
  CountedSource(std::unique_ptr<proto::Source> source, const proto::ChunkGrid& grid,
                std::uint64_t seq, std::atomic<std::uint64_t>& named, LaneLog* log)
      : source_(std::move(source)), grid_(grid), seq_(seq), named_(named), log_(log) {}

  std::optional<proto::Segment> segment(std::uint64_t chunk) override {
    const auto since = log_ ? Clock::now() : Clock::time_point{};
    auto segment = source_->segment(chunk);
    const BlockLayout layout = grid_.layout(chunk);
    const std::size_t named = segment ? elements_in(*segment, layout) : 0;
    named_.fetch_add(named, std::memory_order_relaxed);
    if (log_) log_->note_scanned(seq_, since, layout.count, named);
    return segment;
  }
  bool knows(std::uint64_t chunk) const override { return source_->knows(chunk); }

 private:
  std::unique_ptr<proto::Source> source_;
  const proto::ChunkGrid grid_;
  const std::uint64_t seq_;
  std::atomic<std::uint64_t>& named_;
  LaneLog* const log_;
};

}  // namespace sparsewire::comm
