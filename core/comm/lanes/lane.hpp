// A lane: one progress thread with its own channel to every peer, shared by this process's groups
// of these peers. Lanes share nothing.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/lanes/farewells.hpp"
#include "comm/lanes/lane_channels.hpp"
#include "comm/lanes/lane_group.hpp"
#include "comm/lanes/mesh_place.hpp"
#include "comm/progress/progress_thread.hpp"

namespace sparsewire::comm {

class Lane final : public GroupHost, private ProgressClient, private net::FrameHandler {
 public:
  // Takes over one connected socket per peer; -1: there is none yet. Those that it has taken over
  // are -1 afterwards, even if it throws.
  Lane(const MeshPlace& place, std::uint32_t number, std::span<int> sockets,
       MeshListener& listener);

  // --- From any thread; these only ask ---

  void start();
  // From then on the group must leave before it can be destroyed.
  void join(const std::shared_ptr<LaneGroup>& group);
  // Ends a group that this process has not joined, and tells its members; no effect if the group is
  // here.
  void fail_group(std::uint32_t number, const std::vector<std::uint32_t>& members, Error error);
  // Takes over the socket of a peer that was called, or that has called.
  void adopt(std::uint32_t peer, int fd);
  // Notes that a peer is being called, and has to answer from now on.
  void note_call(std::uint32_t peer);
  // Notes that a peer cannot be reached.
  void give_up(std::uint32_t peer, Error error);
  // Notes that another lane has asked for a peer.
  void ask(std::uint32_t peer);
  // Ends once no group is left.
  void stop() noexcept;
  using Wake = ProgressThread::Wake;
  void post(std::function<void()> call, Wake when = Wake::now) override {
    thread_.post(std::move(call), when);
  }
  void wake() override { thread_.wake(); }
  bool work(const std::function<bool()>& is_done, Clock::time_point until) override {
    return thread_.work(is_done, until);
  }

  // Blocks until the thread has ended, after stop(), and leaves no descriptor open.
  void await_end() {
    thread_.join();
    thread_.close();
  }

  // Peers that are connected; and whether some connection is lost for ever.
  std::size_t connections() const { return connections_; }
  bool is_whole() const { return is_whole_; }

  // In a forked child, where the lane's thread does not exist.
  void disown();

  // Groups with something to do, as of the last turn.
  std::size_t busy() const { return busy_count_; }

  void note_order() noexcept override {
    has_orders_ = true;
    wake();
  }

  // --- From its groups, in its turn ---

  LaneChannels& channels() override { return channels_; }
  void welcome() override;
  void make_busy(LaneGroup& group) override { busy_.splice(busy_.end(), group.idle_entry()); }
  void lose_untold(PeerChannel& channel) noexcept override;

 private:
  using Groups = std::map<std::uint32_t, std::shared_ptr<LaneGroup>>;  // by number

  void progress(Clock::time_point now) override;
  std::optional<std::chrono::milliseconds> patience(Clock::time_point now) override;
  bool finished() const override { return is_finished_; }
  void on_exception(const std::exception& exception) noexcept override;

  bool is_ready_for(const wire::FrameHeader& header) override;
  Status accepts(std::uint32_t from, const wire::FrameHeader& header) override;
  std::byte* place(std::uint32_t from, const wire::FrameHeader& header) override;
  Status on_message(std::uint32_t from, wire::Message message) override;

  bool has_pulse() const { return number_ == 0 && !place_.is_alone(); }
  LaneGroup* find(std::uint32_t number);
  LaneGroup* find(std::uint32_t number, const PeerChannel& member);
  bool may_go(const PeerChannel& channel) const;
  template <typename Call>
  void for_each_busy(Call&& call);
  void take_orders(Clock::time_point now);
  void take_in(LaneGroup& group);
  void connect(PeerChannel& channel, int fd);
  void on_asked(PeerChannel& channel);
  void tell_farewells(PeerChannel& channel);
  void end_unknown(std::uint32_t number, const std::vector<std::uint32_t>& members,
                   const Error& error);
  void refuse_unknown(std::uint32_t number, const Error& error);
  void resume_reading();
  void receive();
  void produce();
  void flush();
  void look_around(Clock::time_point now);
  void settle();
  void give_up_unknown(Clock::time_point now);
  Farewell farewell_of(std::uint32_t number, const Error& error) const;
  void forget_unknown(std::uint32_t number);
  void on_news(PeerChannel& channel, const proto::Pulse::News& news);
  void lose(PeerChannel& channel, const Error& error);
  void note_lost(PeerChannel& channel) noexcept;
  void lose_all() noexcept;
  void rest_idle();
  void forget_finished();
  void bury(LaneGroup& group);

  const MeshPlace place_;
  const std::uint32_t number_;
  MeshListener& listener_;
  LaneChannels channels_;
  Groups groups_;
  std::list<LaneGroup*> busy_;                          // groups with something to do
  LaneGroup* recent_ = nullptr;                         // the group of the last frame
  Farewells farewells_;                                 // of groups that were here
  std::map<std::uint32_t, Clock::time_point> unknown_;  // groups whose frames wait, since when
  proto::Metronome metronome_;

  std::mutex mutex_;  // guards the arrivals
  Groups arrivals_;
  std::atomic<bool> has_arrivals_ = false;
  std::atomic<bool> has_orders_ = false;
  std::atomic<std::size_t> busy_count_ = 0;
  std::atomic<std::size_t> connections_ = 0;
  std::atomic<bool> is_whole_ = true;
  std::atomic<bool> stops_ = false;
  bool is_finished_ = false;

  ProgressThread thread_;  // Last, so that it ends before what it works on.
};

}  // namespace sparsewire::comm
