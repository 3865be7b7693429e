// All ranks and owners of one communicator in a single thread and without sockets: seeded chance
// decides who does what next. Connections deliver in order, as TCP does, and at any time.
#pragma once

#include <doctest/doctest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "proto/stream/owner/owner.hpp"
#include "proto/stream/worker.hpp"
#include "random.hpp"
#include "wire/frame.hpp"

namespace sparsewire::test {

class Simulator {
 public:
  using Ends = std::pair<std::unique_ptr<proto::Source>, std::unique_ptr<proto::Sink>>;
  using MakeEnds = std::function<Ends(const proto::ChunkGrid&)>;

  struct Counters {
    std::uint64_t segments_sent = 0;  // by all ranks
    std::uint64_t results_made = 0;   // by all owners, counted once and not per rank
    std::uint64_t polls_stalled = 0;  // no message for want of window
    // Frames that cross a connection, to and from each owner.
    std::map<std::uint32_t, std::uint64_t> of_owner = {};
  };

  Simulator(const wire::Topology& topology, bool dedicated, std::uint64_t seed)
      : topology_(topology), dedicated_(dedicated), random_(seed), ranks_(topology.world_size) {
    for (std::uint32_t lane = 0; lane < topology.lanes; ++lane) {
      lanes_.push_back(std::make_unique<LaneState>());
      for (std::uint32_t owner = 0; owner < topology.owners; ++owner) {
        lanes_[lane]->owners.emplace_back(topology, lane, owner,
                                          proto::OwnerDuty{.all_cancel = dedicated});
      }
      for (std::uint32_t rank = 0; rank < topology.world_size; ++rank) {
        lanes_[lane]->ports.push_back(std::make_unique<Port>(topology, lane));
      }
    }
  }

  // Has the rank issue its next operation at some time, after those it was told of before.
  void will_submit(Rank rank, const wire::Descriptor& descriptor, MakeEnds make_ends) {
    at(rank).script.push_back([=, this] { submit(rank, descriptor, make_ends); });
  }

  // Lets things happen until nothing more can.
  void run() {
    const std::size_t kinds = 3 * topology_.owners + 1;
    const std::size_t actors = topology_.lanes * topology_.world_size * kinds + ranks_.size();
    std::size_t idle = 0;
    std::size_t actor = 0;
    while (idle < actors) {
      actor = idle == 0 ? below(actors, random_) : (actor + 1) % actors;
      idle = act(actor, kinds) ? 0 : idle + 1;
    }
  }

  bool ended(Rank rank, std::uint64_t seq) { return at(rank).ended.contains(seq); }
  const Status& failure(Rank rank, std::uint64_t seq) { return at(rank).ended.at(seq); }
  const Counters& counters() const { return counters_; }

  std::uint64_t chunks_empty(Rank rank) const {
    std::uint64_t total = 0;
    for (const auto& lane : lanes_) {
      total += lane->ports[static_cast<std::size_t>(rank)]->worker.chunks_empty();
    }
    return total;
  }

  // Nothing is on its way, nothing is kept anywhere, and every window is whole again.
  void check_nothing_left() const {
    for (const auto& lane : lanes_) {
      for (const proto::Owner& owner : lane->owners) {
        REQUIRE(owner.operations() == 0);
        REQUIRE(owner.buffered_bytes() == 0);
      }
      for (const auto& port : lane->ports) {
        for (std::uint32_t owner = 0; owner < topology_.owners; ++owner) {
          REQUIRE(port->up[owner].empty());
          REQUIRE(port->down[owner].queue.empty());
          REQUIRE(port->worker.bytes_in_flight(owner) == 0);
        }
      }
    }
  }

 private:
  // From an owner to a rank. The payload in front may have begun to arrive.
  struct Inbox {
    std::deque<wire::Message> queue;
    bool begun = false;
    std::byte* place = nullptr;  // null: into own memory
    Buffer memory;
  };
  // One rank on one lane.
  struct Port {
    Port(const wire::Topology& topology, std::uint32_t lane)
        : worker(topology, lane), up(topology.owners), down(topology.owners) {}

    proto::Worker worker;
    std::vector<std::deque<wire::Message>> up;  // per owner
    std::vector<Inbox> down;                    // per owner
    std::deque<std::function<void()>> calls;    // what the rank asked of the lane
  };
  struct LaneState {
    std::vector<proto::Owner> owners;
    std::vector<std::unique_ptr<Port>> ports;  // per rank
  };
  struct InFlight {
    std::size_t lanes_left;
    Status failure;
  };
  struct RankState {
    std::deque<std::function<void()>> script;
    std::uint64_t next_seq = 0;
    std::map<std::uint64_t, InFlight> in_flight;
    std::map<std::uint64_t, Error> early_failures;
    std::map<std::uint64_t, Status> ended;
  };

