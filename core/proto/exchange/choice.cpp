// Predicts times. Positions are taken as independent among ranks: in this case the most is sent.
#include "proto/exchange/choice.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "proto/sparse/packed_part.hpp"

namespace sparsewire::proto {
namespace {

using wire::Algorithm;

constexpr std::array kCandidates{Algorithm::allgather, Algorithm::ssar_recursive_double,
                                 Algorithm::ssar_split_allgather, Algorithm::stream};

// How many times its share the fullest range of an even vector may have.
constexpr double kEvenWithin = 1.15;

// One chunk of float32: one owner serves it, and joins would cost more than the best choice gains.
constexpr std::uint64_t kShortBytes = 32 * 1024;

// The constants were fitted to grids of 1 KiB to 100 MB, 0.01% to 100% dense, with 2, 4 and 8 ranks
// on loopback and 4 hosts on links of 1 Gbit/s (`sparsewire bench grid`).

// The figure of an element (merge_s), measured in short calls one by one, is as long as six steps
// of a long call. A step picks an element, adds it, or puts it in its place. An algorithm takes
// some of these steps more often than others.
constexpr double kStepsPerMerge = 6;

// One part in so many of an element's time depends on its format.
constexpr double kFormatParts = 8;

// In a full vector, a step takes this much less than in a nearly empty one: by vector instructions
// it goes through values that lie side by side, not from position to position.
constexpr double kSavedWhenDense = 0.87;

// The way to owners or keepers and back takes two messages, one after the other, but smaller ones
// than those that every rank sends to every other.
constexpr double kTwoHopLatencies = 1.1;

// The stream's work per chunk, whatever the chunk holds, in merged elements: two messages through
// every rank, and the owner's book of the ranks that have not come.
constexpr double kMergesPerChunk = 1200;

// Work like a step that takes more or less time: adding into memory that all ranks' elements go
// through, dealing out to owners while chunks are on their way, and copies.
constexpr double kStepsToAddAll = 1.4;
constexpr double kStepsToStream = 1.5;
constexpr double kStepsToCopy = 0.4;
constexpr double kStepsToBundle = 0.3;
// One byte through a host's memory: written, and read.
constexpr double kStepsPerNearByte = 0.15;

// How the engine cuts vectors of this many elements; short ones are cut finer.
constexpr double kChunk = wire::kMaxChunkElements;
constexpr double kSmallChunk = 4096;

// The terms of the formulas of all algorithms.
struct Terms {
  double ranks;
  double beside;  // ranks on a host, on average
  double length;
  double element_bytes;
  double index_bytes;  // of one element
  double density;      // of one rank, on average

  Terms(const Load& load, std::uint64_t unit)
      : ranks(static_cast<double>(load.ranks)),
        beside(ranks / static_cast<double>(load.hosts)),
        length(static_cast<double>(load.length)),
        element_bytes(static_cast<double>(load.element_size)),
        index_bytes(2.0 / static_cast<double>(unit)) {
    const auto named = static_cast<double>(load.named);
    density = std::min(1.0, named / ranks / std::max(length, 1.0));
  }

  // Density of the union of so many ranks.
  double joined(double count) const { return 1 - std::pow(1 - density, count); }

  // Bytes of the whole vector at a density, in the cheapest format.
  double bytes(double at_density) const {
    const double elements = length * at_density;
    const double positions = std::min(index_bytes * elements, length / 8);
    return std::min(elements * element_bytes + positions, length * element_bytes);
  }

  // Bytes that a rank sends to owners or keepers, and as one of these. The sums of each host cross
  // the network, and every rank sends its share of them.
  double two_hop_bytes() const {
    return (ranks - beside) / ranks * (bytes(joined(beside)) + bytes(joined(ranks))) / beside;
  }

  // Steps on a host that ranks share: for the bytes that stay there, and for one more sum.
  double near_steps() const {
    if (beside <= 1) return 0;
    const double near = (beside - 1) / beside * (bytes(density) + bytes(joined(ranks)));
    return near * kStepsPerNearByte + step(joined(beside));
  }

  // One step over the whole vector at a density, in elements of a nearly empty one.
  double step(double at_density) const {
    return length * at_density * (1 - kSavedWhenDense * at_density);
  }

