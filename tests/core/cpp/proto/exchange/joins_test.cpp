// The tree of joins and what one operation's joins come to, without the rest of a peer: shapes,
// sums, and what neighbours must not say.
#include "proto/exchange/joins/joins.hpp"

#include <doctest/doctest.h>

#include <deque>
#include <set>

#include "random.hpp"

namespace joins_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::Branch;
using proto::Joins;
using proto::JoinTree;
using wire::Call;
using wire::Collective;
using wire::Join;
using wire::Tally;

constexpr Rank kWorlds[] = {1, 2, 3, 31, 32, 33, 34, 37, 64, 100, 257, 1000, 65536};

Call call_of(Collective collective) {
  return {.descriptor = {.count = 100'000, .is_sparse = true}, .collective = collective};
}

// Rounds from the deepest rank to the root.
int depth_of(Rank world_size) {
  int depth = 0;
  for (Rank rank = 0; rank < world_size; ++rank) {
    int above = 0;
    for (auto parent = JoinTree(rank, world_size).parent(); parent;
         parent = JoinTree(*parent, world_size).parent()) {
      ++above;
    }
    depth = std::max(depth, above);
  }
  return depth;
}

int ceil_log4(Rank world_size) {
  int log = 0;
  for (std::int64_t power = 1; power < world_size; power *= proto::kBranches) ++log;
  return log;
}

// --- The tree ---

TEST_CASE("among few ranks each tells all others") {
  for (Rank world_size = 1; world_size < proto::kTreeFrom; ++world_size) {
    for (Rank rank = 0; rank < world_size; ++rank) {
      const JoinTree tree(rank, world_size);
      CHECK_FALSE(tree.is_shared());
      CHECK_FALSE(tree.parent());
      CHECK(tree.branches().size() == static_cast<std::size_t>(world_size - 1));
      for (Rank other = 0; other < world_size; ++other) {
        CHECK(tree.is_neighbour(other) == (other != rank));
      }
    }
  }
}

TEST_CASE("branches are the ranks below a rank, each once, and even") {
  for (const Rank world_size : kWorlds) {
    if (world_size < proto::kTreeFrom) continue;
    CAPTURE(world_size);
    std::int64_t ranks = 1;  // the root
    for (Rank rank = 0; rank < world_size; ++rank) {
      const JoinTree tree(rank, world_size);
      REQUIRE(tree.is_shared());
      REQUIRE(tree.branches().size() <= static_cast<std::size_t>(proto::kBranches));
      Rank next = rank + 1;
      for (const Branch& branch : tree.branches()) {
        REQUIRE(branch.top == next);
        REQUIRE(branch.ranks > 0);
        REQUIRE(branch.ranks <= tree.branches().front().ranks + 1);
        REQUIRE(JoinTree(branch.top, world_size).parent() == rank);
        next += branch.ranks;
        ++ranks;
      }
      REQUIRE(next <= world_size);
      REQUIRE(tree.parent().has_value() == (rank != 0));
      REQUIRE_FALSE(tree.is_neighbour(rank));
    }
    CHECK(ranks == world_size);
  }
}

TEST_CASE("the way from any rank to the root is short") {
  for (const Rank world_size : kWorlds) {
    if (world_size < proto::kTreeFrom || world_size > 1000) continue;
    CAPTURE(world_size);
    CHECK(depth_of(world_size) <= ceil_log4(world_size));
  }
}

// --- What joins come to ---

Join random_join(const Call& call, Random& random) {
  const std::uint64_t elements = below(call.descriptor.count + 1, random);
  return {call, elements, below(elements + 1, random)};
}

// All ranks, which tell each other in any order; with what each of them has to tell next.
class World {
 public:
  World(Rank world_size, const Call& call, std::uint64_t seed) : random_(seed) {
    for (Rank rank = 0; rank < world_size; ++rank) {
      auto tree = std::make_shared<const JoinTree>(rank, world_size);
      trees_.push_back(tree);
      joins_.emplace_back(tree);
      own_.push_back(random_join(call, random_));
    }
  }

  void run() {
    for (Rank rank = 0; rank < static_cast<Rank>(joins_.size()); ++rank) {
      for (const Rank to : tree(rank).neighbours()) send({rank, to, own_[at(rank)], {}});
      joins_[at(rank)].join(own_[at(rank)]);
      tell(rank);
    }
    while (!letters_.empty()) {
      const Letter letter = letters_.front();
      letters_.pop_front();
      Joins& joins = joins_[at(letter.to)];
      const bool knew = joins.total().has_value();
      const Status error = letter.tally
                               ? joins.on_tally(letter.from, wire::encode_tally(*letter.tally))
                               : joins.on_join(letter.from, *letter.join);
      REQUIRE_MESSAGE(!error, (error ? error->message : ""));
      if (!knew) tell(letter.to);
    }
  }

  Tally sum() const {
    Tally sum;
    for (const Join& join : own_) {
      sum.elements += join.elements;
      sum.most = std::max(sum.most, join.elements);
      sum.crowded += join.crowded;
      if (wire::tells_each(join.call)) sum.of_each.push_back(join.elements);
    }
    return sum;
  }
  const std::deque<Joins>& joins() const { return joins_; }

 private:
  struct Letter {
    Rank from;
    Rank to;
    std::optional<Join> join;
    std::optional<Tally> tally;
  };

  static std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }
  const JoinTree& tree(Rank rank) const { return *trees_[at(rank)]; }

  void tell(Rank rank) {
    Joins& joins = joins_[at(rank)];
    if (const auto report = joins.take_report()) send({rank, *tree(rank).parent(), {}, report});
    if (!joins.total() || !tree(rank).is_shared()) return;
    for (const Branch& branch : tree(rank).branches()) send({rank, branch.top, {}, joins.total()});
  }

  // Behind all that the same rank has told the same one.
  void send(const Letter& letter) {
    std::size_t first = letters_.size();
    while (first != 0 &&
           (letters_[first - 1].from != letter.from || letters_[first - 1].to != letter.to)) {
      --first;
    }
    const std::size_t place = first + below(letters_.size() - first + 1, random_);
    letters_.insert(letters_.begin() + static_cast<std::ptrdiff_t>(place), letter);
  }

  Random random_;
  std::vector<std::shared_ptr<const JoinTree>> trees_;
  std::deque<Joins> joins_;
  std::vector<Join> own_;
  std::deque<Letter> letters_;
};

bool same(const Tally& a, const Tally& b) {
  return a.elements == b.elements && a.most == b.most && a.crowded == b.crowded &&
         a.of_each == b.of_each;
}

TEST_CASE("every rank learns what all bring, rank by rank where that counts") {
  for (const Rank world_size : kWorlds) {
    if (world_size > 257) continue;
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather}) {
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        CAPTURE(world_size);
        CAPTURE(seed);
        World world(world_size, call_of(collective), seed);
        world.run();
        for (const Joins& joins : world.joins()) {
          REQUIRE(joins.total());
          REQUIRE(same(*joins.total(), world.sum()));
          REQUIRE(joins.missing().empty());
        }
      }
    }
  }
}

