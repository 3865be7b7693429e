// Paths of datagrams that change while a job runs: what passes no more is named within the peer
// timeout, and a worker whose address has changed goes on.
#include <doctest/doctest.h>

#include "slot_cluster.hpp"

namespace comm_slots_paths_test {

using namespace sparsewire;
using namespace sparsewire::test;
using comm::SlotFigure;

TEST_CASE("where no datagram passes any more, the operation fails within the peer timeout") {
  Random random(41);
  SlotAggregators aggregators(1);
  SlotJob job(aggregators, 2,
              {.disturbance = net::Disturbance{.loss = 1},
               .peer_timeout = std::chrono::milliseconds{1000}});
  Collective collective = large_collective(2, random);
  const auto began = comm::Clock::now();
  const Operations operations = submit_all(job.cluster(), collective);
  for (const OperationPtr& operation : operations) {
    const Status failure = outcome(operation);
    REQUIRE(failure);
    CAPTURE(failure->message);
    CHECK(failure->code == ErrorCode::unreachable);
    CHECK(failure->message.find(net::to_string(aggregators.address(0))) != std::string::npos);
    CHECK(failure->message.find("although its connection lives") != std::string::npos);
  }
  CHECK(comm::Clock::now() - began >= std::chrono::milliseconds{1000});
}

std::uint64_t rejected(const SlotAggregators& aggregators) {
  return aggregators.counters(1).rejected;
}

TEST_CASE("a greeting that is sent again from elsewhere moves no path") {
  Random random(42);
  SlotAggregators aggregators(1);
  SlotJob job(aggregators, 2);
  const Socket stranger = bound_socket(AF_INET);
  for (std::uint64_t number = 0; number <= job.greeted(); ++number) {
    send_to(stranger, aggregators.address(0), job.hello(1, number));
  }
  wait_until([&] { return rejected(aggregators) == job.greeted() + 1; });
  check_works(job.cluster(), kLargeSum, random);
  CHECK(rejected(aggregators) == job.greeted() + 1);
  job.cluster().close();
}

// The copy of a greeting that overtakes the greeting itself takes the place for a moment only.
TEST_CASE("a worker whose place was taken comes back to it, and the sums are right") {
  Random random(43);
  SlotAggregators aggregators(1);
  SlotJob job(aggregators, 2);
  const Socket stranger = bound_socket(AF_INET);
  send_to(stranger, aggregators.address(0), job.hello(1, job.greeted() + 1));
  std::array<std::byte, 64> answer;
  wait_until([&] { return ::recv(stranger.fd(), answer.data(), answer.size(), 0) == 64; });
  check_works(job.cluster(), kLargeSum, random);
  CHECK(rejected(aggregators) > 0);
  job.cluster().close();
}

// A job of two workers at its aggregator, which greets as its first worker.
class GreetedSlots {
 public:
  explicit GreetedSlots(std::size_t most_queued = 64)
      : slots_(1, 2, {SlotJob::kEpoch, std::make_shared<wire::WayKeys>(keys_)}),
        here_(bound_socket(AF_INET)),
        address_(address_of(here_.fd())),
        socket_(here_.duplicate().release(), {.most_queued = most_queued}) {}

  void greet(std::uint64_t number, const net::Address& from) {
    Buffer hello(64);
    wire::encode_greeting({.kind = wire::DatagramKind::hello,
                           .columns = 0,
                           .job = 1,
                           .epoch = SlotJob::kEpoch,
                           .round = number},
                          {.workers = 2, .world_size = 2, .datagram_bytes = 1472}, hello);
    keys_.up.seal(hello);
    slots_.on_datagram(hello, from, socket_);
  }

  // Whether the greeting is taken, and so binds the worker to where it came from.
  bool takes(std::uint64_t number, const net::Address& from) {
    const std::uint64_t before = slots_.counters().rejected;
    greet(number, from);
    return slots_.counters().rejected == before;
  }

  const net::Address& address() const { return address_; }
  const net::UdpSocket& socket() const { return socket_; }
  const comm::JobSlots& slots() const { return slots_; }

 private:
  const wire::WayKeys keys_ = keys_of(1, 0, 1472);
  comm::JobSlots slots_;
  Socket here_;
  net::Address address_;
  net::UdpSocket socket_;
};

TEST_CASE("a greeting moves a worker once, and back once, whoever sends copies of it") {
  GreetedSlots slots;
  const Socket elsewhere = bound_socket(AF_INET);
  const net::Address here = slots.address();
  const net::Address stranger = address_of(elsewhere.fd());
  CHECK(slots.takes(1, here));
  CHECK(slots.takes(2, stranger));  // It has overtaken the greeting itself.
  CHECK(slots.takes(2, here));
  CHECK_FALSE(slots.takes(2, stranger));
  CHECK(slots.takes(3, here));
  CHECK_FALSE(slots.takes(3, stranger));
}

TEST_CASE("what finds no room on its way out is counted") {
  GreetedSlots slots(1);
  for (std::uint64_t number = 1; number <= 4; ++number) slots.greet(number, slots.address());
  CHECK(slots.slots().counters().rejected == 0);
  CHECK(slots.socket().counters().dropped == 3);
}

}  // namespace comm_slots_paths_test
