// Batches messages into large writes; receives large payloads straight into their place.
#include "net/connection.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace sparsewire::net {
namespace {

constexpr std::size_t kBytesPerReceive = 1024 * 1024;  // before other connections get their turn
constexpr int kFramesPerReceive = 256;  // as well: small frames cost time rather than bytes
constexpr std::size_t kVectorsPerWrite = 64;

// The most input that is ignored: more than is on its way when the peer hears that we ignore it.
constexpr std::size_t kMostIgnored = 16u << 20;
}  // namespace

Connection::Connection(std::unique_ptr<Pipe> pipe, std::shared_ptr<Staging> staging,
                       AgendaEntry entry)
    : entry_(entry),
      pipe_(std::move(pipe)),
      standing_(pipe_ ? Standing::open : Standing::awaited),
      lender_(std::move(staging)) {}

Connection::~Connection() { close(); }

// A forked child may hold a copy of the descriptor, which would keep it watched after a mere close.
void Connection::close() {
  if (is_open()) {
    if (const auto poller = poller_.lock()) poller->remove(pipe_->fd());
    pipe_->close();
  }
  move(StandingStep::close);
  queue_.clear();
  sent_of_front_ = queued_bytes_ = 0;
  readable_ = writable_ = false;
  if (reading_ == Reading::waiting) move(ReadingStep::resume);
  if (reading_ == Reading::held) move(ReadingStep::begin_turn);
  keep_agenda();
}

// Called after every change of what there is to do.
void Connection::keep_agenda() {
  if (!entry_.agenda) return;
  entry_.agenda->note(entry_.number, is_readable(), is_writable());
  entry_.agenda->note_queued(entry_.number, queued_bytes_);
}

void Connection::watch(const std::shared_ptr<Poller>& poller) {
  // With a shared bell, room on the socket is never needed, and must not wake the ringing end.
  const bool is_shared = pipe_->bell() == Bell::shared;
  poller->add(pipe_->fd(), *this, is_shared ? Interest::reading : Interest::both);
  poller_ = poller;
}

void Connection::note_ready(bool readable, bool writable) {
  readable_ |= readable;
  writable_ |= pipe_->bell() == Bell::shared ? readable : writable;
  keep_agenda();
}

void Connection::send(wire::Message message) {
  if (is_closed()) return;
  Outgoing outgoing{
      .header = {}, .payload = std::move(message.payload), .group = message.header.group};
  wire::encode(message.header, outgoing.header);
  queued_bytes_ += outgoing.size();
  queue_.push_back(std::move(outgoing));
  keep_agenda();
}

std::size_t Connection::gather(std::span<iovec> out) const {
  std::size_t used = 0;
  std::size_t skip = sent_of_front_;
  const auto put = [&](std::span<const std::byte> bytes) {
    const std::size_t skipped = std::min(skip, bytes.size());
    skip -= skipped;
    if (skipped == bytes.size()) return;
    out[used++] = {const_cast<std::byte*>(bytes.data() + skipped), bytes.size() - skipped};
  };
  for (const Outgoing& outgoing : queue_) {
    if (used + 2 > out.size()) break;
    put(outgoing.header);
    put(outgoing.payload.view());
  }
  return used;
}

void Connection::drop_sent(std::size_t bytes) {
  bytes_sent_ += bytes;
  sent_of_front_ += bytes;
  queued_bytes_ -= bytes;
  while (!queue_.empty() && sent_of_front_ >= queue_.front().size()) {
    sent_of_front_ -= queue_.front().size();
    queue_.pop_front();
  }
}

Status Connection::flush() {
  Status error;
  while (!error && is_writable()) error = write_some();
  keep_agenda();
  return error;
}

Status Connection::write_some() {
  std::array<iovec, kVectorsPerWrite> vectors;
  const auto sent = pipe_->write(std::span(vectors).first(gather(vectors)));
  if (!sent) return sent.error();
  writable_ = *sent != 0;
  readable_ |= pipe_->heard_bell();
  drop_sent(*sent);
  return {};
}

// One read fills the rest of the large payload first and then the staging area, so that neither
// costs a call of its own. Zero bytes: nothing more is there.
Result<std::size_t> Connection::read_some() {
  std::array<iovec, 2> vectors;
  std::size_t used = 0;
  const std::size_t large = reading_ == Reading::payload ? incoming_.missing() : 0;
  if (large != 0) vectors[used++] = {incoming_.memory + incoming_.filled, large};
  vectors[used++] = {staging_.get() + staged_end_, lender_->bytes() - staged_end_};
  const auto got = pipe_->read(std::span(vectors).first(used));
  if (!got) return got;
  const std::size_t bytes = *got;
  readable_ = bytes != 0;
  writable_ |= pipe_->heard_bell();
  const std::size_t to_large = std::min(bytes, large);
  incoming_.filled += to_large;
  staged_end_ += bytes - to_large;
  bytes_received_ += bytes;
  return bytes;
}

Status Connection::receive(FrameHandler& handler) {
  if (!staging_) staging_ = lender_->lend();
  Status error = receive_frames(handler);
  if (staged().empty()) {
    staged_begin_ = staged_end_ = 0;
    lender_->take_back(std::move(staging_));
  }
  keep_agenda();
  return error;
}

