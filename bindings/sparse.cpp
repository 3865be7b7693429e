// Sparse collectives for Python: their arguments, their results, and the figures of the link.
#include "sparse.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "conversions.hpp"
#include "gil.hpp"
#include "submit.hpp"
#include "wire/limits.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsewire::bindings {
namespace {

wire::ResultForm form_of(wire::Algorithm algorithm) {
  if (algorithm == wire::Algorithm::ssar_split_allgather) return wire::ResultForm::sparse;
  if (algorithm == wire::Algorithm::dsar_split_allgather) return wire::ResultForm::dense;
  return wire::ResultForm::cheapest;
}

std::shared_ptr<comm::Operation> submit_sparse(
    comm::Communicator& self, std::uintptr_t indices, bool is_wide, std::uint64_t named,
    std::uintptr_t values, std::uint64_t length, std::uint32_t row, int dtype, int op,
    int collective, int algorithm, std::uint32_t root, std::uint32_t unit, int segment_codec,
    int result_codec, std::uint32_t seed, std::uintptr_t target, int form, double timeout) {
  if (length > wire::kMaxCount / row) throw std::invalid_argument("too many elements");
  const auto algorithm_code =
      checked_code<wire::Algorithm>(algorithm, wire::kAlgorithmCount, "algorithm");
  wire::Descriptor descriptor =
      descriptor_of(length * row, dtype, op, segment_codec, result_codec, seed);
  descriptor.is_sparse = true;
  descriptor.row = row;
  descriptor.form = form_of(algorithm_code);
  return submit(self,
                {.target = reinterpret_cast<std::byte*>(target),
                 .call = {.descriptor = descriptor,
                          .collective = checked_code<wire::Collective>(
                              collective, wire::kCollectiveCount, "collective"),
                          .algorithm = algorithm_code,
                          .root = root,
                          .unit = unit},
                 .tensor = {.indices = reinterpret_cast<const void*>(indices),
                            .is_wide = is_wide,
                            .named = named,
                            .values = reinterpret_cast<const std::byte*>(values),
                            .descriptor = descriptor},
                 .form = checked_code<wire::ResultForm>(form, wire::kResultFormCount, "form")},
                timeout);
}

proto::SparseOutput& output(comm::Operation& self, std::size_t list) {
  return *self.outputs().sparse().at(list);
}

// A NumPy array over memory that lives as long as the array, or any view of it.
template <typename T>
nb::object array_of(std::shared_ptr<std::byte[]> memory, std::size_t size) {
  auto* const data = reinterpret_cast<T*>(memory.get());
  auto holder = std::make_unique<std::shared_ptr<std::byte[]>>(std::move(memory));
  const nb::capsule owner(holder.release(), [](void* held) noexcept {
    delete static_cast<std::shared_ptr<std::byte[]>*>(held);
  });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {size}, owner));
}

// The indices, and the values as bytes.
nb::tuple take_sparse(comm::Operation& self, std::size_t list) {
  std::optional<proto::SparseList> taken;
  {
    const GilRelease release;
    taken = output(self, list).take();
  }
  const std::size_t count = taken->count();
  return nb::make_tuple(
      taken->is_wide() ? array_of<std::int64_t>(taken->indices(), count)
                       : array_of<std::int32_t>(taken->indices(), count),
      array_of<std::uint8_t>(taken->values(), count * self.arguments().tensor.row_bytes()));
}

proto::LinkModel link_of(double latency_s, double byte_s, double merge_s) {
  return {.latency_s = latency_s, .byte_s = byte_s, .merge_s = merge_s};
}

double predict(int algorithm, std::uint64_t length, std::size_t element_bytes,
               const std::vector<std::uint64_t>& elements, double latency_s, double byte_s,
               double merge_s) {
  return proto::predict(
      checked_code<wire::Algorithm>(algorithm, wire::kAlgorithmCount, "algorithm"),
      {length, element_bytes, elements}, link_of(latency_s, byte_s, merge_s));
}

int choose(std::uint64_t length, std::size_t element_bytes,
           const std::vector<std::uint64_t>& elements, double latency_s, double byte_s,
           double merge_s) {
  return static_cast<int>(
      proto::choose({length, element_bytes, elements}, link_of(latency_s, byte_s, merge_s)));
}

}  // namespace

void bind_sparse(nb::module_& m) {
  m.attr("COLLECTIVES") = codes<wire::Collective>(wire::kCollectiveCount);
  m.attr("ALGORITHMS") = codes<wire::Algorithm>(wire::kAlgorithmCount);
  m.attr("FORMS") = codes<wire::ResultForm>(wire::kResultFormCount);
  m.attr("CODECS") = codes<Codec>(kCodecCount);
  m.attr("ROW_MIN") = wire::kMinBlock;
  m.attr("ROW_MAX") = wire::kMaxBlock;
  m.def("predict", &predict, "algorithm"_a, "length"_a, "element_bytes"_a, "elements"_a,
        "latency_s"_a, "byte_s"_a, "merge_s"_a);
  m.def("choose", &choose, "length"_a, "element_bytes"_a, "elements"_a, "latency_s"_a, "byte_s"_a,
        "merge_s"_a);
}

void bind_results(nb::class_<comm::Operation>& operation) {
  operation
      .def(
          "list_bytes",
          [](comm::Operation& self, std::size_t list) {
            const GilRelease release;
            return output(self, list).list_bytes();
          },
          "list"_a = 0)
      .def("take_sparse", &take_sparse, "list"_a = 0)
      .def(
          "write_dense",
          [](comm::Operation& self, std::uintptr_t target, std::size_t list) {
            const GilRelease release;
            output(self, list).write_dense(reinterpret_cast<std::byte*>(target));
          },
          "target"_a, "list"_a = 0)
      .def("finish", [](comm::Operation& self) {
        const GilRelease release;
        self.outputs().finish();
      });
}

void bind_collectives(nb::class_<comm::Communicator>& communicator) {
  communicator
      .def("submit_sparse", &submit_sparse, nb::kw_only(), "indices"_a, "is_wide"_a, "named"_a,
           "values"_a, "length"_a, "row"_a, "dtype"_a, "op"_a, "collective"_a, "algorithm"_a,
           "root"_a, "unit"_a, "segment_codec"_a, "result_codec"_a, "seed"_a, "target"_a, "form"_a,
           "timeout"_a)
      .def(
          "set_link",
          [](comm::Communicator& self, double latency_s, double byte_s, double merge_s) {
            self.set_link(link_of(latency_s, byte_s, merge_s));
          },
          "latency_s"_a, "byte_s"_a, "merge_s"_a)
      .def("link", [](const comm::Communicator& self) {
        const proto::LinkModel link = self.link();
        return nb::make_tuple(link.latency_s, link.byte_s, link.merge_s);
      });
}

}  // namespace sparsewire::bindings
