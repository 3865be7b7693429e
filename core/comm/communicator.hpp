// The engine of one rank: numbers the operations, spreads each over the lanes, ends them in issue
// order, and turns every failure into an error that every waiter gets.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/mesh.hpp"
#include "comm/operations/operation.hpp"
#include "comm/records/survey.hpp"
#include "comm/slots/lane_place.hpp"
#include "comm/slots/slot_figures.hpp"
#include "net/connection.hpp"

namespace sparsewire::comm {

class LaneGroup;

struct Stats {
  std::uint64_t operations = 0;
  std::uint64_t operations_failed = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t segments_sent = 0;
  std::uint64_t results_received = 0;
  std::uint64_t chunks_empty = 0;
  std::uint64_t elements = 0;  // of operations that have ended well, but for those by datagrams
  std::uint64_t elements_sent =
      0;  // of this rank's input to them: of whole blocks, if these are sent
  std::array<std::uint64_t, kSlotFigureCount> slots{};
};

// An operation in flight.
struct Current {
  std::string op;
  std::uint64_t seq;
  Clock::duration age;
};

// The state of a communicator, for people who ask why it takes so long. All of it is of one moment,
// but for the answers of lanes, which come later.
struct Survey {
  struct InFlight {
    Current current;
    std::uint64_t bytes;  // of the tensor, as it is dense
    bool is_agreeing;     // all ranks must agree on it first
  };
  std::size_t in_flight = 0;
  std::vector<InFlight> operations;  // the oldest of them
  std::vector<Silence> silent;       // peers from which nothing comes at the moment
  Status failure;
  std::vector<std::optional<LaneSurvey>> lanes;  // none: the lane did not answer
};

// A peer fell silent, or was heard again; and the operation that was the oldest in flight then.
struct Notice {
  Silence silence;
  std::string trouble;  // with datagrams, if the notice is of these
  std::optional<Current> oldest;
};

class Communicator final : public LaneListener {
 public:
  // Has a mesh of its own, made of sockets[lane][owner], which it takes over; and datagrams, on the
  // first lane, if the owners are aggregators that take them.
  Communicator(const wire::Topology& topology, Rank rank, bool dedicated, net::Sockets sockets,
               const proto::Hosts& hosts = proto::Hosts{},
               std::shared_ptr<DatagramPlace> datagrams = {},
               std::shared_ptr<Timeline> timeline = {});
  // Shares a mesh, which must outlive the communicator.
  Communicator(const wire::Topology& topology, Rank rank, Mesh& mesh, const Group& group,
               const proto::Hosts& hosts = proto::Hosts{}, std::shared_ptr<Timeline> timeline = {});
  ~Communicator() override;

  // Queues a collective. Its memory must stay valid until the operation has ended. Every operation
  // ends, whatever happens. If this throws, nothing was queued.
  std::shared_ptr<Operation> submit(const Operation::Arguments& arguments);

  // Blocks until the operation has ended, or for `patience`; true if it has ended. Meanwhile it
  // does the work of the operation's main lane, if that lane's turn is free.
  bool wait(const Operation& operation, Clock::duration patience);

  // The figures by which algorithms and formats are chosen from the next collective on; the same
  // on every rank.
  void set_link(const proto::LinkFigures& link);
  proto::LinkFigures link() const;

  // As many as ranks, if each speaks for itself.
  std::uint64_t hosts() const { return hosts_; }

  // Has next_completed() return the operation once it has ended.
  void watch(std::shared_ptr<Operation> operation);

  // Blocks for the next watched operation that ended; null once the communicator is closed.
  std::shared_ptr<Operation> next_completed();

  // Fails all operations in flight and to come, here and on every peer.
  void abort(const std::string& message);

  // Leaves in good order: flushes frames that peers still need, for `linger` at most.
  void close(Clock::duration linger);

  // In a forked child: closes this process's copies of the descriptors, which no peer notices.
  // Takes no lock, because a thread that held it does not exist here. The object must be neither
  // used nor destroyed after that: its threads do not exist here, either.
  void disown();

  Stats stats() const;
  // Asks the lanes, and waits up to `patience` for their answers. From any thread but the lanes'
  // own.
  Survey survey(Clock::duration patience) const;

  // Blocks for the next notice; none once the communicator is closed.
  std::optional<Notice> next_notice();

  void operation_left(std::uint64_t seq) override;
  void operation_failed(std::uint64_t seq, Error error) override;
  void operation_chosen(std::uint64_t seq, proto::Route route, const Order& order) override;
  void peer_silent(const Silence& silence) override;
  void datagrams_troubled(const std::string& text) override;
  void broken(Error error) override;

 private:
  struct InFlight {
    // Operations that run as streams reach the lanes in issue order. So one that all ranks must
    // agree on first holds up later ones.
    enum class State : std::uint8_t { agreeing, waiting, running };

    std::shared_ptr<Operation> operation;
    State state = State::waiting;
    std::size_t lanes_left = 0;  // lanes that have got the operation and not left it
    Status failure = {};
    std::list<std::shared_ptr<Operation>> watched = {};  // itself, if it is to be reported
    Clock::time_point issued = Clock::now();

    bool is_told = false;  // the timeline has its beginning

    bool has_ended() const { return state == State::running && lanes_left == 0; }
  };

  void join(const Group& group, const proto::Hosts& hosts,
            const std::shared_ptr<DatagramPlace>& datagrams);
  std::optional<Current> oldest_locked() const;
  void tell_locked(Notice notice);
  Survey survey_locked() const;
  void tell_begin(InFlight& in_flight) const;
  void tell_end(const InFlight& in_flight) const;
  void issue_locked(InFlight& in_flight);
  using Wake = ProgressThread::Wake;
  void run_waiting_locked(Wake when = Wake::now);
  void run_stream_locked(InFlight& in_flight, Wake when);
  void share_exchange_locked(InFlight& in_flight, const Order& order);
  void fail_locked(std::uint64_t seq, const Error& error);
  void break_locked(const Error& error) noexcept;
  void end_in_order_locked();

  const wire::Topology topology_;
  const Rank rank_;
  const bool dedicated_;
  std::uint64_t hosts_ = 1;
  const std::unique_ptr<Mesh> own_mesh_;  // null if the mesh is shared
  Mesh& mesh_;
  const std::shared_ptr<Timeline> timeline_;
  std::uint32_t number_ = 0;
  std::vector<std::shared_ptr<LaneGroup>> lanes_;  // this group's part of each

  std::mutex closing_;  // held through close(), so that a second caller waits for the first
  mutable std::mutex mutex_;
  std::condition_variable completed_changed_;
  proto::LinkFigures link_;
  std::uint64_t next_seq_ = 0;
  std::map<std::uint64_t, InFlight> in_flight_;
  std::uint64_t next_to_run_ = 0;                  // no operation below it is waiting or agreeing
  std::map<std::uint64_t, Error> early_failures_;  // of operations not issued here yet
  std::list<std::shared_ptr<Operation>> completed_;
  std::map<std::string, std::pair<Silence, Clock::time_point>> silent_;  // by peer, since when
  std::deque<Notice> notices_;
  std::condition_variable notices_changed_;
  Status broken_;
  bool closed_ = false;
  std::uint64_t failed_ = 0;
  std::uint64_t elements_ = 0;
  std::uint64_t elements_sent_ = 0;
};

}  // namespace sparsewire::comm
