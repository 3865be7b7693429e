// Bad networks on purpose: texts that describe them, and fates that keep to their shares and seeds.
#include "net/udp/disturbance.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "random.hpp"

namespace disturbance_test {

using namespace sparsewire;
using namespace sparsewire::net;
using namespace sparsewire::test;
using namespace std::chrono_literals;

constexpr int kMany = 100'000;

// Numbered datagrams on their way through one direction, and what comes of them.
struct Path {
  explicit Path(const Disturbance& disturbance,
                Disturber::Direction direction = Disturber::Direction::out)
      : disturber(disturbance, direction) {}

  void send(std::uint64_t number) {
    std::vector<std::byte> data(kBytes);
    std::memcpy(data.data(), &number, sizeof number);
    disturber.pass(data, {}, now, [this](auto got, const Address&) { note(got); });
  }
  void wait(Microseconds time) {
    now += time;
    disturber.release(now, [this](auto got, const Address&) { note(got); });
  }
  void note(std::span<const std::byte> data) {
    std::uint64_t number;
    std::memcpy(&number, data.data(), sizeof number);
    int bits = 0;
    for (const std::byte byte : data.subspan(sizeof number)) {
      bits += std::popcount(std::to_integer<unsigned>(byte));
    }
    came.push_back({number, now, bits});
  }

  // Each 10 us after the last, and then all that is held.
  void send_many(int count) {
    for (int i = 0; i < count; ++i) {
      send(static_cast<std::uint64_t>(i));
      wait(10us);
    }
    while (disturber.next_due()) wait(10us);
  }

  static constexpr std::size_t kBytes = 64;
  struct Came {
    std::uint64_t number;
    Microseconds at;
    int flipped;  // bits behind the number
    bool operator==(const Came&) const = default;
  };
  Disturber disturber;
  Microseconds now{5'000'000};
  std::vector<Came> came;
};

// Within five standard deviations of what independent draws give.
bool is_share(std::uint64_t count, double share, int of) {
  const double expected = share * of;
  return std::abs(static_cast<double>(count) - expected) <=
         5 * std::sqrt(expected * (1 - share)) + 1e-9;
}

TEST_CASE("a text is read, whatever the order of its items") {
  const auto read =
      parse_disturbance("loss=0.01,duplicate=0.02,reorder=0.03,corrupt=0.001,delay=200us,seed=7");
  REQUIRE(read);
  CHECK(*read == Disturbance{0.01, 0.02, 0.03, 0.001, 200us, 7});
  CHECK(*parse_disturbance("seed=18446744073709551615,loss=1") ==
        Disturbance{.loss = 1, .seed = UINT64_MAX});
  CHECK(*parse_disturbance("delay=1000ms") == Disturbance{.delay = 1s});
  CHECK(*parse_disturbance("corrupt=0,reorder=1e-3") == Disturbance{.reorder = 0.001});
}

TEST_CASE("a text that is none is refused, and the error names what is wrong") {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "\"\""},
      {"loss", "\"loss\""},
      {"loss=", "\"loss=\""},
      {"loss=1%", "a share from 0 to 1"},
      {"loss=1.01", "a share from 0 to 1"},
      {"loss=-0.1", "a share from 0 to 1"},
      {"loss=nan", "a share from 0 to 1"},
      {"loss=0.1 ", "\"loss=0.1 \""},
      {"loss=0.1,", "\"\""},
      {"loss=0.1,,seed=1", "\"\""},
      {"loss=0.1,loss=0.2", "\"loss=0.2\": expected each name once"},
      {"los=0.1", "expected loss, duplicate"},
      {"delay=200", "us or ms"},
      {"delay=us", "us or ms"},
      {"delay=1s", "us or ms"},
      {"delay=1001ms", "1000ms at most"},
      {"delay=-1us", "us or ms"},
      {"delay=4294967297us", "us or ms"},
      {"seed=x", "a whole number"},
      {"seed=18446744073709551616", "a whole number"},
  };
  for (const auto& [text, part] : wrong) {
    CAPTURE(text);
    const auto read = parse_disturbance(text);
    REQUIRE_FALSE(read);
    CHECK(read.error().code == ErrorCode::input);
    CHECK(read.error().message.find(part) != std::string::npos);
    CHECK(read.error().message.starts_with("disturbance: "));
  }
}

TEST_CASE("any text is read or refused") {
  Random random(3);
  const std::string whole =
      "loss=0.01,duplicate=0.02,reorder=0.03,corrupt=0.001,delay=200us,seed=7";
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = whole;
    mutate(std::as_writable_bytes(std::span(text)), random);
    text.resize(below(text.size() + 1, random));
    read += static_cast<bool>(parse_disturbance(text));
  }
  CHECK(read > 0);
}

TEST_CASE("undisturbed datagrams pass at once and in order") {
  Path path({.seed = 1});
  for (std::uint64_t i = 0; i < 1000; ++i) {
    path.send(i);
    REQUIRE(path.came.size() == i + 1);
    CHECK(path.came.back() == Path::Came{i, path.now, 0});
  }
  CHECK_FALSE(path.disturber.next_due());
}

