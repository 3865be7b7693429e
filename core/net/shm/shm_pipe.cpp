// Every byte on the socket rings the bell; the first one brings the peer's memory.
#include "net/shm/shm_pipe.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "net/system_call.hpp"

namespace sparsewire::net {
namespace {

// A peer that could still shrink the memory could kill a process that reads beyond the new end.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Error broken_ring() { return protocol_error("shared memory: its counts make no sense"); }

RingMemory* mapped(int fd, std::size_t size) {
  const std::size_t bytes = sizeof(RingMemory) + size;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  // A forked child takes no part in the connection.
  (void)::madvise(memory, bytes, MADV_DONTFORK);
  return static_cast<RingMemory*>(memory);
}

// Whether a refusal to pass a descriptor may end soon, when others have taken theirs.
bool may_pass(int refusal) {
  return refusal == ETOOMANYREFS || refusal == ENOMEM || refusal == ENOBUFS || refusal == EAGAIN;
}

Error not_handed_over(int refusal) {
  const char* const advice =
      refusal == ETOOMANYREFS ? "raise the limit of descriptors (ulimit -n) on this host, or " : "";
  return {ErrorCode::resources, kNoRank,
          std::string("shared memory: it cannot be handed over: ") + std::strerror(refusal) + ": " +
              advice + "set SPARSEWIRE_SHARED_MEMORY=0 on all ranks to use TCP"};
}

Error no_room_for_descriptor() {
  return {ErrorCode::resources, kNoRank,
          "shared memory: this process has no descriptor left for it: raise the limit of "
          "descriptors (ulimit -n)"};
}

// One byte, and room for one descriptor beside it, but not for a second.
struct Parcel {
  std::array<std::byte, 64> bytes{};
  iovec vector{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};

