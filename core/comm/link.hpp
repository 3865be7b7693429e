// A lane's connection and whose it is.
#pragma once

#include "comm/lane.hpp"
#include "net/tcp/connection.hpp"

namespace sparsewire::comm {

// Known by the owner's index, which is its rank where owners are colocated.
class Lane::Link final : public net::FrameHandler {
 public:
  Link(Lane& lane, std::uint32_t owner, int fd)
      : lane_(lane), owner_(owner), connection(fd), pulse(patience_of(lane.place_.topology)) {
    connection.expect_answers_within(patience_of(lane.place_.topology));
  }

  std::uint32_t owner() const { return owner_; }
  Rank rank() const { return lane_.place_.dedicated ? kNoRank : static_cast<Rank>(owner_); }

  Status accepts(const wire::FrameHeader& header) override { return lane_.accepts(*this, header); }
  std::byte* place(const wire::FrameHeader& header) override {
    if (header.kind != wire::FrameKind::result) return nullptr;
    return lane_.worker_.place(owner_, header);
  }
  Status on_message(wire::Message message) override {
    return lane_.on_message(*this, std::move(message));
  }

 private:
  Lane& lane_;
  std::uint32_t owner_;

 public:
  net::Connection connection;
  proto::Pulse pulse;
};

}  // namespace sparsewire::comm
