// What a timeline's file holds: every stage that begins ends, whoever is late is named, and what is
// refused leaves no trace.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "cluster.hpp"

namespace comm_timeline_test {

using namespace sparsewire;
using namespace sparsewire::test;

// A file that goes with this.
class ScratchFile {
 public:
  ScratchFile() : fd_(::mkstemp(path_)) { REQUIRE(fd_ >= 0); }
  ~ScratchFile() { ::unlink(path_); }
  ScratchFile(const ScratchFile&) = delete;

  // For whoever takes it over.
  int fd() const { return fd_; }
  std::vector<std::string> lines() const {
    std::ifstream file(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

 private:
  char path_[32] = "/tmp/sparsewire-XXXXXX";
  int fd_;
};

std::string field(const std::string& line, const std::string& name) {
  const auto at = line.find("\"" + name + "\":");
  if (at == std::string::npos) return "";
  const auto begin = at + name.size() + 3;
  return line.substr(begin, line.find_first_of(",}", begin) - begin);
}

std::size_t count(const std::vector<std::string>& lines, const std::string& name,
                  const std::string& edge) {
  return static_cast<std::size_t>(std::ranges::count_if(lines, [&](const std::string& line) {
    return field(line, "name") == "\"" + name + "\"" && field(line, "ph") == "\"" + edge + "\"";
  }));
}

void check_whole(const std::vector<std::string>& lines) {
  REQUIRE(lines.size() >= 3);
  CHECK(lines.front() == "[");
  CHECK(lines.back() == "]");
  std::map<std::string, int> open;
  for (const std::string& line : lines) {
    CAPTURE(line);
    const std::string edge = field(line, "ph");
    if (edge == "\"b\"") CHECK(++open[field(line, "id")] == 1);
    if (edge == "\"e\"") CHECK(--open[field(line, "id")] == 0);
  }
  for (const auto& [id, depth] : open) {
    CAPTURE(id);
    CHECK(depth == 0);
  }
}

struct Noted {
  explicit Noted(std::uint32_t lanes)
      : topology(topology_of(2, lanes, 2)), cluster(topology, false, colocated_mesh(topology)) {
    std::vector<std::shared_ptr<comm::Timeline>> timelines;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      timelines.push_back(std::make_shared<comm::Timeline>(
          files[rank].fd(), static_cast<Rank>(rank), "rank " + std::to_string(rank)));
    }
    cluster.note_in(std::move(timelines));
    cluster.start_but(kNoRank);
  }

  std::array<ScratchFile, 2> files;
  wire::Topology topology;
  Cluster cluster;
};

TEST_CASE("each operation has a beginning, its stages and an end") {
  for (const std::uint32_t lanes : {1u, 2u}) {
    CAPTURE(lanes);
    Random random(lanes);
    Noted noted(lanes);
    for (int i = 0; i < 20; ++i) {
      check_works(noted.cluster, {DType::float32, ReduceOp::sum, 400'000}, random);
    }
    noted.cluster.close();
    for (const ScratchFile& file : noted.files) {
      const auto lines = file.lines();
      check_whole(lines);
      CHECK(count(lines, "process_name", "M") == 1);
      CHECK(count(lines, "all_reduce", "b") == 20);
      CHECK(count(lines, "chosen", "n") >= 20);
      for (const char* const stage : {"scan", "send", "receive"}) {
        CAPTURE(stage);
        CHECK(count(lines, stage, "b") >= 20);
        CHECK(count(lines, stage, "b") <= 20 * lanes);
      }
    }
  }
}

TEST_CASE("a wait for a late rank is told while it lasts, and ends") {
  Random random(3);
  Noted noted(1);
  Collective collective =
      random_collective({DType::float32, ReduceOp::sum, 10'000}, 2, 256, {0.5}, random);
  const OperationPtr early = submit(noted.cluster, collective, 0);
  const auto waits = [&](const std::string& edge) {
    return count(noted.files[0].lines(), "wait", edge);
  };
  wait_until([&] { return waits("b") == 1; });
  CHECK(waits("e") == 0);
  const auto lines = noted.files[0].lines();
  const auto wait = std::ranges::find_if(
      lines, [](const std::string& line) { return field(line, "name") == "\"wait\""; });
  CHECK(field(*wait, "ranks") == "[1]");
  const OperationPtr late = submit(noted.cluster, collective, 1);
  check_done(early, collective, 0);
  check_done(late, collective, 1);
  noted.cluster.close();
  for (const ScratchFile& file : noted.files) check_whole(file.lines());
  CHECK(waits("e") == waits("b"));
}

TEST_CASE("an operation that fails ends, and says why") {
  Random random(4);
  Noted noted(1);
  Collective collective =
      random_collective({DType::float32, ReduceOp::sum, 10'000}, 2, 256, {0.5}, random);
  const OperationPtr operation = submit(noted.cluster, collective, 0);
  noted.cluster[0].abort("because \"so\" \n it is");
  REQUIRE(outcome(operation));
  noted.cluster.close();
  const auto lines = noted.files[0].lines();
  check_whole(lines);
  const auto told = std::ranges::find_if(lines, [](const std::string& line) {
    return line.find("because \\\"so\\\" ? it is") != std::string::npos;
  });
  CHECK(told != lines.end());
}

TEST_CASE("what is refused for want of room is counted, and has no beginning in the file") {
  constexpr std::uint64_t kAsked = 200'000;
  ScratchFile file;
  std::uint64_t taken = 0;
  {
    comm::Timeline timeline(file.fd(), 5, "rank 5");
    for (std::uint64_t i = 0; i < kAsked; ++i) {
      const comm::Slice slice{"scan", 0, i, 0};
      if (!timeline.begin({comm::Clock::now(), comm::TimelineEvent::Edge::begin, slice})) continue;
      timeline.note({comm::Clock::now(), comm::TimelineEvent::Edge::end, slice});
      ++taken;
    }
    CHECK(taken + timeline.refused() == kAsked);
  }
  const auto lines = file.lines();
  check_whole(lines);
  CHECK(count(lines, "scan", "b") == taken);
}

TEST_CASE("a file that takes nothing stops the writing, and nothing else") {
  const int read_only = ::open("/dev/null", O_RDONLY);
  REQUIRE(read_only >= 0);
  comm::Timeline timeline(read_only, 0, "rank 0");
  CHECK(timeline.begin({comm::Clock::now(), comm::TimelineEvent::Edge::begin, {"scan"}}));
  timeline.flush();
}

}  // namespace comm_timeline_test
