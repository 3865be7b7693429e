// Greetings by datagrams for Python, which writes and reads them where ranks and aggregators meet,
// by the same code as the engine.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <vector>

#include "module.hpp"
#include "wire/greeting.hpp"
#include "wire/tag.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsewire::bindings {
namespace {

constexpr std::size_t kLeastGreeting = wire::kDatagramHeaderBytes + wire::kGreetingBytes;

using Party = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                         std::uint32_t>;

std::span<const std::byte> bytes_of(const nb::bytes& data) {
  return {static_cast<const std::byte*>(data.data()), data.size()};
}

nb::bytes greeting(const nb::bytes& key, int kind, std::uint64_t job, std::uint32_t epoch,
                   std::uint16_t worker, std::size_t size, const Party& party,
                   bool adds_only_integers, std::uint64_t number, std::uint16_t block,
                   std::uint16_t flow) {
  require(wire::is_greeting(static_cast<wire::DatagramKind>(kind)), "no greeting");
  require(size >= kLeastGreeting && size <= wire::kMaxDatagram, "no size of a datagram");
  std::vector<std::byte> out(size);
  wire::encode_greeting({.kind = static_cast<wire::DatagramKind>(kind),
                         .worker = worker,
                         .slot = wire::first_slot_of(flow),
                         .columns = 0,
                         .job = job,
                         .epoch = epoch,
                         .dtype = adds_only_integers ? DType::int32 : DType::float32,
                         .block = block,
                         .round = number},
                        std::make_from_tuple<wire::Greeting>(party), out);
  datagram_key_of(key, size).seal(out);
  return nb::bytes(out.data(), out.size());
}

// Kind, job, epoch, worker, whether only integers are added, the party, the number, the block and
// the flow; None if the data is no greeting under this key.
nb::object read_greeting(const nb::bytes& key, const nb::bytes& data) {
  const auto in = bytes_of(data);
  if (!datagram_key_of(key, in.size()).is_sealed(in)) return nb::none();
  const auto datagram = wire::decode_datagram(in);
  if (!datagram) return nb::none();
  const auto greeting = wire::decode_greeting(*datagram);
  if (!greeting) return nb::none();
  const wire::DatagramHeader& header = datagram->header;
  return nb::make_tuple(static_cast<int>(header.kind), header.job, header.epoch, header.worker,
                        header.dtype == DType::int32,
                        Party(greeting->workers, greeting->world_size, greeting->rack,
                              greeting->racks, greeting->datagram_bytes, greeting->flows),
                        header.round, header.block, wire::flow_of(header.slot, greeting->flows));
}

nb::object datagram_job(const nb::bytes& data) {
  const auto job = wire::job_of(bytes_of(data));
  return job ? nb::cast(*job) : nb::none();
}

}  // namespace

wire::TagKey datagram_key_of(const nb::bytes& key, std::size_t datagram_bytes) {
  require(key.size() == wire::kTagKeyBytes, "the key of datagrams has 32 bytes");
  return {bytes_of(key), datagram_bytes};
}

wire::WayKeys way_keys_of(const WayKeyBytes& keys, std::size_t datagram_bytes) {
  return {datagram_key_of(keys.first, datagram_bytes),
          datagram_key_of(keys.second, datagram_bytes)};
}

std::optional<net::Disturbance> disturbance_of(const std::string& text) {
  if (text.empty()) return {};
  const auto disturbance = net::parse_disturbance(text);
  if (!disturbance) throw std::invalid_argument(disturbance.error().message);
  return *disturbance;
}

void bind_datagrams(nb::module_& m) {
  m.def("greeting", &greeting, "key"_a, "kind"_a, "job"_a, "epoch"_a, "worker"_a, "size"_a,
        "party"_a, "adds_only_integers"_a = false, "number"_a = 0, "block"_a = 0, "flow"_a = 0);
  m.def("read_greeting", &read_greeting, "key"_a, "data"_a);
  m.def("datagram_job", &datagram_job, "data"_a);
}

}  // namespace sparsewire::bindings
