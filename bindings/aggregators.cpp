// Aggregators for Python: dedicated ones, which jobs connect to, and those of racks below them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "comm/aggregators/aggregator.hpp"
#include "comm/aggregators/rack_aggregator.hpp"
#include "module.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsewire::bindings {
namespace {

std::shared_ptr<const wire::WayKeys> shared_keys_of(const WayKeyBytes& keys) {
  return std::make_shared<wire::WayKeys>(way_keys_of(keys, wire::kMaxDatagram));
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
  dict["passed"] = counters.passed;
  dict["passed_again"] = counters.passed_again;
  return dict;
}

// The counters of each job's slots, by job.
template <typename Aggregator>
nb::dict aggregator_slots_dict(const Aggregator& self) {
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
  dict["datagrams_overrun"] = stats.datagrams.overruns;
  dict["datagram_errors"] = stats.datagrams.errors;
  dict["datagram_last_error"] = stats.datagrams.last_error;
  dict["datagram_buffer"] = stats.receive_buffer;
  dict["datagrams_strange"] = stats.strange_datagrams;
  return dict;
}

nb::dict rack_stats_dict(const comm::RackAggregator& self) {
  const comm::RackStats stats = self.stats();
  nb::dict dict;
  dict["jobs"] = stats.jobs;
  dict["jobs_served"] = stats.jobs_served;
  dict["jobs_refused"] = stats.jobs_refused;
  dict["memory_reserved"] = stats.memory;
  dict["datagrams_sent"] = stats.below.datagrams_sent + stats.above.datagrams_sent;
  dict["datagrams_received"] = stats.below.datagrams_received + stats.above.datagrams_received;
  dict["datagrams_dropped"] = stats.below.dropped + stats.above.dropped;
  dict["datagrams_overrun"] = stats.below.overruns + stats.above.overruns;
  dict["datagram_errors"] = stats.below.errors + stats.above.errors;
  dict["datagram_last_error"] = stats.last_error;
  dict["datagram_buffer"] = stats.receive_buffer;
  dict["datagrams_strange"] = stats.strange_datagrams;
  dict["datagrams_sent_up"] = stats.above.datagrams_sent;
  dict["datagrams_received_from_above"] = stats.above.datagrams_received;
  return dict;
}

void bind_aggregator(nb::module_& m) {
  nb::class_<comm::Aggregator>(m, "Aggregator")
      .def(
          "__init__",
          [](comm::Aggregator* self, std::size_t memory, std::size_t job_memory,
             std::uint32_t window, double grace, int datagrams, const std::string& disturb,
             bool offload) {
            const auto patience =
                std::chrono::floor<std::chrono::milliseconds>(nanoseconds_of(grace));
            new (self) comm::Aggregator(
                {memory, job_memory, window, patience}, datagrams, disturbance_of(disturb),
                offload ? net::Offload::where_possible : net::Offload::none);
          },
          nb::kw_only(), "memory"_a, "job_memory"_a, "window"_a, "grace"_a, "datagrams"_a = -1,
          "disturb"_a = "", "offload"_a = true)
      .def(
          "add_worker",
          [](comm::Aggregator& self, std::uint64_t job, std::uint32_t world_size, Rank rank,
             std::uint32_t lane, int fd, std::uint32_t epoch,
             const std::optional<WayKeyBytes>& keys) {
            comm::DatagramSeal seal{epoch};
            if (keys) seal.keys = shared_keys_of(*keys);
            self.add_worker({job, world_size, rank, lane}, fd, seal);
          },
          "job"_a, "world_size"_a, "rank"_a, "lane"_a, "fd"_a, "epoch"_a = 0, "keys"_a = nb::none())
      .def(
          "serves",
          [](const comm::Aggregator& self, std::uint64_t job, std::uint32_t world_size, Rank rank,
             std::uint32_t lane) { return self.serves({job, world_size, rank, lane}); },
          "job"_a, "world_size"_a, "rank"_a, "lane"_a)
      .def("stats", &aggregator_stats_dict)
      .def("slots", &aggregator_slots_dict<comm::Aggregator>)
      .def("close", &comm::Aggregator::close, nb::call_guard<GilRelease>());
}

void bind_rack_aggregator(nb::module_& m) {
  nb::class_<comm::RackAggregator>(m, "RackAggregator")
      .def(
          "__init__",
          [](comm::RackAggregator* self, std::size_t memory, std::size_t job_memory, int workers,
             int parent, const std::string& disturb) {
            const auto disturbance = disturbance_of(disturb);
            new (self) comm::RackAggregator({memory, job_memory}, workers, parent, disturbance);
          },
          nb::kw_only(), "memory"_a, "job_memory"_a, "workers"_a, "parent"_a, "disturb"_a = "")
      .def(
          "add_job",
          [](comm::RackAggregator& self, std::uint64_t job, std::uint32_t world_size,
             std::uint32_t epoch, const WayKeyBytes& keys, const WayKeyBytes& above) {
            self.add_job(job, world_size, {epoch, shared_keys_of(keys)}, shared_keys_of(above));
          },
          "job"_a, "world_size"_a, "epoch"_a, "keys"_a, "above"_a)
      .def("remove_job", &comm::RackAggregator::remove_job, "job"_a)
      .def("stats", &rack_stats_dict)
      .def("slots", &aggregator_slots_dict<comm::RackAggregator>)
      .def("close", &comm::RackAggregator::close, nb::call_guard<GilRelease>());
}

}  // namespace

void bind_aggregators(nb::module_& m) {
  bind_aggregator(m);
  bind_rack_aggregator(m);
}

}  // namespace sparsewire::bindings
