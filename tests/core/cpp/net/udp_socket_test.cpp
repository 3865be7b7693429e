// Sockets for datagrams, over the loopback interface: what is sent arrives, whatever the system
// cuts and puts together; and what cannot be sent is counted.
#include "net/udp/udp_socket.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include "random.hpp"
#include "udp_sockets.hpp"

namespace udp_socket_test {

using namespace sparsewire;
using namespace sparsewire::net;
using namespace sparsewire::test;
using namespace std::chrono_literals;

TEST_CASE_TEMPLATE("addresses are the system's, and have a text", Family, Ipv4, Ipv6) {
  const Socket socket = bound_socket(Family::kFamily);
  const Address address = address_of(socket.fd());
  CHECK(address.port != 0);
  CHECK(Address::of(address.system()) == address);
  const std::string host = Family::kFamily == AF_INET ? "127.0.0.1" : "[::1]";
  CHECK(to_string(address) == host + ":" + std::to_string(address.port));
  Address other = address;
  ++other.port;
  CHECK(other != address);
  CHECK(AddressHash{}(other) != AddressHash{}(address));
  CHECK(Address::of(Address{}.system()) == Address{});
}

TEST_CASE("an address of a link has its interface") {
  Address address{AddressFamily::ipv6, 4000, 3, {0xfe, 0x80}};
  address.ip[15] = 1;
  CHECK(to_string(address) == "[fe80::1%3]:4000");
  CHECK(Address::of(address.system()) == address);
}

TEST_CASE("a message has no more datagrams than it may") {
  UdpPair pair(AF_INET, {.most_segments = 8});
  for (std::uint64_t i = 0; i < 40; ++i) commit(*pair.a, datagram_of(500, i));
  pair.a->flush(kAnyTime);
  CHECK(receive_many(*pair.b, 40).size() == 40);
  CHECK(pair.a->counters().messages_sent == 5);
}

TEST_CASE_TEMPLATE("datagrams of all sizes arrive whole and in order", Family, Ipv4, Ipv6) {
  for (const auto sending : {Offload::none, Offload::where_possible}) {
    for (const auto receiving : {Offload::none, Offload::where_possible}) {
      const UdpOptions options{.datagram_bytes = 9000, .sending = sending, .receiving = receiving};
      UdpPair pair(Family::kFamily, options, options);
      Random random(17);
      for (int round = 0; round < 20; ++round) {
        CAPTURE(round);
        Arrivals sent;
        std::size_t size = 1 + below(9000, random);
        for (std::uint64_t left = 1 + below(40, random); left != 0; --left) {
          if (one_in(3, random)) size = 1 + below(one_in(2, random) ? 9000 : 300, random);
          sent.push_back({datagram_of(size, random()), pair.address_a});
          commit(*pair.a, sent.back().data);
        }
        pair.a->flush(kAnyTime);
        CHECK_FALSE(pair.a->has_output());
        CHECK(receive_many(*pair.b, sent.size()) == sent);
      }
      const UdpCounters& from = pair.a->counters();
      const UdpCounters& to = pair.b->counters();
      CHECK(from.datagrams_sent == to.datagrams_received);
      CHECK(from.bytes_sent == to.bytes_received);
      CHECK(from.dropped + from.errors + to.errors == 0);
      CHECK_FALSE(pair.a->take_error());
    }
  }
}

TEST_CASE_TEMPLATE("an answer goes to where a datagram came from", Family, Ipv4, Ipv6) {
  UdpPair pair(Family::kFamily);
  commit(*pair.a, datagram_of(100, 1));
  pair.a->flush(kAnyTime);
  const Arrivals came = receive_many(*pair.b, 1);
  REQUIRE(came.size() == 1);
  commit(*pair.b, datagram_of(200, 2), came[0].from);
  pair.b->flush(kAnyTime);
  CHECK(receive_many(*pair.a, 1) == Arrivals{{datagram_of(200, 2), pair.address_b}});
}

TEST_CASE_TEMPLATE("equal datagrams leave and arrive as few messages", Family, Ipv4, Ipv6) {
  struct Case {
    int count;
    std::size_t size;
    std::uint64_t messages;
  };
  // 64 at most, and 64,000 bytes.
  for (const auto& [count, size, messages] :
       {Case{1, 1000, 1}, Case{60, 1000, 1}, Case{200, 500, 4}, Case{86, 1472, 2}}) {
    CAPTURE(count);
    UdpPair pair(Family::kFamily);
    commit_many(*pair.a, count, size);
    pair.a->flush(kAnyTime);
    CHECK(pair.a->counters().messages_sent == messages);
    CHECK(pair.a->counters().datagrams_sent == static_cast<std::uint64_t>(count));
    const Arrivals came = receive_many(*pair.b, static_cast<std::size_t>(count));
    CHECK(came.size() == static_cast<std::size_t>(count));
    CHECK(are_numbered(came, size));
    CHECK(pair.b->counters().messages_received == messages);
  }
}

TEST_CASE("a smaller datagram ends a message, a larger one begins another") {
  UdpPair pair(AF_INET);
  for (const std::size_t size : {500, 500, 300, 500, 500, 800, 800, 800}) {
    commit(*pair.a, datagram_of(size, size));
  }
  pair.a->flush(kAnyTime);
  CHECK(pair.a->counters().messages_sent == 3);
  Arrivals came = receive_many(*pair.b, 8);
  CHECK(came.size() == 8);
  for (const Arrival& one : came) CHECK(one.data == datagram_of(one.data.size(), one.data.size()));
}

TEST_CASE("without help of the system each datagram is a message") {
  UdpPair pair(AF_INET, kPlain, kPlain);
  commit_many(*pair.a, 100, 700);
  pair.a->flush(kAnyTime);
  CHECK(pair.a->counters().messages_sent == 100);
  CHECK(are_numbered(receive_many(*pair.b, 100), 700));
  CHECK(pair.b->counters().messages_received == 100);
}

TEST_CASE("results for many leave as one message for each") {
  Crowd crowd(8);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    for (std::uint64_t i = 0; i < 30; ++i) {
      std::ranges::copy(datagram_of(1072, i), crowd.sender.room().begin());
      crowd.sender.commit(1072, crowd.addresses);
    }
    crowd.sender.flush(kAnyTime);
    CHECK(crowd.sender.counters().messages_sent == 8 * round);
    CHECK(crowd.sender.counters().datagrams_sent == 8 * 30 * round);
    for (const auto& receiver : crowd.receivers) {
      const Arrivals came = receive_many(*receiver, 30);
      CHECK(came.size() == 30);
      CHECK(are_numbered(came, 1072));
    }
  }
}

