// Work without Python's lock, which is safe at the end of the interpreter, too.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace sparsewire::bindings {

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

}  // namespace sparsewire::bindings
