// Schedules, played through with symbols instead of values: every rank gets the sum of all, each
// once, added up in the same order and bracketing.
#include "proto/exchange/schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <map>
#include <string>

namespace schedule_test {

using namespace sparsewire;
using proto::Schedule;
using proto::Step;

constexpr Rank kLargestWorld = 17;

std::size_t rounds_of(Rank world_size) {
  return static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(world_size) - 1));
}

// A sum as it is written: "((0+1)+2)".
class Play {
 public:
  Play(Rank world_size, const std::function<Schedule(Rank)>& schedule) {
    for (Rank rank = 0; rank < world_size; ++rank) {
      ranks_.push_back({schedule(rank), std::to_string(rank)});
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank rank = 0; rank < world_size; ++rank) moved |= advance(rank);
    }
  }

  const std::string& held(Rank rank) const { return at(rank).held; }
  bool is_final(Rank rank) const { return at(rank).is_final; }
  std::size_t received(Rank rank) const { return at(rank).received; }
  // The longest way that something of a value came, in messages.
  std::size_t depth(Rank rank) const { return at(rank).depth; }

  // Everybody has come to the end, and nothing is left on its way.
  bool is_over() const {
    for (const auto& [between, queue] : messages_) {
      if (!queue.empty()) return false;
    }
    return std::ranges::all_of(
        ranks_, [](const auto& state) { return state.step == state.schedule.size(); });
  }

 private:
  struct Message {
    std::string held;
    bool is_final;
    std::size_t depth;
  };
  struct State {
    Schedule schedule;
    std::string held;
    bool is_final = false;
    std::size_t step = 0;
    std::size_t received = 0;
    std::size_t depth = 0;
  };

  State& at(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const State& at(Rank rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  bool advance(Rank rank) {
    State& state = at(rank);
    if (state.step == state.schedule.size()) return false;
    const Step& step = state.schedule[state.step];
    for (const Rank other : step.ranks) {
      const bool must_wait = step.kind != Step::Kind::send && other != rank;
      if (must_wait && messages_[{other, rank}].empty()) return false;
    }
    run(rank, state, step);
    ++state.step;
    return true;
  }

  void run(Rank rank, State& state, const Step& step) {
    if (step.kind == Step::Kind::send) {
      for (const Rank to : step.ranks) {
        messages_[{rank, to}].push_back({state.held, state.is_final, state.depth + 1});
      }
    } else if (step.kind == Step::Kind::take) {
      REQUIRE(step.ranks.size() == 1);
      const Message message = take(step.ranks.front(), rank);
      state.held = message.held;
      state.is_final = message.is_final;
    } else {
      add(rank, state, step);
    }
  }

  void add(Rank rank, State& state, const Step& step) {
    std::string sum;
    for (const Rank other : step.ranks) {
      if (other != rank) {
        const Message message = take(other, rank);
        REQUIRE_FALSE(message.is_final);
        sum += "+" + message.held;
      } else {
        sum += "+" + state.held;
      }
    }
    state.held = "(" + sum.substr(1) + ")";
    state.is_final = step.completes;
  }

  Message take(Rank from, Rank rank) {
    auto& queue = messages_.at({from, rank});
    Message message = std::move(queue.front());
    queue.pop_front();
    State& state = at(rank);
    state.depth = std::max(state.depth, message.depth);
    ++state.received;
    return message;
  }

  std::vector<State> ranks_;
  std::map<std::pair<Rank, Rank>, std::deque<Message>> messages_;
};

std::vector<Rank> leaves_of(const std::string& sum) {
  std::vector<Rank> leaves;
  std::string digits;
  for (const char c : sum + ")") {
    if (c >= '0' && c <= '9') {
      digits += c;
    } else if (!digits.empty()) {
      leaves.push_back(std::stoi(digits));
      digits.clear();
    }
  }
  return leaves;
}

// From `first` on, and around.
std::vector<Rank> all_from(Rank first, Rank world_size) {
  std::vector<Rank> ranks;
  for (Rank i = 0; i < world_size; ++i) ranks.push_back((first + i) % world_size);
  return ranks;
}

void check_all_hold_the_sum(const Play& play, Rank world_size, Rank first) {
  REQUIRE(play.is_over());
  for (Rank rank = 0; rank < world_size; ++rank) {
    CHECK((leaves_of(play.held(rank)) == all_from(first, world_size)));
    CHECK(play.held(rank) == play.held(0));
    CHECK(play.is_final(rank));
  }
}

template <typename Visit>
void for_each_world(Visit visit) {
  for (Rank world_size = 1; world_size <= kLargestWorld; ++world_size) {
    CAPTURE(world_size);
    visit(world_size);
  }
}

template <typename Visit>
void for_each_root(Visit visit) {
  for_each_world([&](Rank world_size) {
    for (Rank root = 0; root < world_size; ++root) {
      CAPTURE(root);
      visit(world_size, root);
    }
  });
}

TEST_CASE("an allgather gives every rank the sum in the order of the ranks, in one round") {
  for_each_world([](Rank n) {
    const Play play(n, [&](Rank rank) { return proto::allgather_schedule(rank, n); });
    check_all_hold_the_sum(play, n, 0);
    for (Rank rank = 0; rank < n; ++rank) CHECK(play.depth(rank) == (n > 1));
  });
}

TEST_CASE(
    "recursive doubling takes the logarithm of the ranks in rounds, of two messages at most") {
  for_each_world([](Rank n) {
    const Play play(n, [&](Rank rank) { return proto::recursive_double_schedule(rank, n); });
    check_all_hold_the_sum(play, n, 0);
    for (Rank rank = 0; rank < n; ++rank) {
      CAPTURE(rank);
      CHECK(play.depth(rank) <= rounds_of(n));
      CHECK(play.received(rank) <= rounds_of(n));
      for (const Step& step : proto::recursive_double_schedule(rank, n)) {
        CHECK(step.ranks.size() <= 2);
        CHECK((step.kind == Step::Kind::send || step.kind == Step::Kind::add));
      }
    }
  });
}

TEST_CASE("recursive doubling adds once per round, and sends before it adds") {
  for_each_world([](Rank n) {
    for (Rank rank = 0; rank < n; ++rank) {
      std::size_t adds = 0;
      std::size_t sends_in_round = 0;
      for (const Step& step : proto::recursive_double_schedule(rank, n)) {
        if (step.kind == Step::Kind::send) CHECK(++sends_in_round == 1);
        if (step.kind == Step::Kind::add) sends_in_round = 0, ++adds;
      }
      CHECK(adds <= std::max<std::size_t>(rounds_of(n), 1));
    }
  });
}

TEST_CASE("a ring grows the sum from behind its keeper, and brings it around again") {
  for_each_root([](Rank n, Rank keeper) {
    const Play play(n, [&](Rank rank) { return proto::ring_schedule(rank, n, keeper); });
    check_all_hold_the_sum(play, n, (keeper + 1) % n);
    for (Rank rank = 0; rank < n && n > 1; ++rank) {
      std::size_t sent = 0;
      for (const Step& step : proto::ring_schedule(rank, n, keeper)) {
        if (step.kind != Step::Kind::send) continue;
        CHECK((step.ranks == std::vector<Rank>{(rank + 1) % n}));
        ++sent;
      }
      CHECK(sent <= 2);
    }
  });
}

TEST_CASE("a split gives the sum to its receivers alone") {
  for_each_root([](Rank n, Rank keeper) {
    for (Rank receiver = 0; receiver < n; ++receiver) {
      CAPTURE(receiver);
      const Play play(
          n, [&](Rank rank) { return proto::split_schedule(rank, n, {}, keeper, {receiver}); });
      REQUIRE(play.is_over());
      CHECK((leaves_of(play.held(receiver)) == all_from(0, n)));
      CHECK(play.is_final(receiver));
      for (Rank rank = 0; rank < n; ++rank) {
        const std::size_t expected =
            rank == keeper ? static_cast<std::size_t>(n) - 1 : std::size_t{rank == receiver};
        CHECK(play.received(rank) == expected);
      }
    }
    const Play play(
        n, [&](Rank rank) { return proto::split_schedule(rank, n, {}, keeper, all_from(0, n)); });
    check_all_hold_the_sum(play, n, 0);
  });
}

TEST_CASE("a gather brings what its keeper holds straight to all") {
  for_each_root([](Rank n, Rank keeper) {
    const Play play(n, [&](Rank rank) { return proto::gather_schedule(rank, n, {}, keeper); });
    REQUIRE(play.is_over());
    for (Rank rank = 0; rank < n; ++rank) {
      CHECK(play.held(rank) == std::to_string(keeper));
      CHECK(play.depth(rank) == (rank != keeper));
    }
  });
}

TEST_CASE("a broadcast reaches all in the logarithm of the ranks, each once") {
  for_each_root([](Rank n, Rank root) {
    const Play play(n, [&](Rank rank) { return proto::broadcast_schedule(rank, n, {}, root); });
    REQUIRE(play.is_over());
    for (Rank rank = 0; rank < n; ++rank) {
      CHECK(play.held(rank) == std::to_string(root));
      CHECK(play.received(rank) == (rank != root));
      CHECK(play.depth(rank) <= rounds_of(n));
    }
  });
}

// --- Hosts ---

struct Layout {
  std::vector<std::uint32_t> host_of;
  proto::Hosts hosts{host_of};

  Rank ranks() const { return static_cast<Rank>(host_of.size()); }
  std::size_t host_count() const { return hosts.speakers(0, 0).size(); }
  bool crosses(Rank from, Rank to) const {
    return host_of[static_cast<std::size_t>(from)] != host_of[static_cast<std::size_t>(to)];
  }
  // Hosts in the order of their first ranks, and the ranks of each.
  std::vector<Rank> order() const {
    std::vector<Rank> order;
    for (const Rank speaker : hosts.speakers(0, 0)) {
      std::ranges::copy(hosts.ranks_beside(speaker), std::back_inserter(order));
    }
    return order;
  }
  std::size_t crossings(const std::function<Schedule(Rank)>& schedule) const {
    std::size_t count = 0;
    for (Rank rank = 0; rank < ranks(); ++rank) {
      for (const Step& step : schedule(rank)) {
        if (step.kind != Step::Kind::send) continue;
        count += static_cast<std::size_t>(
            std::ranges::count_if(step.ranks, [&](Rank to) { return crosses(rank, to); }));
      }
    }
    return count;
  }
};

template <typename Visit>
void for_each_layout(Visit visit) {
  for (const auto& host_of : std::vector<std::vector<std::uint32_t>>{{0, 0, 1},
                                                                     {0, 0, 1, 1},
                                                                     {0, 1, 0, 1, 2, 2},
                                                                     {7, 7, 7, 7, 3, 3, 3, 3},
                                                                     {0, 1, 1, 1, 1},
                                                                     {2, 1, 0, 0, 1, 2, 2, 0, 4}}) {
    const Layout layout{host_of};
    CAPTURE(host_of.size());
    for (Rank root = 0; root < layout.ranks(); ++root) {
      CAPTURE(root);
      visit(layout, root);
    }
  }
}

TEST_CASE("by hosts, a split adds up hosts in order, and crosses once for each host") {
  for_each_layout([](const Layout& layout, Rank keeper) {
    const Rank n = layout.ranks();
    const auto schedule = [&](Rank rank) {
      return proto::split_schedule(rank, n, layout.hosts, keeper, proto::all_ranks(n));
    };
    const Play play(n, schedule);
    REQUIRE(play.is_over());
    for (Rank rank = 0; rank < n; ++rank) {
      CHECK((leaves_of(play.held(rank)) == layout.order()));
      CHECK(play.held(rank) == play.held(0));
      CHECK(play.is_final(rank));
    }
    CHECK(layout.crossings(schedule) == 2 * (layout.host_count() - 1));
  });
}

TEST_CASE("by hosts, a sum gets to receivers that share a host with none who hands it on") {
  for_each_layout([](const Layout& layout, Rank keeper) {
    const Rank n = layout.ranks();
    for (Rank receiver = 0; receiver < n; ++receiver) {
      const Play play(n, [&](Rank rank) {
        return proto::split_schedule(rank, n, layout.hosts, keeper, {receiver});
      });
      REQUIRE(play.is_over());
      CHECK((leaves_of(play.held(receiver)) == layout.order()));
      CHECK(play.is_final(receiver));
    }
  });
}

TEST_CASE("by hosts, what one rank has crosses once to each other host") {
  for_each_layout([](const Layout& layout, Rank root) {
    const Rank n = layout.ranks();
    const auto gather = [&](Rank rank) {
      return proto::gather_schedule(rank, n, layout.hosts, root);
    };
    const auto broadcast = [&](Rank rank) {
      return proto::broadcast_schedule(rank, n, layout.hosts, root);
    };
    for (const std::function<Schedule(Rank)>& schedule :
         {std::function<Schedule(Rank)>(gather), std::function<Schedule(Rank)>(broadcast)}) {
      const Play play(n, schedule);
      REQUIRE(play.is_over());
      for (Rank rank = 0; rank < n; ++rank) {
        CHECK(play.held(rank) == std::to_string(root));
        CHECK(play.received(rank) == (rank != root));
      }
      CHECK(layout.crossings(schedule) == layout.host_count() - 1);
    }
  });
}

}  // namespace schedule_test