  RankState& at(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Port& port(std::uint32_t lane, Rank rank) {
    return *lanes_[lane]->ports[static_cast<std::size_t>(rank)];
  }
  bool is_self(Rank rank, std::uint32_t owner) const {
    return !dedicated_ && static_cast<std::uint32_t>(rank) == owner;
  }

  // Every actor can do one thing: a rank's script, a lane's calls, or one of poll, delivery to an
  // owner and delivery from an owner.
  bool act(std::size_t actor, std::size_t kinds) {
    if (actor < ranks_.size()) return run_first(ranks_[actor].script);
    actor -= ranks_.size();
    const std::size_t kind = actor % kinds;
    const auto rank = static_cast<Rank>(actor / kinds % ranks_.size());
    const auto lane = static_cast<std::uint32_t>(actor / kinds / ranks_.size());
    if (kind == 0) return run_first(port(lane, rank).calls);
    const auto owner = static_cast<std::uint32_t>((kind - 1) / 3);
    switch (kind % 3) {
      case 0:
        return poll(lane, rank, owner);
      case 1:
        return deliver_up(lane, rank, owner);
      default:
        return deliver_down(lane, rank, owner);
    }
  }

  static bool run_first(std::deque<std::function<void()>>& calls) {
    if (calls.empty()) return false;
    const auto call = std::move(calls.front());
    calls.pop_front();
    call();
    return true;
  }

  // --- A rank ---

  void submit(Rank rank, const wire::Descriptor& descriptor, const MakeEnds& make_ends) {
    RankState& state = at(rank);
    const std::uint64_t seq = state.next_seq++;
    state.in_flight[seq] = {topology_.lanes, {}};
    const proto::ChunkGrid grid = proto::make_grid(descriptor, topology_);
    for (std::uint32_t lane = 0; lane < topology_.lanes; ++lane) {
      port(lane, rank).calls.push_back([=, this] {
        auto [source, sink] = make_ends(grid);
        const bool takes_part =
            port(lane, rank)
                .worker.submit(seq, descriptor, grid, std::move(source), std::move(sink));
        if (!takes_part) leave(rank, seq);
      });
    }
    if (const auto early = state.early_failures.extract(seq)) fail(rank, seq, early.mapped());
  }

  void leave(Rank rank, std::uint64_t seq) {
    InFlight& in_flight = at(rank).in_flight.at(seq);
    if (--in_flight.lanes_left != 0) return;
    at(rank).ended[seq] = in_flight.failure;
    at(rank).in_flight.erase(seq);
  }

  void fail(Rank rank, std::uint64_t seq, const Error& error) {
    RankState& state = at(rank);
    if (seq >= state.next_seq) {
      state.early_failures.emplace(seq, error);
      return;
    }
    const auto in_flight = state.in_flight.find(seq);
    if (in_flight == state.in_flight.end() || in_flight->second.failure) return;
    in_flight->second.failure = error;
    for (std::uint32_t lane = 0; lane < topology_.lanes; ++lane) {
      port(lane, rank).calls.push_back([=, this] { cancel(lane, rank, seq); });
    }
  }

  // --- A rank's lane ---

  void cancel(std::uint32_t lane, Rank rank, std::uint64_t seq) {
    Port& from = port(lane, rank);
    const auto opened = from.worker.opened(seq);
    for (std::uint32_t owner = 0; owner < topology_.owners; ++owner) {
      for (wire::Message& message : from.up[owner]) message.payload = message.payload.owned();
      detach(from.down[owner]);
      if (!dedicated_ && std::ranges::find(opened, owner) == opened.end()) continue;
      send_up(lane, rank, owner, {{.kind = wire::FrameKind::cancel, .seq = seq}, {}});
    }
    if (from.worker.drop(seq)) leave(rank, seq);
  }

  static void detach(Inbox& inbox) {
    if (!inbox.begun || !inbox.place) return;
    const std::size_t size = inbox.queue.front().payload.size();
    inbox.memory.assign(inbox.place, inbox.place + size / 2);
    inbox.memory.resize(size);
    inbox.place = nullptr;
  }

  bool poll(std::uint32_t lane, Rank rank, std::uint32_t owner) {
    Port& from = port(lane, rank);
    if (!from.worker.has_work(owner)) {
      counters_.polls_stalled += from.worker.bytes_in_flight(owner) >= topology_.window_bytes;
      return false;
    }
    if (auto message = from.worker.poll(owner)) {
      counters_.segments_sent += message->header.kind == wire::FrameKind::segment;
      send_up(lane, rank, owner, *std::move(message));
    }
    return true;
  }

  void send_up(std::uint32_t lane, Rank rank, std::uint32_t owner, wire::Message message) {
    if (is_self(rank, owner)) return take_up(lane, rank, owner, std::move(message));
    ++counters_.of_owner[owner];
    port(lane, rank).up[owner].push_back(std::move(message));
  }

  void take_down(std::uint32_t lane, Rank rank, std::uint32_t owner,
                 const wire::FrameHeader& header, std::span<const std::byte> payload) {
    if (header.kind == wire::FrameKind::fail) {
      const auto fault = wire::decode_fault(payload);
      REQUIRE(fault);
      return fail(rank, header.seq, fault->error);
    }
    const auto ended = port(lane, rank).worker.on_result(owner, header, Bytes::borrowed(payload));
    REQUIRE(ended);
    if (*ended) leave(rank, header.seq);
  }

  // --- Connections ---

  static wire::FrameHeader through_the_wire(const wire::FrameHeader& header) {
    std::array<std::byte, wire::kHeaderBytes> bytes;
    wire::encode(header, bytes);
    const auto decoded = wire::decode_header(bytes);
    REQUIRE(decoded);
    return *decoded;
  }

  bool deliver_up(std::uint32_t lane, Rank rank, std::uint32_t owner) {
    auto& queue = port(lane, rank).up[owner];
    if (queue.empty()) return false;
    const wire::Message message = std::move(queue.front());
    queue.pop_front();
    take_up(lane, rank, owner,
            {through_the_wire(message.header), Bytes::copy_of(message.payload.view())});
    return true;
  }

  bool deliver_down(std::uint32_t lane, Rank rank, std::uint32_t owner) {
    Inbox& inbox = port(lane, rank).down[owner];
    if (inbox.queue.empty()) return false;
    if (!inbox.begun) {
      begin_down(inbox, port(lane, rank).worker, owner);
    } else {
      finish_down(inbox, lane, rank, owner);
    }
    return true;
  }

  // The first half of the payload comes in, to its place if it has one.
  static void begin_down(Inbox& inbox, const proto::Worker& worker, std::uint32_t owner) {
    const wire::Message& message = inbox.queue.front();
    const bool is_result = message.header.kind == wire::FrameKind::result;
    inbox.begun = true;
    inbox.place = is_result ? worker.place(owner, message.header) : nullptr;
    inbox.memory = Buffer(inbox.place ? 0 : message.payload.size());
    std::byte* to = inbox.place ? inbox.place : inbox.memory.data();
    std::copy_n(message.payload.data(), message.payload.size() / 2, to);
  }

  void finish_down(Inbox& inbox, std::uint32_t lane, Rank rank, std::uint32_t owner) {
    const wire::Message message = std::move(inbox.queue.front());
    inbox.queue.pop_front();
    const std::size_t size = message.payload.size();
    const Buffer memory = std::exchange(inbox.memory, {});
    std::byte* to = inbox.place ? inbox.place : const_cast<std::byte*>(memory.data());
    std::copy(message.payload.data() + size / 2, message.payload.data() + size, to + size / 2);
    inbox.begun = false;
    inbox.place = nullptr;
    take_down(lane, rank, owner, through_the_wire(message.header), {to, size});
  }

  // --- An owner ---

  void take_up(std::uint32_t lane, Rank rank, std::uint32_t index, wire::Message message) {
    proto::Owner& owner = lanes_[lane]->owners[index];
    proto::Owner::Outbox outbox;
    const Status error = owner.on_message(rank, std::move(message), outbox);
    REQUIRE_MESSAGE(!error, (error ? error->message : ""));
    while (owner.is_paused()) owner.pause(false, outbox);
    REQUIRE(owner.buffered_bytes() <=
            topology_.world_size * (topology_.window_bytes + wire::kMaxPayload));
    for (const wire::Message& answer : outbox) send_down(lane, index, answer);
  }

  void send_down(std::uint32_t lane, std::uint32_t owner, const wire::Message& message) {
    counters_.results_made += message.header.kind == wire::FrameKind::result;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (is_self(static_cast<Rank>(rank), owner)) continue;
      ++counters_.of_owner[owner];
      lanes_[lane]->ports[rank]->down[owner].queue.push_back(message);
    }
    if (dedicated_) return;
    take_down(lane, static_cast<Rank>(owner), owner, message.header, message.payload.view());
  }

  wire::Topology topology_;
  bool dedicated_;
  Random random_;
  std::vector<std::unique_ptr<LaneState>> lanes_;
  std::vector<RankState> ranks_;
  Counters counters_;
};

}  // namespace sparsewire::test
