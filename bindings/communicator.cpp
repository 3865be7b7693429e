// Communicators for Python, with their operations: dense and sparse calls, results, and surveys.
#include "comm/communicator.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "comm/records/timeline.hpp"
#include "module.hpp"
#include "wire/layout.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsewire::bindings {
namespace {

wire::Descriptor descriptor_of(std::uint64_t count, int dtype, int op, int segment_codec,
                               int result_codec, std::uint32_t seed) {
  return {.dtype = checked_code<DType>(dtype, kDTypeCount, "dtype"),
          .op = checked_code<ReduceOp>(op, kReduceOpCount, "operation"),
          .count = count,
          .segment_codec = checked_code<Codec>(segment_codec, kCodecCount, "codec"),
          .result_codec = checked_code<Codec>(result_codec, kCodecCount, "codec"),
          .seed = seed};
}

// A purpose from Python: collective, root, dtype, elements, form, site.
using PurposeCodes = std::tuple<int, std::uint32_t, int, std::uint64_t, int, std::uint32_t>;

wire::Purpose purpose_of(const PurposeCodes& codes) {
  const auto& [collective, root, dtype, elements, form, site] = codes;
  return {.collective =
              checked_code<wire::Collective>(collective, wire::kCollectiveCount, "collective"),
          .form = checked_code<wire::ResultForm>(form, wire::kResultFormCount, "form"),
          .root = root,
          .elements = elements,
          .dtype = checked_code<DType>(dtype, kDTypeCount, "dtype"),
          .site = site};
}

// `timeout` is in seconds; 0: none.
std::shared_ptr<comm::Operation> submit(comm::Communicator& self,
                                        comm::Operation::Arguments arguments, double timeout) {
  if (timeout > 0) arguments.deadline = comm::Clock::now() + nanoseconds_of(timeout);
  const GilRelease release;
  return self.submit(arguments);
}

std::shared_ptr<comm::Operation> submit_dense(comm::Communicator& self, std::uintptr_t source,
                                              std::uintptr_t out, std::uint64_t count, int dtype,
                                              int op, double timeout, int segment_codec,
                                              int result_codec, std::uint32_t seed, bool awaited,
                                              const std::optional<PurposeCodes>& purpose) {
  if (count > wire::kMaxCount) throw std::invalid_argument("too many elements");
  wire::Descriptor descriptor = descriptor_of(count, dtype, op, segment_codec, result_codec, seed);
  if (purpose) descriptor.purpose = purpose_of(*purpose);
  return submit(self,
                {.source = reinterpret_cast<const std::byte*>(source),
                 .out = reinterpret_cast<std::byte*>(out),
                 .call = {descriptor},
                 .is_awaited = awaited},
                timeout);
}

wire::ResultForm form_of(wire::Algorithm algorithm) {
  if (algorithm == wire::Algorithm::ssar_split_allgather) return wire::ResultForm::sparse;
  if (algorithm == wire::Algorithm::dsar_split_allgather) return wire::ResultForm::dense;
  return wire::ResultForm::cheapest;
}

std::shared_ptr<comm::Operation> submit_sparse(
    comm::Communicator& self, std::uintptr_t indices, bool is_wide, std::uint64_t named,
    std::uintptr_t values, std::uint64_t length, std::uint32_t row, int dtype, int op,
    int collective, int algorithm, std::uint32_t root, std::uint32_t unit, int segment_codec,
    int result_codec, std::uint32_t seed, std::uintptr_t out, const PurposeCodes& purpose,
    double timeout, bool awaited) {
  if (length > wire::kMaxCount / row) throw std::invalid_argument("too many elements");
  const auto algorithm_code =
      checked_code<wire::Algorithm>(algorithm, wire::kAlgorithmCount, "algorithm");
  wire::Descriptor descriptor =
      descriptor_of(length * row, dtype, op, segment_codec, result_codec, seed);
  descriptor.is_sparse = true;
  descriptor.row = row;
  descriptor.form = form_of(algorithm_code);
  descriptor.purpose = purpose_of(purpose);
  return submit(self,
                {.out = reinterpret_cast<std::byte*>(out),
                 .call = {.descriptor = descriptor,
                          .collective = checked_code<wire::Collective>(
                              collective, wire::kCollectiveCount, "collective"),
                          .algorithm = algorithm_code,
                          .root = root,
                          .unit = unit},
                 .tensor = {.indices = reinterpret_cast<const void*>(indices),
                            .is_wide = is_wide,
                            .named = named,
                            .values = reinterpret_cast<const std::byte*>(values),
                            .descriptor = descriptor},
                 .is_awaited = awaited},
                timeout);
}

proto::SparseOutput& output(comm::Operation& self, std::size_t list) {
  return *self.outputs().sparse().at(list);
}

// A NumPy array over memory that lives as long as the array, or any view of it.
template <typename T>
nb::object array_of(std::shared_ptr<std::byte[]> memory, std::size_t size) {
  auto* const data = reinterpret_cast<T*>(memory.get());
  auto holder = std::make_unique<std::shared_ptr<std::byte[]>>(std::move(memory));
  const nb::capsule owner(holder.release(), [](void* held) noexcept {
    delete static_cast<std::shared_ptr<std::byte[]>*>(held);
  });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {size}, owner));
}

