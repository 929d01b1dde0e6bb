#include "cost/simulate.h"

#include <algorithm>
#include <numeric>

namespace epweave {

Simulator::Simulator(const StepModel& model) : model_(model) {
  times_.resize(model.size());
  group_free_.resize(model.step_groups.size());
  kernels_.reserve(model.size());
  collectives_.reserve(model.size());
}

double Simulator::run(std::span<const Place> order) {
  kernels_.clear();
  collectives_.clear();
  makespan_ = model_.cluster.has_contention() ? run_contended(order) : run_alone(order);
  return makespan_;
}

double Simulator::run_alone(std::span<const Place> order) {
  const StepModel& m = model_;
  const double issue = m.cluster.host_us * 1e-6;
  const bool host_sync = m.cluster.host_sync != 0, joins = m.cluster.launch_joins != 0;
  std::ranges::fill(group_free_, 0.0);
  double host = 0, compute = 0, last = 0;
  for (const Place place : order) {
    double ready = 0;
    for (const Place input : m.inputs[place]) ready = std::max(ready, times_[input].end);
    Interval& time = times_[place];
    switch (m.kinds[place]) {
      case StepKind::kKernel:
        host += issue;
        time.start = std::max({compute, host, ready});
        time.end = compute = time.start + m.seconds[place];
        kernels_.push_back(place);
        if (m.stops_host[place] != 0 && host_sync) host = std::max(host, compute);
        break;
      case StepKind::kLaunch: {
        host += issue;
        if (m.seconds[place] == 0) {
          time.start = time.end = std::max(ready, host);
          break;
        }
        double& free = group_free_[m.groups[place]];
        time.start = std::max({free, host, ready, joins ? compute : 0});
        time.end = free = time.start + m.seconds[place];
        last = std::max(last, time.end);
        collectives_.push_back(place);
        break;
      }
      case StepKind::kWait: {
        const double done = times_[m.launches[place]].end;
        if (done > std::max(compute, host)) compute = done;
        time.start = time.end = std::max(done, ready);
        break;
      }
      case StepKind::kItem:
        time.start = time.end = ready;
        if (host_sync) host = std::max(host, ready);
        break;
      default:
        time.start = time.end = ready;
        break;
    }
  }
  return std::max({compute, host, last});
}

double Simulator::run_contended(std::span<const Place> order) {
  return run_alone(order);
}

// --------------------------------------------------------------------------- overlap

void Simulator::merge_busy() {
  busy_.clear();
  busy_sum_.clear();
  for (const Place place : kernels_) {
    const Interval time = times_[place];
    if (!busy_.empty() && busy_.back().end >= time.start - 1e-15) {
      busy_.back().end = time.end;
    } else {
      busy_.push_back(time);
    }
  }
  double sum = 0;
  for (const Interval& interval : busy_) {
    busy_sum_.push_back(sum);
    sum += interval.end - interval.start;
  }
}

// Seconds for which the compute stream was busy before `time`.
double Simulator::busy_until(double time) const {
  const auto after = std::ranges::upper_bound(busy_, time, {}, &Interval::start);
  if (after == busy_.begin()) return 0;
  const auto at = static_cast<std::size_t>(after - busy_.begin()) - 1;
  return busy_sum_[at] + std::min(time, busy_[at].end) - busy_[at].start;
}

// Seconds for which some collective ran and no kernel did.
double Simulator::exposed_union() {
  running_.clear();
  for (const Place place : collectives_) running_.push_back(times_[place]);
  std::ranges::sort(running_, {}, &Interval::start);
  double exposed = 0;
  for (std::size_t i = 0; i < running_.size();) {
    Interval all = running_[i++];
    for (; i < running_.size() && running_[i].start <= all.end; ++i)
      all.end = std::max(all.end, running_[i].end);
    exposed += all.end - all.start - busy_within(all);
  }
  return exposed;
}

OverlapSums Simulator::measure(std::vector<double>* exposed) {
  merge_busy();
  OverlapSums sums{.makespan = makespan_};
  for (const Interval& interval : busy_) sums.compute += interval.end - interval.start;
  sums.group_comm.assign(model_.step_groups.size(), 0);
  sums.group_exposed.assign(model_.step_groups.size(), 0);
  if (exposed != nullptr) exposed->clear();
  double exposed_sum = 0;
  for (const Place place : collectives_) {
    const double seconds = end(place) - start(place), hidden = busy_within(times_[place]);
    sums.comm += seconds;
    exposed_sum += seconds - hidden;
    sums.group_comm[model_.groups[place]] += seconds;
    sums.group_exposed[model_.groups[place]] += seconds - hidden;
    ++(hidden >= 0.99 * seconds ? sums.full : hidden <= 0.01 * seconds ? sums.none : sums.part);
    if (exposed != nullptr) exposed->push_back(seconds - hidden);
  }
  sums.exposed = exposed_union();
  sums.idle = sums.makespan - sums.compute - sums.exposed;
  if (sums.comm > 0) sums.hidden = 1 - exposed_sum / sums.comm;
  return sums;
}

std::vector<Place> given_order(const StepModel& model) {
  std::vector<Place> order(model.size());
  std::iota(order.begin(), order.end(), Place{0});
  return order;
}

}  // namespace epweave
