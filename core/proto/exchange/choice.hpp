// The choice of an algorithm for a sparse all_reduce: the one that a model of the link predicts to
// be the fastest.
#pragma once

#include <optional>

#include "proto/stream/by_element.hpp"
#include "proto/stream/hosts.hpp"
#include "wire/agreement.hpp"

namespace sparsewire::proto {

// What a link and a processor take, as measured between the ranks; the same numbers on every rank,
// because all must choose alike.
struct LinkFigures {
  double latency_s = 50e-6;  // of one small message to all ranks, both ends included
  double byte_s = 1e-9;      // of one byte that a rank sends to other hosts, while all ranks send
  double merge_s = 12e-9;    // of one element: to pick it, to add it, and to place it
};

// What that means for the choice of formats.
Costs costs_of(const LinkFigures& link);

// Which way an operation goes: from worker to worker, or through owners, dealt out by stripes or
// not.
enum class Route : std::uint8_t { exchange, stream, striped_stream };

struct Load {
  std::uint64_t length;      // elements
  std::size_t element_size;  // bytes
  std::uint64_t ranks;
  std::uint64_t hosts;     // as many as ranks, where each speaks for itself
  std::uint64_t named;     // elements, one rank with another
  bool is_even = true;     // equal ranges of the vector hold about equally much
  std::uint64_t unit = 1;  // elements that one index names on the way from worker to worker
};

// Whether that may be said where so many elements are named, and so many of them in the fullest
// sixteenth of each rank.
bool is_even(std::uint64_t named, std::uint64_t crowded);

// Seconds that the algorithm is predicted to take.
double predict(wire::Algorithm algorithm, const Load& load, const LinkFigures& link);

// The fastest by prediction; for short vectors always the stream. A pure function: equal
// arguments give equal answers.
wire::Algorithm choose(const Load& load, const LinkFigures& link);

// Whether an operation goes through owners with the algorithm, and not from worker to worker.
bool runs_as_stream(wire::Algorithm algorithm);

// Vectors so short that the choice does not depend on what they hold, and so needs no agreement.
bool is_short(const wire::Descriptor& descriptor);

// The algorithm, where it does not depend on what the ranks bring.
std::optional<wire::Algorithm> settled(const wire::Call& call);

// What all ranks make of the same call and of what all of them bring to it.
struct Agreement {
  wire::Algorithm algorithm;
  std::uint64_t most_elements;  // that one of them names
  bool is_even;
};
Agreement agreement_on(const wire::Call& call, const wire::Tally& total, Rank world_size,
                       const Hosts& hosts, const LinkFigures& link);

}  // namespace sparsewire::proto
