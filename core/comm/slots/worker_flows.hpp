// Where the workers of a job send from, flow by flow, as their greetings tell.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "net/udp/address.hpp"

namespace sparsewire::comm {

class WorkerFlows {
 public:
  WorkerFlows() = default;  // of nobody
  WorkerFlows(std::uint32_t workers, std::uint32_t flows)
      : workers_(workers), flows_(flows), addresses_(workers * flows), greeters_(workers * flows) {}

  std::uint32_t workers() const { return workers_; }

  // By any slot of a flow. Nobody is anywhere before a greeting.
  bool is_at(std::uint16_t worker, std::uint16_t slot, const net::Address& from) const;
  const net::Address& of(std::uint16_t worker, std::uint16_t slot) const;
  // Of all workers.
  std::span<const net::Address> of_all(std::uint16_t slot) const;

  // Whether a greeting is news of where this flow comes from, which it then counts for.
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
  // For the parent's answer to a greeting of its own of this number, or to a later one.
  void wait(const Waiting& greeting, std::uint64_t asked);
  // What the parent's answer of so many bytes answers, with as many at most. A short one is no
  // answer to a long greeting, which may come yet: it tells of a narrow path.
  std::vector<Waiting> take_answered(std::uint64_t number, std::size_t bytes);

 private:
  // A flow, as its greetings tell of it.
  struct Greeter {
    std::uint64_t number = 0;  // of the last one that was taken; 0: none so far
    net::Address before = {};  // where that one has moved it from, as long as it may move back
    std::size_t waits = 0;     // bytes of the longest that waits for the parent,
    std::uint64_t asked = 0;   // which was greeted by this number for it
  };

  std::size_t place(std::uint16_t worker, std::uint16_t slot) const;

  std::uint32_t workers_ = 0;
  std::uint32_t flows_ = 1;
  // By flow, then by worker; so those that one result goes to stand side by side.
  std::vector<net::Address> addresses_;
  std::vector<Greeter> greeters_;
};

}  // namespace sparsewire::comm
