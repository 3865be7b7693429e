// Encodes, decodes and words the operation's descriptor.
#include "wire/descriptor.hpp"

#include "wire/limits.hpp"
#include "wire/little_endian.hpp"

namespace sparsewire::wire {
namespace {

// The rules between the fields.
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

// Reads a byte that numbers one of `count` values; `ok` stays false once one was out of range.
template <typename Enum>
Enum enum_at(const std::byte* at, std::uint8_t count, bool& ok) {
  const auto value = load<std::uint8_t>(at);
  ok = ok && value < count;
  return static_cast<Enum>(value);
}

}  // namespace

void encode(const Descriptor& descriptor, std::span<std::byte, kDescriptorBytes> out) {
  std::byte* at = out.data();
  store(at, static_cast<std::uint8_t>(descriptor.dtype));
  store(at + 1, static_cast<std::uint8_t>(descriptor.op));
  store(at + 2, static_cast<std::uint8_t>(descriptor.is_sparse + descriptor.is_striped));
  store(at + 3, static_cast<std::uint8_t>(descriptor.form));
  store(at + 4, descriptor.row);
  store(at + 8, descriptor.count);
  store(at + 16, static_cast<std::uint8_t>(descriptor.segment_codec));
  store(at + 17, static_cast<std::uint8_t>(descriptor.result_codec));
  store(at + 18, std::uint16_t{0});
  store(at + 20, descriptor.seed);
}

Result<Descriptor> decode_descriptor(std::span<const std::byte> in) {
  if (in.size() != kDescriptorBytes) return protocol_error("descriptor: wrong size");
  const std::byte* at = in.data();
  bool ok = true;
  const Descriptor descriptor{
      .dtype = enum_at<DType>(at, kDTypeCount, ok),
      .op = enum_at<ReduceOp>(at + 1, kReduceOpCount, ok),
      .count = load<std::uint64_t>(at + 8),
      .is_sparse = load<std::uint8_t>(at + 2) != 0,
      .is_striped = load<std::uint8_t>(at + 2) == 2,
      .row = load<std::uint32_t>(at + 4),
      .form = enum_at<ResultForm>(at + 3, kResultFormCount, ok),
      .segment_codec = enum_at<Codec>(at + 16, kCodecCount, ok),
      .result_codec = enum_at<Codec>(at + 17, kCodecCount, ok),
      .seed = load<std::uint32_t>(at + 20),
  };
  if (!ok || load<std::uint8_t>(at + 2) > 2) return protocol_error("descriptor: unknown value");
  if (load<std::uint16_t>(at + 18) != 0) return protocol_error("descriptor: reserved bits are set");
  if (Status error = check(descriptor)) return *std::move(error);
  return descriptor;
}

std::string describe(const Descriptor& descriptor) {
  std::string text = descriptor.is_sparse ? "sparse " : "";
  text += std::string(name_of(descriptor.op)) + " of " + std::to_string(descriptor.count) + " " +
          std::string(name_of(descriptor.dtype));
  if (descriptor.row != 1) text += " in rows of " + std::to_string(descriptor.row);
  if (descriptor.form == ResultForm::sparse) text += " with sparse results";
  if (descriptor.form == ResultForm::dense) text += " with dense results";
  if (descriptor.segment_codec != Codec::raw || descriptor.result_codec != Codec::raw) {
    text += " as " + std::string(name_of(descriptor.segment_codec)) + "/" +
            std::string(name_of(descriptor.result_codec)) + " with seed " +
            std::to_string(descriptor.seed);
  }
  return text;
}

}  // namespace sparsewire::wire
