// What a communicator tells about itself: to people who ask, and to the timeline.
#include <utility>

#include "comm/communicator.hpp"
#include "comm/lanes/lane_group.hpp"
#include "comm/progress/exceptions.hpp"
#include "comm/records/timeline.hpp"

namespace sparsewire::comm {
namespace {

// The most operations that a survey lists.
constexpr std::size_t kOperationsTold = 64;

Current current_of(const Operation& operation, Clock::time_point issued) {
  return {std::string(wire::name_of(operation.arguments().call.descriptor.purpose.collective)),
          operation.seq(), Clock::now() - issued};
}

std::uint64_t bytes_of(const wire::Descriptor& descriptor) {
  return descriptor.count * element_size(descriptor.dtype);
}

}  // namespace

std::optional<Current> Communicator::oldest_locked() const {
  if (in_flight_.empty()) return {};
  const InFlight& oldest = in_flight_.begin()->second;
  return current_of(*oldest.operation, oldest.issued);
}

// All of a survey but the lanes' answers.
Survey Communicator::survey_locked() const {
  Survey survey{.in_flight = in_flight_.size(), .failure = broken_};
  for (const auto& [seq, in_flight] : in_flight_) {
    if (survey.operations.size() == kOperationsTold) break;
    const wire::Descriptor& descriptor = in_flight.operation->arguments().call.descriptor;
    survey.operations.push_back({current_of(*in_flight.operation, in_flight.issued),
                                 bytes_of(descriptor),
                                 in_flight.state == InFlight::State::agreeing});
  }
  for (const auto& [peer, entry] : silent_) {
    const auto& [silence, since] = entry;
    survey.silent.push_back(silence);
    survey.silent.back().lasted = milliseconds_of(Clock::now()) - milliseconds_of(since);
  }
  survey.lanes.resize(lanes_.size());
  return survey;
}

// Lanes that have ended, or are in one turn for too long, do not answer.
Survey Communicator::survey(Clock::duration patience) const {
  Survey survey;
  {
    const std::lock_guard lock(mutex_);
    survey = survey_locked();
    if (closed_) return survey;
  }
  std::vector<std::future<LaneSurvey>> answers;
  for (const auto& lane : lanes_) {
    const auto answer = std::make_shared<std::promise<LaneSurvey>>();
    answers.push_back(answer->get_future());
    lane->survey(kOperationsTold, answer);
  }
  const auto until = Clock::now() + patience;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (answers[lane].wait_until(until) != std::future_status::ready) continue;
    try {
      survey.lanes[lane] = answers[lane].get();
    } catch (const std::future_error&) {  // The group left before it could answer.
    }
  }
  return survey;
}

// --- The timeline ---

void Communicator::tell_begin(InFlight& in_flight) const {
  const Operation& operation = *in_flight.operation;
  const wire::Call& call = operation.arguments().call;
  TimelineEvent event{
      .at = in_flight.issued,
      .edge = TimelineEvent::Edge::begin,
      .slice = {wire::name_of(call.descriptor.purpose.collective), number_, operation.seq()}};
  event.figures[0] = {"elements", static_cast<double>(call.descriptor.count)};
  event.figures[1] = {"tensor_bytes", static_cast<double>(bytes_of(call.descriptor))};
  in_flight.is_told = timeline_->begin(std::move(event));
}

void Communicator::tell_end(const InFlight& in_flight) const {
  if (!in_flight.is_told) return;
  const Operation& operation = *in_flight.operation;
  const wire::Call& call = operation.arguments().call;
  TimelineEvent event{
      .at = Clock::now(),
      .edge = TimelineEvent::Edge::end,
      .slice = {wire::name_of(call.descriptor.purpose.collective), number_, operation.seq()}};
  const auto named = operation.named();
  if (named && call.descriptor.count != 0) {
    event.figures[0] = {"density",
                        static_cast<double>(*named) / static_cast<double>(call.descriptor.count)};
  }
  if (in_flight.failure) event.words = safe_copy(*in_flight.failure).message;
  timeline_->note(std::move(event));
}

}  // namespace sparsewire::comm
