// Rules for frames from a rank, judged by the header alone: nothing is received in vain, and no
// rank takes more than its share.
#include "proto/stream/owner/owner.hpp"

namespace sparsewire::proto {

Status Owner::accepts(Rank rank, const wire::FrameHeader& header) const {
  const auto speaker = speaker_of(rank);
  if (!speaker) return protocol_error("owner: this rank does not speak to it");
  if (header.seq > settled_up_to_ && header.seq - settled_up_to_ > reach_) {
    return protocol_error("sequence: operation " + std::to_string(header.seq) +
                          " is too far ahead of those that all ranks are done with");
  }
  switch (header.kind) {
    case wire::FrameKind::open:
      return may_open(*speaker, header.seq);
    case wire::FrameKind::segment:
      return may_contribute(*speaker, header);
    case wire::FrameKind::cancel:
    case wire::FrameKind::refuse:
    case wire::FrameKind::decline:
      return may_settle(*speaker, header.seq, header.kind == wire::FrameKind::cancel);
    default:
      return protocol_error("owner: this kind of frame is not for an owner");
  }
}

Status Owner::may_open(Speaker speaker, std::uint64_t seq) const {
  if (seq < accounts_[speaker].opened_up_to) return protocol_error("open: operation opened before");
  if (accounts_[speaker].in_flight >= topology_.window_bytes) {
    return protocol_error("open: beyond the window");
  }
  const Operation* operation = find(seq);
  if (!operation || !operation->has(speaker, cancelled)) return {};
  return protocol_error("open: operation cancelled before");
}

Status Owner::may_contribute(Speaker speaker, const wire::FrameHeader& header) const {
  const Operation* operation = find(header.seq);
  if (!operation) return protocol_error("segment: its operation is not open");
  if (operation->has(speaker, cancelled)) {
    return protocol_error("segment: its operation was cancelled before");
  }
  if (operation->has_failed()) return {};
  if (!operation->has(speaker, opened) || header.chunk != operation->next[speaker]) {
    return protocol_error("segment: its chunk was not announced");
  }
  const wire::Descriptor& descriptor = operation->descriptor;
  if (!skips_zeros(descriptor.op) && header.format != wire::Format::dense) {
    return protocol_error("segment: this operation takes dense ones only");
  }
  if (accounts_[speaker].in_flight >= topology_.window_bytes) {
    return protocol_error("segment: beyond the window");
  }
  return check_next(descriptor, operation->chunks, header.chunk, header.next);
}

Status Owner::may_settle(Speaker speaker, std::uint64_t seq, bool is_cancel) const {
  const Operation* operation = find(seq);
  if (is_cancel && operation && operation->has(speaker, cancelled)) {
    return protocol_error("cancel: sent twice");
  }
  const bool is_counted = operation && operation->has(speaker, unsettled);
  if (is_counted || accounts_[speaker].unsettled < kMaxUnsettled) return {};
  return protocol_error("cancel: " + std::to_string(kMaxUnsettled) +
                        " failed operations wait for other ranks to catch up");
}

// The rule for announcements after chunk `after` (kNoChunk: at the start): any later chunk of the
// stream, or none; but if zeros may not be left out, the very next chunk.
Status Owner::check_next(const wire::Descriptor& descriptor, const ChunkSequence& chunks,
                         std::uint64_t after, std::uint64_t next) {
  if (chunks.empty()) return protocol_error("open: the operation has no chunk in this stream");
  const bool at_start = after == wire::kNoChunk;
  if (skips_zeros(descriptor.op) || descriptor.count == 0) {
    if (next == wire::kNoChunk) return {};
    const bool is_later = at_start || next > after;
    if (descriptor.count != 0 && is_later && chunks.contains(next)) return {};
  } else if (next == (at_start ? chunks.first : chunks.after(after))) {
    return {};
  }
  return protocol_error("look-ahead: chunk " + std::to_string(next) + " cannot come next");
}

}  // namespace sparsewire::proto