// A tuple of the indices, and of the values as bytes.
nb::tuple take_sparse(comm::Operation& self, std::size_t list) {
  std::optional<proto::SparseList> taken;
  {
    const GilRelease release;
    taken = output(self, list).take();
  }
  const std::size_t count = taken->count();
  return nb::make_tuple(
      taken->is_wide() ? array_of<std::int64_t>(taken->indices(), count)
                       : array_of<std::int32_t>(taken->indices(), count),
      array_of<std::uint8_t>(taken->values(), count * self.arguments().tensor.row_bytes()));
}

// Python's view of a failed operation.
struct Failure {
  Error error;
  std::string op;
  std::uint64_t seq;
};

std::optional<Failure> failure_of(const comm::Operation& operation) {
  auto error = operation.failure();
  if (!error) return {};
  const auto collective = operation.arguments().call.descriptor.purpose.collective;
  return Failure{*std::move(error), std::string(wire::name_of(collective)), operation.seq()};
}

// A peer's words need not be valid UTF-8.
nb::str text_of(const std::string& text) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

bool wait(const comm::Operation& self, std::optional<double> timeout) {
  if (!timeout) return self.wait({});
  return self.wait(nanoseconds_of(*timeout));
}

void init_communicator(comm::Communicator* self, Rank rank, std::uint32_t world_size,
                       std::vector<std::vector<int>> sockets, bool dedicated, std::uint32_t block,
                       std::uint32_t window, double peer_timeout, std::vector<std::uint32_t> hosts,
                       std::vector<std::vector<int>> datagrams, std::uint32_t datagram_bytes,
                       const std::vector<WayKeyBytes>& datagram_keys, std::uint64_t job,
                       std::uint32_t epoch, bool fixed_point, const std::string& disturb,
                       std::pair<std::uint16_t, std::uint16_t> worker, bool in_kernel,
                       std::pair<std::uint32_t, std::uint32_t> rack,
                       std::pair<std::uint64_t, std::uint16_t> greeting,
                       std::shared_ptr<comm::Timeline> timeline) {
  net::Sockets owned(std::move(sockets));
  std::shared_ptr<comm::DatagramPlace> place;
  if (!datagrams.empty()) {
    net::Sockets ends(std::move(datagrams));
    for (std::size_t flow = 0; flow < ends.lanes(); ++flow) {
      require(datagram_keys.size() == ends.of_lane(flow).size(),
              "datagram_keys: not one for each aggregator");
    }
    require(ends.lanes() <= wire::kMostFlows, "datagrams: too many flows");
    std::vector<wire::WayKeys> keys;
    for (const auto& each : datagram_keys) keys.push_back(way_keys_of(each, datagram_bytes));
    place = std::make_shared<comm::DatagramPlace>(
        std::move(ends), job, epoch, std::move(keys),
        fixed_point ? proto::Arithmetic::fixed : proto::Arithmetic::exact, disturbance_of(disturb),
        worker.second, worker.first, in_kernel, rack.first, rack.second, greeting.first,
        greeting.second);
    require(worker.first < worker.second && worker.second <= world_size, "worker: out of range");
  }
  if (owned.peers() == 0) throw std::invalid_argument("sockets: none given");
  if (place && place->sockets.peers() != owned.peers()) {
    throw std::invalid_argument("datagrams: not one socket of a flow for each aggregator");
  }
  const wire::Topology topology{
      .world_size = world_size,
      .lanes = static_cast<std::uint32_t>(owned.lanes()),
      .owners = static_cast<std::uint32_t>(owned.peers()),
      .block = block,
      .window_bytes = window != 0 ? window : proto::default_window(owned.peers(), owned.lanes()),
      .peer_timeout_ms = static_cast<std::uint32_t>(peer_timeout * 1000),
      .datagram_bytes = datagram_bytes};
  if (const Status error = wire::check(topology)) throw std::invalid_argument(error->message);
  if (!hosts.empty() && hosts.size() != world_size) {
    throw std::invalid_argument("hosts: not one for each rank");
  }
  new (self)
      comm::Communicator(topology, rank, dedicated, std::move(owned),
                         proto::Hosts(std::move(hosts)), std::move(place), std::move(timeline));
}

