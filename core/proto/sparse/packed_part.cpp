// Works chunk by chunk through memory that the whole part shares.
#include "proto/sparse/packed_part.hpp"

#include <bit>
#include <cstring>
#include <memory>

#include "kernels/kernels.hpp"
#include "wire/layout.hpp"

namespace sparsewire::proto {
namespace {

// A piece of `count` elements; write(counts, locals, values) puts them there.
template <typename Write>
wire::Piece packed_piece(const ChunkRange& range, std::size_t count, std::size_t element_size,
                         Write&& write) {
  const std::size_t head = wire::packed_positions_bytes(range.chunks(), count);
  const std::size_t size = head + count * element_size;
  auto owner = Bytes::allocate(size);
  write(owner.get(), owner.get() + 4 * range.chunks(), owner.get() + head);
  return {range.first, wire::Format::packed, Codec::raw, Bytes::shared(std::move(owner), size)};
}

// Adds parts in values of the accumulator's own type, chunk after chunk, and lists the elements
// that were named.
template <typename A>
class PackedSum {
 public:
  PackedSum(const std::vector<PackedRead>& parts, DType dtype, Scratch& scratch)
      : acc_(reinterpret_cast<A*>(scratch.zeros())) {
    for (const PackedRead& part : parts) {
      Source& source = sources_.emplace_back(part.view);
      if (accumulator_of(dtype) != dtype) source.widen(dtype);
    }
  }

  void add(std::size_t chunk) {
    for (Source& source : sources_) add(source, source.view.count_in(chunk));
  }

  // Moves the sums to `out`, and leaves zeros; returns how many.
  std::size_t take(std::uint16_t* locals, A* out) {
    std::size_t count = 0;
    const std::size_t words = list_words();
    for (std::size_t i = 0; i < words; ++i) {
      const auto word = static_cast<std::size_t>(words_[i]);
      std::uint64_t bits = std::exchange(named_[word], 0);
      do {
        const std::size_t local = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
        locals[count] = static_cast<std::uint16_t>(local);
        out[count++] = std::exchange(acc_[local], A{0});
        bits &= bits - 1;
      } while (bits != 0);
    }
    return count;
  }

 private:
  // The rest of a part that has not been added yet.
  struct Source {
    explicit Source(const wire::PackedView& part)
        : view(part), locals(part.locals.data()), values(part.values.data()) {}

    void widen(DType dtype) {
      wide.resize(view.count * sizeof(A));
      kernels().start(wide.data(), values, view.count, dtype, ReduceOp::sum);
      values = wide.data();
    }

    const wire::PackedView& view;
    const std::byte* locals;
    const std::byte* values;
    std::vector<std::byte> wide;  // holds values that came in a smaller type
  };

  void add(Source& at, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t local = wire::load<std::uint16_t>(at.locals + 2 * i);
      A value;
      std::memcpy(&value, at.values + i * sizeof value, sizeof value);
      acc_[local] = first_nan_or_sum(acc_[local], value);
      named_[local / 64] |= std::uint64_t{1} << (local % 64);
    }
    at.locals += 2 * count;
    at.values += count * sizeof(A);
  }

  // Lists the words that name something, without a branch: if few do, no branch predictor knows
  // which.
  std::size_t list_words() {
    std::array<std::uint64_t, kWords / 64> used;
    kernels().mark(reinterpret_cast<const std::byte*>(named_.data()), kWords, DType::int64,
                   used.data());
    return kernels().list_bits_32(used.data(), used.size(), 0, words_.data());
  }

  static constexpr std::size_t kWords = std::tuple_size_v<wire::ElementBitmap>;

