// Encodes and decodes faults.
#include "wire/fault.hpp"

#include "wire/limits.hpp"
#include "wire/little_endian.hpp"

namespace sparsewire::wire {
namespace {

// How much of a text fits the limit without a character being cut in two.
std::size_t length_that_fits(const std::string& text) {
  if (text.size() <= kMaxFaultText) return text.size();
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  std::size_t length = kMaxFaultText;
  while (length != 0 && continues(length)) --length;
  return length;
}

}  // namespace

Bytes encode_fault(const Error& error) {
  const std::size_t text = length_that_fits(error.message);
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
  if (load<std::uint8_t>(in.data() + 1) != 0 || load<std::uint16_t>(in.data() + 2) != 0) {
    return protocol_error("fault: reserved bits are set");
  }
  const auto rank = static_cast<Rank>(load<std::uint32_t>(in.data() + 4));
  if (rank < kNoRank) return protocol_error("fault: rank out of range");
  const auto text = in.subspan(kFaultHeaderBytes);
  return Fault{{static_cast<ErrorCode>(code), rank,
                std::string(reinterpret_cast<const char*>(text.data()), text.size())}};
}

Message fault_message(FrameKind kind, const Error& error, std::uint64_t seq) {
  return message_of({.kind = kind, .seq = seq}, encode_fault(error));
}

}  // namespace sparsewire::wire
