// Feeds the upper half with the sums of the lower half; passes answers from above down as they are.
#include "proto/stream/owner/deputy.hpp"

#include <utility>

namespace sparsewire::proto {

// The host's sums, as they become known.
class Deputy::Sums final : public Source {
 public:
  explicit Sums(std::uint64_t next) : next_(next) {}

  void add(const wire::Message& segment) {
    const wire::FrameHeader& header = segment.header;
    made_.emplace(header.chunk, Segment{header.format, header.codec, segment.payload});
    next_ = header.next;
  }

  std::optional<Segment> segment(std::uint64_t chunk) override {
    auto made = made_.extract(chunk);
    if (made.empty()) return {};
    return std::move(made.mapped());
  }
  bool knows(std::uint64_t chunk) const override { return chunk < next_ || made_.contains(chunk); }

 private:
  std::uint64_t next_;  // all chunks before it are made, empty or taken
  std::map<std::uint64_t, Segment> made_;
};

namespace {

// Keeps nothing of the results: they go to the ranks as they come.
class Onward final : public Sink {
 public:
  std::byte* place(std::uint64_t, std::size_t) override { return nullptr; }
  Status write(std::uint64_t, const Segment&) override { return {}; }
};

}  // namespace

Deputy::Deputy(const wire::Topology& topology, std::uint32_t lane, std::uint32_t owner,
               const std::vector<Rank>& ranks, std::shared_ptr<Scratch> scratch)
    : topology_(topology),
      owner_(owner),
      below_(topology, lane, owner,
             {.role = OwnerRole::deputy,
              .speakers = ranks,
              .all_cancel = false,
              .scratch = std::move(scratch)}),
      above_(topology, lane, owner) {}

Status Deputy::on_message(Rank rank, wire::Message message, Outbox& outbox) {
  const wire::FrameHeader header = message.header;
  Owner::Outbox made;
  if (Status error = below_.on_message(rank, std::move(message), made)) return error;
  if (header.kind == wire::FrameKind::cancel) cancel(header.seq, outbox);
  return take(std::move(made), outbox);
}

void Deputy::pause(bool paused, Outbox& outbox) {
  Owner::Outbox made;
  below_.pause(paused, made);
  (void)take(std::move(made), outbox);
}

Status Deputy::take(Owner::Outbox made, Outbox& outbox) {
  for (wire::Message& message : made) {
    switch (message.header.kind) {
      case wire::FrameKind::open:
        if (Status error = begin(message)) return error;
        break;
      case wire::FrameKind::segment:
        if (const auto at = sums_.find(message.header.seq); at != sums_.end()) {
          at->second->add(message);
        }
        break;
      default:  // The ranks disagree, or one cannot take part: then none can.
        outbox.up.push_back(message);
        outbox.up.back().header.kind = wire::FrameKind::decline;
        outbox.down.push_back(std::move(message));
    }
  }
  return {};
}

Status Deputy::begin(const wire::Message& open) {
  const auto descriptor = wire::decode_descriptor(open.payload.view());
  if (!descriptor) return descriptor.error();
  const std::uint64_t seq = open.header.seq;
  const ChunkGrid grid = make_grid(*descriptor, topology_);
  auto sums = std::make_unique<Sums>(open.header.next);
  sums_[seq] = sums.get();
  std::unique_ptr<Source> source = std::move(sums);
  if (descriptor->segment_codec != Codec::raw) {
    source =
        std::make_unique<EncodedSource>(std::move(source), *descriptor, grid, seq, ranks().front());
  }
  above_.submit(seq, *descriptor, grid, std::move(source), std::make_shared<Onward>());
  return {};
}

// The first rank of the host that gives up gives up for all.
void Deputy::cancel(std::uint64_t seq, Outbox& outbox) {
  if (sums_.erase(seq) == 0) return;
  above_.drop(seq);
  outbox.up.push_back(
      {{.kind = wire::FrameKind::cancel, .owner = static_cast<std::uint16_t>(owner_), .seq = seq},
       {}});
}

Status Deputy::on_answer(const wire::Message& message, Outbox& outbox) {
  const wire::FrameHeader& header = message.header;
  if (header.kind == wire::FrameKind::result) {
    if (!sums_.contains(header.seq)) return {};
    const auto ended = above_.on_result(owner_, header, message.payload);
    if (!ended) return ended.error();
    if (*ended) sums_.erase(header.seq);
  }
  outbox.down.push_back({header, message.payload.owned()});
  return {};
}

}  // namespace sparsewire::proto
