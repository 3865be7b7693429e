// Positions are found by comparing bits. A code is read as a whole, and checked, before the first
// weight changes.
#include "weights/delta.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "kernels/bit_fields.hpp"
#include "weights/changes.hpp"
#include "weights/found.hpp"
#include "weights/numbers.hpp"
#include "weights/planes.hpp"

namespace sparsewire::weights {
namespace {

// An estimate from a sample is hardly too large by this share.
constexpr std::size_t kDoubt = 8;

// Where fewer elements than this share stayed, values would save less than their positions take.
constexpr std::size_t kStayedShare = 256;

// What is known of a chunk's changes, and how to write them in each form.
template <typename T>
class Coding {
 public:
  Coding(const Found<T>& found, const std::byte* fresh, std::size_t count)
      : found_(found),
        changed_(fresh, sizeof(T), found.changed, found.positions.get()),
        all_(fresh, sizeof(T), count, nullptr),
        are_most_(count - found.changed < count / kStayedShare + 1),
        positions_(kCountBytes) {
    store_32(positions_.data(), static_cast<std::uint32_t>(found.changed));
    encode_numbers(gaps_of(found.all_positions()), positions_);
  }

  std::size_t estimate(Form form) const {
    if (form == Form::whole) return all_.estimate();
    const bool has_steps = form == Form::steps;
    if (!has_steps && are_most_) return std::numeric_limits<std::size_t>::max();
    return positions_.size() +
           (has_steps ? estimate_numbers(found_.all_steps()) : changed_.estimate());
  }

  std::vector<std::byte> code(Form form) const {
    const std::size_t before = form == Form::whole ? 0 : positions_.size();
    std::vector<std::byte> out(1 + before);
    out[0] = static_cast<std::byte>(form);
    std::copy_n(positions_.data(), before, out.data() + 1);
    if (form == Form::steps) {
      encode_numbers(found_.all_steps(), out);
    } else {
      (form == Form::values ? changed_ : all_).put(out);
    }
    return out;
  }

 private:
  const Found<T>& found_;
  Planes changed_;
  Planes all_;
  bool are_most_;
  std::vector<std::byte> positions_;
};

// A form, and what it is estimated to take.
struct Candidate {
  std::size_t estimate;
  Form form;
};

template <typename T>
std::array<Candidate, 3> candidates_of(const Coding<T>& coding) {
  std::array<Candidate, 3> candidates{};
  std::ranges::transform(std::array{Form::steps, Form::values, Form::whole}, candidates.begin(),
                         [&](Form form) { return Candidate{coding.estimate(form), form}; });
  std::ranges::sort(candidates, {}, &Candidate::estimate);
  return candidates;
}

// The shortest of the codes that may be it. Its first byte is its form.
template <typename T>
std::vector<std::byte> shortest(const Coding<T>& coding) {
  const auto [first, second, third] = candidates_of(coding);
  std::vector<std::byte> best = coding.code(first.form);
  for (const Candidate& other : {second, third}) {
    if (other.estimate - other.estimate / kDoubt >= best.size()) break;
    std::vector<std::byte> code = coding.code(other.form);
    if (code.size() < best.size()) best = std::move(code);
  }
  return best;
}

template <typename T>
Encoded encode(Numbers numbers, const std::byte* base, const std::byte* fresh, std::size_t count,
               std::vector<std::byte>& out) {
  const Found<T> found = find_changes<T>(numbers, base, fresh, count);
  if (found.changed == 0) {
    out.push_back(static_cast<std::byte>(Form::same));
    return {Form::same, 0};
  }
  const std::vector<std::byte> code = shortest(Coding<T>(found, fresh, count));
  out.insert(out.end(), code.begin(), code.end());
  return {static_cast<Form>(code[0]), found.changed};
}

template <typename T>
void write(const Changes& changes, Numbers numbers, std::byte* weights) {
  const bool are_values = changes.form == Form::values;
  const std::span<const std::byte> positions = std::as_bytes(std::span(changes.positions));
  for (std::size_t i = 0; i < changes.positions.size(); ++i) {
    fetch_ahead<T>(positions.data(), i, changes.positions.size(), weights);
    const std::uint32_t at = changes.positions[i];
    const T told = load<T>(changes.payload.data(), i);
    store(weights, at, are_values ? told : stepped(load<T>(weights, at), told, numbers));
  }
}

}  // namespace

Encoded encode_delta(Elements elements, const std::byte* base, const std::byte* fresh,
                     std::size_t count, std::vector<std::byte>& out) {
  return for_width(elements.width, [&]<typename T>(T) {
    return encode<T>(elements.numbers, base, fresh, count, out);
  });
}

bool apply_delta(Elements elements, std::span<const std::byte> code, std::byte* weights,
                 std::size_t count) {
  const std::optional<Changes> changes = read_changes(elements, code, count);
  if (!changes) return false;
  if (changes->form == Form::whole) {
    std::memcpy(weights, changes->payload.data(), changes->payload.size());
    return true;
  }
  for_width(elements.width, [&]<typename T>(T) { write<T>(*changes, elements.numbers, weights); });
  return true;
}

bool is_delta(Elements elements, std::span<const std::byte> code, std::size_t count) {
  return read_changes(elements, code, count).has_value();
}

}  // namespace sparsewire::weights
