// The peers of all ranks in a single thread and without sockets: seeded chance decides who does
// what next. Connections deliver in order, as TCP does, and at any time.
#pragma once

#include <doctest/doctest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "proto/exchange/exchanges.hpp"
#include "proto/exchange/peer.hpp"
#include "random.hpp"

namespace sparsewire::test {

class PeerWorld {
 public:
  struct Counters {
    std::uint64_t messages = 0;     // every copy counts
    std::uint64_t bytes = 0;        // payloads
    std::uint64_t early_parts = 0;  // parts that came before the rank had issued the operation
    std::map<wire::FrameKind, std::uint64_t> of_kind = {};
    std::uint64_t longest = 0;         // payload of other than parts
    std::uint64_t on_other_lanes = 0;  // messages on all lanes but the first
  };

  // Each rank has a peer on its first lane, and its shares of exchanges on all others.
  PeerWorld(Rank world_size, std::uint64_t seed, const proto::Hosts& hosts = {},
            std::uint32_t lanes = 1)
      : random_(seed), lanes_(lanes) {
    for (Rank rank = 0; rank < world_size; ++rank) {
      ranks_.push_back(std::make_unique<RankState>(rank, world_size, hosts, lanes));
    }
  }

  // Has the rank issue its next operation at some time, after those it was told of before. What it
  // refers to must stay.
  void will_submit(Rank rank, const wire::Call& call, const proto::SparseTensor& tensor,
                   proto::Outputs& outputs) {
    at(rank).script.push_back([=, this, &outputs](std::uint64_t seq, Effects& effects) {
      at(rank).peer.submit(seq, call, tensor, outputs, effects);
    });
  }

  void will_refuse(Rank rank, const Error& error) {
    at(rank).script.push_back([=, this](std::uint64_t seq, Effects& effects) {
      at(rank).peer.refuse(seq, error, effects);
    });
  }

  void will_stream(Rank rank, const wire::Call& call) {
    at(rank).script.push_back([=, this](std::uint64_t seq, Effects& effects) {
      at(rank).peer.issue_stream(seq, call, effects);
    });
  }

  // Ranks that come late issue nothing before the others have nothing more to do.
  void set_late(Rank rank) { at(rank).is_late = true; }

  // Has every rank issue its next operation before anything else happens.
  void issue_all() {
    for (Rank rank = 0; rank < static_cast<Rank>(ranks_.size()); ++rank) issue(rank);
  }

  // Lets things happen until nothing more can.
  void run() {
    run_all();
    for (const auto& state : ranks_) state->is_late = false;
    run_all();
  }

  bool has_ended(Rank rank, std::uint64_t seq) { return at(rank).ended.contains(seq); }
  bool has_chosen_stream(Rank rank, std::uint64_t seq) { return at(rank).streams.contains(seq); }
  // None where it ended well, or not at all.
  Status failure(Rank rank, std::uint64_t seq) {
    const auto at_seq = at(rank).failures.find(seq);
    return at_seq == at(rank).failures.end() ? Status{} : at_seq->second;
  }
  std::vector<Rank> missing(Rank rank, std::uint64_t seq) { return at(rank).peer.missing(seq); }
  // Has the rank ask the others, as one that has waited long enough.
  void ask(Rank rank, std::uint64_t seq) {
    Effects effects;
    at(rank).peer.ask(seq, effects);
    apply(rank, effects);
  }
  const Counters& counters() const { return counters_; }
  // The longest chain of messages so far, each sent because of the one before.
  std::uint64_t rounds() const {
    return std::ranges::max_element(ranks_, {}, &RankState::rounds)->get()->rounds;
  }