TEST_CASE("any mix of datagrams for one, for some and for all arrives in order at each") {
  Crowd crowd(20);
  Random random(23);
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    std::vector<Arrivals> expected(crowd.addresses.size());
    const Address from = address_of(crowd.sender.fd());
    for (std::uint64_t i = 0; i < 1 + below(60, random); ++i) {
      const auto data = datagram_of(pick({std::size_t{100}, std::size_t{1072}}, random), random());
      std::vector<Address> to;
      const std::uint64_t share = pick({1, 5, 20}, random);
      for (std::size_t at = 0; at < expected.size(); ++at) {
        if (!one_in(share, random)) continue;
        to.push_back(crowd.addresses[at]);
        expected[at].push_back({data, from});
      }
      std::ranges::copy(data, crowd.sender.room().begin());
      crowd.sender.commit(data.size(), to);
    }
    crowd.sender.flush(kAnyTime);
    for (std::size_t at = 0; at < expected.size(); ++at) {
      CHECK(receive_many(*crowd.receivers[at], expected[at].size()) == expected[at]);
    }
  }
}

TEST_CASE("more destinations than are remembered do no harm") {
  UdpPair pair(AF_INET);
  for (std::uint16_t port = 1; port <= 3000; ++port) {
    Address to = pair.address_b;
    if (port % 100 != 0) to.ip[3] = static_cast<std::uint8_t>(2 + port % 200);
    to.port = port % 100 != 0 ? port : to.port;
    commit(*pair.b, datagram_of(100, port), to);
    if (port % 500 == 0) pair.b->flush(kAnyTime);
  }
  CHECK_FALSE(pair.b->has_output());
  CHECK(receive_many(*pair.b, 30).size() == 30);
}

