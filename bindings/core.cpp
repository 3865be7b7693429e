// The native module sparsewire._core: a thin face of the core for the Python layers. Here are what
// belongs to no communicator, and dedicated aggregators.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <numeric>

#include "comm/aggregator.hpp"
#include "comm/communicator.hpp"
#include "kernels/kernels.hpp"
#include "module.hpp"
#include "wire/layout.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace sparsewire;
using namespace sparsewire::bindings;

namespace {

// In bytes: as the largest of SPARSEWIRE_DATAGRAM.
constexpr std::size_t kLargestDatagram = 8972;

// Maps the names of an enumeration to their codes.
template <typename Enum>
nb::dict codes(int count) {
  nb::dict dict;
  for (int code = 0; code < count; ++code) {
    const std::string_view name = name_of(static_cast<Enum>(code));
    dict[nb::str(name.data(), name.size())] = code;
  }
  return dict;
}

// What calls may ask for, by the names that Python has for it.
void bind_names(nb::module_& m) {
  m.attr("WIRE_VERSION") = wire::kVersion;
  m.attr("DTYPES") = codes<DType>(kDTypeCount);
  m.attr("OPS") = codes<ReduceOp>(kReduceOpCount);
  m.attr("COLLECTIVES") = codes<wire::Collective>(wire::kCollectiveCount);
  m.attr("ALGORITHMS") = codes<wire::Algorithm>(wire::kAlgorithmCount);
  m.attr("FORMS") = codes<wire::ResultForm>(wire::kResultFormCount);
  m.attr("CODECS") = codes<Codec>(kCodecCount);
  m.attr("ROW_MIN") = wire::kMinBlock;
  m.attr("ROW_MAX") = wire::kMaxBlock;
}

proto::Load load_of(std::uint64_t length, std::size_t element_bytes,
                    const std::vector<std::uint64_t>& elements, std::uint64_t hosts) {
  if (hosts == 0 || hosts > elements.size()) throw std::invalid_argument("hosts: out of range");
  return {length, element_bytes, elements.size(), hosts,
          std::accumulate(elements.begin(), elements.end(), std::uint64_t{0})};
}

double predict(int algorithm, std::uint64_t length, std::size_t element_bytes,
               const std::vector<std::uint64_t>& elements, std::uint64_t hosts, double latency_s,
               double byte_s, double merge_s) {
  return proto::predict(
      checked_code<wire::Algorithm>(algorithm, wire::kAlgorithmCount, "algorithm"),
      load_of(length, element_bytes, elements, hosts), {latency_s, byte_s, merge_s});
}

int choose(std::uint64_t length, std::size_t element_bytes,
           const std::vector<std::uint64_t>& elements, std::uint64_t hosts, double latency_s,
           double byte_s, double merge_s) {
  return static_cast<int>(
      proto::choose(load_of(length, element_bytes, elements, hosts), {latency_s, byte_s, merge_s}));
}

comm::DatagramSeal seal_of(std::uint32_t epoch, const nb::bytes& key) {
  if (key.size() == 0) return {};
  return {epoch, std::make_shared<wire::TagKey>(datagram_key_of(key, kLargestDatagram))};
}

nb::dict slots_dict(const proto::SlotAggregatorCounters& counters) {
  nb::dict dict;
  dict["contributions"] = counters.contributions;
  dict["duplicates"] = counters.duplicates;
  dict["stale"] = counters.stale;
  dict["rejected"] = counters.rejected;
  dict["results"] = counters.results;
  dict["resent"] = counters.resent;
  dict["recalls"] = counters.recalls;
  return dict;
}

// By job.
nb::dict aggregator_slots_dict(const comm::Aggregator& self) {
  nb::dict dict;
  for (const auto& [job, counters] : self.stats().slots) dict[nb::int_(job)] = slots_dict(counters);
  return dict;
}

nb::dict aggregator_stats_dict(const comm::Aggregator& self) {
  const comm::AggregatorStats stats = self.stats();
  nb::dict dict;
  dict["jobs"] = stats.jobs;
  dict["jobs_served"] = stats.jobs_served;
  dict["workers"] = stats.workers;
  dict["memory"] = stats.memory;
  dict["memory_reserved"] = stats.memory_reserved;
  dict["bytes_sent"] = stats.bytes_sent;
  dict["bytes_received"] = stats.bytes_received;
  dict["datagrams_sent"] = stats.datagrams.datagrams_sent;
  dict["datagrams_received"] = stats.datagrams.datagrams_received;
  dict["datagrams_dropped"] = stats.datagrams.dropped;
  dict["datagrams_strange"] = stats.strange_datagrams;
  return dict;
}

void select_level_from_environment() {
  const char* wanted = std::getenv("SPARSEWIRE_SIMD");
  if (!wanted || !*wanted) return;
  for (const Kernels* level : available_kernels()) {
    if (name_of(level->level) == wanted) {
      select_kernels(level->level);
      return;
    }
  }
  throw std::invalid_argument(std::string("SPARSEWIRE_SIMD=") + wanted +
                              ": this processor has no such level");
}

}  // namespace

NB_MODULE(_core, m) {
  // A script that ends with its communicator open is no leak worth fifty lines on its terminal.
  nb::set_leak_warnings(false);
  select_level_from_environment();
  bind_names(m);
  m.def("simd_level", [] { return std::string(name_of(kernels().level)); });

  m.def("predict", &predict, "algorithm"_a, "length"_a, "element_bytes"_a, "elements"_a, "hosts"_a,
        "latency_s"_a, "byte_s"_a, "merge_s"_a);
  m.def("choose", &choose, "length"_a, "element_bytes"_a, "elements"_a, "hosts"_a, "latency_s"_a,
        "byte_s"_a, "merge_s"_a);

  bind_compress(m);
  bind_datagrams(m);
  bind_mesh(m);
  bind_communicator(m);

  nb::class_<comm::Aggregator>(m, "Aggregator")
      .def(
          "__init__",
          [](comm::Aggregator* self, std::size_t memory, std::size_t job_memory,
             std::uint32_t window, double grace, int datagrams, const std::string& disturb) {
            const auto patience =
                std::chrono::floor<std::chrono::milliseconds>(nanoseconds_of(grace));
            new (self) comm::Aggregator({memory, job_memory, window, patience}, datagrams,
                                        disturbance_of(disturb));
          },
          nb::kw_only(), "memory"_a, "job_memory"_a, "window"_a, "grace"_a, "datagrams"_a = -1,
          "disturb"_a = "")
      .def(
          "add_worker",
          [](comm::Aggregator& self, std::uint64_t job, std::uint32_t world_size, Rank rank,
             std::uint32_t lane, int fd, std::uint32_t epoch, const nb::bytes& key) {
            self.add_worker({job, world_size, rank, lane}, fd, seal_of(epoch, key));
          },
          "job"_a, "world_size"_a, "rank"_a, "lane"_a, "fd"_a, "epoch"_a = 0,
          "key"_a = nb::bytes("", 0))
      .def(
          "serves",
          [](const comm::Aggregator& self, std::uint64_t job, std::uint32_t world_size, Rank rank,
             std::uint32_t lane) { return self.serves({job, world_size, rank, lane}); },
          "job"_a, "world_size"_a, "rank"_a, "lane"_a)
      .def("stats", &aggregator_stats_dict)
      .def("slots", &aggregator_slots_dict)
      .def("close", &comm::Aggregator::close, nb::call_guard<GilRelease>());
}
