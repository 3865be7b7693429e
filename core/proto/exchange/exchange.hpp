// One sparse collective at one rank, or one lane's share of it. Its parts walk through their
// schedules as messages come from other ranks.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "proto/exchange/part_adder.hpp"
#include "proto/exchange/part_plan.hpp"
#include "proto/sparse/splitter.hpp"

namespace sparsewire::proto {

// A message for one rank, or for all others if `to` is kNoRank.
struct Outgoing {
  Rank to;
  wire::Message message;
};
using Outgoings = std::vector<Outgoing>;

// One of the lanes that carry parts.
struct LaneShare {
  std::uint32_t lane = 0;
  std::uint32_t lanes = 1;
};

class Exchange {
 public:
  // `sinks` has one entry per list of results.
  Exchange(const PartPlan& plan, const SparseTensor& tensor, std::vector<PartSink*> sinks,
           const Costs& costs, LaneShare share = {});

  // Starts the next part. False if there is none, or if enough are on their way.
  Result<bool> start_next(Outgoings& out);

  // Takes a part frame, perhaps of a part that has not been started here yet.
  Status on_part(Rank from, const wire::FrameHeader& header, const Bytes& payload, Outgoings& out);

  bool finished() const { return parts_finished_ == own_parts_; }

  // The ranks whose messages the started parts wait for.
  std::vector<Rank> missing() const;

 private:
  using Pieces = std::vector<wire::Piece>;
  struct Inbox {
    Pieces arriving;  // of a message whose last frame has not come
    std::deque<Pieces> whole;
  };
  struct Part {
    Schedule schedule;
    std::size_t step = 0;
    bool is_started = false;
    bool is_complete = false;  // the values held are no partial sum
    bool is_taken = false;     // the values held are final, as another rank encoded them
    Pieces held;
    std::map<Rank, Inbox> inboxes;

    // The oldest whole message that no step has taken yet.
    Pieces take_message(Rank from);
  };

  bool is_mine(std::uint64_t number) const {
    return plan_.lane_of(number, share_.lanes) == share_.lane;
  }
  Pieces own_pieces(std::uint64_t number);
  Status advance(std::uint64_t number, Part& part, Outgoings& out);
  Status run(std::uint64_t number, Part& part, const Step& step, Outgoings& out);
  bool is_ready(const Part& part, const Step& step) const;
  // Whether a rank's values of the part are here; this rank's own always are.
  bool has_come(const Part& part, Rank rank) const;
  void send(std::uint64_t number, Part& part, const Step& step, Outgoings& out);
  Status add(std::uint64_t number, Part& part, const Step& step);
  Status deliver(std::uint64_t number, const Part& part);
  void encode(std::uint64_t number, Part& part, Rank label);
  Status check_chunks(std::uint64_t number, const Pieces& pieces) const;
  // Rows shorter than the engine's blocks are elements here, and rows on the wire.
  Status restore_rows(std::uint64_t number, Pieces& pieces) const;
  Pieces outgoing(std::uint64_t number, const Pieces& held) const;

  const PartPlan plan_;
  SparseTensor tensor_;
  std::vector<PartSink*> sinks_;
  std::unique_ptr<Splitter> splitter_;
  SparseTensor slice_;           // the slice of the tensor that the splitter is for
  std::uint64_t splitting_ = 0;  // the list of that slice
  PartAdder adder_;
  const LaneShare share_;

  std::uint64_t own_parts_ = 0;
  std::uint64_t next_part_ = 0;
  std::uint64_t parts_started_ = 0;
  std::uint64_t parts_finished_ = 0;
  std::map<std::uint64_t, Part> parts_;  // started and not finished, or with early messages
};

}  // namespace sparsewire::proto