TEST_CASE("the poller tells once of what has come") {
  UdpPair pair(AF_INET);
  const auto poller = std::make_shared<Poller>();
  pair.b->watch(poller);
  CHECK(poller->wait(0ms).empty());
  CHECK_FALSE(pair.b->is_readable());
  commit_many(*pair.a, 3, 100);
  pair.a->flush(kAnyTime);
  const auto events = poller->wait(5s);
  REQUIRE(events.size() == 1);
  CHECK(events[0].ready == pair.b.get());
  events[0].ready->note_ready(events[0].readable, events[0].writable);
  CHECK(pair.b->is_readable());
  CHECK(receive_some(*pair.b).size() == 3);
  CHECK_FALSE(pair.b->is_readable());
  commit(*pair.b, datagram_of(100, 1), pair.address_a);
  pair.b->flush(kAnyTime);
  CHECK(poller->wait(0ms).empty());
}

TEST_CASE("nothing is fragmented, and a connected socket knows how much fits") {
  UdpPair pair(AF_INET);
  int found = 0;
  socklen_t size = sizeof found;
  REQUIRE(::getsockopt(pair.a->fd(), IPPROTO_IP, IP_MTU_DISCOVER, &found, &size) == 0);
  CHECK(found == IP_PMTUDISC_DO);
  CHECK(largest_datagram(pair.a->fd()) == 65'507);
  CHECK(largest_datagram(pair.b->fd()) == 1472);
  UdpPair pair6(AF_INET6);
  REQUIRE(::getsockopt(pair6.a->fd(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, &found, &size) == 0);
  CHECK(found == IPV6_PMTUDISC_DO);
  CHECK(largest_datagram(pair6.a->fd()) == 65'488);
  CHECK(largest_datagram(pair6.b->fd()) == 1452);
}

TEST_CASE("an empty datagram is one, too") {
  UdpPair pair(AF_INET);
  REQUIRE(::send(pair.a->fd(), nullptr, 0, 0) == 0);
  CHECK(receive_many(*pair.b, 1) == Arrivals{{{}, pair.address_a}});
}

TEST_CASE("whoever visits may close the socket") {
  UdpPair pair(AF_INET, kPlain, kPlain);
  commit_many(*pair.a, 10, 100);
  pair.a->flush(kAnyTime);
  REQUIRE(wait_readable(*pair.b, 5000));
  int visits = 0;
  pair.b->receive(kAnyTime, [&](auto, const Address&) {
    ++visits;
    pair.b->close();
  });
  CHECK(visits == 1);
  CHECK_FALSE(pair.b->is_readable());
}

TEST_CASE("closing lets go of what waits, and of the poller, although somebody holds a copy") {
  UdpPair pair(AF_INET);
  const auto poller = std::make_shared<Poller>();
  pair.b->watch(poller);
  const Socket copy(::dup(pair.b->fd()));
  commit(*pair.b, datagram_of(100, 1), pair.address_a);
  pair.b->close();
  CHECK_FALSE(pair.b->is_open());
  CHECK_FALSE(pair.b->has_output());
  commit_many(*pair.a, 1, 100);
  pair.a->flush(kAnyTime);
  pollfd end{.fd = copy.fd(), .events = POLLIN, .revents = 0};
  REQUIRE(::poll(&end, 1, 5000) == 1);
  CHECK(poller->wait(0ms).empty());
}

// As in a child that was forked while the socket was open.
TEST_CASE("a socket that is disowned goes on elsewhere") {
  UdpPair pair(AF_INET);
  UdpSocket childs(::dup(pair.b->fd()));
  const auto poller = std::make_shared<Poller>();
  pair.b->watch(poller);
  childs.disown();
  CHECK_FALSE(childs.is_open());
  commit_many(*pair.a, 1, 100);
  pair.a->flush(kAnyTime);
  CHECK(poller->wait(5s).size() == 1);
  CHECK(receive_many(*pair.b, 1).size() == 1);
}

}  // namespace udp_socket_test
