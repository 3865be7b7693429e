// A connection gives every frame to its handler, whole and in order, however the bytes arrive, and
// lets go of other people's memory when told to.
#include "net/connection.hpp"

#include <doctest/doctest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>

#include "pipes.hpp"
#include "random.hpp"
#include "state_tables.hpp"
#include "wire/frame.hpp"

namespace connection_test {

using namespace sparsewire;
using namespace sparsewire::test;
using net::Connection;
using wire::FrameKind;

struct Frame {
  wire::FrameHeader header;
  Buffer payload;

  bool operator==(const Frame&) const = default;
  Buffer bytes() const {
    Buffer all(wire::kHeaderBytes);
    wire::encode(header, std::span<std::byte, wire::kHeaderBytes>(all));
    all.insert(all.end(), payload.begin(), payload.end());
    return all;
  }
  wire::Message lent() const { return {header, Bytes::borrowed(payload)}; }
};

Frame frame_of(std::uint64_t seq, std::size_t size, Random& random) {
  wire::FrameHeader header{.kind = FrameKind::cancel, .seq = seq};
  if (size != 0) {
    header = {.kind = one_in(2, random) ? FrameKind::segment : FrameKind::result,
              .format = wire::Format::dense,
              .payload = static_cast<std::uint32_t>(size),
              .seq = seq,
              .chunk = 1,
              .next = 2};
  }
  return {header, random_bytes(size, random)};
}

// Of sizes around what makes a difference: nothing, a staging buffer, the largest payload.
Frame random_frame(std::uint64_t seq, Random& random) {
  const std::size_t size = pick<std::size_t>(
      {0, 0, 1, 100, 5000, 65'535 - wire::kHeaderBytes, 65'536, 65'537, below(200'000, random),
       below(1000, random), below(1000, random), wire::kMaxPayload},
      random);
  return frame_of(seq, size, random);
}

// Keeps what arrives; frames with an even sequence are received in a place of its own.
class Recorder : public net::FrameHandler {
 public:
  Status accepts(std::uint32_t, const wire::FrameHeader&) override { return {}; }

  std::byte* place(std::uint32_t, const wire::FrameHeader& header) override {
    if (header.seq % 2 != 0) return nullptr;
    place_ = std::make_unique<std::byte[]>(header.payload);
    return place_.get();
  }

  Status on_message(std::uint32_t, wire::Message message) override {
    const auto view = message.payload.view();
    placed += place_ && view.data() == place_.get();
    frames.push_back({message.header, Buffer(view.begin(), view.end())});
    return {};
  }

  void drop_place() { place_.reset(); }

  std::vector<Frame> frames;
  std::size_t placed = 0;

 private:
  std::unique_ptr<std::byte[]> place_;
};

// What a poller would note; true if there is something to read or the peer is gone.
bool note(Connection& connection) {
  pollfd ready{connection.pipe().fd(), POLLIN | POLLOUT, 0};
  REQUIRE(::poll(&ready, 1, 0) >= 0);
  const bool readable = ready.revents & (POLLIN | POLLHUP | POLLERR);
  connection.note_ready(readable, ready.revents & POLLOUT);
  return connection.is_readable();
}

// Receives all that is there by now, or until an error.
Status receive_all(Connection& connection, net::FrameHandler& handler) {
  while (connection.is_open() && note(connection)) {
    if (Status error = connection.receive(handler)) return error;
  }
  return {};
}

// Waits up to a second, because what is sent over loopback arrives soon but not at once.
void wait_readable(const Connection& connection) {
  pollfd ready{connection.pipe().fd(), POLLIN, 0};
  REQUIRE(::poll(&ready, 1, 1000) == 1);
}

void write_all(net::Pipe& pipe, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const iovec vector{const_cast<std::byte*>(bytes.data()), bytes.size()};
    const auto moved = pipe.write({&vector, 1});
    REQUIRE(moved);
    REQUIRE(*moved != 0);
    bytes = bytes.subspan(*moved);
  }
}

