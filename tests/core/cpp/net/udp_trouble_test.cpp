// Sockets for datagrams in trouble: no room, nobody there, too much at once, and bad networks. What
// cannot be sent is counted, and nothing ends.
#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include "net/udp/udp_socket.hpp"
#include "udp_sockets.hpp"

namespace udp_trouble_test {

using namespace sparsewire;
using namespace sparsewire::net;
using namespace sparsewire::test;
using namespace std::chrono_literals;

// The kernel cuts nothing where it must not write checksums.
TEST_CASE("where the system refuses to cut messages, they are sent one by one") {
  Socket from = bound_socket(AF_INET);
  const int off = 1;
  REQUIRE(::setsockopt(from.fd(), SOL_SOCKET, SO_NO_CHECK, &off, sizeof off) == 0);
  UdpPair pair(std::move(from), bound_socket(AF_INET), {}, {});
  for (int round = 1; round <= 2; ++round) {
    commit_many(*pair.a, 50, 1000);
    pair.a->flush(kAnyTime);
    const Arrivals came = receive_many(*pair.b, 50);
    CHECK(came.size() == 50);
    CHECK(are_numbered(came, 1000));
    CHECK(pair.a->counters().messages_sent == static_cast<std::uint64_t>(50 * round));
  }
  CHECK(pair.a->counters().errors == 0);
  CHECK(pair.a->counters().dropped == 0);
}

TEST_CASE("what waits is bounded, each datagram counted once in memory, however many it goes to") {
  Crowd crowd(3, {.most_queued = 10});
  for (int i = 0; i < 10; ++i) {
    CHECK(crowd.sender.has_room());
    crowd.sender.commit(100, crowd.addresses);
  }
  CHECK_FALSE(crowd.sender.has_room());
  CHECK(crowd.sender.counters().dropped == 0);
  CHECK(crowd.sender.room().size() == 1472);
  crowd.sender.commit(100, crowd.addresses);
  crowd.sender.commit(100, crowd.addresses[0]);
  CHECK(crowd.sender.counters().dropped == 4);
  crowd.sender.flush(kAnyTime);
  CHECK(crowd.sender.has_room());
  CHECK(crowd.sender.counters().datagrams_sent == 30);
  for (const auto& receiver : crowd.receivers) CHECK(receive_many(*receiver, 10).size() == 10);
}

// Datagrams between Unix sockets wait for their receiver, as those of UDP do for a slow link.
struct SlowPair {
  SlowPair() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    for (const int end : {0, 1}) sockets[end] = std::make_unique<UdpSocket>(fds[end], kPlain);
    const int small = 20'000;
    REQUIRE(::setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
  }
  std::unique_ptr<UdpSocket> sockets[2];
};

TEST_CASE("what the system does not take waits until the poller tells of room") {
  SlowPair pair;
  UdpSocket& from = *pair.sockets[0];
  UdpSocket& to = *pair.sockets[1];
  const auto poller = std::make_shared<Poller>();
  from.watch(poller);
  CHECK(poller->wait(0ms).empty());  // that it is writable goes without saying
  commit_many(from, 1000, 1000);
  from.flush(kAnyTime);
  CHECK(from.has_output());
  CHECK_FALSE(from.is_writable());
  CHECK(from.counters().errors + from.counters().dropped == 0);
  Arrivals came;
  for (int turn = 0; turn < 100'000 && came.size() < 1000; ++turn) {
    for (Arrival& one : receive_some(to)) came.push_back(std::move(one));
    wait_readable(to, 0);
    for (const auto& event : poller->wait(0ms)) {
      CHECK(event.ready == &from);
      event.ready->note_ready(event.readable, event.writable);
      CHECK(from.is_writable() == from.has_output());
      from.flush(kAnyTime);
    }
  }
  CHECK(came.size() == 1000);
  CHECK(are_numbered(came, 1000));
  CHECK_FALSE(from.has_output());
  CHECK(from.counters().datagrams_sent == 1000);
  while (!poller->wait(0ms).empty()) {
  }
  commit_many(from, 1, 1000);
  from.flush(kAnyTime);
  CHECK(receive_many(to, 1).size() == 1);
  CHECK(poller->wait(0ms).empty());
}

TEST_CASE_TEMPLATE("where nobody listens, an error tells, and nothing ends", Family, Ipv4, Ipv6) {
  Socket nobody = bound_socket(Family::kFamily);
  const SystemAddress place = address_of(nobody.fd()).system();
  UdpPair pair(bound_socket(Family::kFamily), std::move(nobody), {}, {});
  pair.b->close();
  bool is_told = false;
  SUBCASE("when something is sent") {
    for (int i = 0; i < 100 && !is_told; ++i) {
      commit_many(*pair.a, 1, 100);
      pair.a->flush(kAnyTime);
      is_told = pair.a->take_error() == std::errc::connection_refused;
    }
    CHECK(pair.a->counters().dropped >= 1);
  }
  SUBCASE("when something is received") {
    commit_many(*pair.a, 1, 100);
    pair.a->flush(kAnyTime);
    CHECK(receive_some(*pair.a).empty());
    REQUIRE(wait_readable(*pair.a, 5000));
    CHECK(receive_some(*pair.a).empty());
    CHECK_FALSE(pair.a->is_readable());
    is_told = pair.a->take_error() == std::errc::connection_refused;
  }
  CHECK(is_told);
  CHECK_FALSE(pair.a->take_error());
  CHECK(pair.a->counters().errors >= 1);
  UdpSocket somebody(bound_socket(Family::kFamily, place).release());
  for (int i = 0; i < 2; ++i) {  // the first may be refused for what was before
    commit(*pair.a, datagram_of(100, 7));
    pair.a->flush(kAnyTime);
  }
  CHECK(receive_many(somebody, 1).size() >= 1);
}

TEST_CASE_TEMPLATE("a datagram that does not fit on the path is told and dropped", Family, Ipv4,
                   Ipv6) {
  UdpPair pair(Family::kFamily, {.datagram_bytes = 65'530});
  commit_many(*pair.a, 1, 65'530);
  commit_many(*pair.a, 1, 100);
  pair.a->flush(kAnyTime);
  CHECK(pair.a->take_error() == std::errc::message_size);
  CHECK(pair.a->counters().dropped == 1);
  CHECK(pair.a->counters().errors == 1);
  CHECK(pair.a->counters().datagrams_sent == 1);
  CHECK(are_numbered(receive_many(*pair.b, 1), 100));
}

TEST_CASE("a turn is bounded") {
  SUBCASE("in messages") {
    UdpPair pair(AF_INET, kPlain, kPlain);
    commit_many(*pair.a, 200, 10);
    pair.a->flush(kAnyTime);
    Arrivals came = receive_many(*pair.b, 1);
    CHECK(came.size() == 64);
    CHECK(pair.b->is_readable());
    for (Arrival& one : receive_many(*pair.b, 136)) came.push_back(std::move(one));
    CHECK(came.size() == 200);
    CHECK(are_numbered(came, 10));
  }
  SUBCASE("in bytes") {
    UdpPair pair(AF_INET);
    commit_many(*pair.a, 1000, 1000);
    pair.a->flush(kAnyTime);
    Arrivals came = receive_many(*pair.b, 1);
    CHECK(came.size() < 1000);
    CHECK(pair.b->is_readable());
    for (Arrival& one : receive_many(*pair.b, 1000 - came.size())) came.push_back(std::move(one));
    CHECK(are_numbered(came, 1000));
    CHECK(came.size() == 1000);
  }
}

TEST_CASE("a bad network takes its shares both ways") {
  const UdpOptions bad{.disturbance = Disturbance{.loss = 0.1, .duplicate = 0.05, .seed = 3}};
  UdpPair pair(AF_INET, bad, bad);
  constexpr int kRounds = 100;
  constexpr int kCount = 100;
  std::size_t came = 0;
  const auto count = [&](auto data, const Address& from) {
    CHECK(data.size() == 200);
    CHECK(from == pair.address_a);
    ++came;
  };
  Microseconds now{0};
  for (int round = 0; round < kRounds; ++round) {
    commit_many(*pair.a, kCount, 200);
    CHECK(pair.a->has_output());
    for (int step = 0; step < 2 || pair.a->next_due(); ++step, now += 1ms) pair.a->flush(now);
    const std::uint64_t sent = pair.a->counters().datagrams_sent;
    while (pair.b->counters().datagrams_received < sent && wait_readable(*pair.b, 5000)) {
      pair.b->receive(now, count);
    }
  }
  while (const auto due = pair.b->next_due()) pair.b->receive(*due, count);
  const auto [lost, doubled, late, damaged] = pair.a->disturbances();
  const auto [lost_in, doubled_in, late_in, damaged_in] = pair.b->disturbances();
  CHECK(pair.a->counters().datagrams_sent == kRounds * kCount - lost + doubled);
  CHECK(came == kRounds * kCount - lost + doubled - lost_in + doubled_in);
  for (const std::uint64_t share : {lost, lost_in}) CHECK((share > 850 && share < 1150));
  for (const std::uint64_t share : {doubled, doubled_in}) CHECK((share > 350 && share < 550));
  CHECK(late + late_in + damaged + damaged_in == 0);
}

TEST_CASE("what is delayed has a time when it is due") {
  UdpPair pair(AF_INET, {.disturbance = Disturbance{.delay = 200us}});
  commit_many(*pair.a, 2, 100);
  CHECK_FALSE(pair.a->next_due());
  pair.a->flush(1000us);
  CHECK_FALSE(pair.a->has_output());
  CHECK(pair.a->next_due() == 1200us);
  pair.a->flush(1199us);
  CHECK(pair.a->counters().datagrams_sent == 0);
  pair.a->flush(1200us);
  CHECK(pair.a->counters().datagrams_sent == 2);
  CHECK_FALSE(pair.a->next_due());
  CHECK(are_numbered(receive_many(*pair.b, 2), 100));
}

TEST_CASE("what a bad network has still to look at is bounded") {
  UdpPair pair(AF_INET, {.disturbance = Disturbance{.loss = 0.5}});
  commit_many(*pair.a, static_cast<int>(Disturber::kMostHeld) + 5, 10);
  CHECK(pair.a->counters().dropped == 5);
}

}  // namespace udp_trouble_test
