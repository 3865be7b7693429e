// A gate's source and sink, through which nothing goes: the operation's values take another way,
// and owners only make sure that all ranks have issued the same operation.
#pragma once

#include "proto/stream/source.hpp"

namespace sparsewire::proto {

class GateSource final : public Source {
 public:
  std::optional<Segment> segment(std::uint64_t) override { return {}; }
};

class GateSink final : public Sink {
 public:
  std::byte* place(std::uint64_t, std::size_t) override { return nullptr; }
  Status write(std::uint64_t, const Segment&) override {
    return protocol_error("result: of an operation whose values come by datagrams");
  }
};

}  // namespace sparsewire::proto
