#include "cost/contention.h"

#include <algorithm>
#include <limits>

namespace epweave {
namespace {

using Event = std::uint32_t;
constexpr Event kNoEvent = ~Event{0};

// What must be done before what, with the streams' order written out: an event for each node, and
// one for each launch by the host.
class ContendedRun {
 public:
  ContendedRun(const StepModel& model, std::span<const Place> order)
      : model_(model), event_of_(model.size(), kNoEvent), group_tail_(model.step_groups.size(), kNoEvent) {
    for (const Place place : order) add(place);
    find_users();
  }

  double run(std::vector<Interval>& times) {
    running_.assign(model_.step_groups.size() + 2, kNoEvent);
    for (Event event = 0; event < seconds_.size(); ++event)
      if (missing_[event] == 0) ready_.push_back(event);
    for (;;) {
      start_ready();
      if (!advance()) break;
    }
    for (Place place = 0; place < model_.size(); ++place)
      if (event_of_[place] != kNoEvent) times[place] = {start_[event_of_[place]], end_[event_of_[place]]};
    return now_;
  }

 private:
  static constexpr std::uint32_t kNoStream = ~0U;
  // Streams: compute, the groups, the host.
  std::uint32_t host() const { return static_cast<std::uint32_t>(model_.step_groups.size()) + 1; }

  Event make(std::uint32_t stream, double seconds) {
    streams_.push_back(seconds > 0 ? stream : kNoStream);
    seconds_.push_back(seconds);
    missing_.push_back(0);
    return static_cast<Event>(seconds_.size() - 1);
  }
  void after(Event event, Event before) {
    if (before == kNoEvent) return;
    pairs_.emplace_back(before, event);
    ++missing_[event];
  }
  Event launch_by_host() {
    if (model_.cluster.host_us > 0) {
      const Event issue = make(host(), model_.cluster.host_us * 1e-6);
      after(issue, host_tail_);
      host_tail_ = issue;
    }
    return host_tail_;
  }

  void add(Place place) {
    const bool host_sync = model_.cluster.host_sync != 0;
    const StepKind kind = model_.kinds[place];
    const bool is_costed = model_.is_costed_launch(place);
    const bool is_issued = kind == StepKind::kKernel || kind == StepKind::kLaunch;
    const Event issued = is_issued ? launch_by_host() : kNoEvent;
    const Event event = make(kind == StepKind::kKernel ? 0
                             : is_costed               ? model_.groups[place] + 1
                                                       : kNoStream,
                             is_issued ? model_.seconds[place] : 0);
    event_of_[place] = event;
    for (const Place input : model_.inputs[place]) after(event, event_of_[input]);
    after(event, issued);
    if (kind == StepKind::kKernel) {
      after(event, compute_tail_);
      compute_tail_ = event;
      if (model_.stops_host[place] != 0 && host_sync) host_tail_ = event;
    } else if (is_costed) {
      Event& tail = group_tail_[model_.groups[place]];
      after(event, tail);
      if (model_.cluster.launch_joins != 0) after(event, compute_tail_);
      tail = event;
    } else if (kind == StepKind::kWait) {
      after(event, event_of_[model_.launches[place]]);
      // What joins the stream is done when both are; the wait's own value when its launch is.
      const Event join = make(kNoStream, 0);
      after(join, event);
      after(join, compute_tail_);
      compute_tail_ = join;
    } else if (kind == StepKind::kItem && host_sync) {
      const Event stop = make(kNoStream, 0);
      after(stop, event);
      after(stop, host_tail_);
      host_tail_ = stop;
    }
  }

  void find_users() {
    begins_.assign(seconds_.size() + 1, 0);
    for (const auto& pair : pairs_) ++begins_[pair.first + 1];
    for (std::size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
    users_.resize(pairs_.size());
    std::vector<std::uint32_t> next(begins_.begin(), begins_.end() - 1);
    for (const auto& [before, event] : pairs_) users_[next[before]++] = event;
    start_.assign(seconds_.size(), 0);
    end_.assign(seconds_.size(), 0);
    left_ = seconds_;
  }

  // Events without time are done at once; each stream has at most one that is ready, for its order
  // is written out.
  void start_ready() {
    while (!ready_.empty()) {
      const Event event = ready_.back();
      ready_.pop_back();
      start_[event] = now_;
      if (streams_[event] == kNoStream) {
        finish(event);
      } else {
        running_[streams_[event]] = event;
      }
    }
  }
  void finish(Event event) {
    end_[event] = now_;
    for (std::uint32_t i = begins_[event]; i < begins_[event + 1]; ++i)
      if (--missing_[users_[i]] == 0) ready_.push_back(users_[i]);
  }

  // To the next end of something; false: nothing runs.
  bool advance() {
    double step = std::numeric_limits<double>::infinity();
    for (std::uint32_t stream = 0; stream < running_.size(); ++stream)
      if (running_[stream] != kNoEvent) step = std::min(step, left_[running_[stream]] / rate_of(stream));
    if (step == std::numeric_limits<double>::infinity()) return false;
    rates_.clear();
    for (std::uint32_t stream = 0; stream < running_.size(); ++stream)
      rates_.push_back(running_[stream] == kNoEvent ? 0 : rate_of(stream));
    now_ += step;
    for (std::uint32_t stream = 0; stream < running_.size(); ++stream) {
      const Event event = running_[stream];
      if (event == kNoEvent) continue;
      left_[event] -= step * rates_[stream];
      if (left_[event] > 1e-15) continue;
      running_[stream] = kNoEvent;
      finish(event);
    }
    return true;
  }

  double rate_of(std::uint32_t stream) const {
    if (stream == host()) return 1;
    std::size_t communicating = 0, sharing = 0;
    for (std::uint32_t other = 1; other < host(); ++other) {
      if (running_[other] == kNoEvent) continue;
      ++communicating;
      sharing += stream > 0 && crosses(other) == crosses(stream);
    }
    if (stream == 0) return communicating > 0 ? model_.cluster.compute_rate : 1;
    const double rate = running_[0] != kNoEvent ? model_.cluster.comm_rate : 1;
    return model_.cluster.share_links != 0 ? rate / static_cast<double>(sharing) : rate;
  }
  bool crosses(std::uint32_t stream) const { return model_.step_groups[stream - 1].nodes > 1; }

  const StepModel& model_;
  std::vector<Event> event_of_;
  std::vector<std::uint32_t> streams_;
  std::vector<double> seconds_, left_, start_, end_;
  std::vector<std::uint32_t> missing_, begins_, users_;
  std::vector<std::pair<Event, Event>> pairs_;
  Event compute_tail_ = kNoEvent, host_tail_ = kNoEvent;
  std::vector<Event> group_tail_;
  std::vector<Event> ready_, running_;  // running: by stream
  std::vector<double> rates_;
  double now_ = 0;
};

}  // namespace

double run_contended(const StepModel& model, std::span<const Place> order, std::vector<Interval>& times) {
  return ContendedRun(model, order).run(times);
}

}  // namespace epweave
