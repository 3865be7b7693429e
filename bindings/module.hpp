// The parts of the native module, and helpers that they share, for Python's lock, numbers and
// memory.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>

#include "net/udp/disturbance.hpp"
#include "wire/tag.hpp"

namespace sparsewire::bindings {

// Kernels of compression operators, for sparsewire.compress: plain functions over arrays.
void bind_compress(nanobind::module_& module);
void bind_passes(nanobind::module_& module);

// Deltas of weights, for sparsewire.weights. Raise ValueError.
void bind_weights(nanobind::module_& module);

// Greetings by datagrams; and what native objects need to send or take datagrams. Both raise
// ValueError.
void bind_datagrams(nanobind::module_& module);
void bind_aggregators(nanobind::module_& module);
wire::TagKey datagram_key_of(const nanobind::bytes& key, std::size_t datagram_bytes);
// Up and down, as wire::WayKeys has them.
using WayKeyBytes = std::pair<nanobind::bytes, nanobind::bytes>;
wire::WayKeys way_keys_of(const WayKeyBytes& keys, std::size_t datagram_bytes);
std::optional<net::Disturbance> disturbance_of(const std::string& text);

// Communicators and their operations.
void bind_mesh(nanobind::module_& module);
void bind_communicator(nanobind::module_& module);

// Releases the lock while it lives. Python up to 3.13 ends a thread that asks for the lock while
// the interpreter goes, by unwinding its stack; C++ frames like these turn that into an abort of
// the process. Such a thread sleeps until the process is gone, as later versions have it do.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      for (;;) ::pause();
    }
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

// A negative time is 0, and a longer one than a hundred years is a hundred years, so that no clock
// overflows.
inline std::chrono::nanoseconds nanoseconds_of(double seconds) {
  constexpr double kMost = 100.0 * 365 * 24 * 3600;
  if (std::isnan(seconds)) throw std::invalid_argument("a time must be a number");
  seconds = std::clamp(seconds, 0.0, kMost);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

inline double seconds_of(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

template <typename Enum>
Enum checked_code(int code, int count, const char* what) {
  if (code < 0 || code >= count) throw std::invalid_argument(std::string("unknown ") + what);
  return static_cast<Enum>(code);
}

inline void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

// The contiguous memory that an object lends by the buffer protocol, held until this is destroyed,
// which needs the GIL. Raises BufferError for an object that is not contiguous, or that must be
// written but is read-only.
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

  // Raises ValueError for elements of another size, and for fewer than `least` elements.
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