Status Connection::receive_frames(FrameHandler& handler) {
  std::size_t total = 0;
  frames_due_ = kFramesPerReceive;
  while (is_readable() && frames_due_ > 0 && total < kBytesPerReceive) {
    if (reading_ == Reading::held) {
      move(ReadingStep::begin_turn);
    } else {
      const auto bytes = read_some();
      if (!bytes) return bytes.error();
      total += *bytes;
    }
    if (reading_ == Reading::ignored) return ignore_staged();
    if (reading_ == Reading::payload && incoming_.missing() == 0) {
      if (Status error = finish_large(handler)) return error;
    }
    if (Status error = consume_staging(handler)) return error;
  }
  return {};
}

std::span<const std::byte> Connection::staged() const {
  return {staging_.get() + staged_begin_, staged_end_ - staged_begin_};
}

Status Connection::consume_staging(FrameHandler& handler) {
  while (is_open() && reading_ == Reading::frames && staged().size() >= wire::kHeaderBytes) {
    if (frames_due_ == 0) {
      move(ReadingStep::end_turn);
      return {};
    }
    const auto header = wire::decode_header(staged().first<wire::kHeaderBytes>());
    if (!header) return header.error();
    if (!handler.is_ready_for(*header)) {
      move(ReadingStep::wait);
      return {};
    }
    const auto rest = staged().subspan(wire::kHeaderBytes);
    if (rest.size() < header->payload) {
      if (Status error = begin_large(*header, handler)) return error;
      break;
    }
    staged_begin_ += wire::kHeaderBytes + header->payload;
    --frames_due_;
    if (Status error =
            handler.on_message(number(), {*header, Bytes::borrowed(rest.first(header->payload))})) {
      return error;
    }
  }
  const std::size_t left = staged().size();
  std::memmove(staging_.get(), staged().data(), left);
  staged_begin_ = 0;
  staged_end_ = left;
  return {};
}

Status Connection::begin_large(const wire::FrameHeader& header, FrameHandler& handler) {
  if (Status error = handler.accepts(number(), header)) return error;
  incoming_ = {
      .header = header, .memory = handler.place(number(), header), .owner = nullptr, .filled = 0};
  if (!incoming_.memory) {
    incoming_.owner = Bytes::allocate(header.payload);
    incoming_.memory = incoming_.owner.get();
  }
  const auto have = staged().subspan(wire::kHeaderBytes);
  std::memcpy(incoming_.memory, have.data(), have.size());
  incoming_.filled = have.size();
  staged_begin_ = staged_end_;
  move(ReadingStep::begin_payload);
  return {};
}

Status Connection::finish_large(FrameHandler& handler) {
  Incoming done = std::move(incoming_);
  incoming_ = {};
  move(ReadingStep::end_payload);
  const std::size_t size = done.header.payload;
  Bytes payload = done.owner ? Bytes::shared(std::move(done.owner), size)
                             : Bytes::borrowed({done.memory, size});
  return handler.on_message(number(), {done.header, std::move(payload)});
}

void Connection::ignore_input() {
  if (reading_ == Reading::ignored) return;
  move(ReadingStep::ignore);
  incoming_ = {};
  staged_begin_ = staged_end_ = 0;
  keep_agenda();
}

// Only a little each time: other connections have frames of use.
Status Connection::ignore_staged() {
  ignored_ += std::exchange(staged_end_, 0);
  if (ignored_ <= kMostIgnored) return {};
  return Error{ErrorCode::peer_lost, kNoRank, "it goes on though nobody listens"};
}

void Connection::detach(std::uint32_t group) {
  for (Outgoing& outgoing : queue_) {
    if (outgoing.group == group) outgoing.payload = outgoing.payload.owned();
  }
  const bool is_reading = reading_ == Reading::payload && incoming_.header.group == group;
  if (!is_reading || incoming_.owner) return;
  incoming_.owner = Bytes::allocate(incoming_.header.payload);
  std::memcpy(incoming_.owner.get(), incoming_.memory, incoming_.filled);
  incoming_.memory = incoming_.owner.get();
}

void Connection::drop_unsent(std::uint32_t group) {
  const bool keeps_front = sent_of_front_ != 0;
  const auto kept = std::remove_if(queue_.begin() + keeps_front, queue_.end(),
                                   [&](const Outgoing& one) { return one.group == group; });
  queue_.erase(kept, queue_.end());
  queued_bytes_ = queued_where([](const Outgoing&) { return true; });
  keep_agenda();
}

template <typename Counts>
std::size_t Connection::queued_where(Counts&& counts) const {
  std::size_t bytes = 0;
  for (const Outgoing& outgoing : queue_) {
    if (!counts(outgoing)) continue;
    bytes += outgoing.size() - (&outgoing == &queue_.front() ? sent_of_front_ : 0);
  }
  return bytes;
}

std::size_t Connection::queued_bytes(std::uint32_t group) const {
  return queued_where([group](const Outgoing& one) { return one.group == group; });
}

std::size_t Connection::undelivered_of(std::uint64_t bytes_sent) const {
  if (!is_open()) return 0;
  const std::uint64_t delivered =
      bytes_sent_ - std::min(bytes_sent_, std::uint64_t{pipe_->undelivered()});
  return bytes_sent <= delivered ? 0 : static_cast<std::size_t>(bytes_sent - delivered);
}

std::size_t Connection::undelivered_bytes() const {
  return is_open() ? queued_bytes_ + pipe_->undelivered() : queued_bytes_;
}

}  // namespace sparsewire::net
