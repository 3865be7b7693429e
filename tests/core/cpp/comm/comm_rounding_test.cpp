// The bits of a sum do not depend on how the thread that made the communicator rounds.
#include <doctest/doctest.h>

#include <cfenv>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "sparse_cluster.hpp"

namespace comm_rounding_test {

using namespace sparsewire;
using namespace sparsewire::test;

// While it lives, this thread rounds upwards, and drops what is below the smallest normal number
// where the processor can.
struct OddRounding {
  OddRounding() {
    std::fegetenv(&before);
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
  }
  ~OddRounding() { std::fesetenv(&before); }
  std::fenv_t before;
};

// Sums that must be rounded, and sums of what flush-to-zero would drop.
float value_of(std::size_t rank, std::size_t i) {
  if (i % 2 == 0) return std::numeric_limits<float>::denorm_min() * static_cast<float>(i + 1);
  return rank == 0 ? 1.0f : std::numeric_limits<float>::epsilon() / 4;
}

float expected_of(std::size_t i) { return i % 2 == 0 ? 2 * value_of(0, i) : 1.0f; }

SparseCollective sums(wire::Algorithm algorithm, std::size_t count) {
  const wire::Call call{.descriptor = {.count = count, .is_sparse = true}, .algorithm = algorithm};
  std::vector<SparseVector> vectors;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    std::vector<std::uint64_t> positions(count);
    std::iota(positions.begin(), positions.end(), std::uint64_t{0});
    Buffer values(count * sizeof(float));
    for (std::size_t i = 0; i < count; ++i) store(values.data(), i, value_of(rank, i));
    vectors.emplace_back(call.descriptor, std::move(positions), std::move(values));
  }
  return {call, std::move(vectors)};
}

TEST_CASE("a rank whose thread rounds oddly adds like all others") {
  constexpr std::size_t count = 200'000;
  const wire::Topology topology = topology_of(2, 1, 2);
  auto mesh = colocated_mesh(topology);
  std::unique_ptr<comm::Communicator> odd;
  {
    const OddRounding rounding;
    odd = std::make_unique<comm::Communicator>(topology, 1, false, released(mesh[1]));
  }
  comm::Communicator usual(topology, 0, false, released(mesh[0]));
  for (const wire::Algorithm algorithm : {wire::Algorithm::stream, wire::Algorithm::allgather}) {
    CAPTURE(wire::name_of(algorithm));
    const SparseCollective collective = sums(algorithm, count);
    const OperationPtr a = usual.submit(arguments_of(collective, 0));
    const OperationPtr b = odd->submit(arguments_of(collective, 1));
    for (const OperationPtr& operation : {a, b}) {
      REQUIRE_FALSE(outcome(operation));
      std::vector<float> sum(count);
      operation->outputs().sparse().front()->write_dense(reinterpret_cast<std::byte*>(sum.data()));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) wrong += sum[i] != expected_of(i);
      CHECK(wrong == 0);
    }
  }
}

}  // namespace comm_rounding_test
