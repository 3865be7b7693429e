// A ring of bytes in memory that two processes share: one writes, the other reads, and neither
// waits. Each side notes when it goes to sleep, so that the other knows when to ring.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace sparsewire::net {

// Sizes of a ring, powers of two. The largest ring stays in the nearest caches, and holds a few of
// the largest segments.
inline constexpr std::size_t kMinRingBytes = std::size_t{16} * 1024;
inline constexpr std::size_t kMaxRingBytes = std::size_t{256} * 1024;

// The counts that stand before the bytes.
struct RingMemory {
  alignas(64) std::atomic<std::uint64_t> written;  // bytes so far; only the writer changes it
  std::atomic<std::uint32_t> writer_sleeps;
  alignas(64) std::atomic<std::uint64_t> read;  // likewise, the reader
  std::atomic<std::uint32_t> reader_sleeps;

  std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "the other process has no lock");

// One side of a ring has its own state in this process, and checks every number of the peer's. So a
// peer that writes nonsense into the memory harms only itself.
class RingWriter {
 public:
  explicit RingWriter(RingMemory* memory = nullptr, std::size_t size = 0)
      : memory_(memory), size_(size) {}

  // Takes as many bytes as there is room for; none if the reader's count is nonsense.
  std::optional<std::size_t> write(std::span<const iovec> from);

  // Notes that the writer waits for room; false if there is some by now.
  bool sleep();
  // Whether the reader must be told that there is something to read. After true, it is false until
  // the reader sleeps again.
  bool owes_bell();

  std::size_t unread() const;

 private:
  std::optional<std::size_t> room() const;

  RingMemory* memory_;
  std::size_t size_;  // bytes
  std::uint64_t written_ = 0;
};

class RingReader {
 public:
  explicit RingReader(RingMemory* memory = nullptr, std::size_t size = 0)
      : memory_(memory), size_(size) {}

  // Reads what is there and fits; none if the writer's count is nonsense.
  std::optional<std::size_t> read(std::span<const iovec> into);

  // Notes that the reader waits for bytes; false if there are some by now.
  bool sleep();
  // Whether the writer must be told that there is room: half of the ring, so that it does not wake
  // for every few bytes.
  bool owes_bell();

 private:
  std::uint64_t unread() const;

  RingMemory* memory_;
  std::size_t size_;  // bytes
  std::uint64_t read_ = 0;
};

}  // namespace sparsewire::net