// --- What neighbours must not say ---

bool is_violation(const Status& status) {
  return status && status->code == ErrorCode::protocol && !status->message.empty();
}

// A rank of 64: 16 has the branches of 17 (three ranks), 20, 24 and 28 (four each), and 0 above it.
class Bench {
 public:
  explicit Bench(Rank rank = 16, const Call& call = call_of(Collective::all_reduce))
      : call_(call), joins_(std::make_shared<const JoinTree>(rank, 64)) {}

  void join() { joins_.join({call_, 10, 1}); }
  Status hear(Rank from) { return joins_.on_join(from, {call_, 10, 1}); }
  Status tally(Rank from, const Tally& tally) {
    return joins_.on_tally(from, wire::encode_tally(tally));
  }
  // All below have joined, and it is told.
  void report() {
    join();
    for (const Rank from : {17, 20, 24, 28}) REQUIRE_FALSE(hear(from));
    for (const Rank from : {20, 24, 28}) REQUIRE_FALSE(tally(from, {40, 10, 4}));
    REQUIRE_FALSE(joins_.take_report());
    REQUIRE_FALSE(tally(17, {30, 10, 3}));
    REQUIRE(joins_.take_report());
    REQUIRE_FALSE(joins_.take_report());
  }
  Joins& joins() { return joins_; }

 private:
  Call call_;
  Joins joins_;
};

TEST_CASE("a rank joins once, and before it speaks for others") {
  Bench bench;
  CHECK(is_violation(bench.tally(20, {40, 10, 4})));
  CHECK_FALSE(bench.hear(20));
  CHECK(is_violation(bench.hear(20)));
  CHECK_FALSE(bench.tally(20, {40, 10, 4}));
  CHECK(is_violation(bench.tally(20, {40, 10, 4})));
}

