// Sparse collectives for Python: their arguments, their results, and the figures of the link.
#include "sparse.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "conversions.hpp"
#include "gil.hpp"
#include "wire/limits.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsewire::bindings {
namespace {

// The arguments of a sparse collective as Python gives them; codes are those of the module.
struct SparseCall {
  std::uintptr_t indices = 0;
  bool is_wide = true;
  std::uint64_t named = 0;
  std::uintptr_t values = 0;
  std::uint64_t length = 0;
  std::uint32_t row = 1;
  int dtype = 0;
  int op = 0;
  int collective = 0;
  int algorithm = 0;
  std::uint32_t root = 0;
  std::uint32_t unit = 1;
  int segment_codec = 0;
  int result_codec = 0;
  std::uint32_t seed = 0;
  std::uintptr_t target = 0;
  int form = 0;
};

wire::ResultForm form_of(wire::Algorithm algorithm) {
  if (algorithm == wire::Algorithm::ssar_split_allgather) return wire::ResultForm::sparse;
  if (algorithm == wire::Algorithm::dsar_split_allgather) return wire::ResultForm::dense;
  return wire::ResultForm::cheapest;
}

wire::Call call_of(const SparseCall& call) {
  const auto algorithm =
      checked_code<wire::Algorithm>(call.algorithm, wire::kAlgorithmCount, "algorithm");
  if (call.length > wire::kMaxCount / call.row) throw std::invalid_argument("too many elements");
  return {
      .descriptor = {.dtype = checked_code<DType>(call.dtype, kDTypeCount, "dtype"),
                     .op = checked_code<ReduceOp>(call.op, kReduceOpCount, "operation"),
                     .count = call.length * call.row,
                     .is_sparse = true,
                     .row = call.row,
                     .form = form_of(algorithm),
                     .segment_codec = checked_code<Codec>(call.segment_codec, kCodecCount, "codec"),
                     .result_codec = checked_code<Codec>(call.result_codec, kCodecCount, "codec"),
                     .seed = call.seed},
      .collective =
          checked_code<wire::Collective>(call.collective, wire::kCollectiveCount, "collective"),
      .algorithm = algorithm,
      .root = call.root,
      .unit = call.unit};
}

std::shared_ptr<comm::Operation> submit_sparse(comm::Communicator& self, const SparseCall& call,
                                               double timeout) {
  comm::Operation::Arguments arguments{
      .target = reinterpret_cast<std::byte*>(call.target),
      .call = call_of(call),
      .tensor = {.indices = reinterpret_cast<const void*>(call.indices),
                 .is_wide = call.is_wide,
                 .named = call.named,
                 .values = reinterpret_cast<const std::byte*>(call.values)},
      .form = checked_code<wire::ResultForm>(call.form, wire::kResultFormCount, "form")};
  arguments.tensor.descriptor = arguments.call.descriptor;
  if (timeout > 0) arguments.deadline = comm::Clock::now() + nanoseconds_of(timeout);
  const GilRelease release;
  return self.submit(arguments);
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
  nb::class_<SparseCall>(m, "SparseCall")
      .def(nb::init<>())
      .def_rw("indices", &SparseCall::indices)
      .def_rw("is_wide", &SparseCall::is_wide)
      .def_rw("named", &SparseCall::named)
      .def_rw("values", &SparseCall::values)
      .def_rw("length", &SparseCall::length)
      .def_rw("row", &SparseCall::row)
      .def_rw("dtype", &SparseCall::dtype)
      .def_rw("op", &SparseCall::op)
      .def_rw("collective", &SparseCall::collective)
      .def_rw("algorithm", &SparseCall::algorithm)
      .def_rw("root", &SparseCall::root)
      .def_rw("unit", &SparseCall::unit)
      .def_rw("segment_codec", &SparseCall::segment_codec)
      .def_rw("result_codec", &SparseCall::result_codec)
      .def_rw("seed", &SparseCall::seed)
      .def_rw("target", &SparseCall::target)
      .def_rw("form", &SparseCall::form);
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
  communicator.def("submit_sparse", &submit_sparse, "call"_a, "timeout"_a)
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
