// What an exception on a thread of the engine, or on a caller's, becomes: the error of a whole
// communicator or job.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "base/error.hpp"

namespace sparsewire::comm {

// `rank` is kNoRank where the thread is an aggregator's.
inline Error error_of(const std::exception& exception, Rank rank) noexcept {
  return error_saying(ErrorCode::aborted, rank, [&] {
    const auto who =
        rank == kNoRank ? std::string("an aggregator") : "rank " + std::to_string(rank);
    const bool is_memory = dynamic_cast<const std::bad_alloc*>(&exception) != nullptr;
    return is_memory ? who + " ran out of memory" : who + " failed: " + exception.what();
  });
}

}  // namespace sparsewire::comm
