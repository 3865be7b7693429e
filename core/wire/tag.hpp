// The keyed tag of a datagram: NH (Black et al., UMAC, CRYPTO 1999) of what is behind the header,
// under SipHash-1-3 (Aumasson, Bernstein, INDOCRYPT 2012) of the header. A forgery passes with a
// chance of 2^-32; the same arithmetic runs in the kernel, where there is no other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sparsewire::wire {

inline constexpr std::size_t kTagKeyBytes = 32;

// Of the words `data`, each 8 bytes: as of 8 * data.size() bytes, without the length that SipHash
// adds at the end, which is `length` here.
std::uint64_t siphash(std::uint64_t key0, std::uint64_t key1, std::span<const std::uint64_t> words,
                      std::uint64_t length);

class TagKey {
 public:
  // 32 bytes: the key of SipHash, and the seed from which NH's key is drawn. For datagrams of at
  // most so many bytes.
  TagKey(std::span<const std::byte> key, std::size_t datagram_bytes);

  // The tag of a datagram, whatever stands in its place.
  std::uint64_t tag(std::span<const std::byte> datagram) const;

  void seal(std::span<std::byte> datagram) const;
  bool is_sealed(std::span<const std::byte> datagram) const;

  // NH's key, for an engine that computes tags itself.
  std::span<const std::uint32_t> words() const { return words_; }

 private:
  std::uint64_t key0_;
  std::uint64_t key1_;
  std::vector<std::uint32_t> words_;
};

// Of the datagrams between one aggregator and its workers. Nothing that is sealed with one of them
// passes elsewhere, nor the other way.
struct WayKeys {
  TagKey up;    // from the workers to the aggregator
  TagKey down;  // back
};

}  // namespace sparsewire::wire
