// A rack's aggregator between sockets of a test: what it answers, and how it bears refusals.
#include <doctest/doctest.h>

#include "allocations.hpp"
#include "comm/aggregators/rack_aggregator.hpp"
#include "slot_cluster.hpp"

namespace comm_racks_test {

using namespace sparsewire;
using namespace sparsewire::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kJob = 1;
constexpr std::size_t kFull = 200, kShort = 64;

// One with a worker below it, and its root above.
class Rack {
 public:
  explicit Rack(const std::optional<net::Disturbance>& disturbance = {}) {
    Socket below = bound_socket(AF_INET), above = bound_socket(AF_INET);
    connect_to(worker_, address_of(below.fd()));
    connect_to(above, address_of(root_.fd()));
    connect_to(root_, address_of(above.fd()));
    aggregator_.emplace(comm::RackLimits{1 << 30, 1 << 30}, below.release(), above.release(),
                        disturbance);
  }

  comm::RackAggregator& aggregator() { return *aggregator_; }

  void add(std::uint64_t job) {
    aggregator_->add_job(job, 4, {SlotJob::kEpoch, std::make_shared<wire::WayKeys>(keys_)},
                         std::make_shared<wire::WayKeys>(above_));
  }

  void greet(std::uint64_t number, std::size_t size) {
    say(worker_, wire::DatagramKind::hello, number, size, kOfRanks, keys_.up);
  }
  void welcome(std::uint64_t number, std::size_t size) {
    say(root_, wire::DatagramKind::welcome, number, size, kOfRacks, above_.down);
  }
  // The number of what comes to the root next.
  std::uint64_t asked() { return wire::decode_datagram(received(root_))->header.round; }
  std::size_t answered() { return received(worker_).size(); }

 private:
  static constexpr wire::Greeting kOfRanks{2, 4, 1, 2, 1472}, kOfRacks{2, 4, 0, 1, 1472};

  static void say(const Socket& by, wire::DatagramKind kind, std::uint64_t number, std::size_t size,
                  const wire::Greeting& greeting, const wire::TagKey& key) {
    Buffer words(size);
    const bool is_below = kind == wire::DatagramKind::hello;
    wire::encode_greeting({.kind = kind,
                           .worker = static_cast<std::uint16_t>(is_below ? 0 : 1),
                           .columns = 0,
                           .job = kJob,
                           .epoch = SlotJob::kEpoch,
                           .round = number},
                          greeting, words);
    key.seal(words);
    REQUIRE(::send(by.fd(), words.data(), words.size(), 0) == static_cast<ssize_t>(size));
  }
  static Buffer received(const Socket& by) {
    Buffer data(1472);
    ssize_t size = -1;
    wait_until([&] { return (size = ::recv(by.fd(), data.data(), data.size(), 0)) > 0; });
    data.resize(static_cast<std::size_t>(size));
    return data;
  }

  const wire::WayKeys keys_ = keys_of(kJob, 0, 1472), above_ = keys_of(kJob, 1, 1472);
  Socket worker_ = bound_socket(AF_INET), root_ = bound_socket(AF_INET);
  std::optional<comm::RackAggregator> aggregator_;
};

TEST_CASE("a long answer that a short one has overtaken is passed on as well") {
  Rack rack;
  rack.add(kJob);
  rack.greet(4, kFull);
  const std::uint64_t full = rack.asked();
  rack.greet(7, kShort);
  const std::uint64_t brief = rack.asked();
  rack.welcome(brief, kShort);
  CHECK(rack.answered() == kShort);
  rack.welcome(full, kFull);
  CHECK(rack.answered() == kFull);
}

TEST_CASE("an answer that comes again answers nobody, and is counted") {
  Rack rack;
  rack.add(kJob);
  for (const std::uint64_t number : {4, 8}) {
    rack.greet(number, kFull);
    const std::uint64_t asked = rack.asked();
    if (number == 8) rack.welcome(asked - 1, kFull);
    rack.welcome(asked, kFull);
    CHECK(rack.answered() == kFull);
  }
  rack.welcome(2, kFull);
  wait_until([&] { return rack.aggregator().stats().slots.at(kJob).rejected == 2; });
}

TEST_CASE("a job that finds no memory is not let in, and the others stay") {
  const Allocations::Spared spared;
  bool was_refused = true;
  for (std::int64_t skipped = 0; was_refused; ++skipped) {
    CAPTURE(skipped);
    Rack rack;
    rack.add(kJob);
    wait_until([&] { return rack.aggregator().stats().jobs == 1; });
    Allocations::refuse(skipped, 1);
    rack.add(2);
    wait_until([&] { return Allocations::asked() > 0; });
    std::this_thread::sleep_for(20ms);
    was_refused = Allocations::asked() > skipped && skipped < 12;
    Allocations::stop_refusing();
    rack.greet(4, kFull);
    CHECK(rack.asked() == 1);
  }
}

TEST_CASE("what a disturbance holds back on its way in comes out by itself") {
  Rack rack(net::Disturbance{.delay = proto::Microseconds{20'000}});
  rack.greet(4, kFull);
  wait_until([&] { return rack.aggregator().stats().strange_datagrams == 1; });
}

}  // namespace comm_racks_test
