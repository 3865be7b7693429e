// The choice of an algorithm for a sparse all_reduce: the one that a model of the link predicts to
// be the fastest.
#pragma once

#include <optional>

#include "proto/stream/by_element.hpp"
#include "proto/stream/hosts.hpp"
#include "wire/agreement.hpp"

namespace sparsewire::proto {

// The times that a link and a processor take, as measured between the ranks. The numbers are the
// same on every rank, because all must choose alike.
struct LinkFigures {
  double latency_s = 50e-6;  // of one small message to all ranks, both ends included
  double byte_s = 1e-9;      // of one byte that a rank sends to other hosts, while all ranks send
  double merge_s = 12e-9;    // of one element: to pick it, to add it, and to place it
};

// The costs by which formats are then chosen.
Costs costs_of(const LinkFigures& link);

// The way of an operation: from worker to worker, or through owners, with or without stripes.
enum class Route : std::uint8_t { exchange, stream, striped_stream };

struct Load {
  std::uint64_t length;      // elements
  std::size_t element_size;  // bytes
  std::uint64_t ranks;
  std::uint64_t hosts;     // as many as ranks, if each speaks for itself
  std::uint64_t named;     // elements, of all ranks together
  bool is_even = true;     // equal ranges of the vector hold about equally much
  std::uint64_t unit = 1;  // elements that one index names on the way from worker to worker
};

// Whether a vector is even of which `named` elements are named, `crowded` of them in the fullest
// sixteenth of each rank.
bool is_even(std::uint64_t named, std::uint64_t crowded);

// Seconds that the algorithm is predicted to take.
double predict(wire::Algorithm algorithm, const Load& load, const LinkFigures& link);

// The fastest by prediction; for short vectors always the stream. A pure function: equal
// arguments give equal answers.
wire::Algorithm choose(const Load& load, const LinkFigures& link);

// Whether an operation goes through owners with the algorithm, and not from worker to worker.
bool runs_as_stream(wire::Algorithm algorithm);

// Whether a vector is so short that the choice does not depend on its content, and so needs no
// agreement.
bool is_short(const wire::Descriptor& descriptor);

// The algorithm, if it does not depend on how much the ranks bring.
std::optional<wire::Algorithm> settled(const wire::Call& call);

// The choice that all ranks make from the same call and the tally of all ranks.
struct Agreement {
  wire::Algorithm algorithm;
  std::uint64_t most_elements;  // that one rank names
  bool is_even;
};
Agreement agreement_on(const wire::Call& call, const wire::Tally& total, Rank world_size,
                       const Hosts& hosts, const LinkFigures& link);

}  // namespace sparsewire::proto
