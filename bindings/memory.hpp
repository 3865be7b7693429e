// Memory that Python objects lend by the buffer protocol: NumPy arrays, bytes and views of them.
#pragma once

#include <nanobind/nanobind.h>

#include <bit>
#include <cstddef>
#include <stdexcept>
#include <type_traits>

namespace sparsewire::bindings {

inline void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

// The contiguous memory of an object, held until this goes, which must be with the GIL. Raises
// BufferError for an object that is not contiguous, or must not be written and is to be.
class Memory {
 public:
  Memory(nanobind::handle object, bool is_written) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (is_written ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) nanobind::raise_python_error();
  }
  ~Memory() { PyBuffer_Release(&view_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::size_t bytes() const { return static_cast<std::size_t>(view_.len); }
  std::size_t element_bytes() const { return static_cast<std::size_t>(view_.itemsize); }
  std::size_t count() const { return element_bytes() == 0 ? 0 : bytes() / element_bytes(); }
  // The type of the elements as Python's struct module calls it, in the order of this machine.
  char format() const {
    constexpr bool is_little = std::endian::native == std::endian::little;
    const char* const text = view_.format ? view_.format : "B";
    return *text == (is_little ? '<' : '>') || *text == '=' || *text == '@' ? text[1] : *text;
  }

  // Raises ValueError for elements of another size, and where there are fewer than `least`.
  template <typename T>
  T* as(std::size_t least, const char* what) const {
    require(element_bytes() == sizeof(T) && count() >= least, what);
    return static_cast<T*>(view_.buf);
  }

  std::byte* data() const { return static_cast<std::byte*>(view_.buf); }

 private:
  Py_buffer view_;
};

struct Input : Memory {
  explicit Input(nanobind::handle object) : Memory(object, false) {}
};

struct Output : Memory {
  explicit Output(nanobind::handle object) : Memory(object, true) {}
};

}  // namespace sparsewire::bindings
