// The keyed tag of a datagram: NH (Black et al., UMAC, CRYPTO 1999) of all that follows the header,
// under SipHash-1-3 (Aumasson, Bernstein, INDOCRYPT 2012) of the header. A forgery passes with a
// chance of 2^-32. The programs in the kernel can do no other arithmetic than this.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sparsewire::wire {

inline constexpr std::size_t kTagKeyBytes = 32;

// SipHash-1-3 of `words`, each 8 bytes. `length` stands for the number of bytes that SipHash adds
// at the end.
std::uint64_t siphash(std::uint64_t key0, std::uint64_t key1, std::span<const std::uint64_t> words,
                      std::uint64_t length);

class TagKey {
 public:
  // `key` is 32 bytes: the key of SipHash, and the seed from which NH's key is drawn. Datagrams
  // have at most `datagram_bytes` bytes.
  TagKey(std::span<const std::byte> key, std::size_t datagram_bytes);

  // The tag of a datagram, whatever its field for the tag holds.
  std::uint64_t tag(std::span<const std::byte> datagram) const;

  void seal(std::span<std::byte> datagram) const;
  bool is_sealed(std::span<const std::byte> datagram) const;

  // NH's key, for the programs in the kernel, which compute tags themselves.
  std::span<const std::uint32_t> words() const { return words_; }

 private:
  std::uint64_t key0_;
  std::uint64_t key1_;
  std::vector<std::uint32_t> words_;
};

// The keys of datagrams between one aggregator and its workers. A datagram that is sealed with one
// of them passes nowhere else, and not in the other direction.
struct WayKeys {
  TagKey up;    // from the workers to the aggregator
  TagKey down;  // back
};

}  // namespace sparsewire::wire
