// Turns exceptions on the threads of the engine into errors, even if there is no memory.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/error.hpp"

namespace sparsewire::comm {

// The error of a whole communicator.
inline Error error_of(const std::exception& exception, Rank rank) noexcept {
  return error_saying(ErrorCode::aborted, rank, [&] {
    const std::string who = "rank " + std::to_string(rank);
    const bool is_memory = dynamic_cast<const std::bad_alloc*>(&exception) != nullptr;
    return is_memory ? who + " ran out of memory" : who + " failed: " + exception.what();
  });
}

// Makes a call. It throws only if memory has run out, or if the system refuses a descriptor.
template <typename Call>
Status guarded(Call&& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::resources, kNoRank, "out of memory"};  // short enough to need none
  } catch (const std::exception& exception) {
    return error_saying(ErrorCode::resources, kNoRank,
                        [&] { return std::string(exception.what()); });
  }
}

}  // namespace sparsewire::comm
