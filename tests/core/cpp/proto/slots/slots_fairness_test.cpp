// Slots beside a TCP flow on one bottleneck, and on links that lose at random: a model in virtual
// time, near 500 Mbit/s and a round trip of 0.2 ms, with 4 workers.
#include <doctest/doctest.h>

#include "slot_operations.hpp"
#include "tcp_flow.hpp"

namespace slots_fairness_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::SlotPool;

// Datagrams are small, so that the model is quick; links are so much slower, and their queues and
// TCP's segments so much shorter.
constexpr std::size_t kElements = 16;
const SlotPool kPool{.slots = 128,
                     .workers = 4,
                     .datagram_bytes = wire::datagram_head(1) + 4 * kElements,
                     .block = kElements};
constexpr double kScale = (112.0 + kDatagramOverhead) / (1072 + kDatagramOverhead);
constexpr double kMegabits = 500;
constexpr std::size_t kSegmentBytes = 1514;

LinkShape link_of(const LinkShape& real) {
  const auto scaled = [](std::size_t bytes) {
    return bytes == LinkShape{}.queue_bytes ? bytes : static_cast<std::size_t>(bytes * kScale);
  };
  return {.megabits = kMegabits * kScale,
          .delay = std::chrono::microseconds{45},
          .queue_bytes = scaled(real.queue_bytes),
          .queue_packets = real.queue_packets};
}

SlotOperation dense_operation(Nanoseconds lasts, Random& random) {
  const double datagrams =
      kMegabits / 8 * 1e-3 * static_cast<double>(lasts.count()) / (1072 + kDatagramOverhead);
  const std::size_t count = kElements * static_cast<std::size_t>(datagrams);
  std::vector<Buffer> inputs;
  for (std::size_t rank = 0; rank < kPool.workers; ++rank) {
    inputs.push_back(Buffer(4 * count, std::byte{static_cast<unsigned char>(1 + rank)}));
  }
  SlotOperation operation = operation_of(kPool, {DType::int32, ReduceOp::sum, count},
                                         proto::Arithmetic::exact, std::move(inputs), random);
  operation.scans = false;
  return operation;
}

// Processors are shared with others: what has come is looked at a little later.
NetworkShape shape_of(const LinkShape& link, double loss = 0) {
  return {.pool = kPool,
          .link = link_of(link),
          .faults = {.loss = loss},
          .lags = std::vector<Nanoseconds>(kPool.workers, std::chrono::microseconds{20})};
}

// Of the slots, as a share of the link.
double throughput(const LinkShape& link, double loss, Nanoseconds lasts) {
  Random random(1);
  SlotOperation operation = dense_operation(lasts, random);
  SlotNetwork<> network(shape_of(link, loss), 1);
  begin_everywhere(network, kPool.workers, operation, 0);
  network.run();
  check_result(network, operation, 0, 1);
  return static_cast<double>(lasts.count()) / static_cast<double>(network.ended_at(0).count());
}

TEST_CASE("1% random loss each way leaves most of the throughput") {
  constexpr std::chrono::seconds kLasts{2};
  for (const std::size_t queue : {100'000, 400'000}) {
    CAPTURE(queue);
    const double whole = throughput({.queue_bytes = queue}, 0, kLasts);
    const double left = throughput({.queue_bytes = queue}, 0.01, kLasts);
    CHECK(whole > 0.95);
    CHECK(left > 0.7 * whole);
  }
}

// Of a flow beside the slots, on one of the links of a worker.
double share_of_tcp(TcpFlow::Control control, bool is_up, const LinkShape& link,
                    std::uint64_t seed) {
  Random random(2);
  constexpr std::chrono::seconds kLasts{2};
  SlotOperation operation = dense_operation(kLasts, random);
  SlotNetwork<> network(shape_of(link), seed);
  TcpFlow tcp(network.time(), is_up ? network.up(0) : network.down(0), control,
              static_cast<std::size_t>(kSegmentBytes * kScale), seed);
  begin_everywhere(network, kPool.workers, operation, 0);
  tcp.start();
  network.run(kLasts);
  const double bits = 8.0 * kSegmentBytes * static_cast<double>(tcp.delivered());
  return bits / (1e6 * kMegabits * kLasts.count());
}

// Both ways, over seeds: how flows meet in a queue is a matter of chance.
void check_share_of_tcp(TcpFlow::Control control, const LinkShape& link) {
  CAPTURE(link.queue_bytes);
  CAPTURE(link.queue_packets);
  constexpr std::uint64_t kSeeds = 2;
  for (const bool is_up : {true, false}) {
    CAPTURE(is_up);
    double sum = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      sum += share_of_tcp(control, is_up, link, seed);
    }
    CHECK(sum / kSeeds >= 0.4);
    CHECK(sum / kSeeds <= 0.85);  // The slots keep some, too.
  }
}

TEST_CASE("a CUBIC flow beside slots keeps at least 40% of the link") {
  for (const std::size_t bytes : {50'000, 150'000, 400'000}) {
    check_share_of_tcp(TcpFlow::Control::cubic, {.queue_bytes = bytes});
  }
  for (const std::size_t packets : {50, 300}) {
    check_share_of_tcp(TcpFlow::Control::cubic, {.queue_packets = packets});
  }
}

// In shorter queues it has less: a single packet lost takes half of its window.
TEST_CASE("a Reno flow beside slots keeps at least 40% of the link") {
  check_share_of_tcp(TcpFlow::Control::reno, {.queue_bytes = 150'000});
  check_share_of_tcp(TcpFlow::Control::reno, {.queue_bytes = 400'000});
  check_share_of_tcp(TcpFlow::Control::reno, {.queue_packets = 300});
}

}  // namespace slots_fairness_test
