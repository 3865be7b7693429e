// The native module sparsewire._core: a thin face of core/comm for the Python layers.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>

#include "comm/aggregator.hpp"
#include "comm/communicator.hpp"
#include "compress.hpp"
#include "conversions.hpp"
#include "gil.hpp"
#include "kernels/kernels.hpp"
#include "sparse.hpp"
#include "submit.hpp"
#include "wire/limits.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace sparsewire;
using namespace sparsewire::bindings;

namespace {

// Python's view of a failed operation.
struct Failure {
  Error error;
  std::string op;
  std::uint64_t seq;
};

std::optional<Failure> failure_of(const comm::Operation& operation) {
  auto error = operation.failure();
  if (!error) return {};
  const auto collective = operation.arguments().call.collective;
  return Failure{*std::move(error), std::string(wire::name_of(collective)), operation.seq()};
}

// A peer's words need not be valid UTF-8.
nb::str text_of(const std::string& text) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

bool wait(const comm::Operation& operation, std::optional<double> timeout) {
  const GilRelease release;
  if (!timeout) return operation.wait({});
  return operation.wait(nanoseconds_of(*timeout));
}

std::shared_ptr<comm::Operation> submit_dense(comm::Communicator& self, std::uintptr_t source,
                                              std::uintptr_t target, std::uint64_t count, int dtype,
                                              int op, double timeout, int segment_codec,
                                              int result_codec, std::uint32_t seed) {
  if (count > wire::kMaxCount) throw std::invalid_argument("too many elements");
  return submit(self,
                {.source = reinterpret_cast<const std::byte*>(source),
                 .target = reinterpret_cast<std::byte*>(target),
                 .call = {descriptor_of(count, dtype, op, segment_codec, result_codec, seed)}},
                timeout);
}

// Little in flight keeps the ranks in step: one that runs far ahead at one owner ends early there
// and leaves its link idle at the end. A few owners need larger windows to keep a link busy.
std::uint32_t default_window(std::size_t owners) {
  constexpr std::size_t kib = 1024;
  return static_cast<std::uint32_t>(std::max(256 * kib / owners, 64 * kib));
}

void init_communicator(comm::Communicator* self, Rank rank, std::uint32_t world_size,
                       std::vector<std::vector<int>> links, bool dedicated, std::uint32_t block,
                       std::uint32_t window, double peer_timeout) {
  net::Sockets sockets(std::move(links));
  if (sockets.peers() == 0) throw std::invalid_argument("links: none given");
  const wire::Topology topology{
      .world_size = world_size,
      .lanes = static_cast<std::uint32_t>(sockets.lanes()),
      .owners = static_cast<std::uint32_t>(sockets.peers()),
      .block = block,
      .window_bytes = window != 0 ? window : default_window(sockets.peers()),
      .peer_timeout_ms = static_cast<std::uint32_t>(peer_timeout * 1000)};
  if (const Status error = wire::check(topology)) throw std::invalid_argument(error->message);
  new (self) comm::Communicator(topology, rank, dedicated, std::move(sockets));
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
  return dict;
}

nb::object current_of(const std::optional<comm::Activity::Current>& current) {
  if (!current) return nb::none();
  return nb::make_tuple(current->op, current->seq, seconds_of(current->age));
}

nb::dict activity_dict(const comm::Communicator& self) {
  const comm::Activity activity = self.activity();
  nb::list silent;
  for (const comm::Silence& silence : activity.silent) {
    silent.append(nb::make_tuple(text_of(silence.peer), silence.rank, seconds_of(silence.lasted)));
  }
  nb::dict dict;
  dict["in_flight"] = activity.in_flight;
  dict["oldest"] = current_of(activity.oldest);
  dict["silent"] = silent;
  dict["failure"] = activity.failure ? nb::object(text_of(activity.failure->message)) : nb::none();
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
  return nb::make_tuple(text_of(silence.peer), seconds_of(silence.lasted), silence.is_over,
                        current_of(notice->oldest));
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
  m.attr("DTYPES") = codes<DType>(kDTypeCount);
  m.attr("OPS") = codes<ReduceOp>(kReduceOpCount);
  m.attr("WIRE_VERSION") = wire::kVersion;
  m.def("simd_level", [] { return std::string(name_of(kernels().level)); });

  nb::class_<Failure>(m, "Failure")
      .def_prop_ro("code",
                   [](const Failure& self) { return std::string(name_of(self.error.code)); })
      .def_prop_ro("rank", [](const Failure& self) { return self.error.rank; })
      .def_prop_ro("op", [](const Failure& self) { return self.op; })
      .def_prop_ro("seq", [](const Failure& self) { return self.seq; })
      .def_prop_ro("message", [](const Failure& self) { return text_of(self.error.message); });

  bind_sparse(m);
  bind_compress(m);
  nb::class_<comm::Operation> operation(m, "Operation");
  bind_results(operation);
  operation.def_prop_ro("seq", &comm::Operation::seq)
      .def("wait", &wait, "timeout"_a = nb::none())
      .def("done", &comm::Operation::ended)
      .def("failure", &failure_of);

  nb::class_<comm::Communicator> communicator(m, "Communicator");
  bind_collectives(communicator);
  communicator
      .def("__init__", &init_communicator, "rank"_a, "world_size"_a, "links"_a, nb::kw_only(),
           "dedicated"_a = false, "block"_a = 256, "window"_a = 0, "peer_timeout"_a = 30.0)
      .def("submit", &submit_dense, "source"_a, "target"_a, "count"_a, "dtype"_a, "op"_a,
           "timeout"_a, "segment_codec"_a = 0, "result_codec"_a = 0, "seed"_a = 0)
      .def("watch", &comm::Communicator::watch, "operation"_a, nb::call_guard<GilRelease>())
      .def("next_completed", &comm::Communicator::next_completed, nb::call_guard<GilRelease>())
      .def("abort", &comm::Communicator::abort, "message"_a, nb::call_guard<GilRelease>())
      .def("stats", &stats_dict)
      .def("activity", &activity_dict)
      .def("next_notice", &next_notice)
      .def("disown", &disown)
      .def(
          "close",
          [](comm::Communicator& self, double linger) {
            const GilRelease release;
            self.close(nanoseconds_of(linger));
          },
          "linger"_a = 5.0);

  nb::class_<comm::Aggregator>(m, "Aggregator")
      .def(
          "__init__",
          [](comm::Aggregator* self, std::size_t memory, std::size_t job_memory,
             std::uint32_t window, double grace) {
            const auto patience = std::chrono::duration_cast<std::chrono::milliseconds>(
                std::chrono::duration<double>(grace));
            new (self) comm::Aggregator({memory, job_memory, window, patience});
          },
          nb::kw_only(), "memory"_a, "job_memory"_a, "window"_a, "grace"_a)
      .def(
          "add_worker",
          [](comm::Aggregator& self, std::uint64_t job, std::uint32_t world_size, Rank rank,
             std::uint32_t lane, int fd) { self.add_worker({job, world_size, rank, lane}, fd); },
          "job"_a, "world_size"_a, "rank"_a, "lane"_a, "fd"_a)
      .def(
          "serves",
          [](const comm::Aggregator& self, std::uint64_t job, std::uint32_t world_size, Rank rank,
             std::uint32_t lane) { return self.serves({job, world_size, rank, lane}); },
          "job"_a, "world_size"_a, "rank"_a, "lane"_a)
      .def("stats", &aggregator_stats_dict)
      .def("close", &comm::Aggregator::close, nb::call_guard<GilRelease>());
}
