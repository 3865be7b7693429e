// Reads disturbances from text, and deals out fates.
#include "net/udp/disturbance.hpp"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

namespace sparsewire::net {
namespace {

constexpr std::uint64_t kMostDelay = 1'000'000;  // us

struct Share {
  std::string_view name;
  double Disturbance::* member;
};
constexpr Share kShares[] = {{"loss", &Disturbance::loss},
                             {"duplicate", &Disturbance::duplicate},
                             {"reorder", &Disturbance::reorder},
                             {"corrupt", &Disturbance::corrupt}};

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end) return {};
  return number;
}

Error unclear(std::string_view item, const char* expected) {
  return {ErrorCode::input, kNoRank,
          "disturbance: \"" + std::string(item) + "\": expected " + expected};
}

std::optional<Microseconds> delay_of(std::string_view text) {
  if (text.size() < 3) return {};
  const std::string_view unit = text.substr(text.size() - 2);
  const auto number = number_of<std::uint32_t>(text.substr(0, text.size() - 2));
  if (!number || (unit != "us" && unit != "ms")) return {};
  const std::uint64_t delay = std::uint64_t{*number} * (unit == "ms" ? 1000 : 1);
  if (delay > kMostDelay) return {};
  return Microseconds(delay);
}

Status read_share(std::string_view item, std::string_view value, double& share) {
  const auto number = number_of<double>(value);
  if (!number || !(*number >= 0 && *number <= 1)) return unclear(item, "a share from 0 to 1");
  share = *number;
  return {};
}

Status read_item(std::string_view item, std::string_view name, std::string_view value,
                 Disturbance& into) {
  for (const Share& share : kShares) {
    if (name == share.name) return read_share(item, value, into.*share.member);
  }
  if (name == "delay") {
    const auto delay = delay_of(value);
    if (!delay) return unclear(item, "whole us or ms, such as 200us, and 1000ms at most");
    into.delay = *delay;
  } else if (name == "seed") {
    const auto seed = number_of<std::uint64_t>(value);
    if (!seed) return unclear(item, "a whole number");
    into.seed = *seed;
  } else {
    return unclear(item, "loss, duplicate, reorder, corrupt, delay or seed, and \"=\"");
  }
  return {};
}

void flip_bit(std::span<std::byte> data, std::uint64_t draw) {
  if (data.empty()) return;
  const std::size_t bit = draw % (8 * data.size());
  data[bit / 8] ^= std::byte{1} << bit % 8;
}

}  // namespace

Result<Disturbance> parse_disturbance(std::string_view text) {
  Disturbance read;
  std::vector<std::string_view> names;
  while (true) {
    const std::string_view item = text.substr(0, text.find(','));
    const std::string_view name = item.substr(0, item.find('='));
    const std::string_view value = item.substr(std::min(item.size(), name.size() + 1));
    if (std::ranges::find(names, name) != names.end()) return unclear(item, "each name once");
    names.push_back(name);
    if (Status error = read_item(item, name, value, read)) return *std::move(error);
    if (item.size() == text.size()) return read;
    text.remove_prefix(item.size() + 1);
  }
}

Disturber::Disturber(const Disturbance& disturbance, Direction direction)
    : disturbance_(disturbance),
      state_(disturbance.seed * 2 + static_cast<std::uint64_t>(direction)) {
  state_ = draw();
}

// SplitMix64.
std::uint64_t Disturber::draw() {
  std::uint64_t mixed = state_ += 0x9E3779B97F4A7C15u;
  mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
  return mixed ^ mixed >> 31;
}

bool Disturber::happens(double share) {
  return static_cast<double>(draw() >> 11) * 0x1p-53 < share;
}

Microseconds Disturber::detour() {
  return Microseconds(1 + draw() % static_cast<std::uint64_t>(kMostDetour.count()));
}

Disturber::Fate Disturber::next_fate() {
  Fate fate;
  fate.is_lost = happens(disturbance_.loss);
  fate.is_doubled = happens(disturbance_.duplicate);
  fate.is_reordered = happens(disturbance_.reorder);
  fate.is_corrupt = happens(disturbance_.corrupt);
  fate.detour = detour();
  fate.detour_of_double = detour();
  fate.bit = draw();
  if (fate.is_lost) fate.is_doubled = fate.is_reordered = fate.is_corrupt = false;
  return fate;
}

void Disturber::count(const Fate& fate) {
  counters_.lost += fate.is_lost;
  counters_.duplicated += fate.is_doubled;
  counters_.reordered += fate.is_reordered;
  counters_.corrupted += fate.is_corrupt;
}

void Disturber::pass(std::span<std::byte> data, const Address& address, Microseconds now,
                     const Visit& visit) {
  const Fate fate = next_fate();
  count(fate);
  if (fate.is_lost) return;
  const Microseconds due = now + disturbance_.delay;
  if (fate.is_doubled) hold(data, address, due + fate.detour_of_double);
  if (fate.is_corrupt) flip_bit(data, fate.bit);
  if (fate.is_reordered) {
    hold(data, address, due + fate.detour);
  } else if (due != now) {
    hold(data, address, due);
  } else {
    visit(data, address);
  }
}

void Disturber::hold(std::span<const std::byte> data, const Address& address, Microseconds due) {
  if (held_.size() == kMostHeld) {
    ++counters_.lost;
    return;
  }
  held_.emplace(due, Parcel{address, {data.begin(), data.end()}});
}

void Disturber::release(Microseconds now, const Visit& visit) {
  while (!held_.empty() && held_.begin()->first <= now) {
    auto due = held_.extract(held_.begin());
    visit(due.mapped().data, due.mapped().address);
  }
}

std::optional<Microseconds> Disturber::next_due() const {
  if (held_.empty()) return {};
  return held_.begin()->first;
}

}  // namespace sparsewire::net
