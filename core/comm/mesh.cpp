// Holds the lanes, and tells of peers to call by an eventfd, which the porter can watch beside its
// sockets.
#include "comm/mesh.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "comm/lanes/lane.hpp"

namespace sparsewire::comm {

Mesh::Mesh(const MeshPlace& place, net::Sockets sockets)
    : place_(place), calls_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), is_asked_(place.peers) {
  if (calls_fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  try {
    for (std::uint32_t lane = 0; lane < sockets.lanes(); ++lane) {
      lanes_.push_back(std::make_unique<Lane>(place_, lane, sockets.of_lane(lane),
                                              static_cast<MeshListener&>(*this)));
    }
    for (const auto& lane : lanes_) lane->start();
  } catch (...) {  // Lanes that run must end before they can be destroyed.
    close();
    throw;
  }
}

Mesh::~Mesh() { close(); }

void Mesh::note_call(std::uint32_t peer) { lanes_.front()->note_call(peer); }

void Mesh::on_asked(std::uint32_t peer) {
  {
    const std::lock_guard lock(mutex_);
    if (is_asked_[peer]) return;
    calls_.push_back(peer);
    is_asked_[peer] = true;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(calls_fd_, &one, sizeof one);
  // The first lane listens for every peer's signs of life.
  for (const auto& lane : lanes_) lane->ask(peer);
}

std::vector<std::uint32_t> Mesh::take_calls() {
  std::uint64_t times;
  [[maybe_unused]] const ssize_t read = ::read(calls_fd_, &times, sizeof times);
  const std::lock_guard lock(mutex_);
  return std::exchange(calls_, {});
}

void Mesh::adopt(std::uint32_t lane, std::uint32_t peer, int fd) {
  lanes_.at(lane)->adopt(peer, fd);
}

void Mesh::give_up(std::uint32_t peer, const std::string& why) {
  for (const auto& lane : lanes_) lane->give_up(peer, {ErrorCode::peer_lost, kNoRank, why});
}

void Mesh::fail_group(const Group& group, Rank rank, const std::string& why) {
  const Error error{ErrorCode::peer_lost, rank,
                    "rank " + std::to_string(rank) + " could not join the group: " + why};
  for (const auto& lane : lanes_) lane->fail_group(group.number, group.members, error);
}

std::size_t Mesh::connections() const {
  std::size_t most = 0;
  for (const auto& lane : lanes_) most = std::max(most, lane->connections());
  return most;
}

bool Mesh::is_whole() const {
  return std::ranges::all_of(lanes_, [](const auto& lane) { return lane->is_whole(); });
}

void Mesh::close() {
  for (const auto& lane : lanes_) lane->stop();
  for (const auto& lane : lanes_) lane->await_end();
  if (const int fd = std::exchange(calls_fd_, -1); fd >= 0) ::close(fd);
}

void Mesh::disown() {
  for (const auto& lane : lanes_) lane->disown();
  if (const int fd = std::exchange(calls_fd_, -1); fd >= 0) ::close(fd);
}

}  // namespace sparsewire::comm
