// A mesh for Python, which makes its connections: peers to be called, and sockets to take over.
#include "comm/mesh.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "module.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsewire::bindings {
namespace {

void init_mesh(comm::Mesh* self, Rank rank, std::uint32_t world_size, std::uint32_t lanes,
               double peer_timeout, double start_timeout, std::size_t memory,
               std::uint32_t neighbours, std::vector<std::uint32_t> processors) {
  const auto milliseconds = [](double seconds) {
    return proto::Milliseconds{static_cast<std::int64_t>(seconds * 1000)};
  };
  net::Sockets none_yet(std::vector(lanes, std::vector<int>(world_size, -1)));
  new (self) comm::Mesh({.peers = world_size,
                         .rank = rank,
                         .patience = milliseconds(peer_timeout),
                         .start_patience = milliseconds(start_timeout),
                         .share = comm::MemoryShare::of(memory, lanes, world_size, neighbours),
                         .processors = std::move(processors)},
                        std::move(none_yet));
}

void fail_group(comm::Mesh& self, std::uint32_t number, std::vector<std::uint32_t> members,
                Rank rank, const std::string& why) {
  self.fail_group({.number = number, .members = std::move(members)}, rank, why);
}

void disown(nb::handle_t<comm::Mesh> self) {
  nb::cast<comm::Mesh&>(self).disown();
  nb::inst_set_state(self, /* ready = */ true, /* destruct = */ false);
}

}  // namespace

void bind_mesh(nb::module_& m) {
  constexpr nb::call_guard<GilRelease> unlocked{};
  nb::class_<comm::Mesh>(m, "Mesh")
      .def("__init__", &init_mesh, "rank"_a, "world_size"_a, nb::kw_only(), "lanes"_a,
           "peer_timeout"_a, "start_timeout"_a, "memory"_a, "neighbours"_a, "processors"_a)
      .def("calls_fd", &comm::Mesh::calls_fd)
      .def("take_calls", &comm::Mesh::take_calls)
      .def("note_call", &comm::Mesh::note_call, "peer"_a)
      .def("adopt", &comm::Mesh::adopt, "lane"_a, "peer"_a, "fd"_a)
      .def("give_up", &comm::Mesh::give_up, "peer"_a, "why"_a)
      .def("fail_group", &fail_group, "group"_a, "members"_a, "rank"_a, "why"_a, unlocked)
      .def("connections", &comm::Mesh::connections)
      .def("is_whole", &comm::Mesh::is_whole)
      .def("disown", &disown)
      .def("close", &comm::Mesh::close, unlocked);
}

}  // namespace sparsewire::bindings
