// Cells of one size, a line of waiting datagrams for each destination, and the system's form of a
// batch.
#include "net/udp/outbox.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "net/udp/offload_options.hpp"

namespace sparsewire::net {
namespace {

constexpr std::size_t kMessagesPerBatch = 64;
constexpr std::size_t kDatagramsPerBatch = 1024;

// How many lines are kept although nothing waits in them.
constexpr std::size_t kMostIdleLines = 1024;

// Asks the system to cut a message into datagrams of so many bytes.
struct SegmentControl {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(std::uint16_t))> bytes;

  void attach(msghdr& header, std::size_t segment) {
    header.msg_control = bytes.data();
    header.msg_controllen = bytes.size();
    cmsghdr* const one = CMSG_FIRSTHDR(&header);
    one->cmsg_level = SOL_UDP;
    one->cmsg_type = UDP_SEGMENT;
    one->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
    const auto size = static_cast<std::uint16_t>(segment);
    std::memcpy(CMSG_DATA(one), &size, sizeof size);
  }
};

// How many of these datagrams make one message.
template <typename Datagram>
std::size_t run_length(std::span<const Datagram> datagrams, std::size_t most_segments) {
  const std::size_t size = datagrams.front().size;
  const std::size_t most = std::min(
      {datagrams.size(), most_segments, std::max(kMostSegmentedBytes / size, std::size_t{1})});
  std::size_t length = 1;
  while (length < most && datagrams[length].size == size) ++length;
  return length < most && datagrams[length].size < size ? length + 1 : length;
}

}  // namespace

struct Outbox::Batch {
  std::size_t messages = 0;
  std::size_t datagrams = 0;
  std::array<mmsghdr, kMessagesPerBatch> headers;
  std::array<SegmentControl, kMessagesPerBatch> controls;
  std::array<iovec, kDatagramsPerBatch> vectors;

  bool is_full() const {
    return messages == headers.size() || datagrams + kMostSegments > vectors.size();
  }
};

Outbox::Outbox(std::size_t datagram_bytes, std::size_t most)
    : datagram_bytes_(datagram_bytes),
      memory_(std::make_unique_for_overwrite<std::byte[]>(datagram_bytes * (most + 1))),
      free_(most + 1),
      uses_(most + 1),
      batch_(std::make_unique_for_overwrite<Batch>()) {
  std::iota(free_.rbegin(), free_.rend(), 0u);
}

Outbox::~Outbox() = default;

Outbox::Line& Outbox::line_to(const Address& to) {
  if (waiting_.empty() && lines_.size() >= kMostIdleLines) lines_.clear();
  const auto [at, is_new] = lines_.try_emplace(to);
  if (is_new) at->second.to = to.system();
  return at->second;
}

void Outbox::put(std::size_t size, std::span<const Address> to) {
  const Datagram datagram{free_.back(), static_cast<std::uint32_t>(size)};
  for (const Address& address : to) append(line_to(address), datagram);
}

// If memory is refused, nothing has changed: a line waits only with something in it.
void Outbox::append(Line& line, Datagram datagram) {
  if (line.datagrams.empty()) {
    line.datagrams.reserve(1);
    waiting_.push_back(&line);
  }
  line.datagrams.push_back(datagram);
  if (uses_[datagram.cell]++ == 0) free_.pop_back();
}

// The cell that was used last is the first to be used again.
void Outbox::release(std::uint32_t cell) {
  if (--uses_[cell] == 0) free_.push_back(cell);
}

// Returns whether all of the line is in the batch.
bool Outbox::gather_line(Line& line, std::size_t most_segments) {
  auto rest = line.rest();
  while (!rest.empty() && !batch_->is_full()) {
    const auto run = rest.first(run_length(rest, most_segments));
    const std::size_t at = batch_->messages++;
    msghdr& header = batch_->headers[at].msg_hdr;
    header = {};
    if (line.to.size != 0) header.msg_name = &line.to.generic;
    header.msg_namelen = line.to.size;
    header.msg_iov = batch_->vectors.data() + batch_->datagrams;
    header.msg_iovlen = run.size();
    for (const Datagram& one : run) {
      batch_->vectors[batch_->datagrams++] = {cell(one.cell), one.size};
    }
    if (run.size() > 1) batch_->controls[at].attach(header, run.front().size);
    rest = rest.subspan(run.size());
  }
  return rest.empty();
}

std::span<mmsghdr> Outbox::gather(std::size_t most_segments) {
  batch_->messages = batch_->datagrams = 0;
  for (Line* line : waiting_) {
    if (!gather_line(*line, most_segments)) break;
  }
  return std::span(batch_->headers).first(batch_->messages);
}

Outbox::Load Outbox::load(std::size_t message) const {
  const msghdr& header = batch_->headers[message].msg_hdr;
  Load load{header.msg_iovlen, 0};
  for (const iovec& vector : std::span(header.msg_iov, header.msg_iovlen)) {
    load.bytes += vector.iov_len;
  }
  return load;
}

void Outbox::drop(std::size_t messages) {
  for (std::size_t i = 0; i < messages; ++i) {
    Line& line = *waiting_.front();
    const auto gone = line.rest().first(batch_->headers[i].msg_hdr.msg_iovlen);
    for (const Datagram& datagram : gone) release(datagram.cell);
    line.forget(gone.size());
    if (line.datagrams.empty()) waiting_.pop_front();
  }
}

// Sent datagrams are erased once they are at least half of the line. So this costs little, and a
// line that never empties does not grow.
void Outbox::Line::forget(std::size_t count) {
  sent += count;
  if (2 * sent < datagrams.size()) return;
  datagrams.erase(datagrams.begin(), datagrams.begin() + static_cast<std::ptrdiff_t>(sent));
  sent = 0;
}

void Outbox::yield() {
  waiting_.push_back(waiting_.front());
  waiting_.pop_front();
}

void Outbox::clear() {
  while (!empty()) drop(gather(1).size());
}

}  // namespace sparsewire::net