void init_group(comm::Communicator* self, comm::Mesh& mesh, std::uint32_t number,
                std::vector<std::uint32_t> members, Rank rank, std::uint32_t block,
                std::uint32_t window, std::vector<std::uint32_t> hosts,
                std::shared_ptr<comm::Timeline> timeline) {
  const auto ranks = static_cast<std::uint32_t>(members.size());
  const wire::Topology topology{
      .world_size = ranks,
      .lanes = static_cast<std::uint32_t>(mesh.lanes()),
      .owners = ranks,
      .block = block,
      .window_bytes = window != 0 ? window : proto::default_window(members.size(), mesh.lanes()),
      .peer_timeout_ms = static_cast<std::uint32_t>(mesh.place().patience.count())};
  if (const Status error = wire::check(topology)) throw std::invalid_argument(error->message);
  new (self)
      comm::Communicator(topology, rank, mesh, {.number = number, .members = std::move(members)},
                         proto::Hosts(std::move(hosts)), std::move(timeline));
}

void disown(nb::handle_t<comm::Communicator> self) {
  nb::cast<comm::Communicator&>(self).disown();
  nb::inst_set_state(self, /* ready = */ true, /* destruct = */ false);
}

nb::dict stats_dict(const comm::Communicator& self) {
  const comm::Stats stats = self.stats();
  nb::dict dict;
  dict["operations"] = stats.operations;
  dict["operations_failed"] = stats.operations_failed;
  dict["bytes_sent"] = stats.bytes_sent;
  dict["bytes_received"] = stats.bytes_received;
  dict["segments_sent"] = stats.segments_sent;
  dict["results_received"] = stats.results_received;
  dict["chunks_empty"] = stats.chunks_empty;
  dict["elements"] = stats.elements;
  dict["elements_sent"] = stats.elements_sent;
  for (std::size_t i = 0; i < stats.slots.size(); ++i) {
    const std::string_view name = name_of(static_cast<comm::SlotFigure>(i));
    dict[nb::str(name.data(), name.size())] = stats.slots[i];
  }
  return dict;
}

nb::object current_of(const std::optional<comm::Current>& current) {
  if (!current) return nb::none();
  return nb::make_tuple(current->op, current->seq, seconds_of(current->age));
}

nb::list operations_of(const std::vector<comm::Survey::InFlight>& operations) {
  nb::list list;
  for (const auto& each : operations) {
    list.append(nb::make_tuple(each.current.op, each.current.seq, seconds_of(each.current.age),
                               each.bytes, each.is_agreeing));
  }
  return list;
}

