// A pipe through shared memory, where the system refuses something: the memory is handed over
// later, or the reader or the writer is told why it is not. And its bells: none is lost.
#include "net/shm/shm_pipe.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "net/connection.hpp"
#include "net/poller.hpp"
#include "pipes.hpp"
#include "random.hpp"
#include "refused_calls.hpp"

namespace shm_pipe_test {

using namespace sparsewire;
using namespace sparsewire::test;
using net::ShmPipe;

constexpr std::size_t kRing = net::kMinRingBytes;

std::size_t write(net::Pipe& pipe, std::size_t bytes) {
  std::vector<std::byte> memory(bytes, std::byte{7});
  const iovec vector{memory.data(), memory.size()};
  const auto moved = pipe.write({&vector, 1});
  REQUIRE(moved);
  return *moved;
}

Result<std::size_t> try_read(net::Pipe& pipe) {
  std::vector<std::byte> memory(1 << 20);
  const iovec vector{memory.data(), memory.size()};
  return pipe.read({&vector, 1});
}

std::size_t read(net::Pipe& pipe) {
  const auto moved = try_read(pipe);
  REQUIRE(moved);
  return *moved;
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

// --- Handing over ---

constexpr std::array kPassing{ETOOMANYREFS, ENOMEM, ENOBUFS, EAGAIN};

TEST_CASE("memory that cannot be handed over for a moment is handed over later") {
  for (const int error : kPassing) {
    CAPTURE(std::strerror(error));
    const auto before = open_descriptors();
    SocketPair sockets = local_pair();
    std::unique_ptr<ShmPipe> a;
    with_refused(SYS_sendmsg, error, [&] {
      a = std::make_unique<ShmPipe>(sockets.a.release(), kRing);
      CHECK_FALSE(a->settle());  // It is still refused, and may go on so for a while.
    });
    ShmPipe b(sockets.b.release(), kRing);
    CHECK(write(*a, 1000) == 1000);
    CHECK(read(b) == 0);
    CHECK_FALSE(a->settle());
    CHECK(read(b) == 1000);
    CHECK(write(b, 500) == 500);
    CHECK(read(*a) == 500);
    CHECK(open_descriptors() == before + 2);
  }
}

TEST_CASE("what was written before the memory is handed over wakes its reader then") {
  SocketPair sockets = local_pair();
  std::unique_ptr<ShmPipe> a;
  with_refused(SYS_sendmsg, ETOOMANYREFS,
               [&] { a = std::make_unique<ShmPipe>(sockets.a.release(), kRing); });
  ShmPipe b(sockets.b.release(), kRing);
  CHECK(write(*a, 2 * kRing) == kRing);
  CHECK(write(*a, kRing) == 0);
  CHECK(read(b) == 0);
  pollfd bell{b.fd(), POLLIN, 0};
  CHECK(::poll(&bell, 1, 0) == 0);
  CHECK_FALSE(a->settle());
  CHECK(::poll(&bell, 1, 0) == 1);
  CHECK(read(b) == kRing);
  CHECK(read(*a) == 0);
  CHECK(a->heard_bell());
  CHECK(write(*a, kRing) == kRing);
}

TEST_CASE("memory that is refused for too long, or for good, is an error that says what to do") {
  const auto refused = [](int error, std::chrono::milliseconds patience) {
    Status status;
    with_refused(SYS_sendmsg, error, [&] {
      SocketPair sockets = local_pair();
      ShmPipe a(sockets.a.release(), kRing);
      a.expect_answers_within(patience);
      status = a.settle();
    });
    return status;
  };
  for (const int error : kPassing) {
    const Status status = refused(error, std::chrono::milliseconds{0});
    REQUIRE(status);
    CHECK(status->code == ErrorCode::resources);
    CHECK(status->message.find(std::strerror(error)) != std::string::npos);
    CHECK(status->message.find("SPARSEWIRE_SHARED_MEMORY=0") != std::string::npos);
  }
  const Status limited = refused(ETOOMANYREFS, std::chrono::milliseconds{0});
  CHECK(limited->message.find("ulimit -n") != std::string::npos);
  const Status forbidden = refused(EPERM, std::chrono::hours{1});
  REQUIRE(forbidden);
  CHECK(forbidden->code == ErrorCode::resources);
}

TEST_CASE("a peer that is gone before the memory is handed over is no error of handing over") {
  SocketPair sockets = local_pair();
  std::unique_ptr<ShmPipe> a;
  with_refused(SYS_sendmsg, ENOMEM,
               [&] { a = std::make_unique<ShmPipe>(sockets.a.release(), kRing); });
  sockets.b.close();
  CHECK_FALSE(a->settle());
  const auto got = try_read(*a);
  REQUIRE_FALSE(got);
  CHECK(got.error().code == ErrorCode::peer_lost);
}

// As many descriptors as are open now, and none more.
class NoDescriptorLeft {
 public:
  NoDescriptorLeft() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const int next = ::dup(0);
    REQUIRE(next >= 0);
    ::close(next);
    const rlimit least{static_cast<rlim_t>(next), before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &least) == 0);
  }
  ~NoDescriptorLeft() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_CASE("a process without room for the descriptor is told so, and what to do") {
  PipePair pair = OverMemory::pair();
  CHECK(write(*pair.a, 1000) == 1000);
  std::optional<Error> error;
  {
    const NoDescriptorLeft limit;
    const auto got = try_read(*pair.b);
    if (!got) error = got.error();
  }
  REQUIRE(error);
  CHECK(error->code == ErrorCode::resources);
  CHECK(error->message.find("ulimit -n") != std::string::npos);
}

TEST_CASE("a peer that hands over two descriptors is turned away, and neither stays open") {
  SocketPair sockets = local_pair();
  ShmPipe victim(sockets.a.release(), kRing);
  const auto before = open_descriptors();
  const std::array<int, 2> both{0, 0};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof both)> control{};
  std::byte byte{};
  iovec vector{&byte, 1};
  msghdr header{};
  header.msg_iov = &vector;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* const one = CMSG_FIRSTHDR(&header);
  one->cmsg_level = SOL_SOCKET;
  one->cmsg_type = SCM_RIGHTS;
  one->cmsg_len = CMSG_LEN(sizeof both);
  std::memcpy(CMSG_DATA(one), both.data(), sizeof both);
  REQUIRE(::sendmsg(sockets.b.fd(), &header, 0) == 1);
  const auto got = try_read(victim);
  REQUIRE_FALSE(got);
  CHECK(got.error().code == ErrorCode::protocol);
  CHECK(open_descriptors() == before);
}

}  // namespace shm_pipe_test