// All that is there by now.
Buffer read_all(net::Pipe& pipe) {
  Buffer all;
  Buffer part(100'000);
  const iovec vector{part.data(), part.size()};
  while (true) {
    const auto moved = pipe.read({&vector, 1});
    if (!moved || *moved == 0) return all;
    all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(*moved));
  }
}

// --- Receiving ---

TEST_CASE_TEMPLATE("frames arrive whole, however they are cut", Carrier, OverSocket, OverMemory) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    PipePair pair = Carrier::pair();
    Connection connection(std::move(pair.b));
    Recorder recorder;
    std::vector<Frame> sent;
    Buffer bytes;
    for (std::uint64_t seq = 0; seq < 8; ++seq) {
      sent.push_back(random_frame(seq, random));
      const Buffer more = sent.back().bytes();
      bytes.insert(bytes.end(), more.begin(), more.end());
    }
    const std::size_t longest = pick<std::size_t>({50, 5000, 100'000}, random);
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t part = std::min(bytes.size() - at, 1 + below(longest, random));
      write_all(*pair.a, std::span(bytes).subspan(at, part));
      at += part;
      if (!one_in(3, random) || longest > 5000) {
        REQUIRE_FALSE(receive_all(connection, recorder));
      } else if (at % 20 == 0) {
        REQUIRE_FALSE(receive_all(connection, recorder));
      }
    }
    REQUIRE_FALSE(receive_all(connection, recorder));
    REQUIRE((recorder.frames == sent));
    REQUIRE(connection.bytes_received() == bytes.size());
  }
}