TEST_CASE("a rank without others below it speaks for itself alone") {
  Bench bench(17);  // 18 and 19 are below it
  CHECK_FALSE(bench.hear(18));
  CHECK(is_violation(bench.tally(18, {10, 10, 1})));
}

TEST_CASE("all of it is told by the parent, once, after this rank's own") {
  Bench early;
  CHECK_FALSE(early.hear(0));
  CHECK(is_violation(early.tally(0, {640, 10, 64})));
  Bench bench;
  bench.report();
  CHECK(is_violation(bench.tally(0, {640, 10, 64})));
  CHECK_FALSE(bench.hear(0));
  CHECK(is_violation(bench.tally(0, {100, 10, 64})));  // Below it are more.
  CHECK_FALSE(bench.joins().total());
  CHECK_FALSE(bench.tally(0, {640, 10, 64}));
  REQUIRE(bench.joins().total());
  CHECK(bench.joins().total()->elements == 640);
  CHECK(is_violation(bench.tally(0, {640, 10, 64})));
}

TEST_CASE("a branch names no more than its ranks can") {
  const auto takes = [](const Tally& tally, Collective collective = Collective::all_reduce) {
    Bench bench(16, call_of(collective));
    REQUIRE_FALSE(bench.hear(17));  // of three ranks
    const Status error = bench.tally(17, tally);
    if (error) REQUIRE(is_violation(error));
    return !error;
  };
  CHECK(takes({}));
  CHECK(takes({300'000, 100'000, 300'000}));
  CHECK_FALSE(takes({300'001, 100'000, 0}));
  CHECK_FALSE(takes({300'001, 100'001, 0}));
  CHECK_FALSE(takes({UINT64_MAX, 100'000, 0}));
  CHECK_FALSE(takes({10, 11, 0}));
  CHECK_FALSE(takes({30, 10, 31}));
  CHECK_FALSE(takes({30, 10, 3, {10, 10, 10}}));
  CHECK(takes({30, 15, 3, {10, 15, 5}}, Collective::all_gather));
  CHECK_FALSE(takes({30, 15, 3, {10, 16, 4}}, Collective::all_gather));
  CHECK_FALSE(takes({30, 15, 3, {10, 15, 6}}, Collective::all_gather));
  for (const std::size_t ranks : {0, 1, 2, 4, 64}) {
    CHECK_FALSE(takes({0, 0, 0, std::vector<std::uint64_t>(ranks)}, Collective::all_gather));
  }
}

TEST_CASE("parts may come once all below have joined, and not before") {
  Bench bench;
  bench.join();
  CHECK_FALSE(bench.hear(20));
  CHECK_FALSE(bench.joins().may_have_begun(20));
  Bench done;
  done.report();
  CHECK(done.joins().may_have_begun(20));
  CHECK(done.joins().may_have_begun(50));
}

TEST_CASE("a rank waits for its neighbours, and for those alone") {
  Bench bench;
  bench.join();
  CHECK((bench.joins().missing() == std::vector<Rank>{0, 17, 20, 24, 28}));
  CHECK_FALSE(bench.hear(24));
  CHECK((bench.joins().missing() == std::vector<Rank>{0, 17, 20, 28}));
}

TEST_CASE("any input of neighbours is taken or refused") {
  const Rank neighbours[] = {0, 17, 20, 24, 28};
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto collective = pick({Collective::all_reduce, Collective::all_gather}, random);
    Bench bench(16, call_of(collective));
    bench.join();
    for (int i = 0; i < 12; ++i) {
      const Rank from = pick(neighbours, random);
      Status error;
      if (one_in(2, random)) {
        error = bench.hear(from);
      } else {
        const std::size_t listed = collective == Collective::all_gather ? (from == 17 ? 3 : 4) : 0;
        Tally tally{listed * 10, 10, 4, std::vector<std::uint64_t>(listed, 10)};
        if (listed == 0) tally.elements = 30;
        const auto bytes = wire::encode_tally(tally);
        const Buffer payload(bytes.view().begin(), bytes.view().end());
        error = bench.joins().on_tally(
            from, Bytes::copy_of(one_in(3, random) ? mutated(payload, random) : payload));
      }
      if (error) REQUIRE(is_violation(error));
      (void)bench.joins().take_report();
    }
  }
}

}  // namespace joins_test