nb::list silent_of(const std::vector<comm::Silence>& silent) {
  nb::list list;
  for (const comm::Silence& silence : silent) {
    list.append(nb::make_tuple(text_of(silence.peer), silence.rank, seconds_of(silence.lasted)));
  }
  return list;
}

nb::list awaited_of(const comm::Awaited& awaited) {
  nb::list list;
  for (const Rank rank : awaited.ranks) list.append(rank);
  for (const std::string& address : awaited.aggregators) {
    list.append(text_of("aggregator " + address));
  }
  return list;
}

nb::object lane_of(const std::optional<comm::LaneSurvey>& lane) {
  if (!lane) return nb::none();
  nb::dict awaited;
  for (const auto& [seq, whom] : lane->awaited) awaited[nb::cast(seq)] = awaited_of(whom);
  nb::list peers;
  for (const comm::PeerSurvey& peer : lane->peers) {
    const nb::object quiet =
        peer.quiet ? nb::object(nb::float_(seconds_of(*peer.quiet))) : nb::none();
    peers.append(nb::make_tuple(text_of(peer.name), peer.rank, peer.is_connected, quiet,
                                peer.bytes_sent, peer.bytes_received, peer.queued));
  }
  nb::list paths;
  for (const comm::PathSurvey& path : lane->paths) {
    paths.append(nb::make_tuple(text_of(path.name), seconds_of(path.unanswered),
                                text_of(path.error), path.receive_buffer));
  }
  return nb::make_tuple(awaited, peers, paths);
}

nb::dict survey_of(const comm::Communicator& self, double patience) {
  const comm::Survey survey = [&] {
    const GilRelease release;
    return self.survey(nanoseconds_of(patience));
  }();
  nb::list lanes;
  for (const auto& lane : survey.lanes) lanes.append(lane_of(lane));
  nb::dict dict;
  dict["in_flight"] = survey.in_flight;
  dict["operations"] = operations_of(survey.operations);
  dict["silent"] = silent_of(survey.silent);
  dict["failure"] = survey.failure ? nb::object(text_of(survey.failure->message)) : nb::none();
  dict["lanes"] = lanes;
  return dict;
}

nb::object next_notice(comm::Communicator& self) {
  std::optional<comm::Notice> notice;
  {
    const GilRelease release;
    notice = self.next_notice();
  }
  if (!notice) return nb::none();
  const comm::Silence& silence = notice->silence;
  return nb::make_tuple(text_of(notice->trouble), text_of(silence.peer), seconds_of(silence.lasted),
                        silence.is_over, current_of(notice->oldest));
}

void bind_operation(nb::module_& m) {
  nb::class_<Failure>(m, "Failure")
      .def_prop_ro("code",
                   [](const Failure& self) { return std::string(name_of(self.error.code)); })
      .def_prop_ro("rank", [](const Failure& self) { return self.error.rank; })
      .def_ro("op", &Failure::op)
      .def_ro("seq", &Failure::seq)
      .def_prop_ro("message", [](const Failure& self) { return text_of(self.error.message); });

  constexpr nb::call_guard<GilRelease> unlocked{};
  nb::class_<comm::Operation>(m, "Operation")
      .def_prop_ro("seq", &comm::Operation::seq)
      .def("wait", &wait, "timeout"_a = nb::none(), unlocked)
      .def("done", &comm::Operation::ended)
      .def("failure", &failure_of)
      .def("take_sparse", &take_sparse, "list"_a = 0)
      .def(
          "write_dense",
          [](comm::Operation& self, std::uintptr_t out, std::size_t list) {
            output(self, list).write_dense(reinterpret_cast<std::byte*>(out));
          },
          "out"_a, "list"_a = 0, unlocked)
      .def("finish", [](comm::Operation& self) { self.outputs().finish(); }, unlocked);
}

}  // namespace