  // Nothing is on its way, and no peer has anything to do or to forget.
  void check_nothing_left() {
    for (const auto& state : ranks_) {
      REQUIRE(state->calls.empty());
      REQUIRE_FALSE(state->peer.has_work());
      for (const proto::Exchanges& exchanges : state->others) REQUIRE_FALSE(exchanges.has_work());
      for (const auto& [from, queue] : state->inbox) REQUIRE(queue.empty());
      for (std::uint64_t seq = 0; seq < state->next_seq; ++seq) {
        REQUIRE_FALSE(state->peer.state(seq));
        REQUIRE(state->peer.missing(seq).empty());
        for (const proto::Exchanges& exchanges : state->others) {
          REQUIRE(exchanges.missing(seq).empty());
        }
      }
    }
  }

 private:
  using Effects = proto::Peer::Effects;
  struct Letter {
    wire::Message message;
    std::uint64_t round;
  };
  struct RankState {
    RankState(Rank rank, Rank world_size, const proto::Hosts& hosts, std::uint32_t lanes)
        : peer(rank, world_size, hosts, lanes) {
      for (std::uint32_t lane = 1; lane < lanes; ++lane) {
        others.emplace_back(proto::LaneShare{lane, lanes});
      }
    }

    proto::Peer peer;
    std::vector<proto::Exchanges> others;  // by lane, from the second on
    bool is_late = false;
    std::deque<std::function<void(std::uint64_t, Effects&)>> script;
    std::deque<std::function<void()>> calls;  // what the communicator asked of the lane
    std::map<std::pair<std::uint32_t, Rank>, std::deque<Letter>> inbox;  // by lane and sender
    std::uint64_t rounds = 0;
    std::uint64_t next_seq = 0;
    std::map<std::uint64_t, std::uint32_t> in_flight;  // lanes that have not ended it
    std::map<std::uint64_t, bool> ended;
    std::map<std::uint64_t, bool> streams;
    std::map<std::uint64_t, Error> failures;
  };

