// Carries messages between the protocol's halves and the connections, in the lane's own thread.
#include "comm/lane.hpp"

#include <algorithm>
#include <utility>

#include "comm/sending.hpp"
#include "net/tcp/connection.hpp"
#include "proto/stream/dense.hpp"
#include "wire/fault.hpp"

namespace sparsewire::comm {
namespace {

// Messages produced per owner and round, before the connections get their turn again.
constexpr int kMessagesPerRound = 8;

// How long a rank that cannot tell who is late waits for a peer that can.
constexpr std::chrono::milliseconds kTimeoutGrace{250};

constexpr std::chrono::milliseconds kDrainInterval{1};

wire::Message hello_message(const Lane::Place& place, std::uint32_t owner) {
  Bytes payload = wire::encode_hello({place.topology, place.lane, owner});
  const auto size = static_cast<std::uint32_t>(payload.size());
  return {{.kind = wire::FrameKind::hello, .payload = size}, std::move(payload)};
}

std::string list_of(std::span<const Rank> ranks) {
  std::string text;
  for (const Rank rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

// A connection and whose it is: the owner's index, which is its rank where owners are colocated.
class Lane::Link final : public net::FrameHandler {
 public:
  Link(Lane& lane, std::uint32_t owner, int fd) : lane_(lane), owner_(owner), connection(fd) {}

  std::uint32_t owner() const { return owner_; }
  Rank rank() const { return lane_.place_.dedicated ? kNoRank : static_cast<Rank>(owner_); }

  std::byte* place(const wire::FrameHeader& header) override {
    if (header.kind != wire::FrameKind::result) return nullptr;
    return lane_.worker_.place(owner_, header);
  }
  Status on_message(wire::Message message) override {
    return lane_.on_message(*this, std::move(message));
  }

 private:
  Lane& lane_;
  std::uint32_t owner_;

 public:
  net::Connection connection;
};

Lane::Lane(const Place& place, std::span<const int> sockets, LaneListener& listener)
    : place_(place), listener_(listener), worker_(place.topology, place.lane), thread_(*this) {
  if (!place.dedicated) {
    owner_ = std::make_unique<proto::Owner>(place.topology, place.lane,
                                            static_cast<std::uint32_t>(place.rank));
  }
  links_.resize(sockets.size());
  for (std::uint32_t owner = 0; owner < sockets.size(); ++owner) {
    if (is_self(owner)) continue;
    links_[owner] = std::make_unique<Link>(*this, owner, sockets[owner]);
    thread_.watch(links_[owner]->connection);
    if (place.dedicated) links_[owner]->connection.send(hello_message(place, owner));
  }
}

Lane::~Lane() = default;

bool Lane::is_self(std::uint32_t owner) const {
  return !place_.dedicated && static_cast<Rank>(owner) == place_.rank;
}

void Lane::submit(std::shared_ptr<Operation> operation) {
  thread_.post([this, operation = std::move(operation)] { do_submit(operation); });
}

void Lane::fail(std::uint64_t seq) {
  thread_.post([this, seq] { do_fail(seq); });
}

void Lane::break_off(Error error) {
  thread_.post([this, error = std::move(error)] { do_break_off(error); });
}

void Lane::leave(std::uint64_t issued, Clock::duration linger) {
  thread_.post([this, issued, linger] { do_leave(issued, linger); });
}

void Lane::progress(Clock::time_point now) {
  receive();
  produce();
  flush();
  pace_owner();
  check_deadlines(now);
  publish_counters();
  if (leaving_until_) finish_leaving(now);
}

void Lane::finish_leaving(Clock::time_point now) {
  const bool drained = std::ranges::all_of(links_, [](const auto& link) {
    return !link || (!link->connection.has_output() && link->connection.is_drained());
  });
  finished_ = drained || now >= *leaving_until_;
  if (!finished_) return;
  for (const auto& link : links_) {
    if (link) link->connection.close();
  }
}

std::optional<std::chrono::milliseconds> Lane::patience(Clock::time_point now) {
  const bool readable = std::ranges::any_of(
      links_, [](const auto& link) { return link && link->connection.is_readable(); });
  if (readable) return std::chrono::milliseconds{0};
  for (std::uint32_t owner = 0; owner < links_.size(); ++owner) {
    if (worker_.has_work(owner)) return std::chrono::milliseconds{0};
  }
  if (leaving_until_) return kDrainInterval;
  if (next_deadline_ == Clock::time_point::max()) return {};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_deadline_ - now);
  return std::clamp(left, std::chrono::milliseconds{0},
                    std::chrono::milliseconds{std::chrono::hours{1}});
}

bool Lane::finished() const { return finished_; }

void Lane::receive() {
  for (const auto& link : links_) {
    if (!link || !link->connection.is_readable()) continue;
    if (Status error = link->connection.receive(*link)) lose(*link, *error);
  }
}

// A few messages for each owner in turn: all connections are kept busy, and the look-ahead of one
// owner's chunks does not hold up another's. The first owner differs from rank to rank.
void Lane::produce() {
  const auto owners = static_cast<std::uint32_t>(links_.size());
  const auto shift = static_cast<std::uint32_t>(place_.rank) + 1;
  for (int round = 0; round < kMessagesPerRound; ++round) {
    for (std::uint32_t i = 0; i < owners; ++i) {
      const std::uint32_t owner = (i + shift) % owners;
      if (auto message = worker_.poll(owner)) send_to_owner(owner, *std::move(message));
    }
    flush();
  }
}

void Lane::flush() {
  for (const auto& link : links_) {
    if (!link || !link->connection.has_output()) continue;
    if (Status error = link->connection.flush()) lose(*link, *error);
  }
}

void Lane::publish_counters() {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (const auto& link : links_) {
    if (!link) continue;
    sent += link->connection.bytes_sent();
    received += link->connection.bytes_received();
  }
  counters_.bytes_sent.store(sent, std::memory_order_relaxed);
  counters_.bytes_received.store(received, std::memory_order_relaxed);
  counters_.chunks_empty.store(worker_.chunks_empty(), std::memory_order_relaxed);
}

Status Lane::on_message(Link& link, wire::Message message) {
  if (broken_) return {};
  switch (message.header.kind) {
    case wire::FrameKind::open:
    case wire::FrameKind::segment:
    case wire::FrameKind::cancel:
      if (place_.dedicated) return protocol_error("frame: this rank owns nothing");
      message.payload = message.payload.owned();
      return on_owner_message(link.rank(), std::move(message));
    case wire::FrameKind::result:
    case wire::FrameKind::fail:
      return on_worker_message(link.owner(), message);
    case wire::FrameKind::abort:
    case wire::FrameKind::goodbye:
      return on_control_message(message);
    case wire::FrameKind::hello:
      break;
  }
  return protocol_error("frame: a worker does not take this kind");
}

Status Lane::on_owner_message(Rank rank, wire::Message message) {
  proto::Owner::Outbox outbox;
  if (Status error = owner_->on_message(rank, std::move(message), outbox)) return error;
  return broadcast(std::move(outbox));
}

// Results for a rank that reads slowly must not pile up, so the owner half pauses while they do. It
// goes on reading meanwhile: two ranks that both stopped could wait for each other for ever.
void Lane::pace_owner() {
  if (!owner_) return;
  const bool is_behind = std::ranges::any_of(links_, [](const auto& link) {
    return link && link->connection.queued_bytes() > kMaxQueuedBytes;
  });
  if (is_behind == owner_->is_paused()) return;
  proto::Owner::Outbox outbox;
  owner_->pause(is_behind, outbox);
  if (Status error = broadcast(std::move(outbox))) listener_.broken(*error);
}

Status Lane::broadcast(proto::Owner::Outbox outbox) {
  for (const wire::Message& message : outbox) {
    send_to_links(message);
    if (Status error = on_worker_message(static_cast<std::uint32_t>(place_.rank), message)) {
      return error;
    }
  }
  return {};
}

Status Lane::on_worker_message(std::uint32_t owner, const wire::Message& message) {
  const std::uint64_t seq = message.header.seq;
  if (message.header.kind == wire::FrameKind::fail) {
    const auto fault = wire::decode_fault(message.payload.view());
    if (!fault) return fault.error();
    listener_.operation_failed(seq, fault->error);
    return {};
  }
  counters_.results_received.fetch_add(1, std::memory_order_relaxed);
  const auto ended = worker_.on_result(owner, message.header, message.payload.view());
  if (!ended) return ended.error();
  if (*ended) end_operation(seq);
  return {};
}

Status Lane::on_control_message(const wire::Message& message) {
  if (message.header.kind == wire::FrameKind::abort) {
    const auto fault = wire::decode_fault(message.payload.view());
    if (!fault) return fault.error();
    listener_.broken(fault->error);
    return {};
  }
  if (message.header.chunk >= place_.topology.world_size) {
    return protocol_error("goodbye: rank out of range");
  }
  departed_[static_cast<Rank>(message.header.chunk)] = message.header.seq;
  check_departures();
  return {};
}

void Lane::send_to_owner(std::uint32_t owner, wire::Message message) {
  if (message.header.kind == wire::FrameKind::segment) {
    counters_.segments_sent.fetch_add(1, std::memory_order_relaxed);
  }
  if (!is_self(owner)) {
    links_[owner]->connection.send(std::move(message));
  } else if (Status error = on_owner_message(place_.rank, std::move(message))) {
    listener_.broken(*error);
  }
}

void Lane::send_to_links(const wire::Message& message) {
  for (const auto& link : links_) {
    if (link) link->connection.send(message);
  }
}

void Lane::end_operation(std::uint64_t seq) {
  in_flight_.erase(seq);
  listener_.operation_left(seq);
}

// A peer that has said goodbye may close; any other that goes, or that talks nonsense, ends all.
void Lane::lose(Link& link, const Error& error) {
  if (error.code == ErrorCode::protocol) {
    // Whoever sent nonsense is told so; the close may cut this short, which does no harm.
    link.connection.send(abort_message(error));
    link.connection.flush();
  }
  link.connection.close();
  if (broken_ || leaving_until_ || departed_.contains(link.rank())) return;
  const std::string who = place_.dedicated ? "aggregator " + link.connection.peer()
                                           : "rank " + std::to_string(link.rank());
  listener_.broken({error.code, link.rank(), "lost " + who + ": " + error.message});
}

void Lane::do_submit(std::shared_ptr<Operation> operation) {
  const std::uint64_t seq = operation->seq();
  const Operation::Arguments& arguments = operation->arguments();
  if (broken_) return listener_.operation_left(seq);

  const proto::ChunkGrid grid = proto::make_grid(arguments.descriptor, place_.topology);
  const proto::DenseTensor tensor{arguments.source, arguments.target, arguments.descriptor, grid};
  auto source = std::make_unique<proto::DenseSource>(tensor, operation->leaves_out_zeros());
  if (!worker_.submit(seq, arguments.descriptor, grid, std::move(source),
                      std::make_unique<proto::DenseSink>(tensor))) {
    return listener_.operation_left(seq);
  }
  next_deadline_ = std::min(next_deadline_, arguments.deadline);
  in_flight_.emplace(seq, std::move(operation));
  check_departures();
}

void Lane::do_fail(std::uint64_t seq) {
  if (broken_) return;
  for (const auto& link : links_) {
    if (link) link->connection.detach();
  }
  for (std::uint32_t owner = 0; owner < links_.size(); ++owner) {
    send_to_owner(owner, {{.kind = wire::FrameKind::cancel, .seq = seq}, {}});
  }
  if (worker_.drop(seq)) end_operation(seq);
}

void Lane::do_break_off(const Error& error) {
  if (broken_) return;
  broken_ = true;
  owner_.reset();
  for (const auto& link : links_) {
    if (!link) continue;
    link->connection.drop_unsent();
    link->connection.detach();
    link->connection.send(abort_message(error));
  }
  while (!in_flight_.empty()) {
    const std::uint64_t seq = in_flight_.begin()->first;
    worker_.drop(seq);
    end_operation(seq);
  }
}

void Lane::do_leave(std::uint64_t issued, Clock::duration linger) {
  if (!broken_) {
    send_to_links({{.kind = wire::FrameKind::goodbye,
                    .seq = issued,
                    .chunk = static_cast<std::uint64_t>(place_.rank)},
                   {}});
  }
  leaving_until_ = Clock::now() + linger;
}

// A rank that left can contribute to nothing that it did not issue before.
void Lane::check_departures() {
  if (in_flight_.empty()) return;
  const std::uint64_t newest = in_flight_.rbegin()->first;
  for (const auto& [rank, issued] : departed_) {
    if (newest < issued) continue;
    listener_.broken({ErrorCode::peer_lost, rank,
                      "rank " + std::to_string(rank) + " closed its communicator after " +
                          std::to_string(issued) + " operations"});
    return;
  }
}

void Lane::check_deadlines(Clock::time_point now) {
  if (now < next_deadline_) return;
  next_deadline_ = Clock::time_point::max();
  for (const auto& [seq, operation] : in_flight_) {
    auto due = operation->arguments().deadline;
    if (due <= now) {
      const auto missing = owner_ ? owner_->missing(seq) : std::vector<Rank>{};
      due += kTimeoutGrace;
      if (!missing.empty() || due <= now) return listener_.broken(timeout_error(seq, missing));
    }
    next_deadline_ = std::min(next_deadline_, due);
  }
}

Error Lane::timeout_error(std::uint64_t seq, const std::vector<Rank>& missing) const {
  const std::string text = "rank " + std::to_string(place_.rank) + " gave up waiting: ";
  if (!missing.empty()) {
    return {ErrorCode::timeout, missing.front(),
            text + "nothing more came from rank(s) " + list_of(missing)};
  }
  std::string silent;
  for (const std::uint32_t owner : worker_.waiting_for(seq)) {
    const std::string name =
        place_.dedicated ? links_[owner]->connection.peer() : std::to_string(owner);
    silent += (silent.empty() ? "" : ", ") + name;
  }
  const char* kind = place_.dedicated ? "aggregator(s) " : "rank(s) ";
  return {ErrorCode::timeout, kNoRank, text + "no result came from " + kind + silent};
}

}  // namespace sparsewire::comm
