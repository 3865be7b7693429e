// Micro-benchmark of the kernels: GB/s of input read, per kernel and SIMD level, best of some runs.
// Usage: kernels [megabytes]
#include "kernels/kernels.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bitmap.hpp"
#include "kernels/blocks.hpp"

namespace {

using namespace sparsewire;

constexpr int kRuns = 10;
constexpr std::size_t kSmallBlock = 16;
constexpr std::size_t kBlock = 256;
constexpr std::size_t kLargeBlock = 4096;

double gigabytes_per_second(std::size_t bytes, const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  for (int i = 0; i < kRuns; ++i) {
    const auto begin = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return static_cast<double>(bytes) / best / 1e9;
}

void report(std::string_view level, std::string_view kernel, double rate) {
  std::printf("%-9.*s %-24.*s %7.1f GB/s\n", static_cast<int>(level.size()), level.data(),
              static_cast<int>(kernel.size()), kernel.data(), rate);
}

void bench_scan(const Kernels& table, std::vector<std::byte>& data) {
  std::vector<std::uint64_t> bitmap(bitmap_words(data.size() / 4 / kSmallBlock) + 1);
  const auto rate = [&](DType dtype, std::size_t block) {
    return gigabytes_per_second(data.size(), [&] {
      table.scan(data.data(), data.size() / element_size(dtype), dtype, block, bitmap.data());
    });
  };
  const auto name = name_of(table.level);
  std::memset(data.data(), 0, data.size());
  report(name, "scan zeros, block 16", rate(DType::float32, kSmallBlock));
  report(name, "scan zeros, block 256", rate(DType::float32, kBlock));
  report(name, "scan zeros, block 4096", rate(DType::float32, kLargeBlock));
  for (std::size_t i = 0; i < data.size(); i += 64 * kBlock) data[i] = std::byte{1};
  report(name, "scan 1/16 dense", rate(DType::float32, kBlock));
  std::memset(data.data(), 1, data.size());
  report(name, "scan dense, block 256", rate(DType::float32, kBlock));
}

// On a chunk of 64K elements, as the owner does it: from the second-level cache.
void bench_accumulate(const Kernels& table, DType dtype) {
  constexpr std::size_t count = 65536;
  constexpr int rounds = 20;
  std::vector<std::byte> x(count * element_size(dtype), std::byte{0x3c});
  std::vector<std::byte> acc(count * element_size(accumulator_of(dtype)));
  const auto rate = [&](auto&& kernel) {
    return gigabytes_per_second(rounds * x.size(), [&] {
      for (int i = 0; i < rounds; ++i) kernel();
    });
  };
  const auto line = [&](std::string_view kernel, auto&& run) {
    report(name_of(table.level), std::string(kernel) + std::string(name_of(dtype)), rate(run));
  };
  constexpr auto sum = ReduceOp::sum;
  line("start sum ", [&] { table.start(acc.data(), x.data(), count, dtype, sum); });
  line("add sum ", [&] { table.add(acc.data(), x.data(), count, dtype, sum); });
  line("add max ", [&] { table.add(acc.data(), x.data(), count, dtype, ReduceOp::max); });
  line("finish avg ", [&] { table.finish(x.data(), acc.data(), count, dtype, ReduceOp::avg, 3); });
}

// On a chunk of 64K values; the rates are those of the float32 side in both directions.
void bench_codec(const Kernels& table, Codec codec) {
  constexpr std::size_t count = 65536;
  constexpr int rounds = 20;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1001) - 500;
  std::vector<std::byte> encoded(count * sizeof(float));
  const auto line = [&](std::string_view kernel, auto&& run) {
    const double rate = gigabytes_per_second(rounds * count * sizeof(float), [&] {
      for (int i = 0; i < rounds; ++i) run();
    });
    report(name_of(table.level), std::string(kernel) + std::string(name_of(codec)), rate);
  };
  line("encode ", [&] { table.encode(codec, values.data(), count, 1, encoded.data()); });
  line("decode ", [&] { table.decode(codec, encoded.data(), count, values.data()); });
}

void bench_blocks(std::vector<std::byte>& data) {
  const std::size_t count = data.size() / 4;
  const std::vector<std::uint64_t> every_other(bitmap_words(count / kBlock) + 1,
                                               0x5555555555555555u);
  std::vector<std::byte> packed(data.size());
  std::memset(packed.data(), 1, packed.size());
  const std::size_t half = data.size() / 2;
  report("any", "pack every other block", gigabytes_per_second(half, [&] {
           pack(packed.data(), data.data(), count, 4, kBlock, every_other.data());
         }));
  report("any", "unpack every other block", gigabytes_per_second(half, [&] {
           unpack(data.data(), packed.data(), count, 4, kBlock, every_other.data());
         }));
  report("any", "clear every other block", gigabytes_per_second(half, [&] {
           clear(data.data(), count, 4, kBlock, every_other.data());
         }));
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t megabytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100;
  std::vector<std::byte> data(megabytes * 1'000'000);
  for (const Kernels* table : available_kernels()) {
    bench_scan(*table, data);
    for (std::uint8_t dtype = 0; dtype < kDTypeCount; ++dtype) {
      bench_accumulate(*table, static_cast<DType>(dtype));
    }
    for (std::uint8_t codec = 1; codec < kCodecCount; ++codec) {
      bench_codec(*table, static_cast<Codec>(codec));
    }
  }
  bench_blocks(data);
}