  RankState& at(Rank rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  void run_all() {
    const std::size_t kinds = 2 + lanes_ + ranks_.size() * lanes_;
    const std::size_t actors = ranks_.size() * kinds;
    std::size_t idle = 0;
    std::size_t actor = 0;
    while (idle < actors) {
      actor = idle == 0 ? below(actors, random_) : (actor + 1) % actors;
      const auto rank = static_cast<Rank>(actor / kinds);
      idle = act(rank, actor % kinds) ? 0 : idle + 1;
    }
  }

  bool act(Rank rank, std::size_t kind) {
    if (kind == 0) return issue(rank);
    if (kind == 1) return call(rank);
    kind -= 2;
    if (kind < lanes_) return kind == 0 ? poll(rank) : poll_other(rank, kind);
    kind -= lanes_;
    return deliver(static_cast<Rank>(kind / lanes_), rank,
                   static_cast<std::uint32_t>(kind % lanes_));
  }

  bool issue(Rank rank) {
    RankState& state = at(rank);
    if (state.script.empty() || state.is_late) return false;
    const auto submit = std::move(state.script.front());
    state.script.pop_front();
    const std::uint64_t seq = state.next_seq++;
    state.in_flight[seq] = 1;
    Effects effects;
    submit(seq, effects);
    apply(rank, effects);
    // An operation that failed before it was issued is dropped behind that.
    if (state.failures.contains(seq)) fail_later(rank, seq);
    return true;
  }

  bool poll(Rank rank) {
    Effects effects;
    const auto worked = at(rank).peer.poll(effects);
    REQUIRE_MESSAGE(worked, (worked ? "" : worked.error().message));
    apply(rank, effects);
    return *worked;
  }

  bool poll_other(Rank rank, std::size_t lane) {
    Effects effects;
    std::optional<std::uint64_t> ended;
    const auto worked = at(rank).others[lane - 1].poll(effects.messages, ended);
    REQUIRE_MESSAGE(worked, (worked ? "" : worked.error().message));
    apply(rank, effects, static_cast<std::uint32_t>(lane));
    if (ended) end(rank, *ended);
    return *worked;
  }

  bool call(Rank rank) {
    auto& calls = at(rank).calls;
    if (calls.empty()) return false;
    const auto next = std::move(calls.front());
    calls.pop_front();
    next();
    return true;
  }

  // The payload lies in memory of the connection, which is gone afterwards.
  bool deliver(Rank from, Rank rank, std::uint32_t lane) {
    auto& queue = at(rank).inbox[{lane, from}];
    if (queue.empty()) return false;
    const auto [message, round] = std::move(queue.front());
    queue.pop_front();
    at(rank).rounds = std::max(at(rank).rounds, round);
    const bool is_part = message.header.kind == wire::FrameKind::part;
    counters_.early_parts += is_part && message.header.seq >= at(rank).next_seq;
    const auto view = message.payload.view();
    const Buffer memory(view.begin(), view.end());
    const wire::Message borrowed{message.header, Bytes::borrowed(memory)};
    Effects effects;
    const Status error = lane == 0
                             ? at(rank).peer.on_message(from, borrowed, effects)
                             : at(rank).others[lane - 1].on_part(from, borrowed, effects.messages);
    REQUIRE_MESSAGE(!error, (error ? error->message : ""));
    apply(rank, effects, lane);
    return true;
  }

  void apply(Rank rank, const Effects& effects, std::uint32_t lane = 0) {
    for (const proto::Outgoing& outgoing : effects.messages) {
      for (Rank to = 0; to < static_cast<Rank>(ranks_.size()); ++to) {
        if (to == rank || (outgoing.to != kNoRank && outgoing.to != to)) continue;
        count(outgoing.message);
        at(to).inbox[{lane, rank}].push_back({outgoing.message, at(rank).rounds + 1});
        counters_.on_other_lanes += lane != 0;
      }
      REQUIRE(outgoing.to != rank);
    }
    for (const proto::PeerEvent& event : effects.events) note(rank, event);
  }

  void count(const wire::Message& message) {
    ++counters_.messages;
    counters_.bytes += message.payload.size();
    ++counters_.of_kind[message.header.kind];
    if (message.header.kind == wire::FrameKind::part) return;
    counters_.longest = std::max<std::uint64_t>(counters_.longest, message.payload.size());
  }

  void note(Rank rank, const proto::PeerEvent& event) {
    using Kind = proto::PeerEvent::Kind;
    RankState& state = at(rank);
    if (event.kind == Kind::failed) {
      if (!state.failures.emplace(event.seq, event.error).second) return;
      if (event.seq < state.next_seq) fail_later(rank, event.seq);
      return;
    }
    REQUIRE(state.in_flight.contains(event.seq));
    if (event.kind == Kind::chosen && event.route == proto::Route::exchange) {
      return share(rank, event);
    }
    if (event.kind == Kind::chosen) state.streams[event.seq] = true;
    state.peer.drop(event.seq);
    end(rank, event.seq);
  }

  // As the communicator does.
  void share(Rank rank, const proto::PeerEvent& event) {
    RankState& state = at(rank);
    if (!event.order || state.failures.contains(event.seq)) return;
    state.in_flight.at(event.seq) += lanes_ - 1;
    for (proto::Exchanges& exchanges : state.others) {
      state.calls.push_back([&exchanges, event] { exchanges.begin(event.seq, *event.order); });
    }
  }

  void end(Rank rank, std::uint64_t seq) {
    RankState& state = at(rank);
    if (--state.in_flight.at(seq) != 0) return;
    REQUIRE(state.ended.emplace(seq, true).second);
    state.in_flight.erase(seq);
  }

  void fail_later(Rank rank, std::uint64_t seq) {
    at(rank).calls.push_back([=, this] {
      if (at(rank).in_flight.erase(seq) == 0) return;
      at(rank).peer.drop(seq);
      for (proto::Exchanges& exchanges : at(rank).others) exchanges.drop(seq);
    });
  }

  Random random_;
  std::uint32_t lanes_;
  std::vector<std::unique_ptr<RankState>> ranks_;
  Counters counters_;
};

}  // namespace sparsewire::test