  A* acc_;
  std::vector<Source> sources_;
  wire::ElementBitmap named_{};
  std::array<std::int32_t, kWords> words_;
};

template <typename A>
wire::Piece add_as(const std::vector<PackedRead>& parts, DType dtype, const Reduction& reduction,
                   const ChunkRange& range, Scratch& scratch) {
  PackedSum<A> sum(parts, dtype, scratch);
  std::size_t most = 0;
  for (const PackedRead& part : parts) most += part.view.count;
  const auto named = std::make_unique_for_overwrite<std::uint16_t[]>(most);
  const auto sums = std::make_unique_for_overwrite<A[]>(most);
  std::vector<std::uint32_t> per_chunk(range.chunks());
  std::size_t count = 0;
  for (std::size_t chunk = 0; chunk < range.chunks(); ++chunk) {
    sum.add(chunk);
    const std::size_t taken = sum.take(named.get() + count, sums.get() + count);
    per_chunk[chunk] = static_cast<std::uint32_t>(taken);
    count += taken;
  }
  const auto write = [&](std::byte* counts, std::byte* locals, std::byte* values) {
    std::memcpy(counts, per_chunk.data(), 4 * range.chunks());
    std::memcpy(locals, named.get(), 2 * count);
    kernels().finish(values, reinterpret_cast<const std::byte*>(sums.get()), count, reduction.dtype,
                     reduction.op, reduction.world_size);
  };
  return packed_piece(range, count, element_size(reduction.dtype), write);
}

PackedRead with_plain_values(PackedRead read) {
  read.decoded = decode_values_of(read.view);
  return read;
}

template <typename Index>
void fill_positions(const Index* indices, std::uint64_t count, std::uint64_t base,
                    std::uint64_t chunk_elements, std::byte* counts, std::byte* locals) {
  auto begin = static_cast<Index>(base);
  std::uint64_t first = 0;
  for (; first < count; counts += 4) {
    std::uint64_t i = first;
    for (; i < count && static_cast<std::uint64_t>(indices[i] - begin) < chunk_elements; ++i) {
      wire::store(locals + 2 * i, static_cast<std::uint16_t>(indices[i] - begin));
    }
    wire::store(counts, static_cast<std::uint32_t>(i - first));
    first = i;
    begin = static_cast<Index>(static_cast<std::uint64_t>(begin) + chunk_elements);
  }
}

}  // namespace

wire::Piece pack_elements(const SparseTensor& tensor, std::uint64_t from, std::uint64_t to,
                          const ChunkGrid& grid, const ChunkRange& range) {
  const std::size_t size = grid.element_size;
  const auto write = [&](std::byte* counts, std::byte* locals, std::byte* values) {
    std::memset(counts, 0, 4 * range.chunks());
    with_indices(tensor, [&](const auto* indices) {
      fill_positions(indices + from, to - from, tensor.base + range.first * grid.chunk_elements,
                     grid.chunk_elements, counts, locals);
    });
    std::memcpy(values, tensor.values + from * size, (to - from) * size);
  };
  return packed_piece(range, to - from, size, write);
}

Result<PackedRead> read_packed(const wire::Piece& piece, const ChunkGrid& grid,
                               const ChunkRange& range) {
  auto view = wire::decode_packed(piece.codec, piece.payload.view(), range.chunks(),
                                  grid.chunk_elements, grid.layout(range.end - 1));
  if (!view) return view.error();
  return with_plain_values({*std::move(view), piece.payload, {}});
}

PackedRead read_packed_again(const wire::Piece& piece, const ChunkRange& range) {
  return with_plain_values(
      {wire::view_packed(piece.codec, piece.payload.view(), range.chunks()), piece.payload, {}});
}

wire::Piece add_packed(const std::vector<PackedRead>& parts, DType dtype,
                       const Reduction& reduction, const ChunkRange& range, Scratch& scratch) {
  switch (accumulator_of(reduction.dtype)) {
    case DType::float64:
      return add_as<double>(parts, dtype, reduction, range, scratch);
    case DType::int32:  // Unsigned, because integers wrap around.
      return add_as<std::uint32_t>(parts, dtype, reduction, range, scratch);
    case DType::int64:
      return add_as<std::uint64_t>(parts, dtype, reduction, range, scratch);
    default:
      return add_as<float>(parts, dtype, reduction, range, scratch);
  }
}

wire::Piece encode_packed(const wire::Piece& piece, Codec codec, const ChunkRange& range,
                          std::uint64_t key) {
  if (codec == Codec::raw || piece.codec != Codec::raw) return piece;
  const auto view = wire::view_packed(piece.codec, piece.payload.view(), range.chunks());
  auto encoded = with_encoded_values(piece.payload, view.values, codec, key);
  return encoded ? wire::Piece{piece.chunk, piece.format, codec, *std::move(encoded)} : piece;
}

std::vector<wire::Piece> unpack_pieces(const PackedRead& packed, const ChunkRange& range,
                                       std::size_t element_size) {
  std::vector<wire::Piece> pieces;
  const std::byte* locals = packed.view.locals.data();
  const std::byte* values = packed.view.values.data();
  for (std::size_t chunk = 0; chunk < range.chunks(); ++chunk) {
    const std::size_t count = packed.view.count_in(chunk);
    if (count == 0) continue;
    auto owner = Bytes::allocate(count * (2 + element_size));
    std::memcpy(owner.get(), locals, 2 * count);
    std::memcpy(owner.get() + 2 * count, values, count * element_size);
    pieces.push_back({range.first + chunk, wire::Format::coordinates, Codec::raw,
                      Bytes::shared(std::move(owner), count * (2 + element_size))});
    locals += 2 * count;
    values += count * element_size;
  }
  return pieces;
}

}  // namespace sparsewire::proto
