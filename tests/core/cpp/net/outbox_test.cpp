// What waits to be sent: it leaves in order at each destination, in messages as large as they may
// be, and holds no more memory than was asked for.
#include "net/udp/outbox.hpp"

#include <doctest/doctest.h>
#include <netinet/udp.h>

#include <deque>
#include <map>

#include "allocations.hpp"
#include "random.hpp"

namespace outbox_test {

using namespace sparsewire;
using namespace sparsewire::net;
using namespace sparsewire::test;

constexpr std::size_t kDatagramBytes = 9000;

Address destination(std::uint16_t number) {
  return {AddressFamily::ipv4, number, 0, {10, 0, 0, 1}};
}

std::uint16_t destination_of(const msghdr& header) {
  SystemAddress address;
  address.size = header.msg_namelen;
  std::memcpy(&address.ipv4, header.msg_name, sizeof address.ipv4);
  return Address::of(address).port;
}

// What the system would cut the message into.
std::size_t segment_of(const msghdr& header) {
  const cmsghdr* const control = CMSG_FIRSTHDR(&header);
  if (!control) return SIZE_MAX;
  CHECK(control->cmsg_level == SOL_UDP);
  CHECK(control->cmsg_type == UDP_SEGMENT);
  std::uint16_t size;
  std::memcpy(&size, CMSG_DATA(control), sizeof size);
  return size;
}

void put(Outbox& outbox, std::size_t size, std::uint32_t content, std::span<const Address> to) {
  const auto room = outbox.room();
  std::fill_n(room.begin(), size, static_cast<std::byte>(content));
  outbox.put(size, to);
}

// Datagrams that are expected yet, by their destination: size and content.
using Expected = std::map<std::uint16_t, std::deque<std::pair<std::size_t, std::uint32_t>>>;

// Checks a message, and takes its datagrams from those that are expected.
void take(const Outbox& outbox, std::size_t number, const msghdr& header, std::size_t most_segments,
          Expected& expected) {
  auto& line = expected[destination_of(header)];
  const std::size_t segment = segment_of(header);
  std::size_t bytes = 0;
  REQUIRE(header.msg_iovlen <= line.size());
  CHECK(header.msg_iovlen <= most_segments);
  CHECK((segment == SIZE_MAX) == (header.msg_iovlen == 1));
  for (std::size_t i = 0; i < header.msg_iovlen; ++i) {
    const iovec& vector = header.msg_iov[i];
    const auto [size, content] = line.front();
    line.pop_front();
    CHECK(vector.iov_len == size);
    const auto* const data = static_cast<const std::byte*>(vector.iov_base);
    CHECK(data[0] == static_cast<std::byte>(content));
    CHECK(data[size - 1] == static_cast<std::byte>(content));
    const bool is_last = i + 1 == header.msg_iovlen;
    if (segment != SIZE_MAX) CHECK((is_last ? size <= segment : size == segment));
    bytes += size;
  }
  CHECK((header.msg_iovlen == 1 || bytes <= kMostSegmentedBytes));
  CHECK(outbox.load(number).datagrams == header.msg_iovlen);
  CHECK(outbox.load(number).bytes == bytes);
}

TEST_CASE("any mix leaves in order, however much of it the system takes at a time") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::size_t most = 1 + below(200, random);
    Outbox outbox(kDatagramBytes, most);
    Expected expected;
    const std::size_t most_segments = one_in(4, random) ? 1 : kMostSegments;
    for (std::uint32_t step = 0; step < 300; ++step) {
      CAPTURE(step);
      if (!outbox.is_full() && !one_in(4, random)) {
        const std::size_t size = pick({1, 700, 1072, 1072, 1072, 9000}, random);
        std::vector<Address> to;
        for (std::uint64_t count = below(6, random); count != 0; --count) {
          to.push_back(destination(static_cast<std::uint16_t>(1 + below(5, random))));
        }
        put(outbox, size, step, to);
        for (const Address& one : to) expected[one.port].push_back({size, step});
      } else {
        const auto batch = outbox.gather(most_segments);
        CHECK(batch.empty() == outbox.empty());
        const std::size_t sent = below(batch.size() + 1, random);
        for (std::size_t i = 0; i < sent; ++i) {
          take(outbox, i, batch[i].msg_hdr, most_segments, expected);
        }
        outbox.drop(sent);
        if (!outbox.empty() && one_in(2, random)) outbox.yield();
      }
    }
    while (!outbox.empty()) {
      const auto batch = outbox.gather(most_segments);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        take(outbox, i, batch[i].msg_hdr, most_segments, expected);
      }
      outbox.drop(batch.size());
    }
    for (const auto& [number, line] : expected) CHECK(line.empty());
    for (std::size_t i = 0; i < most; ++i) {
      CHECK_FALSE(outbox.is_full());
      put(outbox, 1, 0, std::vector{destination(1)});
    }
    CHECK(outbox.is_full());
    outbox.clear();
    CHECK(outbox.empty());
    CHECK_FALSE(outbox.is_full());
  }
}

TEST_CASE("a destination that never gets to its end holds up no other, and does not grow") {
  Outbox outbox(1072, 100);
  const std::vector busy{destination(1)};
  put(outbox, 1072, 0, busy);
  put(outbox, 1072, 0, busy);
  put(outbox, 1072, 0, std::vector{destination(2)});
  const std::size_t held = Allocations::held();
  bool is_other_served = false;
  for (int turn = 0; turn < 100'000; ++turn) {
    put(outbox, 1072, 0, busy);
    is_other_served |= destination_of(outbox.gather(1)[0].msg_hdr) == 2;
    outbox.drop(1);
    outbox.yield();
  }
  CHECK(is_other_served);
  CHECK_FALSE(outbox.empty());
  CHECK(Allocations::held() < held + 4096);
}

// Some destinations have got the datagram by then, and others have not.
TEST_CASE("where memory is refused nothing dangles, and what was put before leaves") {
  std::vector<Address> to;
  for (std::uint16_t number = 1; number <= 200; ++number) to.push_back(destination(number));
  for (const bool is_used : {false, true}) {
    bool was_refused = true;
    for (std::int64_t skipped = 0; was_refused; ++skipped) {
      CAPTURE(is_used);
      CAPTURE(skipped);
      Outbox outbox(1072, 3);
      if (is_used) put(outbox, 1072, 1, std::span(to).first(70));
      Allocations::refuse(skipped, 1);
      try {
        put(outbox, 1072, 2, to);
        was_refused = false;
      } catch (const std::bad_alloc&) {
      }
      Allocations::stop_refusing();
      put(outbox, 700, 3, std::span(to).last(1));
      std::size_t last_sent = 0;
      for (int turn = 0; turn < 1000 && !outbox.empty(); ++turn) {
        const auto batch = outbox.gather(kMostSegments);
        for (const mmsghdr& message : batch) {
          REQUIRE(message.msg_hdr.msg_iovlen > 0);
          const iovec& last = message.msg_hdr.msg_iov[message.msg_hdr.msg_iovlen - 1];
          last_sent +=
              last.iov_len == 700 && *static_cast<std::byte*>(last.iov_base) == std::byte{3};
        }
        REQUIRE_FALSE(batch.empty());
        outbox.drop(batch.size());
      }
      CHECK(outbox.empty());
      CHECK(last_sent == 1);
      for (int i = 0; i < 3; ++i) {
        CHECK_FALSE(outbox.is_full());
        put(outbox, 1, 0, std::span(to).first(1));
      }
      CHECK(outbox.is_full());
      outbox.clear();
      CHECK_FALSE(outbox.is_full());
    }
  }
}

}  // namespace outbox_test
