// Top-k sparsification for Python: on memory given by its address, without the GIL.
#include "topk.hpp"

#include <stdexcept>

#include "gil.hpp"
#include "kernels/topk.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsewire::bindings {
namespace {

void init_topk(TopK* self, std::size_t bucket, std::size_t k, unsigned bits) {
  if (bucket < 1 || bucket > TopK::kMaxBucket) {
    throw std::invalid_argument("bucket must be from 1 to 65536 elements");
  }
  if (k < 1 || k > bucket) throw std::invalid_argument("k must be from 1 to the bucket's size");
  if (bits != 32 && bits != 8 && bits != 4 && bits != 2) {
    throw std::invalid_argument("bits must be 32, 8, 4 or 2");
  }
  new (self) TopK{bucket, k, bits};
}

void compress(const TopK& self, std::uintptr_t gradient, std::uintptr_t residual, std::size_t count,
              std::uintptr_t records) {
  self.compress(reinterpret_cast<const float*>(gradient), reinterpret_cast<float*>(residual), count,
                reinterpret_cast<std::byte*>(records));
}

void mean(const TopK& self, std::uintptr_t records, std::size_t stride, std::size_t ranks,
          std::size_t count, std::uintptr_t out) {
  self.mean(reinterpret_cast<const std::byte*>(records), stride, ranks, count,
            reinterpret_cast<float*>(out));
}

}  // namespace

void bind_topk(nb::module_& m) {
  nb::class_<TopK>(m, "TopK")
      .def("__init__", &init_topk, "bucket"_a, "k"_a, "bits"_a)
      .def("bytes", &TopK::bytes, "count"_a)
      .def("compress", &compress, "gradient"_a, "residual"_a, "count"_a, "records"_a,
           nb::call_guard<GilRelease>())
      .def("mean", &mean, "records"_a, "stride"_a, "ranks"_a, "count"_a, "out"_a,
           nb::call_guard<GilRelease>());
}

}  // namespace sparsewire::bindings
