// The addresses that the workers of a job send from, flow by flow, as their greetings tell.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "net/udp/address.hpp"

namespace sparsewire::comm {

class WorkerFlows {
 public:
  WorkerFlows() = default;  // without workers
  WorkerFlows(std::uint32_t workers, std::uint32_t flows)
      : workers_(workers), flows_(flows), addresses_(workers * flows), greeters_(workers * flows) {}

  std::uint32_t workers() const { return workers_; }

  // A flow goes by any of its slots. Before its first greeting it is at no address.
  bool is_at(std::uint16_t worker, std::uint16_t slot, const net::Address& from) const;
  const net::Address& of(std::uint16_t worker, std::uint16_t slot) const;
  // The addresses of all workers.
  std::span<const net::Address> of_all(std::uint16_t slot) const;

  // Takes a greeting. True if it is no copy: then the flow is at `from`.
  bool take(std::uint16_t worker, std::uint16_t slot, std::uint64_t number,
            const net::Address& from);
  // The number of the last greeting that was taken.
  std::uint64_t number(std::uint16_t worker, std::uint16_t slot) const;

  // A greeting that is to be answered once the parent has answered one.
  struct Waiting {
    std::uint16_t worker;
    std::uint16_t slot;  // of the greeting
    std::size_t bytes;
  };
  // Keeps a greeting until the parent answers our own greeting number `asked`, or a later one.
  void wait(const Waiting& greeting, std::uint64_t asked);
  // The greetings that the parent's answer of `bytes` bytes answers, each with as many bytes at
  // most. A long greeting goes on waiting after a short answer, which tells of a narrow path.
  std::vector<Waiting> take_answered(std::uint64_t number, std::size_t bytes);

 private:
  // A flow, as its greetings tell of it.
  struct Greeter {
    std::uint64_t number = 0;  // of the last one that was taken; 0: none so far
    net::Address before = {};  // the flow's former address, as long as it may move back
    std::size_t waits = 0;     // bytes of the longest that waits for the parent
    std::uint64_t asked = 0;   // the number of our greeting to the parent for it
  };

  std::size_t place(std::uint16_t worker, std::uint16_t slot) const;

  std::uint32_t workers_ = 0;
  std::uint32_t flows_ = 1;
  // By flow, then by worker, so that the addresses for one result stand side by side.
  std::vector<net::Address> addresses_;
  std::vector<Greeter> greeters_;
};

}  // namespace sparsewire::comm
