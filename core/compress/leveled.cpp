// The steps of DIANA, piece by piece. A piece stays in a cache while its norms and levels are
// computed, or while all ranks' values are added up.
#include "compress/leveled.hpp"

#include <algorithm>
#include <limits>

#include "kernels/kernels.hpp"

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
      visit(first, std::min(kPieceOfLevels, end - first), block,
            std::min(cut.block, kPieceOfLevels));
    }
  }
}

template <typename T>
bool is_usual(T norm) {
  return norm == 0 ||
         (norm >= std::numeric_limits<T>::min() && norm <= std::numeric_limits<T>::max());
}

}  // namespace

template <typename T>
bool difference_levels(const Difference<T>& difference, const Cut& cut, std::uint32_t levels,
                       std::uint64_t key, LevelsOfValues<T> levels_of,
                       const RoomForLevels<T>& room) {
  if (cut.block > kPieceOfLevels) return false;
  const VectorKernels<T>& loops = kernels().compress.of<T>();
  bool all_usual = true;
  for_each_piece(cut, [&](std::size_t first, std::size_t length, std::size_t block, std::size_t) {
    if (!all_usual) return;
    T values[kPieceOfLevels];
    T* const norms = room.scales + block;
    for (std::size_t i = 0; i < length; ++i) {
      values[i] = difference.values[first + i] - difference.subtracted[first + i];
    }
    loops.norms(values, length, cut.block, 2, norms);
    const Cut piece{length, cut.block};
    all_usual = std::all_of(norms, norms + piece.blocks(), is_usual<T>);
    if (!all_usual) return;
    levels_of(values, length, cut.block, norms, levels, key, first, room.symbols + first);
  });
  return all_usual;
}

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

template bool difference_levels(const Difference<float>&, const Cut&, std::uint32_t, std::uint64_t,
                                LevelsOfValues<float>, const RoomForLevels<float>&);
template bool difference_levels(const Difference<double>&, const Cut&, std::uint32_t, std::uint64_t,
                                LevelsOfValues<double>, const RoomForLevels<double>&);
template void follow(std::span<const Leveled<float>>, std::size_t, const Cut&, std::uint32_t,
                     ValuesOfLevels<float>, float, const Shifts<float>&);
template void follow(std::span<const Leveled<double>>, std::size_t, const Cut&, std::uint32_t,
                     ValuesOfLevels<double>, double, const Shifts<double>&);

}  // namespace sparsewire
