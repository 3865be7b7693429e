// Helpers for system calls: one turns a refusal into an exception, one repeats an interrupted call.
#pragma once

#include <cerrno>
#include <system_error>

namespace sparsewire::net {

// Returns the result; throws std::system_error if the call was refused.
inline int checked(int result, const char* call) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), call);
  return result;
}

// The result of the first call that no signal interrupted.
template <typename Call>
auto uninterrupted(Call&& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace sparsewire::net
