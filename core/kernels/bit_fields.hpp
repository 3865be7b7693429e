// Bit fields one after another, from the low bits of each byte up. The writer does not check for
// the end of the memory, because its caller knows how much comes; the reader does.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace sparsewire {

// Integers in little-endian order, whatever that of the machine: the compiler makes one access.

inline std::uint32_t load_16(const std::byte* in) {
  return static_cast<std::uint32_t>(in[0]) | static_cast<std::uint32_t>(in[1]) << 8;
}

inline std::uint32_t load_32(const std::byte* in) { return load_16(in) | load_16(in + 2) << 16; }

inline std::uint64_t load_64(const std::byte* in) {
  return load_32(in) | std::uint64_t{load_32(in + 4)} << 32;
}

inline void store_16(std::byte* out, std::uint32_t value) {
  out[0] = static_cast<std::byte>(value);
  out[1] = static_cast<std::byte>(value >> 8);
}

inline void store_32(std::byte* out, std::uint32_t value) {
  store_16(out, value);
  store_16(out + 2, value >> 16);
}

inline void store_64(std::byte* out, std::uint64_t value) {
  store_32(out, static_cast<std::uint32_t>(value));
  store_32(out + 4, static_cast<std::uint32_t>(value >> 32));
}

class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : out_(out) {}

  // Up to 32 bits; those of `value` above them are zero.
  void put(std::uint32_t value, unsigned bits) {
    pending_ |= std::uint64_t{value} << filled_;
    filled_ += bits;
    if (filled_ < 32) return;
    store_32(out_, static_cast<std::uint32_t>(pending_));
    out_ += 4;
    pending_ >>= 32;
    filled_ -= 32;
  }

  // Writes `zeros` zeros, and a one after them.
  void put_unary(std::uint64_t zeros) {
    for (; zeros >= 31; zeros -= 31) put(0, 31);
    put(std::uint32_t{1} << zeros, static_cast<unsigned>(zeros) + 1);
  }

  // Fills the last byte up with zeros. Returns where the next byte would be.
  std::byte* finish() {
    for (; filled_ != 0; filled_ -= filled_ < 8 ? filled_ : 8, pending_ >>= 8) {
      *out_++ = static_cast<std::byte>(pending_);
    }
    return out_;
  }

 private:
  std::byte* out_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
};

// Reads zeros after the end, and remembers that it did.
class BitReader {
 public:
  BitReader(const std::byte* in, const std::byte* end) : in_(in), end_(end) {}

  // Up to 32 bits.
  std::uint32_t get(unsigned bits) {
    if (filled_ < bits) fill();
    if (filled_ < bits) {
      failed_ = true;
      filled_ = bits;
    }
    const auto value = static_cast<std::uint32_t>(pending_ & ((std::uint64_t{1} << bits) - 1));
    drop(bits);
    return value;
  }

  // The number of zeros up to the next one, which is taken as well.
  std::uint64_t get_unary() {
    std::uint64_t zeros = 0;
    for (; pending_ == 0; fill()) {
      zeros += filled_;
      filled_ = 0;
      if (in_ == end_) {
        failed_ = true;
        return zeros;
      }
    }
    const auto last = static_cast<unsigned>(std::countr_zero(pending_));
    drop(last + 1);
    return zeros + last;
  }

  bool failed() const { return failed_; }

  // Where the next byte starts, if all bits of the current one that were not read are zeros; null
  // otherwise, or if it failed.
  const std::byte* finish() const {
    const std::uint64_t rest = pending_ & ((std::uint64_t{1} << (filled_ % 8)) - 1);
    return failed_ || rest != 0 ? nullptr : in_ - filled_ / 8;
  }

 private:
  void fill() {
    if (end_ - in_ >= 4 && filled_ <= 32) {
      pending_ |= std::uint64_t{load_32(in_)} << filled_;
      in_ += 4;
      filled_ += 32;
      return;
    }
    for (; in_ != end_ && filled_ <= 56; filled_ += 8) {
      pending_ |= static_cast<std::uint64_t>(*in_++) << filled_;
    }
  }

  void drop(unsigned bits) {
    pending_ = bits < 64 ? pending_ >> bits : 0;
    filled_ -= bits;
  }

  const std::byte* in_;
  const std::byte* end_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
  bool failed_ = false;
};

}  // namespace sparsewire
