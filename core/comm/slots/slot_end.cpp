// Receives and sends datagrams, and says what is wrong if they do not pass.
#include "comm/slots/slot_end.hpp"

#include <algorithm>
#include <utility>

#include "wire/greeting.hpp"

namespace sparsewire::comm {
namespace {

constexpr proto::Microseconds kBetweenNews = std::chrono::minutes{1};

// Takes the place's socket of this flow, which the flow owns from here on.
int taken(DatagramPlace& datagrams, std::uint32_t flow, std::uint32_t owner) {
  return std::exchange(datagrams.sockets.of_lane(flow)[owner], -1);
}

// The advice that sparsewire.meeting.contact.greetings gives, too.
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

SlotEnd::SlotEnd(const LanePlace& place, std::uint32_t owner)
    : place_(place),
      datagrams_(*place.datagrams),
      keys_(place.datagrams->keys[owner]),
      address_(net::to_string(net::peer_of(place.datagrams->sockets.of_lane(0)[owner]))),
      worker_(datagrams_.pool(place.topology), datagrams_.worker) {
  for (std::uint16_t number = 0; number < datagrams_.flows(); ++number) {
    flows_.emplace_back(place, owner, number, taken(*place.datagrams, number, owner));
  }
  const std::size_t wanted = kSlots / datagrams_.flows() * place.topology.datagram_bytes;
  if (const auto refused = net::refused_buffer(flows_.front().socket(), wanted)) news_ = *refused;
}

// --- What comes ---

void SlotEnd::receive(proto::Microseconds now) {
  for (SlotFlow& flow : flows_) {
    flow.socket().receive(
        now, [&](std::span<std::byte> data, const net::Address&) { take(flow, data, now); });
  }
}

// A datagram that comes by another flow than its slot's tells nothing about any flow.
bool SlotEnd::is_of(const SlotFlow& flow, const wire::DatagramHeader& header) const {
  return header.job == datagrams_.job && header.epoch == datagrams_.epoch &&
         wire::flow_of(header.slot, datagrams_.flows()) == flow.number();
}

// A datagram that is not sealed, or is of another job, is only counted: there is no one to blame.
void SlotEnd::take(SlotFlow& flow, std::span<const std::byte> data, proto::Microseconds now) {
  const auto datagram = wire::decode_datagram(data);
  const bool is_mine = datagram && is_of(flow, datagram->header) && keys_.down.is_sealed(data);
  if (!is_mine) return void(++rejected_);
  const wire::DatagramHeader& header = datagram->header;
  if (!wire::is_greeting(header.kind)) return on_result_or_recall(flow, *datagram, now);
  if (header.worker != datagrams_.worker) return void(++rejected_);
  flow.on_greeting(header, data.size(), now);
}

void SlotEnd::on_result_or_recall(SlotFlow& flow, const wire::Datagram& datagram,
                                  proto::Microseconds now) {
  const std::uint64_t before = worker_.counters().results;
  worker_.on_datagram(datagram, now);
  if (worker_.counters().results != before) flow.on_result(now);
}

// --- What goes ---

void SlotEnd::send(proto::Microseconds now) {
  for (SlotFlow& flow : flows_) flow.ask(worker_.is_busy(), now);
  while (const auto slot = worker_.next(now)) {
    net::UdpSocket& socket = flow_of(*slot).socket();
    if (!socket.has_room()) break;
    const std::size_t size = worker_.poll(socket.room(), now);
    keys_.up.seal(socket.room().first(size));
    socket.commit(size);
  }
  for (SlotFlow& flow : flows_) flush(flow, now);
}

void SlotEnd::flush(SlotFlow& flow, proto::Microseconds now) {
  const std::error_code error = flow.flush(now);
  if (!error || now < next_news_) return;
  next_news_ = now + kBetweenNews;
  news_ = "datagrams to the aggregator at " + address_ + ": the system says: " + error.message() +
          "; " + advice(flow);
}

bool SlotEnd::has_work(proto::Microseconds now) const {
  const auto works = [](const SlotFlow& flow) { return flow.has_work(); };
  const auto has_room = [](const SlotFlow& flow) { return flow.socket().has_room(); };
  if (std::ranges::any_of(flows_, works)) return true;
  return is_open() && std::ranges::all_of(flows_, has_room) && worker_.has_work(now);
}

std::optional<proto::Microseconds> SlotEnd::next_due() const {
  std::optional<proto::Microseconds> first = worker_.next_timer();
  for (const SlotFlow& flow : flows_) {
    const auto due = flow.next_due();
    if (due) first = std::min(first.value_or(*due), *due);
  }
  return first;
}

// --- What is told ---

const SlotFlow* SlotEnd::lost() const {
  const auto at = std::ranges::find_if(flows_, &SlotFlow::is_lost);
  return at == flows_.end() ? nullptr : &*at;
}

// Flows fall silent at different times, so flows that are about to be lost do not count as passing.
bool SlotEnd::others_pass() const { return !std::ranges::all_of(flows_, &SlotFlow::is_doubtful); }

// If other flows pass, names this one by its port: firewalls, cards and routes know no other name.
std::string SlotEnd::named(const SlotFlow& flow) const {
  if (!others_pass()) return "";
  return " by flow " + std::to_string(flow.number() + 1) + " of " + std::to_string(flows_.size()) +
         ", from UDP port " + std::to_string(flow.port());
}

Error SlotEnd::loss() const {
  const SlotFlow& flow = *lost();
  const std::string above = datagrams_.racks > 1 ? ", or from there to its parent," : "";
  std::string text = place_.who() + ": datagrams to the aggregator at " + address_ + above +
                     " no longer pass" + named(flow) +
                     ", although its connection lives: none was answered for " +
                     seconds_of(flow.silence());
  if (flow.error()) text += ", and the system says: " + flow.error().message();
  return {ErrorCode::unreachable, kNoRank, text + "; " + advice(flow)};
}

std::string SlotEnd::advice(const SlotFlow& flow) const {
  const std::size_t bytes = place_.topology.datagram_bytes;
  const net::UdpSocket& socket = flow.socket();
  const std::size_t fitting = socket.is_open() ? net::largest_datagram(socket.fd()) : bytes;
  const std::string size = std::to_string(bytes);
  if (fitting < bytes) {
    const std::string fits = std::to_string(fitting);
    return "the MTU has shrunk: they have " + size + " bytes, and the path takes " + fits +
           ". Restore it, or set SPARSEWIRE_DATAGRAM=" + fits + " on all ranks";
  }
  if (flow.is_noted()) return kWayOfKernel;
  if (flow.is_narrow()) {
    return "short ones pass, so the MTU of the path has shrunk: they have " + size +
           " bytes. Restore it, or set SPARSEWIRE_DATAGRAM lower on all ranks";
  }
  if (flow.is_doubtful() && others_pass()) {
    return "other flows pass, so look at what tells ports apart: a rule of the firewall, a queue "
           "of a network card, one of several routes; or set SPARSEWIRE_FLOWS=1 on all ranks";
  }
  return "look at the firewall (UDP, both ways), the route and the MTU";
}

PathSurvey SlotEnd::survey() const {
  PathSurvey survey{.name = address_, .unanswered = {}, .error = "", .receive_buffer = 0};
  for (const SlotFlow& flow : flows_) {
    survey.unanswered = std::max(survey.unanswered, flow.silence());
    if (flow.error()) survey.error = flow.error().message();
    survey.receive_buffer += flow.socket().receive_buffer();
  }
  return survey;
}

}  // namespace sparsewire::comm
