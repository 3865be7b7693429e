// Words calls.
#include "wire/call.hpp"

namespace sparsewire::wire {

std::string_view name_of(Collective collective) {
  constexpr std::string_view names[kCollectiveCount] = {"all_reduce", "reduce", "reduce_scatter",
                                                        "broadcast", "all_gather"};
  return names[static_cast<std::size_t>(collective)];
}

std::string_view name_of(Algorithm algorithm) {
  constexpr std::string_view names[kAlgorithmCount] = {
      "auto", "stream",   "ssar_recursive_double", "ssar_split_allgather", "dsar_split_allgather",
      "ring", "allgather"};
  return names[static_cast<std::size_t>(algorithm)];
}

std::string describe(const Call& call) {
  std::string text(name_of(call.collective));
  const bool is_rooted =
      call.collective == Collective::reduce || call.collective == Collective::broadcast;
  if (is_rooted) text += " with root " + std::to_string(call.root);
  if (call.collective == Collective::all_reduce && call.algorithm != Algorithm::automatic) {
    text += " by " + std::string(name_of(call.algorithm));
  }
  return text + " (" + describe(call.descriptor) + ")";
}

}  // namespace sparsewire::wire
