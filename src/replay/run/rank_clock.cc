#include "replay/run/rank_clock.h"

#include <time.h>

#include <utility>

namespace epweave::replay {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double seconds_of(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// Seconds that this thread has computed; another thread on its core does not count.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

bool RankClock::takes_spans_of(const RunOptions& options, Rank rank) {
  const Measuring* measuring = options.measuring;
  return measuring != nullptr && measuring->spans == Spans::kOfNodes &&
         measuring->alone.value_or(rank) == rank;
}

// On a device a span of nothing comes first: it lies between the clock's readings around it.
void RankClock::start() {
  start_ = Clock::now();
  began_ = seconds_of(start_);
  if (!takes_spans_ || device_ == nullptr) return;
  const Clock::time_point before = Clock::now();
  device_->begin_span(NodeId(), 0);
  device_->end_span();
  device_->synchronize();
  began_within_ = seconds_since(before) / 2;
  began_ = seconds_of(before) + began_within_;
}

void RankClock::start_working() {
  if (is_working_) return;
  if (device_ != nullptr) device_->synchronize();  // inputs are in place: their copies were queued
  is_working_ = true;
  work_start_ = Clock::now();
}

double RankClock::working_seconds() const {
  return seconds_since(work_start_);
}

// To ask how long a thread has computed is a call of the system, as long as a launch: where kernels
// run elsewhere it is not worth it.
double RankClock::host_seconds() const {
  return device_ == nullptr ? thread_seconds() : seconds_since(start_);
}

void RankClock::begin_span(NodeId id, std::uint32_t stream) {
  if (device_ != nullptr) return device_->begin_span(id, stream);
  spans_.push_back({id, stream, seconds_since(start_), 0});
}

void RankClock::end_span() {
  if (device_ != nullptr) return device_->end_span();
  spans_.back().end = seconds_since(start_);
}

void RankClock::hand_over(RankResult& result) {
  result.began = began_;
  result.began_within = began_within_;
  if (device_ != nullptr) {
    spans_ = device_->take_spans();
    spans_.erase(spans_.begin());  // that of start()
  }
  if (device_ != nullptr || !spans_.empty()) result.spans = {std::move(spans_)};
}

}  // namespace epweave::replay
