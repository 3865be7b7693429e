// The aggregator's half of the slots: adds up what the workers contribute to each round of a slot,
// and keeps the result until the round after the next, for workers that it did not reach. A rack's
// aggregator has a parent: the sum of its workers is one contribution there.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/transitions.hpp"
#include "proto/slots/pool.hpp"
#include "wire/datagram.hpp"

namespace sparsewire::proto {

inline constexpr std::uint16_t kEveryWorker = UINT16_MAX;
inline constexpr std::uint16_t kParent = UINT16_MAX - 1;

// A slot keeps two rounds: the last, and the one before it.
enum class RoundState : std::uint8_t {
  blank,     // of no round so far
  adding,    // some worker has not contributed
  waiting,   // all have, and the parent's result has not come
  complete,  // its result is kept
};

enum class RoundStep : std::uint8_t { start, pass, finish };

inline constexpr Transition<RoundState, RoundStep> kRoundTransitions[] = {
    {RoundState::adding, RoundStep::finish, RoundState::complete},
    {RoundState::adding, RoundStep::pass, RoundState::waiting},
    {RoundState::waiting, RoundStep::finish, RoundState::complete},
    {RoundState::complete, RoundStep::start, RoundState::adding},
    {RoundState::blank, RoundStep::start, RoundState::adding},
};

struct SlotAggregatorCounters {
  std::uint64_t contributions = 0;  // taken, each once
  std::uint64_t duplicates = 0;     // contributions that had been taken before
  std::uint64_t stale = 0;          // of a round that is over, or not yet begun
  std::uint64_t rejected = 0;       // datagrams that make no sense
  std::uint64_t results = 0;        // rounds completed
  std::uint64_t resent = 0;         // results sent again to one worker
  std::uint64_t recalls = 0;        // sent to workers whose contribution is missing
  std::uint64_t passed = 0;         // contributions to the parent
  std::uint64_t passed_again = 0;   // repeats of these
};

class SlotAggregator {
 public:
  // With a parent, `of_parent` says which of its workers this aggregator is.
  explicit SlotAggregator(const SlotPool& pool, std::optional<std::uint16_t> of_parent = {});

  // Not sealed; valid until the next call.
  struct Outgoing {
    std::uint16_t worker;  // or kEveryWorker, or kParent
    std::span<std::byte> datagram;
  };

  // Takes a datagram of this job, rightly sealed, and from the address of the worker that it names.
  // An odd datagram is counted and ignored. Appends the answers to `out`.
  void on_datagram(const wire::Datagram& datagram, std::vector<Outgoing>& out);
  // The same for a datagram from the parent.
  void on_parent(const wire::Datagram& datagram, std::vector<Outgoing>& out);

  // Bytes that it takes, whatever comes.
  std::size_t memory() const { return memory_needed(pool_); }
  static std::size_t memory_needed(const SlotPool& pool);

  const SlotAggregatorCounters& counters() const { return counters_; }

 protected:
  struct Round {
    RoundState state = RoundState::blank;
    wire::DatagramHeader header;  // of its result, with the blocks that have come so far
    wire::ColumnRecord columns[wire::kMaxColumns];

    void move(RoundStep step) { state = next_state(kRoundTransitions, state, step); }
  };
  struct Slot {
    Round rounds[2];            // by the round's number mod 2
    std::uint16_t missing = 0;  // workers, of the round that is being added up
    // The worker whose repeat had the contribution sent to the parent again.
    std::optional<std::uint16_t> urged = {};

    Round& last() { return rounds[rounds[1].header.round == rounds[0].header.round + 1]; }
  };
  // A bit for each worker that is in the round that is being added up, or comes next.
  std::uint64_t* seen(std::uint16_t slot);
  std::vector<Slot> slots_;

 private:
  bool is_ours(const wire::Datagram& datagram) const;
  static bool is_alike(const wire::DatagramHeader& a, const wire::DatagramHeader& b);
  bool is_in_pool(const wire::Datagram& datagram) const;
  void take(const wire::Datagram& datagram, std::vector<Outgoing>& out);
  void on_duplicate(const wire::Datagram& datagram, std::vector<Outgoing>& out);
  void recall(const Round& last, const wire::DatagramHeader& model, std::vector<Outgoing>& out);
  void on_parents_recall(const wire::Datagram& datagram, std::vector<Outgoing>& out);
  void on_parents_result(const wire::Datagram& datagram, std::vector<Outgoing>& out);
  void complete(Round& round, std::vector<Outgoing>& out);
  void pass(Round& round, std::vector<Outgoing>& out);
  void pass_again(const Round& round, std::vector<Outgoing>& out);
  static void start(Round& round, const wire::DatagramHeader& header);
  static void look_ahead(Round& round, const wire::Datagram& datagram);
  void keep(const wire::Datagram& datagram);
  void add(Round& round, const wire::Datagram& datagram);
  void finish(Round& round);
  void add_up(const Round& round, std::size_t column, std::byte* sums);
  std::span<std::byte> written(const Round& round, wire::DatagramKind kind);
  std::byte* memory_of(const wire::DatagramHeader& header);
  std::byte* kept(std::uint16_t slot, std::uint16_t worker);

  SlotPool pool_;
  std::optional<std::uint16_t> of_parent_;
  std::vector<std::uint64_t> seen_;
  std::vector<std::uint8_t> present_;     // per slot and worker: the columns whose blocks are kept
  std::unique_ptr<std::byte[]> results_;  // per slot and round: a datagram
  std::unique_ptr<std::byte[]> kept_;     // per slot and worker: the values of a datagram
  std::vector<float> sums_;               // of half types, of one block
  std::array<std::byte, wire::datagram_head(1)> blank_{};  // a result of no round
  SlotAggregatorCounters counters_;
};

}  // namespace sparsewire::proto
