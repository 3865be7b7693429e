// Sums by element against a plain reference: in every type, form and mix of formats, and with the
// scratch memory left as it was found.
#include <doctest/doctest.h>

#include "proto/stream/owner/reduce.hpp"
#include "segments.hpp"
#include "tensors.hpp"

namespace element_sum_test {

using namespace sparsewire;
using namespace sparsewire::test;
using proto::Contribution;
using proto::Reduction;
using wire::Format;
using wire::ResultForm;

constexpr Format kFormats[] = {Format::dense, Format::blocks, Format::bitmap, Format::coordinates};

// One rank's segment and what it stands for.
struct Part {
  Contribution contribution;
  wire::ElementBitmap named;
  Buffer dense;
};

// As much of the elements as a random density takes, or a single one.
wire::ElementBitmap random_named(const BlockLayout& layout, Random& random) {
  const std::uint64_t one_of = pick<std::uint64_t>({1, 2, 7, 100, 100'000}, random);
  wire::ElementBitmap named{};
  set_range(named.data(), below(layout.count, random), 1);
  for (std::size_t i = 0; i < layout.count; ++i) {
    if (one_in(one_of, random)) set_range(named.data(), i, 1);
  }
  return named;
}

Buffer head_of(Format format, const BlockLayout& layout, wire::ElementBitmap& named,
               Random& random) {
  if (format == Format::dense) {
    named = {};
    set_range(named.data(), 0, layout.count);
    return {};
  }
  if (format == Format::blocks) {
    const wire::BlockBitmap blocks = random_bitmap(layout, random);
    wire::SegmentView view{.format = Format::blocks, .bitmap = blocks};
    named = wire::elements_of(view, layout);
    Buffer head(wire::bitmap_bytes(layout));
    wire::encode_bitmap(blocks, layout, head.data());
    return head;
  }
  named = random_named(layout, random);
  Buffer head(wire::positions_bytes(format, layout, count_set(named.data(), layout.count)));
  wire::encode_positions(format, named, layout, head.data());
  return head;
}

Part random_part(Rank rank, Format format, DType dtype, const BlockLayout& layout, Random& random) {
  Part part{.dense = Buffer(layout.bytes())};
  Buffer payload = head_of(format, layout, part.named, random);
  const std::size_t head = payload.size();
  const std::size_t size = layout.element_size;
  const Buffer values = random_elements(count_set(part.named.data(), layout.count), dtype, random);
  payload.insert(payload.end(), values.begin(), values.end());
  std::size_t from = head;
  for (std::size_t i = 0; i < layout.count; ++i) {
    if (!test_bit(part.named.data(), i)) continue;
    std::copy_n(payload.data() + from, size, part.dense.data() + i * size);
    from += size;
  }
  auto read = proto::read_segment(rank, {format, Codec::raw, Bytes::copy_of(payload)}, layout);
  REQUIRE(read);
  part.contribution = *std::move(read);
  return part;
}

struct Sum {
  wire::ElementBitmap named{};
  Buffer dense;
};

Sum reference_sum(const std::vector<Part>& parts, const Reduction& reduction,
                  const BlockLayout& layout) {
  std::vector<Buffer> inputs;
  Sum sum;
  for (const Part& part : parts) {
    inputs.push_back(part.dense);
    for (std::size_t word = 0; word < sum.named.size(); ++word) {
      sum.named[word] |= part.named[word];
    }
  }
  // An average is over the world, although not every rank may have named anything.
  inputs.resize(static_cast<std::size_t>(reduction.world_size), Buffer(layout.bytes()));
  sum.dense = reference_all_reduce({reduction.dtype, reduction.op, layout.count}, inputs);
  return sum;
}

// What a result names, and its values at these places.
void check_result(const proto::Segment& segment, const Sum& expected, const Reduction& reduction,
                  const BlockLayout& layout) {
  const auto view =
      wire::decode_segment(segment.format, segment.codec, segment.payload.view(), layout);
  REQUIRE(view);
  const std::size_t named = count_set(expected.named.data(), layout.count);
  const wire::ElementBitmap elements = wire::elements_of(*view, layout);
  if (reduction.form == ResultForm::dense) CHECK(segment.format == Format::dense);
  if (reduction.form == ResultForm::sparse) REQUIRE(view->count == named);
  if (wire::is_by_element(segment.format)) REQUIRE((elements == expected.named));
  const std::byte* at = view->values.data();
  for (std::size_t i = 0; i < layout.count; ++i) {
    if (!test_bit(elements.data(), i)) {
      if (test_bit(expected.named.data(), i)) FAIL("element " << i << " is missing");
      continue;
    }
    const std::byte* const wanted = expected.dense.data() + i * layout.element_size;
    if (!std::equal(at, at + layout.element_size, wanted)) FAIL("element " << i << " differs");
    at += layout.element_size;
  }
}

void check_all_zeros(proto::Scratch& scratch) {
  const std::byte* const memory = scratch.zeros();
  const bool is_zero = std::all_of(memory, memory + wire::kMaxChunkElements * 8,
                                   [](std::byte byte) { return byte == std::byte{0}; });
  REQUIRE(is_zero);
}

TEST_CASE("sums of every type, form and mix of formats, in the same memory") {
  proto::Scratch scratch;
  std::uint64_t seed = 0;
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
      for (const ResultForm form : {ResultForm::cheapest, ResultForm::sparse, ResultForm::dense}) {
        for (int repeat = 0; repeat < 12; ++repeat) {
          CAPTURE(++seed);
          Random random(seed);
          BlockLayout layout = random_layout(random);
          layout.element_size = element_size(dtype);
          const auto ranks = static_cast<std::int32_t>(1 + below(5, random));
          const Reduction reduction{dtype, op, ranks + static_cast<std::int32_t>(below(3, random)),
                                    form};
          std::vector<Part> parts;
          std::vector<Contribution> contributions;
          for (Rank rank = 0; rank < ranks; ++rank) {
            parts.push_back(random_part(rank, pick(kFormats, random), dtype, layout, random));
            contributions.push_back(parts.back().contribution);
          }
          const Sum expected = reference_sum(parts, reduction, layout);
          check_result(proto::reduce(contributions, reduction, layout, scratch), expected,
                       reduction, layout);
          check_all_zeros(scratch);
        }
      }
    }
  }
}

TEST_CASE("the cheapest form is by element where few are named, and by block where all are") {
  proto::Scratch scratch;
  Random random(1);
  const BlockLayout layout{65536, 4, 256};
  const Reduction reduction{DType::float32, ReduceOp::sum, 1};
  const auto format_of = [&](const wire::ElementBitmap& named) {
    const Buffer payload = elements_payload(Format::bitmap, named, layout);
    const auto read =
        proto::read_segment(0, {Format::bitmap, Codec::raw, Bytes::copy_of(payload)}, layout);
    REQUIRE(read);
    return proto::reduce({&*read, 1}, reduction, layout, scratch).format;
  };
  wire::ElementBitmap few{};
  for (std::size_t i = 0; i < layout.count; i += 256) set_range(few.data(), i, 1);
  CHECK(format_of(few) == Format::coordinates);
  wire::ElementBitmap some_blocks{};
  for (std::size_t i = 0; i < layout.count; i += 1024) set_range(some_blocks.data(), i, 256);
  CHECK(format_of(some_blocks) == Format::blocks);
  wire::ElementBitmap all{};
  set_range(all.data(), 0, layout.count);
  CHECK(format_of(all) == Format::dense);
}

}  // namespace element_sum_test
