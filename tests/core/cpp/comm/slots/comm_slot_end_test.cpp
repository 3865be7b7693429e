// One aggregator as a rank sees it, on a socket that a test fills and empties.
#include <doctest/doctest.h>

#include "comm/slots/slot_end.hpp"
#include "slot_cluster.hpp"

namespace comm_slot_end_test {

using namespace sparsewire;
using namespace sparsewire::test;

constexpr std::size_t kElements = 100'000;
constexpr proto::Microseconds kPatience{1'000'000}, kStep{50'000};

// With an operation under way, to whose datagrams nobody answers.
class Unanswered {
 public:
  explicit Unanswered(std::uint32_t racks = 1) {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    other_ = Socket(fds[1]);
    place_.topology = topology_of(2, 1, 1);
    place_.topology.datagram_bytes = 1472;
    place_.topology.peer_timeout_ms = 1000;
    place_.datagrams = std::make_shared<comm::DatagramPlace>(
        comm::DatagramPlace{.sockets = net::Sockets(std::vector<std::vector<int>>{{fds[0]}}),
                            .job = 1,
                            .epoch = 5,
                            .keys = {keys_of(1, 0, 1472)},
                            .arithmetic = proto::Arithmetic::exact,
                            .disturbance = {},
                            .workers = 2,
                            .worker = 0,
                            .racks = racks});
    end_.emplace(place_, 0);
    auto* const bytes = reinterpret_cast<std::byte*>(values_.data());
    end_->worker().begin(0, {.source = bytes, .out = bytes, .count = values_.size()});
  }

  comm::SlotEnd& end() { return *end_; }

  // Sends whatever it has to, for twice its patience.
  template <typename Prepare>
  void run(Prepare&& prepare) {
    for (const auto until = now_ + 2 * kPatience; now_ < until; now_ += kStep) {
      prepare();
      end_->send(now_);
    }
  }

 private:
  Socket other_;
  comm::LanePlace place_{.topology = {}, .lane = 0, .rank = 0, .dedicated = true};
  std::vector<float> values_ = std::vector<float>(kElements, 1.0f);
  std::optional<comm::SlotEnd> end_;
  proto::Microseconds now_{1'000'000};
};

TEST_CASE("where nothing can be said, nothing is known of the path") {
  Unanswered unanswered;
  net::UdpSocket& socket = unanswered.end().flows().front().socket();
  unanswered.run([&] {
    while (socket.has_room()) {
      socket.commit(100);
      if (!socket.has_room()) socket.flush({});
    }
  });
  CHECK_FALSE(unanswered.end().is_lost());
}

TEST_CASE("with racks, the way above is named, too") {
  for (const std::uint32_t racks : {1u, 2u}) {
    Unanswered unanswered(racks);
    unanswered.run([] {});
    REQUIRE(unanswered.end().is_lost());
    const bool names_parent =
        unanswered.end().loss().message.find("or from there to its parent") != std::string::npos;
    CHECK(names_parent == (racks == 2));
  }
}

}  // namespace comm_slot_end_test
