// Piece by piece, which stay in a cache while all ranks' values are added up in them.
#include "compress/leveled.hpp"

#include <algorithm>

namespace sparsewire {
namespace {

constexpr std::size_t kPieceOfLevels = 2048;

// Calls visit(first, length, block, size) for pieces of whole blocks of that size, or of one block.
template <typename Visit>
void for_each_piece(const Cut& cut, Visit visit) {
  const std::size_t blocks = std::max<std::size_t>(1, kPieceOfLevels / cut.block);
  for (std::size_t block = 0; block < cut.blocks(); block += blocks) {
    const std::size_t begin = block * cut.block;
    const std::size_t end = std::min(begin + blocks * cut.block, cut.count);
    for (std::size_t first = begin; first < end; first += kPieceOfLevels) {
      visit(first, std::min(kPieceOfLevels, end - first), block, std::min(cut.block, kPieceOfLevels));
    }
  }
}

}  // namespace

template <typename T>
void follow(std::span<const Leveled<T>> sent, std::size_t own, const Cut& cut, std::uint32_t levels,
            ValuesOfLevels<T> values_of, T rate, const Shifts<T>& shifts) {
  const auto ranks = static_cast<T>(sent.size());
  const auto follow_piece = [&](std::size_t first, std::size_t length, std::size_t block,
                                std::size_t size) {
    T values[kPieceOfLevels];
    T mean[kPieceOfLevels];
    std::fill_n(mean, length, T{0});
    for (std::size_t rank = 0; rank < sent.size(); ++rank) {
      const Leveled<T>& each = sent[rank];
      values_of(each.symbols + first, length, size, each.scales + block, levels, values);
      for (std::size_t i = 0; i < length; ++i) mean[i] += values[i];
      if (rank != own) continue;
      T* const shift = shifts.own + first;
      for (std::size_t i = 0; i < length; ++i) shift[i] += values[i] * rate;
    }
    T* const shift = shifts.mean + first;
    T* const gradient = shifts.gradient + first;
    for (std::size_t i = 0; i < length; ++i) {
      const T step = mean[i] / ranks;
      gradient[i] = shift[i] + step;
      shift[i] += step * rate;
    }
  };
  for_each_piece(cut, follow_piece);
}

template void follow(std::span<const Leveled<float>>, std::size_t, const Cut&, std::uint32_t,
                     ValuesOfLevels<float>, float, const Shifts<float>&);
template void follow(std::span<const Leveled<double>>, std::size_t, const Cut&, std::uint32_t,
                     ValuesOfLevels<double>, double, const Shifts<double>&);

}  // namespace sparsewire