  // Chunks that some rank has an element in.
  double chunks() const {
    const double cut = std::max(length / kChunk, std::min(length / kSmallChunk, ranks));
    return std::min(std::max(cut, 1.0), ranks * density * length);
  }
};

double step_seconds(const LinkFigures& link) { return link.merge_s / kStepsPerMerge; }

// Every rank picks its own elements, adds those of all, and places the union.
double predict_allgather(const Terms& terms, const LinkFigures& link) {
  const double sent = (terms.ranks - terms.beside) * terms.bytes(terms.density);
  const double near = (terms.beside - 1) * terms.bytes(terms.density);
  const double steps = near * kStepsPerNearByte +
                       (1 + kStepsToAddAll * terms.ranks) * terms.step(terms.density) +
                       terms.step(terms.joined(terms.ranks));
  return link.latency_s + sent * link.byte_s + steps * step_seconds(link);
}

// In every round two ranks exchange the values that they hold, and add them up.
double predict_doubling(const Terms& terms, const LinkFigures& link) {
  double steps = terms.step(terms.density) + terms.step(terms.joined(terms.ranks));
  double seconds = 0;
  for (double joined = 1; joined < terms.ranks; joined *= 2) {
    const double density = terms.joined(joined);
    const bool is_near = joined < terms.beside;  // Ranks of a host follow each other.
    seconds += link.latency_s + (is_near ? 0 : terms.bytes(density) * link.byte_s);
    steps += 2 * terms.step(density) + (is_near ? terms.bytes(density) * kStepsPerNearByte : 0);
  }
  return seconds + steps * step_seconds(link);
}

// Both hops of all bytes, the steps, and the book of the chunks.
double predict_two_hops(const Terms& terms, const LinkFigures& link, double steps, double chunks) {
  return kTwoHopLatencies * link.latency_s + terms.two_hop_bytes() * link.byte_s +
         (steps + terms.near_steps()) * step_seconds(link) +
         chunks * kMergesPerChunk * link.merge_s;
}

// Every rank picks its own elements, adds up its share of the positions, and places the union.
double predict_stream(const Terms& terms, const LinkFigures& link) {
  const double sum = terms.joined(terms.ranks);
  const double steps =
      kStepsToStream * terms.step(terms.density) + (1 + 1 / terms.ranks) * terms.step(sum);
  return predict_two_hops(terms, link, steps, terms.chunks());
}

// As in the stream, but with whole parts instead of chunks while they are nearly empty; and sums
// come in order, so that placing them is copying.
double predict_split(const Terms& terms, const LinkFigures& link) {
  const double sum = terms.joined(terms.ranks);
  double steps = 2 * terms.step(terms.density) + (kStepsToCopy + 1 / terms.ranks) * terms.step(sum);
  double chunks = 0;
  if (terms.density > kPackedDensity) {
    // Chunk by chunk again, and bundles of them are copied once more at both ends.
    steps += kStepsToBundle * (terms.step(terms.density) + terms.step(sum));
    chunks = terms.chunks();
  }
  return predict_two_hops(terms, link, steps, chunks);
}

bool is_short(std::uint64_t length, std::size_t element_size) {
  return length * element_size <= kShortBytes;
}

}  // namespace

Costs costs_of(const LinkFigures& link) { return {link.merge_s / kFormatParts / link.byte_s}; }

double predict(Algorithm algorithm, const Load& load, const LinkFigures& link) {
  const Terms terms(load, runs_as_stream(algorithm) ? 1 : load.unit);
  switch (algorithm) {
    case Algorithm::allgather:
      return predict_allgather(terms, link);
    case Algorithm::ssar_recursive_double:
      return predict_doubling(terms, link);
    case Algorithm::ssar_split_allgather:
      return predict_split(terms, link);
    default:
      return predict_stream(terms, link);
  }
}

Algorithm choose(const Load& load, const LinkFigures& link) {
  if (is_short(load.length, load.element_size)) return Algorithm::stream;
  return *std::ranges::min_element(kCandidates, {}, [&](Algorithm algorithm) {
    const bool is_out = algorithm == Algorithm::ssar_split_allgather && !load.is_even;
    return is_out ? std::numeric_limits<double>::infinity() : predict(algorithm, load, link);
  });
}

bool is_even(std::uint64_t named, std::uint64_t crowded) {
  return static_cast<double>(crowded) * wire::kCrowdStretches <=
         kEvenWithin * static_cast<double>(named);
}

bool runs_as_stream(Algorithm algorithm) {
  return algorithm == Algorithm::stream || algorithm == Algorithm::dsar_split_allgather;
}

bool is_short(const wire::Descriptor& descriptor) {
  return is_short(descriptor.count, element_size(descriptor.dtype));
}

std::optional<Algorithm> settled(const wire::Call& call) {
  if (call.collective != wire::Collective::all_reduce) return Algorithm::allgather;
  if (call.algorithm != Algorithm::automatic) return call.algorithm;
  if (is_short(call.descriptor)) return Algorithm::allgather;
  return {};
}

Agreement agreement_on(const wire::Call& call, const wire::Tally& total, Rank world_size,
                       const Hosts& hosts, const LinkFigures& link) {
  const auto ranks = static_cast<std::uint64_t>(world_size);
  const wire::Descriptor& descriptor = call.descriptor;
  const Load load{.length = descriptor.count,
                  .element_size = element_size(descriptor.dtype),
                  .ranks = ranks,
                  .hosts = hosts.count(ranks),
                  .named = total.elements,
                  .is_even = is_even(total.elements, total.crowded),
                  .unit = call.unit};
  Algorithm algorithm = settled(call).value_or(Algorithm::automatic);
  if (algorithm == Algorithm::automatic) algorithm = choose(load, link);
  // The exchange would split the vector into equal ranges, which suits only even vectors.
  const bool is_split = algorithm == Algorithm::ssar_split_allgather;
  if (is_split && !load.is_even) algorithm = Algorithm::stream;
  return {algorithm, total.most, load.is_even};
}

}  // namespace sparsewire::proto
