// Micro-benchmark of compression operators on float32 vectors: milliseconds per vector and GB/s of
// float32, best of some runs, per SIMD level where there are several. `sparsewire bench operators`
// measures whole operators in Python.
// Usage: operators [elements]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/bitmap.hpp"
#include "compress/entropy.hpp"
#include "compress/marked.hpp"
#include "compress/positions.hpp"
#include "kernels/kernels.hpp"

namespace {

using namespace sparsewire;

constexpr int kRuns = 5;
constexpr std::size_t kBlock = 512;
constexpr double kLinf = std::numeric_limits<double>::infinity();

struct Data {
  std::vector<float> values, decoded, norms;
  std::vector<std::uint8_t> symbols;
  std::vector<std::uint16_t> powers;
  std::vector<std::byte> code;
  std::vector<std::uint64_t> bitmap;

  explicit Data(std::size_t count)
      : values(count),
        decoded(count),
        norms(count / kBlock + 1),
        symbols(count),
        powers(count),
        code(std::max(entropy_bound(count), positions_bound(count, count / 2))),
        bitmap(bitmap_words(count)) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::generate(values.begin(), values.end(), [&] { return normal(generator); });
  }

  std::size_t count() const { return values.size(); }
};

double seconds(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  for (int i = 0; i < kRuns; ++i) {
    const auto begin = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

void report(const Data& data, const std::string& name, const std::function<void()>& run) {
  const double time = seconds(run);
  std::printf("%-40s %8.1f ms %7.2f GB/s\n", name.c_str(), time * 1e3,
              static_cast<double>(4 * data.count()) / time / 1e9);
}

// Norms, symbols and their code; and back.
void bench_dithering(Data& d, const std::string& name, double power, std::uint32_t levels,
                     bool is_natural) {
  const VectorKernels<float>& table = kernels().compress.singles;
  const std::size_t alphabet = 2 * levels + 1;
  const auto dither = is_natural ? table.natural_dither : table.dither;
  const auto undither = is_natural ? table.natural_undither : table.undither;
  std::size_t size = 0;
  report(d, name + " encode", [&] {
    table.norms(d.values.data(), d.count(), kBlock, power, d.norms.data());
    dither(d.values.data(), d.count(), kBlock, d.norms.data(), levels, 1, d.symbols.data());
    size = *entropy_encode(d.symbols.data(), d.count(), alphabet, d.code.data());
  });
  report(d, name + " decode", [&] {
    if (!entropy_decode(d.code.data(), size, alphabet, d.symbols.data(), d.count())) std::abort();
    undither(d.symbols.data(), d.count(), kBlock, d.norms.data(), levels, d.decoded.data());
  });
  std::printf("%-40s %8.3f bits\n", (name + " size").c_str(),
              8.0 * static_cast<double>(size) / static_cast<double>(d.count()));
}

void bench_loops(Data& d, const std::string& level) {
  const VectorKernels<float>& table = kernels().compress.singles;
  report(d, level + " first not finite",
         [&] { table.first_not_finite(d.values.data(), d.count()); });
  for (const double power : {1.0, 2.0, 3.0, kLinf}) {
    report(d, level + " norms of power " + std::to_string(power).substr(0, 3),
           [&] { table.norms(d.values.data(), d.count(), kBlock, power, d.norms.data()); });
  }
  report(d, level + " means",
         [&] { table.means(d.values.data(), d.count(), kBlock, d.norms.data()); });
  for (const bool is_natural : {false, true}) {
    const std::string name = level + (is_natural ? " natural" : "");
    report(d, name + " dither", [&] {
      (is_natural ? table.natural_dither : table.dither)(d.values.data(), d.count(), kBlock,
                                                         d.norms.data(), 7, 1, d.symbols.data());
    });
    report(d, name + " undither", [&] {
      (is_natural ? table.natural_undither : table.undither)(d.symbols.data(), d.count(), kBlock,
                                                             d.norms.data(), 7, d.decoded.data());
    });
  }
  report(d, level + " natural compress",
         [&] { table.natural_compress(d.values.data(), d.count(), 1, d.powers.data()); });
  report(d, level + " natural decompress",
         [&] { table.natural_decompress(d.powers.data(), d.count(), 0, d.decoded.data()); });
  report(d, level + " signs", [&] { table.signs(d.values.data(), d.count(), d.symbols.data()); });
  report(d, level + " bernoulli 0.01",
         [&] { kernels().compress.bernoulli(d.count(), 0.01, 1, d.bitmap.data()); });
}

void bench_positions(Data& d) {
  for (const double share : {0.0001, 0.01, 0.1, 0.5}) {
    const auto k = static_cast<std::size_t>(share * static_cast<double>(d.count()));
    const std::string name = std::to_string(share).substr(0, 6);
    report(d, "rand-k " + name, [&] { rand_k(d.count(), k, 1, d.bitmap.data()); });
    report(d, "top-k " + name, [&] { top_k(d.values.data(), d.count(), k, d.bitmap.data()); });
    std::size_t size = 0;
    report(d, "encode positions " + name,
           [&] { size = encode_positions(d.bitmap.data(), d.count(), k, d.code.data()); });
    report(d, "gather " + name, [&] {
      kernels().gather(reinterpret_cast<std::byte*>(d.decoded.data()),
                       reinterpret_cast<const std::byte*>(d.values.data()), 4, d.bitmap.size(),
                       d.bitmap.data());
    });
    report(d, "decode positions " + name, [&] {
      const std::byte* const end = d.code.data() + size;
      if (decode_positions(d.code.data(), end, d.count(), k, d.bitmap.data()) != end) std::abort();
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  Data data(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 25'000'000);
  for (const Kernels* table : available_kernels()) {
    select_kernels(table->level);
    bench_loops(data, std::string(name_of(table->level)));
  }
  const std::string level(name_of(kernels().level));
  bench_dithering(data, level + " ternary l2", 2, 1, false);
  bench_dithering(data, level + " ternary linf", kLinf, 1, false);
  bench_dithering(data, level + " dithering 7", kLinf, 7, false);
  bench_dithering(data, level + " dithering 127", kLinf, 127, false);
  bench_dithering(data, level + " natural dithering 7", kLinf, 7, true);
  bench_positions(data);
}
