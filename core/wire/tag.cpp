// Computes tags. Compilers vectorise NH's loop.
#include "wire/tag.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "wire/datagram.hpp"
#include "wire/layout.hpp"

namespace sparsewire::wire {
namespace {

struct SipState {
  std::uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
    v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
  }
  void take(std::uint64_t word) {
    v3 ^= word;
    round();
    v0 ^= word;
  }
};

// Pairs of words, each added to its key, and multiplied. `in` has a multiple of 8 bytes.
std::uint64_t nh(std::span<const std::byte> in, const std::uint32_t* key) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < in.size() / 8; ++i) {
    const std::uint32_t a = load<std::uint32_t>(in.data() + 8 * i) + key[2 * i];
    const std::uint32_t b = load<std::uint32_t>(in.data() + 8 * i + 4) + key[2 * i + 1];
    sum += std::uint64_t{a} * b;
  }
  return sum;
}

}  // namespace

std::uint64_t siphash(std::uint64_t key0, std::uint64_t key1, std::span<const std::uint64_t> words,
                      std::uint64_t length) {
  SipState state{key0 ^ 0x736f6d6570736575, key1 ^ 0x646f72616e646f6d, key0 ^ 0x6c7967656e657261,
                 key1 ^ 0x7465646279746573};
  for (const std::uint64_t word : words) state.take(word);
  state.take(length << 56);
  state.v2 ^= 0xff;
  for (int i = 0; i < 3; ++i) state.round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

TagKey::TagKey(std::span<const std::byte> key, std::size_t datagram_bytes)
    : key0_(load<std::uint64_t>(key.data())), key1_(load<std::uint64_t>(key.data() + 8)) {
  const auto seed0 = load<std::uint64_t>(key.data() + 16);
  const auto seed1 = load<std::uint64_t>(key.data() + 24);
  const std::size_t pairs = (datagram_bytes + 7) / 8;
  for (std::uint64_t i = 0; i < pairs; ++i) {
    const std::uint64_t word = siphash(seed0, seed1, {&i, 1}, 8);
    words_.push_back(static_cast<std::uint32_t>(word));
    words_.push_back(static_cast<std::uint32_t>(word >> 32));
  }
}

// A tail that is shorter than a word, which only greetings may have, is read as if zeros followed.
std::uint64_t TagKey::tag(std::span<const std::byte> datagram) const {
  const auto body = datagram.subspan(kDatagramHeaderBytes);
  const std::size_t whole = std::min(body.size(), words_.size() * 4) / 8 * 8;
  std::array<std::byte, 8> tail{};
  const std::size_t left = std::min<std::size_t>(body.size() - whole, 7);
  std::memcpy(tail.data(), body.data() + whole, left);
  std::array<std::uint64_t, 6> words{};
  for (std::size_t i = 0; i < 4; ++i) words[i] = load<std::uint64_t>(datagram.data() + 8 * i);
  words[4] = nh(body.first(whole), words_.data());
  words[5] = load<std::uint64_t>(tail.data()) ^ body.size();
  return siphash(key0_, key1_, words, 8 * words.size());
}

void TagKey::seal(std::span<std::byte> datagram) const {
  store(datagram.data() + kTagOffset, tag(datagram));
}

bool TagKey::is_sealed(std::span<const std::byte> datagram) const {
  return datagram.size() >= kDatagramHeaderBytes &&
         datagram.size() - kDatagramHeaderBytes <= words_.size() * 4 &&
         load<std::uint64_t>(datagram.data() + kTagOffset) == tag(datagram);
}

}  // namespace sparsewire::wire