void bind_timeline(nb::module_& m) {
  constexpr nb::call_guard<GilRelease> unlocked{};
  nb::class_<comm::Timeline>(m, "Timeline")
      .def(nb::init<int, Rank, const std::string&>(), "fd"_a, "rank"_a, "title"_a)
      .def("refused", &comm::Timeline::refused)
      .def("flush", &comm::Timeline::flush, unlocked);
}

void bind_communicator(nb::module_& m) {
  bind_operation(m);
  bind_timeline(m);

  constexpr nb::call_guard<GilRelease> unlocked{};
  nb::class_<comm::Communicator>(m, "Communicator")
      .def("__init__", &init_communicator, "rank"_a, "world_size"_a, "sockets"_a, nb::kw_only(),
           "dedicated"_a = false, "block"_a = 256, "window"_a = 0, "peer_timeout"_a = 30.0,
           "hosts"_a = std::vector<std::uint32_t>{},
           "datagrams"_a = std::vector<std::vector<int>>{}, "datagram_bytes"_a = 0,
           "datagram_keys"_a = std::vector<WayKeyBytes>{}, "job"_a = 0, "epoch"_a = 0,
           "fixed_point"_a = false, "disturb"_a = "",
           "worker"_a = std::pair<std::uint16_t, std::uint16_t>(), "in_kernel"_a = false,
           "rack"_a = std::pair<std::uint32_t, std::uint32_t>(0, 1),
           "greeting"_a = std::pair<std::uint64_t, std::uint16_t>(0, 0),
           "timeline"_a.none() = nb::none())
      .def("__init__", &init_group, "mesh"_a, "group"_a, "members"_a, "rank"_a, nb::kw_only(),
           "block"_a = 256, "window"_a = 0, "hosts"_a = std::vector<std::uint32_t>{},
           "timeline"_a.none() = nb::none(), nb::keep_alive<1, 2>())
      .def("submit", &submit_dense, "source"_a, "out"_a, "count"_a, "dtype"_a, "op"_a, "timeout"_a,
           "segment_codec"_a = 0, "result_codec"_a = 0, "seed"_a = 0, "awaited"_a = false,
           "purpose"_a = nb::none())
      .def("submit_sparse", &submit_sparse, nb::kw_only(), "indices"_a, "is_wide"_a, "named"_a,
           "values"_a, "length"_a, "row"_a, "dtype"_a, "op"_a, "collective"_a, "algorithm"_a,
           "root"_a, "unit"_a, "segment_codec"_a, "result_codec"_a, "seed"_a, "out"_a, "purpose"_a,
           "timeout"_a, "awaited"_a = false)
      .def(
          "wait",
          [](comm::Communicator& self, const comm::Operation& operation, double timeout) {
            return self.wait(operation, nanoseconds_of(timeout));
          },
          "operation"_a, "timeout"_a, unlocked)
      .def(
          "set_link",
          [](comm::Communicator& self, double latency_s, double byte_s, double merge_s) {
            self.set_link({latency_s, byte_s, merge_s});
          },
          "latency_s"_a, "byte_s"_a, "merge_s"_a)
      .def("link",
           [](const comm::Communicator& self) {
             const proto::LinkFigures link = self.link();
             return nb::make_tuple(link.latency_s, link.byte_s, link.merge_s);
           })
      .def_prop_ro("hosts", &comm::Communicator::hosts)
      .def("watch", &comm::Communicator::watch, "operation"_a, unlocked)
      .def("next_completed", &comm::Communicator::next_completed, unlocked)
      .def("abort", &comm::Communicator::abort, "message"_a, unlocked)
      .def("stats", &stats_dict)
      .def("survey", &survey_of, "patience"_a)
      .def("next_notice", &next_notice)
      .def("disown", &disown)
      .def(
          "close",
          [](comm::Communicator& self, double linger) { self.close(nanoseconds_of(linger)); },
          "linger"_a = 5.0, unlocked);
}

}  // namespace sparsewire::bindings
