// What the tests of decoders share: encodings in plain bytes, and any input at all.
#pragma once

#include <doctest/doctest.h>

#include <type_traits>

#include "random.hpp"
#include "wire/agreement.hpp"
#include "wire/frame.hpp"

namespace sparsewire::test {

inline constexpr int kInputs = 100'000;

inline Buffer buffer_of(std::span<const std::byte> bytes) {
  return Buffer(bytes.begin(), bytes.end());
}

inline Buffer bytes_of(std::initializer_list<int> values) {
  Buffer bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

template <std::size_t size, typename T>
Buffer encoded_in(const T& value) {
  Buffer bytes(size);
  wire::encode(value, std::span<std::byte, size>(bytes));
  return bytes;
}

inline Buffer encoded(const wire::FrameHeader& header) {
  return encoded_in<wire::kHeaderBytes>(header);
}
inline Buffer encoded(const wire::Descriptor& descriptor) {
  return encoded_in<wire::kDescriptorBytes>(descriptor);
}
inline Buffer encoded(const wire::Join& join) { return encoded_in<wire::kJoinBytes>(join); }
inline Buffer encoded(const Error& error) { return buffer_of(wire::encode_fault(error).view()); }
inline Buffer encoded(const wire::Hello& hello) {
  return buffer_of(wire::encode_hello(hello).view());
}

template <typename T>
bool is_refused(const Result<T>& result) {
  return !result && result.error().code == ErrorCode::protocol && !result.error().message.empty();
}

// Whatever a decoder takes has exactly one encoding, so it must give back the very same bytes.
template <typename T>
void check_outcome(const Result<T>& result, const Buffer& input) {
  if (!result) {
    REQUIRE(is_refused(result));
  } else if constexpr (std::is_same_v<T, wire::Fault>) {
    REQUIRE((encoded(result->error) == input));
  } else {
    REQUIRE((encoded(*result) == input));
  }
}

// Feeds a decoder with damaged valid input and with noise of every length up to `longest`.
template <typename Decode>
void check_any_input(const std::vector<Buffer>& valid, std::size_t longest, Decode decode) {
  for (int seed = 0; seed < kInputs; ++seed) {
    CAPTURE(seed);
    Random random(static_cast<std::uint64_t>(seed));
    const Buffer input = one_in(8, random) ? random_bytes(below(longest + 1, random), random)
                                           : mutated(valid[below(valid.size(), random)], random);
    check_outcome(decode(input), input);
  }
}

// Flips every bit of every valid input, one at a time.
template <typename Decode>
void check_any_bit_flip(const std::vector<Buffer>& valid, Decode decode) {
  for (const Buffer& original : valid) {
    for (std::size_t bit = 0; bit < 8 * original.size(); ++bit) {
      CAPTURE(bit);
      Buffer input = original;
      input[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      check_outcome(decode(input), input);
    }
  }
}

// The bytes with some of them replaced.
struct Change {
  std::size_t at;
  int value;
};

inline Buffer changed(Buffer bytes, std::initializer_list<Change> changes) {
  for (const Change& change : changes) bytes[change.at] = static_cast<std::byte>(change.value);
  return bytes;
}

}  // namespace sparsewire::test
