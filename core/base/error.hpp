// Errors as values: a code, the rank to blame and a text; and a Result: a value or an error.
#pragma once

#include <new>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/types.hpp"

namespace sparsewire {

enum class ErrorCode : std::uint8_t {
  peer_lost = 0,
  timeout,
  protocol,
  mismatch,
  aborted,
  closed,
  input,
  resources,
  unreachable  // connections live, but datagrams do not pass any more
};
inline constexpr std::uint8_t kErrorCodeCount = 9;

constexpr std::string_view name_of(ErrorCode code) {
  constexpr std::string_view names[kErrorCodeCount] = {"peer_lost", "timeout",   "protocol",
                                                       "mismatch",  "aborted",   "closed",
                                                       "input",     "resources", "unreachable"};
  return names[static_cast<std::size_t>(code)];
}

struct Error {
  ErrorCode code = ErrorCode::protocol;
  Rank rank = kNoRank;  // The rank to blame, if there is one.
  std::string message;
};

// Never throws: without memory for the text, the error says just that.
template <typename MakeText>
Error error_saying(ErrorCode code, Rank rank, MakeText&& make_text) noexcept {
  try {
    return {code, rank, make_text()};
  } catch (const std::bad_alloc&) {
    return {code, rank, "out of memory"};  // short enough to need none
  }
}

inline Error safe_copy(const Error& error) noexcept {
  return error_saying(error.code, error.rank, [&] { return error.message; });
}

inline Error protocol_error(std::string message) {
  return Error{ErrorCode::protocol, kNoRank, std::move(message)};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() { return std::get<0>(state_); }
  const T& operator*() const { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

// The outcome of an action that yields nothing: an error, or none.
using Status = std::optional<Error>;

}  // namespace sparsewire
