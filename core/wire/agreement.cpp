// Checks, encodes, decodes and describes what ranks must agree on.
#include "wire/agreement.hpp"

#include "wire/layout.hpp"

namespace sparsewire::wire {
namespace {

// Rules that concern several fields.
Status check(const Descriptor& descriptor) {
  if (descriptor.count > kMaxCount) return protocol_error("descriptor: too many elements");
  const bool is_plain = descriptor.row == 1;
  if (!is_plain && (descriptor.row < kMinBlock || descriptor.row > kMaxBlock)) {
    return protocol_error("descriptor: row out of range");
  }
  if (!is_plain && (!descriptor.is_sparse || descriptor.count % descriptor.row != 0)) {
    return protocol_error("descriptor: no whole number of rows");
  }
  const bool is_lossy =
      descriptor.segment_codec != Codec::raw || descriptor.result_codec != Codec::raw;
  if (is_lossy && (descriptor.dtype != DType::float32 || !skips_zeros(descriptor.op))) {
    return protocol_error("descriptor: a codec for other than sums of float32");
  }
  if (descriptor.is_sparse && !skips_zeros(descriptor.op)) {
    return protocol_error("descriptor: sparse, but zeros matter");
  }
  return {};
}

void encode(const Purpose& purpose, std::span<std::byte, kPurposeBytes> out) {
  store_all(out, purpose.collective, purpose.dtype, purpose.form, std::uint8_t{0}, purpose.root,
            purpose.elements, purpose.site, std::uint32_t{0});
}

Result<Purpose> decode_purpose(std::span<const std::byte, kPurposeBytes> in) {
  const auto [collective, dtype, form, zero, root, elements, site, zeros] =
      load_all<std::uint8_t, std::uint8_t, std::uint8_t, std::uint8_t, std::uint32_t, std::uint64_t,
               std::uint32_t, std::uint32_t>(in);
  if (collective >= kCollectiveCount || dtype >= kDTypeCount || form >= kResultFormCount) {
    return protocol_error("purpose: unknown value");
  }
  if (zero != 0 || zeros != 0) return protocol_error("purpose: reserved bits are set");
  return Purpose{.collective = static_cast<Collective>(collective),
                 .form = static_cast<ResultForm>(form),
                 .root = root,
                 .elements = elements,
                 .dtype = static_cast<DType>(dtype),
                 .site = site};
}

std::string rooted(Collective collective, std::uint32_t root) {
  const bool has_root = collective == Collective::reduce || collective == Collective::broadcast;
  return std::string(name_of(collective)) +
         (has_root ? " with root " + std::to_string(root) : std::string());
}

std::string site_of(const Purpose& purpose) {
  if (purpose.site == 0) return "";
  return " from site " + std::to_string(purpose.site);
}

// As the caller sees the call: not the words that travel, but the array.
std::string describe(const Purpose& purpose, ReduceOp op) {
  std::string text = rooted(purpose.collective, purpose.root);
  const bool adds =
      purpose.collective == Collective::reduce || purpose.collective == Collective::reduce_scatter;
  if (adds) text += " by " + std::string(name_of(op));
  if (purpose.collective != Collective::barrier) {
    text += " of " + std::to_string(purpose.elements) + " " + std::string(name_of(purpose.dtype));
  }
  return text + site_of(purpose);
}

Status check(const Tally& tally, const Call& call, std::size_t ranks) {
  const std::uint64_t mean = tally.elements / ranks + (tally.elements % ranks != 0);
  const bool is_possible = tally.most <= call.descriptor.count && tally.most <= tally.elements &&
                           mean <= tally.most && tally.crowded <= tally.elements;
  return is_possible ? Status{} : protocol_error("tally: too many elements");
}

}  // namespace

Status check(const Topology& topology) {
  const struct {
    const char* name;
    std::uint32_t value, min, max;
  } bounds[] = {
      {"world_size", topology.world_size, 1, kMaxWorldSize},
      {"lanes", topology.lanes, 1, 64},
      {"owners", topology.owners, 1, kMaxWorldSize},
      {"block", topology.block, kMinBlock, kMaxBlock},
      {"window_bytes", topology.window_bytes, 1u << 14, 1u << 30},
      {"peer_timeout_ms", topology.peer_timeout_ms, 100, 24 * 3600 * 1000},
      {"datagram_bytes", topology.datagram_bytes, 0, 65'507},
  };
  for (const auto& [name, value, min, max] : bounds) {
    if (value >= min && value <= max) continue;
    return protocol_error(std::string("topology: ") + name + " is " + std::to_string(value) +
                          ", allowed are " + std::to_string(min) + " to " + std::to_string(max));
  }
  if ((topology.block & (topology.block - 1)) != 0) {
    return protocol_error("topology: block is not a power of two");
  }
  return {};
}

Bytes encode_hello(const Hello& hello) {
  auto owner = Bytes::allocate(kTopologyBytes);
  const Topology& topology = hello.topology;
  store_all(std::span<std::byte, kTopologyBytes>(owner.get(), kTopologyBytes), topology.world_size,
            topology.lanes, topology.owners, topology.block, topology.window_bytes,
            topology.peer_timeout_ms, topology.datagram_bytes, hello.lane, hello.owner);
  return Bytes::shared(std::move(owner), kTopologyBytes);
}

Result<Hello> decode_hello(std::span<const std::byte> in) {
  if (in.size() != kTopologyBytes) return protocol_error("hello: wrong size");
  const auto field = [&](std::size_t i) { return load<std::uint32_t>(in.data() + 4 * i); };
  const Hello hello{{.world_size = field(0),
                     .lanes = field(1),
                     .owners = field(2),
                     .block = field(3),
                     .window_bytes = field(4),
                     .peer_timeout_ms = field(5),
                     .datagram_bytes = field(6)},
                    field(7),
                    field(8)};
  if (Status error = check(hello.topology)) return *std::move(error);
  if (hello.lane >= hello.topology.lanes || hello.owner >= hello.topology.owners) {
    return protocol_error("hello: lane or owner out of range");
  }
  return hello;
}

void encode(const Descriptor& descriptor, std::span<std::byte, kDescriptorBytes> out) {
  const auto sparse = static_cast<std::uint8_t>(descriptor.is_sparse + descriptor.is_striped);
  constexpr std::size_t kCall = kDescriptorBytes - kPurposeBytes;
  store_all(out.first<kCall>(), descriptor.dtype, descriptor.op, sparse, descriptor.form,
            descriptor.row, descriptor.count, descriptor.segment_codec, descriptor.result_codec,
            std::uint16_t{0}, descriptor.seed);
  encode(descriptor.purpose, out.last<kPurposeBytes>());
}

Result<Descriptor> decode_descriptor(std::span<const std::byte> in) {
  if (in.size() != kDescriptorBytes) return protocol_error("descriptor: wrong size");
  const auto [dtype, op, sparse, form, row, count, segment_codec, result_codec, zero, seed] =
      load_all<std::uint8_t, std::uint8_t, std::uint8_t, std::uint8_t, std::uint32_t, std::uint64_t,
               std::uint8_t, std::uint8_t, std::uint16_t, std::uint32_t>(
          in.first<kDescriptorBytes - kPurposeBytes>());
  if (dtype >= kDTypeCount || op >= kReduceOpCount || sparse > 2 || form >= kResultFormCount ||
      segment_codec >= kCodecCount || result_codec >= kCodecCount) {
    return protocol_error("descriptor: unknown value");
  }
  if (zero != 0) return protocol_error("descriptor: reserved bits are set");
  const auto purpose = decode_purpose(in.last<kPurposeBytes>());
  if (!purpose) return purpose.error();
  const Descriptor descriptor{.dtype = static_cast<DType>(dtype),
                              .op = static_cast<ReduceOp>(op),
                              .count = count,
                              .is_sparse = sparse != 0,
                              .is_striped = sparse == 2,
                              .row = row,
                              .form = static_cast<ResultForm>(form),
                              .segment_codec = static_cast<Codec>(segment_codec),
                              .result_codec = static_cast<Codec>(result_codec),
                              .seed = seed,
                              .purpose = *purpose};
  if (Status error = check(descriptor)) return *std::move(error);
  return descriptor;
}

void encode(const Join& join, std::span<std::byte, kJoinBytes> out) {
  encode(join.call.descriptor, out.first<kDescriptorBytes>());
  store_all(out.subspan<kDescriptorBytes>(), join.call.collective, join.call.algorithm,
            std::uint16_t{0}, join.call.root, join.elements, join.call.unit, std::uint32_t{0},
            join.crowded);
}

Result<Join> decode_join(std::span<const std::byte> in) {
  if (in.size() != kJoinBytes) return protocol_error("join: wrong size");
  const auto descriptor = decode_descriptor(in.first(kDescriptorBytes));
  if (!descriptor) return descriptor.error();
  const auto [collective, algorithm, zero, root, elements, unit, zeros, crowded] =
      load_all<std::uint8_t, std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t,
               std::uint32_t, std::uint32_t, std::uint64_t>(
          in.first<kJoinBytes>().subspan<kDescriptorBytes>());
  if (collective >= static_cast<std::uint8_t>(Collective::barrier)) {
    return protocol_error("join: unknown collective");
  }
  if (algorithm >= kAlgorithmCount) return protocol_error("join: unknown algorithm");
  if (zero != 0 || zeros != 0) return protocol_error("join: reserved bits are set");
  if (unit == 0 || descriptor->count / descriptor->row % unit != 0) {
    return protocol_error("join: unit does not divide");
  }
  if (!descriptor->is_sparse) return protocol_error("join: not of a sparse vector");
  if (elements > descriptor->count || crowded > elements) {
    return protocol_error("join: too many elements");
  }
  return Join{{*descriptor, static_cast<Collective>(collective), static_cast<Algorithm>(algorithm),
               root, unit},
              elements,
              crowded};
}

Bytes encode_tally(const Tally& tally) {
  const std::size_t size = kTallyBytes + tally.of_each.size() * sizeof(std::uint64_t);
  auto owner = Bytes::allocate(size);
  store_all(std::span<std::byte, kTallyBytes>(owner.get(), kTallyBytes), tally.elements, tally.most,
            tally.crowded);
  std::byte* out = owner.get() + kTallyBytes;
  for (const std::uint64_t elements : tally.of_each) {
    store(out, elements);
    out += sizeof elements;
  }
  return Bytes::shared(std::move(owner), size);
}

Result<Tally> decode_tally(std::span<const std::byte> in, const Call& call, std::size_t ranks) {
  const std::size_t listed = tells_each(call) ? ranks : 0;
  if (in.size() != kTallyBytes + listed * sizeof(std::uint64_t)) {
    return protocol_error("tally: wrong size");
  }
  const auto [elements, most, crowded] =
      load_all<std::uint64_t, std::uint64_t, std::uint64_t>(in.first<kTallyBytes>());
  Tally tally{elements, most, crowded};
  if (Status error = check(tally, call, ranks)) return *std::move(error);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < listed; ++i) {
    const auto own = load<std::uint64_t>(in.data() + kTallyBytes + i * sizeof(std::uint64_t));
    if (own > most) return protocol_error("tally: a rank names more than the most");
    sum += own;
    tally.of_each.push_back(own);
  }
  if (listed != 0 && sum != elements) return protocol_error("tally: no sum of its ranks");
  return tally;
}

Bytes encode_missing(std::span<const Rank> ranks) {
  auto owner = Bytes::allocate(ranks.size_bytes());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    store(owner.get() + i * sizeof(Rank), static_cast<std::uint32_t>(ranks[i]));
  }
  return Bytes::shared(std::move(owner), ranks.size_bytes());
}

