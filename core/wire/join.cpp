// Encodes, decodes, compares and words joins.
#include "wire/join.hpp"

#include "wire/limits.hpp"
#include "wire/little_endian.hpp"

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

bool Join::agrees_with(const Join& other) const {
  return descriptor == other.descriptor && collective == other.collective &&
         algorithm == other.algorithm && root == other.root && unit == other.unit;
}

void encode(const Join& join, std::span<std::byte, kJoinBytes> out) {
  encode(join.descriptor, out.first<kDescriptorBytes>());
  std::byte* at = out.data() + kDescriptorBytes;
  store(at, static_cast<std::uint8_t>(join.collective));
  store(at + 1, static_cast<std::uint8_t>(join.algorithm));
  store(at + 2, std::uint16_t{0});
  store(at + 4, join.root);
  store(at + 8, join.elements);
  store(at + 16, join.unit);
  store(at + 20, std::uint32_t{0});
  store(at + 24, join.crowded);
}

Result<Join> decode_join(std::span<const std::byte> in) {
  if (in.size() != kJoinBytes) return protocol_error("join: wrong size");
  const auto descriptor = decode_descriptor(in.first(kDescriptorBytes));
  if (!descriptor) return descriptor.error();
  const std::byte* at = in.data() + kDescriptorBytes;
  const auto collective = load<std::uint8_t>(at);
  const auto algorithm = load<std::uint8_t>(at + 1);
  if (collective >= kCollectiveCount) return protocol_error("join: unknown collective");
  if (algorithm >= kAlgorithmCount) return protocol_error("join: unknown algorithm");
  if (load<std::uint16_t>(at + 2) != 0) return protocol_error("join: reserved bits are set");
  if (load<std::uint32_t>(at + 20) != 0) return protocol_error("join: reserved bits are set");
  const Join join{.descriptor = *descriptor,
                  .collective = static_cast<Collective>(collective),
                  .algorithm = static_cast<Algorithm>(algorithm),
                  .root = load<std::uint32_t>(at + 4),
                  .unit = load<std::uint32_t>(at + 16),
                  .elements = load<std::uint64_t>(at + 8),
                  .crowded = load<std::uint64_t>(at + 24)};
  const std::uint64_t rows = join.descriptor.count / join.descriptor.row;
  if (join.unit == 0 || rows % join.unit != 0) return protocol_error("join: unit does not divide");
  if (!join.descriptor.is_sparse) return protocol_error("join: not of a sparse vector");
  if (join.elements > join.descriptor.count || join.crowded > join.elements) {
    return protocol_error("join: too many elements");
  }
  return join;
}

std::string describe(const Join& join) {
  std::string text(name_of(join.collective));
  const bool is_rooted =
      join.collective == Collective::reduce || join.collective == Collective::broadcast;
  if (is_rooted) text += " with root " + std::to_string(join.root);
  if (join.collective == Collective::all_reduce && join.algorithm != Algorithm::automatic) {
    text += " by " + std::string(name_of(join.algorithm));
  }
  return text + " (" + describe(join.descriptor) + ")";
}

}  // namespace sparsewire::wire