  Parcel() {
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = CMSG_LEN(sizeof(int));
  }
};

// -1 if there is none.
int descriptor_in(msghdr& header) {
  for (cmsghdr* one = CMSG_FIRSTHDR(&header); one; one = CMSG_NXTHDR(&header, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
    int fd;
    std::memcpy(&fd, CMSG_DATA(one), sizeof fd);
    return fd;
  }
  return -1;
}

}  // namespace

int SharedRing::create(std::size_t size) {
  const int fd = checked(::memfd_create("sparsewire", MFD_CLOEXEC | MFD_ALLOW_SEALING), "memfd");
  try {
    checked(::ftruncate(fd, static_cast<off_t>(sizeof(RingMemory) + size)), "ftruncate");
    checked(::fcntl(fd, F_ADD_SEALS, kSeals), "fcntl");
    memory_ = mapped(fd, size);
    size_ = size;
    checked(memory_ ? 0 : -1, "mmap");
  } catch (...) {
    ::close(fd);
    throw;
  }
  return fd;
}

Status SharedRing::map(int fd) {
  struct stat status{};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  const bool is_there = ::fstat(fd, &status) == 0 && status.st_size > 0;
  const std::size_t size =
      is_there ? static_cast<std::size_t>(status.st_size) - sizeof(RingMemory) : 0;
  const bool fits = std::has_single_bit(size) && size >= kMinRingBytes && size <= kMaxRingBytes;
  if (!fits || seals < 0 || (seals & kSeals) != kSeals) {
    return protocol_error("shared memory: this is none of a peer's");
  }
  memory_ = mapped(fd, size);
  size_ = size;
  if (memory_) return {};
  return Error{ErrorCode::resources, kNoRank,
               std::string("shared memory: mmap: ") + std::strerror(errno)};
}

void SharedRing::unmap() {
  if (memory_) ::munmap(std::exchange(memory_, nullptr), sizeof(RingMemory) + size_);
}

ShmPipe::ShmPipe(int fd, std::size_t ring)
    : fd_(fd), memory_(to_peer_.create(ring)), since_(std::chrono::steady_clock::now()) {
  writer_ = RingWriter(to_peer_.memory(), to_peer_.size());
  refusal_ = hand_over();
}

// Returns 0, or the error with which the system refuses. If the peer is gone, the first read tells.
int ShmPipe::hand_over() {
  Parcel parcel;
  parcel.vector.iov_len = 1;
  cmsghdr* const one = CMSG_FIRSTHDR(&parcel.header);
  one->cmsg_level = SOL_SOCKET;
  one->cmsg_type = SCM_RIGHTS;
  one->cmsg_len = CMSG_LEN(sizeof memory_);
  std::memcpy(CMSG_DATA(one), &memory_, sizeof memory_);
  ssize_t sent;
  do {
    sent = ::sendmsg(fd_, &parcel.header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno != EPIPE && errno != ECONNRESET) return errno;
  let_go_of_memory();
  return 0;
}

void ShmPipe::let_go_of_memory() {
  if (const int memory = std::exchange(memory_, -1); memory >= 0) ::close(memory);
}

Status ShmPipe::settle() {
  if (memory_ < 0) return {};
  if (may_pass(refusal_)) refusal_ = hand_over();
  const bool may_wait = std::chrono::steady_clock::now() - since_ < patience_;
  if (refusal_ == 0 || (may_pass(refusal_) && may_wait)) return {};
  return not_handed_over(refusal_);
}

Result<std::size_t> ShmPipe::write(std::span<const iovec> from) {
  if (is_peer_gone_) return peer_gone("send", "the connection was closed");
  const auto moved = writer_.write(from);
  if (!moved) return broken_ring();
  if (*moved == 0) {
    if (Status error = listen()) return *std::move(error);
    if (!writer_.sleep()) return write(from);
  }
  if (*moved != 0 && writer_.owes_bell()) ring();
  return *moved;
}

Result<std::size_t> ShmPipe::read(std::span<const iovec> into) {
  while (true) {
    const bool was_peer_gone = is_peer_gone_;
    if (from_peer_.memory()) {
      const auto moved = reader_.read(into);
      if (!moved) return broken_ring();
      if (*moved != 0) {
        if (reader_.owes_bell()) ring();
        return *moved;
      }
    }
    if (was_peer_gone) return Error{ErrorCode::peer_lost, kNoRank, "the connection was closed"};
    if (Status error = listen()) return *std::move(error);
    const bool may_sleep = !from_peer_.memory() || reader_.sleep();
    if (may_sleep && !is_peer_gone_) return std::size_t{0};
  }
}

// Empties the socket before either direction goes to sleep: so a later bell is a change that the
// poller reports.
Status ShmPipe::listen() {
  while (true) {
    Parcel parcel;
    const ssize_t got = ::recvmsg(fd_, &parcel.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    heard_bell_ = true;
    is_peer_gone_ = got <= 0;
    if (is_peer_gone_) return {};
    const bool was_cut = parcel.header.msg_flags & MSG_CTRUNC;
    const int memory = descriptor_in(parcel.header);
    if (memory < 0 && was_cut) return no_room_for_descriptor();
    if (memory < 0) continue;
    if (Status error = take_over(memory, was_cut)) return error;
  }
}

Status ShmPipe::take_over(int memory, bool has_more) {
  Status error;
  if (from_peer_.memory() || has_more) {
    error = protocol_error("shared memory: handed over twice");
  } else {
    error = from_peer_.map(memory);
    reader_ = RingReader(from_peer_.memory(), from_peer_.size());
  }
  ::close(memory);
  return error;
}

// A bell rings only for a peer that has emptied the socket and then gone to sleep. So few bells are
// ever unheard, and there is room for one more.
void ShmPipe::ring() {
  const std::byte bell{};
  (void)::send(fd_, &bell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void ShmPipe::close() {
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
  if (const int fd = std::exchange(fd_, -1); fd >= 0) ::close(fd);
  let_go_of_memory();
  to_peer_.unmap();
  from_peer_.unmap();
}

void ShmPipe::disown() {
  if (const int fd = std::exchange(fd_, -1); fd >= 0) ::close(fd);
  let_go_of_memory();
  to_peer_.disown();
  from_peer_.disown();
}

}  // namespace sparsewire::net