TEST_CASE("shares are kept, each by itself and all together") {
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    CAPTURE(seed);
    const Disturbance disturbance{0.05, 0.02, 0.03, 0.01, 0us, seed};
    Path path(disturbance);
    path.send_many(kMany);
    const DisturbanceCounters& counters = path.disturber.counters();
    CHECK(is_share(counters.lost, 0.05, kMany));
    CHECK(is_share(counters.duplicated, 0.02 * 0.95, kMany));
    CHECK(is_share(counters.reordered, 0.03 * 0.95, kMany));
    CHECK(is_share(counters.corrupted, 0.01 * 0.95, kMany));
    CHECK(path.came.size() == kMany - counters.lost + counters.duplicated);
  }
}

TEST_CASE("what the counters say is what happens") {
  SUBCASE("lost") {
    Path path({.loss = 0.2, .seed = 4});
    path.send_many(kMany);
    CHECK(is_share(path.disturber.counters().lost, 0.2, kMany));
    CHECK(path.came.size() == kMany - path.disturber.counters().lost);
  }
  SUBCASE("twice, the second time within the detour") {
    Path path({.duplicate = 0.1, .seed = 5});
    path.send_many(kMany);
    std::vector<Microseconds> first(kMany, 0us);
    std::uint64_t again = 0;
    for (const auto& [number, at, flipped] : path.came) {
      if (first[number] == 0us) {
        first[number] = at;
      } else {
        ++again;
        CHECK(at > first[number]);
        CHECK(at <= first[number] + Disturber::kMostDetour + 10us);
      }
    }
    CHECK(again == path.disturber.counters().duplicated);
    CHECK(is_share(again, 0.1, kMany));
  }
  SUBCASE("overtaken") {
    Path path({.reorder = 0.01, .seed = 6});
    path.send_many(kMany);
    REQUIRE(path.came.size() == kMany);
    std::uint64_t late = 0;
    std::uint64_t latest = 0;
    for (const Path::Came& one : path.came) {
      late += one.number < latest;
      latest = std::max(latest, one.number);
    }
    // A detour shorter than the pause to the next one changes no order.
    CHECK(late <= path.disturber.counters().reordered);
    CHECK(late >= path.disturber.counters().reordered * 95 / 100);
  }
  SUBCASE("damaged, by one bit") {
    Path path({.corrupt = 0.1, .seed = 7});
    path.send_many(kMany);
    std::uint64_t damaged = 0;
    for (std::uint64_t i = 0; i < path.came.size(); ++i) {
      CHECK(path.came[i].flipped <= 1);
      damaged += path.came[i].flipped != 0 || path.came[i].number != i;
    }
    CHECK(damaged == path.disturber.counters().corrupted);
  }
  SUBCASE("late, and in order") {
    Path path({.delay = 200us, .seed = 8});
    path.send(0);
    CHECK(path.came.empty());
    CHECK(path.disturber.next_due() == path.now + 200us);
    path.wait(199us);
    CHECK(path.came.empty());
    path.send(1);
    path.wait(1us);
    CHECK(path.came.size() == 1);
    path.wait(199us);
    CHECK(path.came.size() == 2);
    CHECK(path.came.back().number == 1);
    CHECK_FALSE(path.disturber.next_due());
  }
}

TEST_CASE("everything, or nothing, may get lost") {
  Path none({.loss = 1, .seed = 9});
  none.send_many(1000);
  CHECK(none.came.empty());
  Path all({.loss = 0, .seed = 9});
  all.send_many(1000);
  CHECK(all.came.size() == 1000);
}

TEST_CASE("the same seed gives the same fates, another seed or direction others") {
  const Disturbance disturbance{0.05, 0.02, 0.03, 0.01, 30us, 11};
  const auto fates = [](const Disturbance& of, Disturber::Direction direction) {
    Path path(of, direction);
    path.send_many(10'000);
    return path.came;
  };
  using enum Disturber::Direction;
  const auto once = fates(disturbance, out);
  CHECK(once == fates(disturbance, out));
  CHECK(once != fates(disturbance, in));
  Disturbance other = disturbance;
  other.seed = 12;
  CHECK(once != fates(other, out));
}

TEST_CASE("which datagrams get lost does not depend on what else may happen") {
  const auto who_came = [](const Disturbance& disturbance) {
    Path path(disturbance);
    path.send_many(10'000);
    std::vector<bool> came(10'000);
    for (const Path::Came& one : path.came) came[one.number] = true;
    return came;
  };
  CHECK(who_came({.loss = 0.1, .seed = 13}) ==
        who_came({.loss = 0.1, .duplicate = 0.1, .reorder = 0.2, .delay = 1ms, .seed = 13}));
}

TEST_CASE("what is held is bounded") {
  Path path({.delay = 1s, .seed = 14});
  const auto most = Disturber::kMostHeld;
  for (std::uint64_t i = 0; i < most + 100; ++i) path.send(i);
  CHECK(path.disturber.counters().lost == 100);
  path.wait(1s);
  CHECK(path.came.size() == most);
}

}  // namespace disturbance_test
