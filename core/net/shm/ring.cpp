// A count that is released after the bytes publishes them. A side that goes to sleep says so and
// then looks again; a side that publishes then looks for a sleeper. With a fence between the two
// steps on both sides, at least one side sees the other.
#include "net/shm/ring.hpp"

#include <algorithm>
#include <cstring>

namespace sparsewire::net {
namespace {

// Calls copy(part of a vector, offset in a ring of `size` bytes, bytes) for `count` bytes from
// position `at` on, and never across the ring's end.
template <typename Copy>
void walk(std::span<const iovec> vectors, std::size_t size, std::uint64_t at, std::size_t count,
          Copy&& copy) {
  for (const iovec& vector : vectors) {
    auto* part = static_cast<std::byte*>(vector.iov_base);
    std::size_t left = std::min(vector.iov_len, count);
    count -= left;
    while (left != 0) {
      const std::size_t offset = at & (size - 1);
      const std::size_t bytes = std::min(left, size - offset);
      copy(part, offset, bytes);
      part += bytes;
      at += bytes;
      left -= bytes;
    }
  }
}

std::size_t size_of(std::span<const iovec> vectors) {
  std::size_t total = 0;
  for (const iovec& vector : vectors) total += vector.iov_len;
  return total;
}

bool wakes(std::atomic<std::uint32_t>& sleeps) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return sleeps.load(std::memory_order_relaxed) != 0 &&
         sleeps.exchange(0, std::memory_order_relaxed) != 0;
}

void lie_down(std::atomic<std::uint32_t>& sleeps) {
  sleeps.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace

std::optional<std::size_t> RingWriter::room() const {
  const std::uint64_t used = written_ - memory_->read.load(std::memory_order_acquire);
  if (used > size_) return {};
  return size_ - static_cast<std::size_t>(used);
}

std::optional<std::size_t> RingWriter::write(std::span<const iovec> from) {
  const auto free = room();
  if (!free) return {};
  const std::size_t count = std::min(*free, size_of(from));
  walk(from, size_, written_, count,
       [this](const std::byte* part, std::size_t offset, std::size_t bytes) {
         std::memcpy(memory_->bytes() + offset, part, bytes);
       });
  written_ += count;
  memory_->written.store(written_, std::memory_order_release);
  return count;
}

bool RingWriter::sleep() {
  lie_down(memory_->writer_sleeps);
  return room() == std::size_t{0};
}

bool RingWriter::owes_bell() { return wakes(memory_->reader_sleeps); }

std::size_t RingWriter::unread() const { return size_ - room().value_or(size_); }

std::uint64_t RingReader::unread() const {
  return memory_->written.load(std::memory_order_acquire) - read_;
}

std::optional<std::size_t> RingReader::read(std::span<const iovec> into) {
  const std::uint64_t there = unread();
  if (there > size_) return {};
  const std::size_t count = std::min(static_cast<std::size_t>(there), size_of(into));
  walk(into, size_, read_, count, [this](std::byte* part, std::size_t offset, std::size_t bytes) {
    std::memcpy(part, memory_->bytes() + offset, bytes);
  });
  read_ += count;
  memory_->read.store(read_, std::memory_order_release);
  return count;
}

bool RingReader::sleep() {
  lie_down(memory_->reader_sleeps);
  return unread() == 0;
}

bool RingReader::owes_bell() { return unread() <= size_ / 2 && wakes(memory_->writer_sleeps); }

}  // namespace sparsewire::net
