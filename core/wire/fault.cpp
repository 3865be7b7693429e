// Encodes and decodes faults.
#include "wire/fault.hpp"

#include <algorithm>

#include "wire/limits.hpp"
#include "wire/little_endian.hpp"

namespace sparsewire::wire {

Bytes encode_fault(const Error& error) {
  const std::size_t text = std::min(error.message.size(), kMaxFaultText);
  auto owner = Bytes::allocate(kFaultHeaderBytes + text);
  std::byte* at = owner.get();
  store(at, static_cast<std::uint8_t>(error.code));
  store(at + 1, std::uint8_t{0});
  store(at + 2, std::uint16_t{0});
  store(at + 4, static_cast<std::uint32_t>(error.rank));
  std::memcpy(at + kFaultHeaderBytes, error.message.data(), text);
  return Bytes::shared(std::move(owner), kFaultHeaderBytes + text);
}

Result<Fault> decode_fault(std::span<const std::byte> in) {
  if (in.size() < kFaultHeaderBytes || in.size() > kFaultHeaderBytes + kMaxFaultText) {
    return protocol_error("fault: wrong size");
  }
  const auto code = load<std::uint8_t>(in.data());
  if (code >= kErrorCodeCount) return protocol_error("fault: unknown code");
  const auto rank = static_cast<Rank>(load<std::uint32_t>(in.data() + 4));
  if (rank < kNoRank) return protocol_error("fault: rank out of range");
  const auto text = in.subspan(kFaultHeaderBytes);
  return Fault{{static_cast<ErrorCode>(code), rank,
                std::string(reinterpret_cast<const char*>(text.data()), text.size())}};
}

}  // namespace sparsewire::wire