TEST_CASE_TEMPLATE("a large payload is received in its place", Carrier, OverSocket, OverMemory) {
  Random random(1);
  PipePair pair = Carrier::pair();
  Connection connection(std::move(pair.b));
  Recorder recorder;
  const Frame frame = frame_of(2, 150'000, random);
  const Buffer bytes = frame.bytes();
  write_all(*pair.a, std::span(bytes).first(100'000));
  CHECK_FALSE(receive_all(connection, recorder));
  write_all(*pair.a, std::span(bytes).subspan(100'000));
  CHECK_FALSE(receive_all(connection, recorder));
  CHECK(recorder.placed == 1);
  CHECK((recorder.frames == std::vector{frame}));
}

TEST_CASE_TEMPLATE("a place that is taken away in the middle is not touched any more", Carrier,
                   OverSocket, OverMemory) {
  Random random(2);
  for (const std::size_t cut :
       {wire::kHeaderBytes, std::size_t{40}, std::size_t{70'000}, std::size_t{99'999}}) {
    CAPTURE(cut);
    PipePair pair = Carrier::pair();
    Connection connection(std::move(pair.b));
    Recorder recorder;
    const Frame frame = frame_of(2, 100'000, random);
    const Buffer bytes = frame.bytes();
    write_all(*pair.a, std::span(bytes).first(cut));
    CHECK_FALSE(receive_all(connection, recorder));
    connection.detach();
    recorder.drop_place();
    write_all(*pair.a, std::span(bytes).subspan(cut));
    CHECK_FALSE(receive_all(connection, recorder));
    CHECK(recorder.placed == 0);
    CHECK((recorder.frames == std::vector{frame}));
  }
}

TEST_CASE_TEMPLATE("one call reads a bounded amount, so that others get their turn", Carrier,
                   OverTcp, OverMemory) {
  Random random(3);
  PipePair pair = Carrier::pair();
  Connection from(std::move(pair.a));
  Connection to(std::move(pair.b));
  const Frame frame = frame_of(1, wire::kMaxPayload, random);
  for (int i = 0; i < 40; ++i) from.send(frame.lent());
  Recorder recorder;
  std::size_t most = 0;
  while (recorder.frames.size() < 40) {
    note(from);
    REQUIRE_FALSE(from.flush());
    note(to);
    const std::uint64_t before = to.bytes_received();
    REQUIRE_FALSE(to.receive(recorder));
    most = std::max<std::size_t>(most, to.bytes_received() - before);
  }
  CHECK(most < 2 * 1024 * 1024 + wire::kMaxPayload);
}

TEST_CASE_TEMPLATE("a connection reads frames, holds what is beyond its turn, and fills payloads",
                   Carrier, OverSocket, OverMemory) {
  using net::Reading;
  Random random(4);
  PipePair pair = Carrier::pair();
  Connection connection(std::move(pair.b));
  Recorder recorder;
  Buffer small;
  for (std::uint64_t seq = 0; seq < 300; ++seq)
    std::ranges::copy(frame_of(seq, 0, random).bytes(), std::back_inserter(small));
  const Buffer large = frame_of(1000, 100'000, random).bytes();
  const auto read = [&](std::span<const std::byte> bytes) {
    write_all(*pair.a, bytes);
    note(connection);
    CHECK_FALSE(connection.receive(recorder));
    return connection.reading();
  };
  CHECK(connection.reading() == Reading::frames);
  CHECK(read(small) == Reading::held);
  CHECK(recorder.frames.size() == 256);
  CHECK(read({}) == Reading::frames);
  CHECK(recorder.frames.size() == 300);
  CHECK(read(std::span(large).first(70'000)) == Reading::payload);
  CHECK(read(std::span(large).subspan(70'000)) == Reading::frames);
  CHECK(recorder.frames.size() == 301);
}

TEST_CASE("what the table of reading does not have is refused") {
  using net::Reading;
  using net::ReadingStep;
  check_refuses_the_rest(
      net::kReadingTransitions,
      {Reading::frames, Reading::payload, Reading::held, Reading::waiting, Reading::ignored},
      {ReadingStep::begin_payload, ReadingStep::end_payload, ReadingStep::end_turn,
       ReadingStep::begin_turn, ReadingStep::wait, ReadingStep::resume, ReadingStep::ignore});
}

TEST_CASE("a connection is awaited, open or closed, and stays closed") {
  using net::Standing;
  using net::StandingStep;
  check_refuses_the_rest(net::kStandingTransitions,
                         {Standing::awaited, Standing::open, Standing::closed},
                         {StandingStep::attach, StandingStep::close});
  Connection connection;
  CHECK_FALSE(connection.is_open());
  CHECK_FALSE(connection.is_closed());
  auto pair = connected_pair();
  make_non_blocking(pair.a);
  connection.attach(std::make_unique<net::TcpPipe>(pair.a.release()));
  CHECK(connection.is_open());
  connection.disown();
  CHECK(connection.is_closed());
  connection.close();
  CHECK(connection.is_closed());
}

// Is ready for the frames of a group only once it is told to be.
class Waiter final : public Recorder {
 public:
  bool is_ready_for(const wire::FrameHeader& header) override {
    return header.group != 7 || is_ready;
  }
  bool is_ready = false;
};

TEST_CASE("a frame that the handler is not ready for waits, and all behind it") {
  using net::Reading;
  Random random(5);
  PipePair pair = OverSocket::pair();
  Connection connection(std::move(pair.b));
  Waiter waiter;
  Buffer bytes = frame_of(1, 10, random).bytes();
  for (const std::size_t size : {std::size_t{300'000}, std::size_t{20}}) {
    Frame held = frame_of(2, size, random);
    held.header.group = 7;
    std::ranges::copy(held.bytes(), std::back_inserter(bytes));
  }
  write_all(*pair.a, std::span(bytes).first(100'000));
  CHECK_FALSE(receive_all(connection, waiter));
  CHECK(connection.reading() == Reading::waiting);
  CHECK_FALSE(connection.is_readable());
  CHECK(waiter.frames.size() == 1);
  connection.resume();
  CHECK_FALSE(receive_all(connection, waiter));
  CHECK(connection.reading() == Reading::waiting);
  waiter.is_ready = true;
  connection.resume();
  CHECK_FALSE(receive_all(connection, waiter));
  write_all(*pair.a, std::span(bytes).subspan(100'000));
  CHECK_FALSE(receive_all(connection, waiter));
  CHECK(waiter.frames.size() == 3);
  connection.resume();
  CHECK(connection.reading() == Reading::frames);
}

TEST_CASE("what is to be sent before there is a pipe is kept for it") {
  Random random(6);
  PipePair pair = OverSocket::pair();
  Connection from;
  Connection to(std::move(pair.b));
  const Frame frame = frame_of(1, 1000, random);
  from.send(frame.lent());
  CHECK_FALSE(from.flush());
  CHECK_FALSE(from.is_open());
  CHECK_FALSE(from.is_closed());
  CHECK(from.undelivered_bytes() == wire::kHeaderBytes + 1000);
  from.attach(std::move(pair.a));
  CHECK_FALSE(from.flush());
  Recorder recorder;
  wait_readable(to);
  CHECK_FALSE(receive_all(to, recorder));
  CHECK((recorder.frames == std::vector{frame}));
  from.close();
  from.send(frame.lent());
  CHECK_FALSE(from.has_output());
}

TEST_CASE("where packets are lost, a small message is two, and a large one what it was") {
  const auto packets = [](std::size_t bytes, bool has_losses) {
    Random random(7);
    SocketPair sockets = connected_pair();
    const Socket copy = sockets.a.duplicate();
    Connection from(std::make_unique<net::TcpPipe>(sockets.a.release()));
    Connection to(std::make_unique<net::TcpPipe>(sockets.b.release()));
    if (has_losses) from.expect_losses();
    const Frame frame = frame_of(1, bytes, random);
    from.send(frame.lent());
    CHECK_FALSE(from.flush());
    CHECK_FALSE(from.has_output());
    Recorder recorder;
    while (recorder.frames.empty()) {
      wait_readable(to);
      CHECK_FALSE(receive_all(to, recorder));
    }
    CHECK((recorder.frames == std::vector{frame}));
    std::array<std::uint32_t, 64> info{};  // longer than the library's tcp_info
    socklen_t size = sizeof info;
    REQUIRE(::getsockopt(copy.fd(), IPPROTO_TCP, TCP_INFO, info.data(), &size) == 0);
    constexpr std::size_t kDataSegmentsOut = 39;
    return info[kDataSegmentsOut];
  };
  CHECK(packets(100, true) == packets(100, false) + 1);
  CHECK(packets(10'000, true) == packets(10'000, false));
}

TEST_CASE("rings of any size carry frames of any size") {
  Random random(8);
  SocketPair sockets = local_pair();
  Connection a(std::make_unique<net::ShmPipe>(sockets.a.release(), net::kMinRingBytes));
  Connection b(std::make_unique<net::ShmPipe>(sockets.b.release(), net::kMaxRingBytes),
               std::make_shared<net::Staging>(net::kMinStagingBytes));
  std::vector<Frame> frames;
  for (std::uint64_t seq = 0; seq < 50; ++seq) frames.push_back(random_frame(seq, random));
  for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    Recorder recorder;
    for (const Frame& frame : frames) from->send(frame.lent());
    while (recorder.frames.size() < frames.size()) {
      note(*from);
      REQUIRE_FALSE(from->flush());
      REQUIRE_FALSE(receive_all(*to, recorder));
    }
    CHECK((recorder.frames == frames));
  }
}

TEST_CASE("a group's frames are dropped and counted by themselves") {
  Random random(7);
  PipePair pair = OverSocket::pair();
  Connection from(std::move(pair.a));
  Connection to(std::move(pair.b));
  std::vector<Frame> kept;
  for (std::uint64_t seq = 0; seq < 20; ++seq) {
    Frame frame = frame_of(seq, 500, random);
    frame.header.group = seq % 2 ? 3 : 4;
    from.send(wire::Message{frame.header, Bytes::borrowed(frame.payload).owned()});
    if (frame.header.group == 4) kept.push_back(frame);
  }
  constexpr std::size_t size = 500 + wire::kHeaderBytes;
  CHECK(from.queued_bytes(3) == 10 * size);
  from.drop_unsent(3);
  CHECK(from.queued_bytes(3) == 0);
  CHECK(from.queued_bytes() == 10 * size);
  note(from);
  CHECK_FALSE(from.flush());
  CHECK(from.undelivered_of(from.bytes_sent()) <= 10 * size);
  Recorder recorder;
  wait_readable(to);
  CHECK_FALSE(receive_all(to, recorder));
  CHECK((recorder.frames == kept));
  CHECK(from.undelivered_of(0) == 0);
}

// --- Sending ---

TEST_CASE_TEMPLATE("two connections talk over a socket that is often full", Carrier, OverSocket,
                   OverMemory) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    PipePair pair = Carrier::pair();
    const int small = 4096;
    REQUIRE(::setsockopt(pair.a->fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    Connection a(std::move(pair.a));
    Connection b(std::move(pair.b));
    Recorder at_a;
    Recorder at_b;
    std::deque<Frame> from_a;  // A deque: what is lent must stay where it is.
    std::deque<Frame> from_b;
    const auto turn = [&](Connection& connection, std::deque<Frame>& sent, Recorder& received) {
      if (sent.size() < 30 && one_in(2, random)) {
        sent.push_back(random_frame(sent.size(), random));
        connection.send(sent.back().lent());
      }
      note(connection);
      REQUIRE_FALSE(connection.flush());
      if (!one_in(3, random)) REQUIRE_FALSE(connection.receive(received));
    };
    while (at_a.frames.size() < 30 || at_b.frames.size() < 30) {
      turn(a, from_a, at_a);
      turn(b, from_b, at_b);
    }
    CHECK(std::ranges::equal(at_b.frames, from_a));
    CHECK(std::ranges::equal(at_a.frames, from_b));
    CHECK(a.bytes_sent() == b.bytes_received());
    CHECK(b.bytes_sent() == a.bytes_received());
    CHECK_FALSE(a.has_output());
  }
}

TEST_CASE_TEMPLATE("what is queued can be detached from the lender's memory", Carrier, OverSocket,
                   OverMemory) {
  Random random(4);
  PipePair pair = Carrier::pair();
  Connection connection(std::move(pair.a));
  std::vector<std::unique_ptr<Frame>> lent;
  Buffer expected;
  for (std::uint64_t seq = 0; seq < 5; ++seq) {
    lent.push_back(std::make_unique<Frame>(frame_of(seq, 300'000, random)));
    const Buffer bytes = lent.back()->bytes();
    expected.insert(expected.end(), bytes.begin(), bytes.end());
    connection.send(lent.back()->lent());
  }
  CHECK_FALSE(connection.flush());  // Leaves the socket full, in the middle of a frame.
  REQUIRE(connection.has_output());
  connection.detach();
  lent.clear();
  Buffer received;
  while (received.size() < expected.size()) {
    const Buffer more = read_all(*pair.b);
    received.insert(received.end(), more.begin(), more.end());
    note(connection);
    REQUIRE_FALSE(connection.flush());
  }
  CHECK((received == expected));
}

// Sends five frames until the socket is full, drops the rest, sends another and returns what came.
template <typename Carrier>
std::vector<Frame> receive_after_drop(bool flush_first, const Frame& large, const Frame& last) {
  PipePair pair = Carrier::pair();
  Connection from(std::move(pair.a));
  Connection to(std::move(pair.b));
  for (int i = 0; i < 5; ++i) from.send(large.lent());
  if (flush_first) CHECK_FALSE(from.flush());
  from.drop_unsent();
  from.send(last.lent());
  Recorder recorder;
  while (from.has_output() || note(to)) {
    note(from);
    REQUIRE_FALSE(from.flush());
    REQUIRE_FALSE(receive_all(to, recorder));
  }
  return recorder.frames;
}

TEST_CASE_TEMPLATE("what is not sent can be dropped, and all frames stay whole", Carrier,
                   OverSocket, OverMemory) {
  Random random(5);
  const Frame large = frame_of(1, 300'000, random);
  const Frame last = frame_of(9, 0, random);
  CHECK((receive_after_drop<Carrier>(false, large, last) == std::vector{last}));
  const std::vector<Frame> after_half = receive_after_drop<Carrier>(true, large, last);
  REQUIRE(after_half.size() >= 2);
  CHECK(after_half.size() < 6);
  CHECK((after_half.front() == large));
  CHECK((after_half.back() == last));
}

// --- Peers that go, and peers that talk nonsense ---

TEST_CASE_TEMPLATE("a peer that closes is lost, after all that it sent whole", Carrier, OverSocket,
                   OverMemory) {
  Random random(6);
  const Frame whole = frame_of(1, 1000, random);
  const Buffer bytes = whole.bytes();
  const Frame large = frame_of(2, 200'000, random);
  const Buffer large_bytes = large.bytes();
  for (const std::size_t extra : {0u, 1u, 31u, 32u, 100u, 90'000u}) {
    CAPTURE(extra);
    PipePair pair = Carrier::pair();
    Connection connection(std::move(pair.b));
    write_all(*pair.a, bytes);
    write_all(*pair.a, std::span(large_bytes).first(extra));
    pair.a->close();
    Recorder recorder;
    const Status error = receive_all(connection, recorder);
    REQUIRE(error);
    CHECK(error->code == ErrorCode::peer_lost);
    CHECK((recorder.frames == std::vector{whole}));
  }
}

// To close would reset the connection, and the peer would not read its last words.
TEST_CASE_TEMPLATE(
    "a connection that ignores its input hands out nothing, and its last words arrive", Carrier,
    OverTcp, OverMemory) {
  Random random(10);
  for (const std::size_t begun : {0u, 10u, 100u, 90'000u}) {
    CAPTURE(begun);
    PipePair pair = Carrier::pair();
    Connection connection(std::move(pair.b));
    Recorder recorder;
    const Buffer large = frame_of(2, 200'000, random).bytes();
    write_all(*pair.a, std::span(large).first(begun));
    if (begun != 0) wait_readable(connection);
    REQUIRE_FALSE(receive_all(connection, recorder));
    connection.ignore_input();
    connection.ignore_input();
    const Frame last = frame_of(9, 0, random);
    connection.send(last.lent());
    for (int i = 0; i < 50; ++i) {
      write_all(*pair.a, large);
      wait_readable(connection);
      REQUIRE_FALSE(receive_all(connection, recorder));
      REQUIRE_FALSE(connection.flush());
    }
    CHECK((read_all(*pair.a) == last.bytes()));
    Status error;
    for (int i = 0; i < 100 && !error; ++i) {
      write_all(*pair.a, large);
      wait_readable(connection);
      error = receive_all(connection, recorder);
    }
    REQUIRE(error);
    CHECK(error->code == ErrorCode::peer_lost);
    CHECK(recorder.frames.empty());
  }
}

TEST_CASE("a peer that resets is lost to both reader and writer") {
  Random random(7);
  for (const bool by_writing : {false, true}) {
    PipePair pair = OverTcp::pair();
    Connection connection(std::move(pair.b));
    const linger at_once{1, 0};
    REQUIRE(::setsockopt(pair.a->fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    pair.a->close();
    wait_readable(connection);
    Recorder recorder;
    const Frame frame = frame_of(1, 1000, random);
    connection.send(frame.lent());
    const Status error = by_writing ? connection.flush() : receive_all(connection, recorder);
    REQUIRE(error);
    CHECK(error->code == ErrorCode::peer_lost);
    CHECK_FALSE(error->message.empty());
  }
}

TEST_CASE_TEMPLATE("garbage is a protocol error", Carrier, OverSocket, OverMemory) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    PipePair pair = Carrier::pair();
    Connection connection(std::move(pair.b));
    Buffer bytes = random_bytes(1 + below(3000, random), random);
    if (one_in(2, random)) {
      bytes = random_frame(seed, random).bytes();
      bytes.resize(std::min<std::size_t>(bytes.size(), 100'000));
      mutate(std::span(bytes).first(wire::kHeaderBytes), random);
    }
    write_all(*pair.a, bytes);
    pair.a->close();
    Recorder recorder;
    const Status error = receive_all(connection, recorder);
    REQUIRE(error);
    const bool is_typed = error->code == ErrorCode::protocol || error->code == ErrorCode::peer_lost;
    REQUIRE(is_typed);
  }
}

// --- Handlers ---

class Refuser final : public Recorder {
 public:
  Status on_message(std::uint32_t from, wire::Message message) override {
    Recorder::on_message(from, std::move(message));
    return Error{ErrorCode::protocol, kNoRank, "enough"};
  }
};

class Closer final : public Recorder {
 public:
  explicit Closer(Connection& connection) : connection_(connection) {}
  Status on_message(std::uint32_t from, wire::Message message) override {
    Recorder::on_message(from, std::move(message));
    connection_.close();
    return {};
  }

 private:
  Connection& connection_;
};

TEST_CASE_TEMPLATE("a handler's error, and a handler that closes, end the reading", Carrier,
                   OverSocket, OverMemory) {
  Random random(8);
  for (const std::size_t size : {0u, 1000u, 100'000u}) {
    CAPTURE(size);
    const Frame frame = frame_of(2, size, random);
    PipePair refused = Carrier::pair();
    PipePair closed = Carrier::pair();
    for (const PipePair* pair : {&refused, &closed}) {
      write_all(*pair->a, frame.bytes());
      write_all(*pair->a, frame_of(4, 10, random).bytes());
    }
    Connection to_refuse(std::move(refused.b));
    Refuser refuser;
    const Status error = receive_all(to_refuse, refuser);
    REQUIRE(error);
    CHECK(error->message == "enough");
    CHECK((refuser.frames == std::vector{frame}));

    Connection to_close(std::move(closed.b));
    Closer closer(to_close);
    CHECK_FALSE(receive_all(to_close, closer));
    CHECK_FALSE(to_close.is_open());
    CHECK((closer.frames == std::vector{frame}));
  }
}

TEST_CASE_TEMPLATE("a closed connection takes nothing and has nothing", Carrier, OverTcp,
                   OverMemory) {
  Random random(9);
  PipePair pair = Carrier::pair();
  Connection connection(std::move(pair.b));
  const Frame frame = frame_of(1, 1000, random);
  connection.send(frame.lent());
  connection.close();
  connection.close();
  connection.send(frame.lent());
  connection.detach();
  connection.drop_unsent();
  CHECK_FALSE(connection.has_output());
  CHECK_FALSE(connection.is_readable());
  CHECK(connection.undelivered_bytes() == 0);
  CHECK_FALSE(connection.flush());
  Recorder recorder;
  CHECK_FALSE(connection.receive(recorder));
}

// --- Bells of shared memory ---

// More than a ring holds, of which the rest waits.
void fill(Connection& connection, const Frame& frame) {
  while (!connection.has_output() || connection.is_writable()) {
    if (!connection.has_output()) connection.send(frame.lent());
    REQUIRE_FALSE(connection.flush());
  }
}

TEST_CASE("a bell that is heard while reading lets go on what waits to be written") {
  Random random(12);
  PipePair pair = OverMemory::pair();
  Connection from(std::move(pair.a));
  Recorder recorder;
  const Frame frame = frame_of(1, wire::kMaxPayload, random);
  from.note_ready(true, true);  // as where a turn ended before all was read
  fill(from, frame);
  read_all(*pair.b);
  CHECK_FALSE(from.receive(recorder));
  CHECK(from.is_writable());
}

TEST_CASE("a bell that is heard while writing has read what came") {
  Random random(13);
  PipePair pair = OverMemory::pair();
  Connection from(std::move(pair.a));
  Recorder recorder;
  note(from);
  CHECK_FALSE(receive_all(from, recorder));
  const Frame frame = frame_of(2, 1000, random);
  write_all(*pair.b, frame.bytes());
  fill(from, frame_of(1, wire::kMaxPayload, random));
  CHECK(from.is_readable());
  CHECK_FALSE(from.receive(recorder));
  CHECK((recorder.frames == std::vector{frame}));
}

// It does not read meanwhile, as where its handler is not ready.
TEST_CASE("a writer that only writes is told of room however often it waits for it") {
  Random random(14);
  PipePair pair = OverMemory::pair();
  const auto poller = std::make_shared<net::Poller>();
  Connection from(std::move(pair.a));
  from.watch(poller);
  const Frame frame = frame_of(1, wire::kMaxPayload, random);
  for (int round = 0; round < 1000; ++round) {
    CAPTURE(round);
    fill(from, frame);
    read_all(*pair.b);
    const auto events = poller->wait(std::chrono::milliseconds{0});
    REQUIRE(events.size() == 1);
    events[0].ready->note_ready(events[0].readable, events[0].writable);
    REQUIRE(from.is_writable());
  }
}

TEST_CASE("who rings the bell is not woken by that it is heard") {
  Random random(15);
  PipePair pair = OverMemory::pair();
  const auto at_a = std::make_shared<net::Poller>();
  const auto at_b = std::make_shared<net::Poller>();
  Connection a(std::move(pair.a));
  Connection b(std::move(pair.b));
  a.watch(at_a);
  b.watch(at_b);
  Recorder recorder;
  for (Connection* one : {&a, &b}) CHECK_FALSE(receive_all(*one, recorder));
  for (const auto& poller : {at_a, at_b}) (void)poller->wait(std::chrono::milliseconds{0});
  const Frame frame = frame_of(1, 1000, random);
  std::size_t heard = 0;
  std::size_t for_nothing = 0;
  for (int round = 0; round < 100; ++round) {
    a.send(frame.lent());
    CHECK_FALSE(a.flush());
    heard += at_b->wait(std::chrono::milliseconds{0}).size();
    CHECK_FALSE(receive_all(b, recorder));
    for_nothing += at_a->wait(std::chrono::milliseconds{0}).size();
  }
  CHECK(recorder.frames.size() == 100);
  CHECK(heard == 100);
  CHECK(for_nothing == 0);
}

bool is_closed(net::Pipe& pipe) {
  std::byte byte;
  const iovec vector{&byte, 1};
  return !pipe.read({&vector, 1});
}

// As in a child that was forked while the connection was open.
TEST_CASE_TEMPLATE("closing ends a connection of which somebody else holds a copy, and forgets it",
                   Carrier, OverTcp, OverMemory) {
  PipePair pair = Carrier::pair();
  const int copy = ::dup(pair.b->fd());
  const auto poller = std::make_shared<net::Poller>();
  Connection connection(std::move(pair.b));
  connection.watch(poller);
  while (!poller->wait(std::chrono::milliseconds{0}).empty()) {
  }
  connection.close();
  pollfd end{.fd = pair.a->fd(), .events = POLLIN, .revents = 0};
  REQUIRE(::poll(&end, 1, 5000) == 1);
  CHECK(is_closed(*pair.a));
  pair.a->close();
  CHECK(poller->wait(std::chrono::milliseconds{100}).empty());
  ::close(copy);
}

TEST_CASE("a connection that is disowned goes on elsewhere") {
  SocketPair sockets = connected_pair();
  Connection parents(std::make_unique<net::TcpPipe>(sockets.b.duplicate().release()));
  PipePair pair = pipes_over<net::TcpPipe>(std::move(sockets));
  const auto poller = std::make_shared<net::Poller>();
  parents.watch(poller);
  Connection childs(std::move(pair.b));
  childs.disown();
  CHECK_FALSE(childs.is_open());
  Random random(11);
  const Frame frame = frame_of(2, 1000, random);
  write_all(*pair.a, frame.bytes());
  wait_readable(parents);
  Recorder recorder;
  CHECK_FALSE(receive_all(parents, recorder));
  CHECK((recorder.frames == std::vector{frame}));
}

TEST_CASE_TEMPLATE("a connection is drained once the peer's kernel has everything", Carrier,
                   OverSocket, OverMemory) {
  Random random(10);
  PipePair pair = Carrier::pair();
  Connection from(std::move(pair.a));
  const Frame frame = frame_of(1, 1000, random);
  CHECK(from.undelivered_bytes() == 0);
  from.send(frame.lent());
  CHECK(from.undelivered_bytes() == from.queued_bytes());
  CHECK_FALSE(from.flush());
  CHECK_FALSE(from.has_output());
  read_all(*pair.b);
  CHECK(from.undelivered_bytes() == 0);
}

}  // namespace connection_test
