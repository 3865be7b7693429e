// The native module sparsewire._core: a thin layer over the core for Python. This file has the
// functions that need no communicator.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <numeric>

#include "comm/communicator.hpp"
#include "kernels/kernels.hpp"
#include "module.hpp"
#include "net/interfaces.hpp"
#include "proto/stream/dense.hpp"
#include "wire/layout.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace sparsewire;
using namespace sparsewire::bindings;

namespace {

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

// Name, addresses, MTU and speed of each network interface.
auto interfaces() {
  using Told =
      std::tuple<std::string, std::vector<std::string>, std::optional<int>, std::optional<int>>;
  std::vector<Told> told;
  for (net::Interface& each : net::interfaces()) {
    told.emplace_back(std::move(each.name), std::move(each.addresses), each.mtu, each.speed_mbit);
  }
  return told;
}

// The codes that calls may use, by their names in Python.
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
  m.attr("CHUNK_ELEMENTS") = wire::kMaxChunkElements;
  m.attr("DENSE_BLOCKS") = proto::kDenseBlocks;
  m.attr("DENSE_ELEMENTS") = proto::kDenseElements;
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
  // A script that ends with its communicator open would print fifty lines about leaks.
  nb::set_leak_warnings(false);
  select_level_from_environment();
  bind_names(m);
  m.def("simd_level", [] { return std::string(name_of(kernels().level)); });

  m.def("interfaces", &interfaces);

  m.def("predict", &predict, "algorithm"_a, "length"_a, "element_bytes"_a, "elements"_a, "hosts"_a,
        "latency_s"_a, "byte_s"_a, "merge_s"_a);
  m.def("choose", &choose, "length"_a, "element_bytes"_a, "elements"_a, "hosts"_a, "latency_s"_a,
        "byte_s"_a, "merge_s"_a);

  bind_compress(m);
  bind_passes(m);
  bind_weights(m);
  bind_datagrams(m);
  bind_mesh(m);
  bind_communicator(m);
  bind_aggregators(m);
}