Result<std::vector<Rank>> decode_missing(std::span<const std::byte> in, Rank world_size) {
  if (in.size() % sizeof(Rank) != 0 || in.size() > kMaxMissing * sizeof(Rank)) {
    return protocol_error("missing: wrong size");
  }
  std::vector<Rank> ranks;
  std::uint32_t next = 0;
  for (std::size_t at = 0; at < in.size(); at += sizeof(Rank)) {
    const auto rank = load<std::uint32_t>(in.data() + at);
    if (rank < next || rank >= static_cast<std::uint32_t>(world_size)) {
      return protocol_error("missing: rank out of range or of order");
    }
    next = rank + 1;
    ranks.push_back(static_cast<Rank>(rank));
  }
  return ranks;
}

std::string describe(const Descriptor& descriptor) {
  const Purpose& purpose = descriptor.purpose;
  const bool is_sum = purpose.collective == Collective::all_reduce;
  if (!is_sum && !descriptor.is_sparse) return describe(purpose, descriptor.op);
  // Sparse values may travel as whole numbers, which keep every bit.
  const DType dtype = is_sum ? descriptor.dtype : purpose.dtype;
  std::string text = is_sum ? "" : rooted(purpose.collective, purpose.root) + ", a ";
  text += descriptor.is_sparse ? "sparse " : "";
  text += std::string(name_of(descriptor.op)) + " of " + std::to_string(descriptor.count) + " " +
          std::string(name_of(dtype));
  if (descriptor.row != 1) text += " in rows of " + std::to_string(descriptor.row);
  if (descriptor.form == ResultForm::sparse) text += " with sparse results";
  if (descriptor.form == ResultForm::dense) text += " with dense results";
  if (descriptor.segment_codec != Codec::raw || descriptor.result_codec != Codec::raw) {
    text += " as " + std::string(name_of(descriptor.segment_codec)) + "/" +
            std::string(name_of(descriptor.result_codec)) + " with seed " +
            std::to_string(descriptor.seed);
  }
  if (purpose.form == ResultForm::dense) text += " into a dense array";
  return text + site_of(purpose);
}

std::string describe(const Call& call) {
  std::string text = rooted(call.collective, call.root);
  if (call.collective == Collective::all_reduce && call.algorithm != Algorithm::automatic) {
    text += " by " + std::string(name_of(call.algorithm));
  }
  wire::Descriptor descriptor = call.descriptor;
  descriptor.purpose.collective = Collective::all_reduce;  // The text names it already.
  return text + " (" + describe(descriptor) + ")";
}

}  // namespace sparsewire::wire
