// Datagrams in and out, greetings, and what to say where they do not pass.
#include "comm/slot_end.hpp"

#include <algorithm>
#include <cerrno>

#include "wire/greeting.hpp"

namespace sparsewire::comm {
namespace {

constexpr proto::Microseconds kBetweenNews = std::chrono::minutes{1};

proto::Microseconds patience_in(const wire::Topology& topology) {
  return proto::Milliseconds{topology.peer_timeout_ms};
}

net::UdpOptions options_of(const LanePlace& place) {
  return {.datagram_bytes = place.topology.datagram_bytes,
          .most_segments = place.datagrams->most_in_message(),
          .disturbance = place.datagrams->disturbance};
}

// Of what must pass both ways.
std::size_t full_size(const LanePlace& place) {
  const std::size_t block = place.datagrams->block;
  if (block == 0) return place.topology.datagram_bytes;
  return wire::datagram_head(1) + block * element_size(DType::int32);
}

// As sparsewire.meeting.greetings has it.
constexpr const char* kWayOfKernel =
    "the aggregator's process hears this rank, and what its kernel sends does not come back: "
    "redirected packets get lost at its interface, or datagrams come in by another one. If it is a "
    "veth, turn GRO on at the other end, `ethtool -K DEV gro on`; a card needs a queue to send by "
    "for each processor, `ethtool -L DEV combined N`, and must leave tags of VLANs where they are, "
    "`ethtool -K DEV rxvlan off`";

std::string seconds_of(proto::Microseconds time) {
  const auto tenths = time.count() / 100'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

SlotEnd::SlotEnd(const LanePlace& place, std::uint32_t owner, int fd)
    : place_(place),
      datagrams_(*place.datagrams),
      keys_(place.datagrams->keys[owner]),
      address_(net::to_string(net::peer_of(fd))),
      worker_(datagrams_.pool(place.topology), datagrams_.worker),
      socket_(fd, options_of(place)),
      path_(patience_in(place.topology), full_size(place), datagrams_.greeted) {
  const std::size_t wanted = kSlots * place.topology.datagram_bytes;
  if (const auto refused = net::refused_buffer(socket_, wanted)) news_ = *refused;
}

// --- What comes ---

void SlotEnd::receive(proto::Microseconds now) {
  socket_.receive(now, [&](std::span<std::byte> data, const net::Address&) { take(data, now); });
}

// What is not sealed by this job, or is of another, is nobody's fault that could be blamed.
void SlotEnd::take(std::span<const std::byte> data, proto::Microseconds now) {
  const auto datagram = wire::decode_datagram(data);
  const bool is_mine = datagram && datagram->header.job == datagrams_.job &&
                       datagram->header.epoch == datagrams_.epoch && keys_.down.is_sealed(data);
  if (!is_mine) return void(++rejected_);
  const wire::DatagramHeader& header = datagram->header;
  if (!wire::is_greeting(header.kind)) return on_result_or_recall(*datagram, now);
  if (header.worker != datagrams_.worker) return void(++rejected_);
  if (header.kind == wire::DatagramKind::welcome) {
    path_.on_welcome(header.round, data.size(), now);
  } else if (header.kind == wire::DatagramKind::noted) {
    path_.on_noted(header.round, data.size());
  }
}

void SlotEnd::on_result_or_recall(const wire::Datagram& datagram, proto::Microseconds now) {
  const std::uint64_t before = worker_.counters().results;
  worker_.on_datagram(datagram, now);
  if (worker_.counters().results == before) return;
  path_.on_result(now);
  error_.clear();
}

// --- What goes ---

void SlotEnd::send(proto::Microseconds now) {
  path_.await(worker_.is_busy(), now);
  greet(now);
  while (socket_.has_room()) {
    const std::size_t size = worker_.poll(socket_.room(), now);
    if (size == 0) break;
    keys_.up.seal(socket_.room().first(size));
    socket_.commit(size);
  }
  socket_.flush(now);
  note_errors(now);
}

// What finds no room is not said, and so its silence says nothing of the path.
void SlotEnd::greet(proto::Microseconds now) {
  if (!socket_.has_room()) return;
  const auto hello = path_.ask(now);
  if (!hello) return;
  const std::span<std::byte> out = socket_.room().first(hello->bytes);
  const bool is_full = hello->number % wire::kProbes == wire::kFullProbe;
  wire::encode_greeting({.kind = wire::DatagramKind::hello,
                         .worker = datagrams_.worker,
                         .columns = 0,
                         .job = datagrams_.job,
                         .epoch = datagrams_.epoch,
                         .block = is_full ? datagrams_.block : std::uint16_t{0},
                         .round = hello->number},
                        datagrams_.greeting(place_.topology), out);
  keys_.up.seal(out);
  socket_.commit(hello->bytes);
}

bool SlotEnd::has_work(proto::Microseconds now) const {
  return socket_.is_readable() || socket_.is_writable() ||
         (socket_.is_open() && socket_.has_room() && worker_.has_work(now));
}

std::optional<proto::Microseconds> SlotEnd::next_due() const {
  std::optional<proto::Microseconds> first;
  const auto greeting_due = socket_.has_room() ? path_.next_due() : std::nullopt;
  for (const auto& due : {worker_.next_timer(), socket_.next_due(), greeting_due}) {
    if (due) first = std::min(first.value_or(*due), *due);
  }
  return first;
}

// --- What is told ---

void SlotEnd::note_errors(proto::Microseconds now) {
  const std::error_code error = socket_.take_error();
  if (!error) return;
  error_ = error;
  if (now < next_news_) return;
  next_news_ = now + kBetweenNews;
  news_ = "datagrams to the aggregator at " + address_ + ": the system says: " + error.message() +
          "; " + advice();
}

Error SlotEnd::loss() const {
  const std::string above = datagrams_.racks > 1 ? ", or from there to its parent," : "";
  std::string text = place_.who() + ": datagrams to the aggregator at " + address_ + above +
                     " no longer pass, although its connection lives: none was answered for " +
                     seconds_of(path_.silence());
  if (error_) text += ", and the system says: " + error_.message();
  return {ErrorCode::unreachable, kNoRank, text + "; " + advice()};
}

std::string SlotEnd::advice() const {
  const std::size_t bytes = place_.topology.datagram_bytes;
  const std::size_t fitting = socket_.is_open() ? net::largest_datagram(socket_.fd()) : bytes;
  const std::string size = std::to_string(bytes);
  if (fitting < bytes) {
    const std::string fits = std::to_string(fitting);
    return "the MTU has shrunk: they have " + size + " bytes, and the path takes " + fits +
           ". Restore it, or set SPARSEWIRE_DATAGRAM=" + fits + " on all ranks";
  }
  if (path_.is_noted()) return kWayOfKernel;
  if (path_.is_narrow()) {
    return "short ones pass, so the MTU of the path has shrunk: they have " + size +
           " bytes. Restore it, or set SPARSEWIRE_DATAGRAM lower on all ranks";
  }
  return "look at the firewall (UDP, both ways), the route and the MTU";
}

PathSurvey SlotEnd::survey() const {
  return {.name = address_,
          .unanswered = path_.silence(),
          .error = error_ ? error_.message() : "",
          .receive_buffer = socket_.receive_buffer()};
}

}  // namespace sparsewire::comm
