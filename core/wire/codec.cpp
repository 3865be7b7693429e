// Measures and checks encoded values.
#include "wire/codec.hpp"

#include <cstdint>
#include <cstring>

#include "wire/layout.hpp"

namespace sparsewire::wire {
namespace {

constexpr std::size_t kScaleBytes = sizeof(float);

// Finite and not negative is a range of bit patterns: below that of infinity.
bool are_legal_scales(std::span<const std::byte> scales) {
  constexpr std::uint32_t infinity = 0x7f800000u;
  for (std::size_t at = 0; at < scales.size(); at += kScaleBytes) {
    if (load<std::uint32_t>(scales.data() + at) >= infinity) return false;
  }
  return true;
}

// Two's complement has one level too many: the sign bit set and all other bits clear. When ones are
// added to these other bits, they carry into the sign bit unless all of them are clear.
std::uint64_t illegal_codes(std::uint64_t codes, std::uint64_t signs) {
  return codes & signs & ~((codes & ~signs) + ~signs);
}

bool are_legal_codes(std::span<const std::byte> codes, std::size_t bits) {
  const std::uint64_t signs = ~std::uint64_t{0} / ((1u << bits) - 1) << (bits - 1);
  std::uint64_t illegal = 0;
  std::size_t at = 0;
  for (; at + 8 <= codes.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, codes.data() + at, sizeof word);
    illegal |= illegal_codes(word, signs);
  }
  for (; at < codes.size(); ++at) {
    illegal |= illegal_codes(static_cast<std::uint64_t>(codes[at]), signs);
  }
  return illegal == 0;
}

bool is_filled_up_with_zeros(std::span<const std::byte> codes, std::size_t bits_used) {
  const std::size_t rest = bits_used % 8;
  return rest == 0 || (static_cast<std::uint8_t>(codes.back()) >> rest) == 0;
}

}  // namespace

std::size_t values_bytes(Codec codec, std::size_t element_size, std::size_t count) {
  const std::size_t bits = bits_per_value(codec, element_size) * count;
  return scale_count(codec, count) * kScaleBytes + ceil_div(bits, std::size_t{8});
}

Status check_values(Codec codec, std::size_t element_size, std::span<const std::byte> values,
                    std::size_t count) {
  if (codec == Codec::raw) return {};
  if (element_size != sizeof(float)) {
    return protocol_error("values: a codec for other than float32");
  }
  if (values.size() != values_bytes(codec, sizeof(float), count)) {
    return protocol_error("values: their length does not fit their number");
  }
  if (!is_stochastic(codec)) return {};
  const std::size_t head = scale_count(codec, count) * kScaleBytes;
  if (!are_legal_scales(values.first(head))) {
    return protocol_error("values: a scale is negative or not finite");
  }
  const std::size_t bits = bits_per_value(codec, sizeof(float));
  if (!are_legal_codes(values.subspan(head), bits)) {
    return protocol_error("values: a level is out of range");
  }
  if (!is_filled_up_with_zeros(values.subspan(head), bits * count)) {
    return protocol_error("values: a bit is set behind the last of them");
  }
  return {};
}

}  // namespace sparsewire::wire
