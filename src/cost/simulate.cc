#include "cost/simulate.h"

#include "cost/contention.h"

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
  if (!model_.cluster.has_contention()) return makespan_ = run_alone(order);
  for (const Place place : order) {
    if (model_.kinds[place] == StepKind::kKernel) kernels_.push_back(place);
    if (model_.is_costed_launch(place)) collectives_.push_back(place);
  }
  return makespan_ = run_contended(model_, order, times_);
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

// --------------------------------------------------------------------------- overlap

OverlapSums Simulator::measure(std::vector<double>* exposed) {
  busy_.clear();
  for (const Place place : kernels_) busy_.add(times_[place]);
  OverlapSums sums{.makespan = makespan_, .compute = busy_.seconds()};
  sums.group_comm.assign(model_.step_groups.size(), 0);
  sums.group_exposed.assign(model_.step_groups.size(), 0);
  if (exposed != nullptr) exposed->clear();
  double exposed_sum = 0;
  running_.clear();
  for (const Place place : collectives_) {
    running_.push_back(times_[place]);
    const double seconds = times_[place].seconds(), hidden = busy_.within(times_[place]);
    sums.comm += seconds;
    exposed_sum += seconds - hidden;
    sums.group_comm[model_.groups[place]] += seconds;
    sums.group_exposed[model_.groups[place]] += seconds - hidden;
    ++(hidden >= 0.99 * seconds ? sums.full : hidden <= 0.01 * seconds ? sums.none : sums.part);
    if (exposed != nullptr) exposed->push_back(seconds - hidden);
  }
  sums.exposed = busy_.idle_under(running_);
  // Sums of times in another order may be off by their rounding.
  sums.idle = std::max(0.0, sums.makespan - sums.compute - sums.exposed);
  if (sums.comm > 0) sums.hidden = std::clamp(1 - exposed_sum / sums.comm, 0.0, 1.0);
  return sums;
}

std::vector<Place> given_order(const StepModel& model) {
  std::vector<Place> order(model.size());
  std::iota(order.begin(), order.end(), Place{0});
  return order;
}

}  // namespace epweave
