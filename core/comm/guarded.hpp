// A call on a progress thread, with what it throws made an error: memory that ran out, or the
// system's refusal of a descriptor or a thread.
#pragma once

#include <exception>
#include <new>

#include "base/error.hpp"

namespace sparsewire::comm {

template <typename Call>
Status guarded(Call&& call) noexcept {
  try {
    try {
      return call();
    } catch (const std::bad_alloc&) {
      return Error{ErrorCode::resources, kNoRank, "out of memory"};
    } catch (const std::exception& exception) {
      return Error{ErrorCode::resources, kNoRank, exception.what()};
    }
  } catch (const std::exception&) {  // No memory for the text either; this one needs none.
    return Error{ErrorCode::resources, kNoRank, "out of memory"};
  }
}

}  // namespace sparsewire::comm
