#include "cost/exposure.h"

#include <algorithm>
#include <array>
#include <bit>

#include "cost/live_bytes.h"

namespace epweave {
namespace {

constexpr double kNotHidden = 0.01;  // of its time

class Explainer {
 public:
  Explainer(const StepModel& model, std::span<const Place> order, Simulator& simulator)
      : model_(model),
        order_(order),
        simulator_(simulator),
        positions_(model.size()),
        waits_(model.size(), kNoPlace) {
    for (std::uint32_t i = 0; i < order.size(); ++i) {
      positions_[order[i]] = i;
      const Place launch = model.launches[order[i]];
      if (launch != kNoPlace && waits_[launch] == kNoPlace) waits_[launch] = order[i];
    }
    measure_memory();
  }

  std::vector<CollectiveExposure> run() {
    std::vector<double> exposed;
    simulator_.measure(&exposed);
    const auto collectives = simulator_.collectives();
    std::vector<Place> last_of_group(model_.step_groups.size(), kNoPlace);
    for (std::size_t i = 0; i < collectives.size(); ++i) {
      const Place launch = collectives[i];
      found_.push_back({.launch = launch,
                        .start = simulator_.start(launch),
                        .end = simulator_.end(launch),
                        .exposed = std::max(exposed[i], 0.0)});
      previous_.push_back(std::exchange(last_of_group[model_.groups[launch]], launch));
    }
    for (std::size_t begin = 0; begin < found_.size(); begin += kBlock)
      find_independent(begin, std::min(begin + kBlock, found_.size()));
    for (std::size_t i = 0; i < found_.size(); ++i) explain(i);
    return std::move(found_);
  }

 private:
  using Mask = std::uint64_t;
  static constexpr std::size_t kBlock = 64;

  // Bytes that live while each node runs, by position, and the highest.
  void measure_memory() {
    LiveBytes memory(model_);
    live_.reserve(order_.size());
    for (const Place place : order_) {
      live_.push_back(memory.live() + memory.change(place).made);
      memory.place(place);
    }
    peak_ = memory.peak();
  }

  // For the collectives of a block, a bit each: who needs them among the nodes behind, whom they
  // need among those in front. A kernel behind that does not need one, or in front that it does not
  // need, could run under it.
  void find_independent(std::size_t begin, std::size_t end) {
    const std::uint32_t first = positions_[found_[begin].launch], last = positions_[found_[end - 1].launch];
    const std::uint32_t from = first - std::min(first, kExposureWindow);
    const auto to =
        static_cast<std::uint32_t>(std::min<std::size_t>(order_.size(), std::size_t{last} + kExposureWindow));
    masks_.assign(to - from, 0);
    Mask launched = 0, waited = 0, open = 0, independent = 0;
    double last_end = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (is_hidden(found_[i])) continue;
      open |= Mask{1} << (i - begin);
      last_end = std::max(last_end, found_[i].end);
    }
    std::size_t next = begin;
    for (std::uint32_t at = first; at < to; ++at) {
      const Place place = order_[at];
      Mask needs = 0;
      for (const Place before : model_.before[place])
        if (positions_[before] >= first) needs |= masks_[positions_[before] - from];
      if (next < end && found_[next].launch == place) {
        needs |= Mask{1} << (next - begin);
        launched |= Mask{1} << (next++ - begin);
      }
      masks_[at - from] = needs;
      if (model_.kinds[place] == StepKind::kWait)
        for (std::size_t i = begin; i < next; ++i)
          if (waits_[found_[i].launch] == place) waited |= Mask{1} << (i - begin);
      if (model_.kinds[place] != StepKind::kKernel) continue;
      independent |= launched & ~needs;
      if (const Mask candidates = launched & ~needs & waited & open)
        take_ready(begin, candidates, place, last_end);
    }
    masks_.assign(to - from, 0);
    Mask seen = 0;
    next = end;
    for (std::uint32_t at = last + 1; at-- > from;) {
      const Place place = order_[at];
      Mask needed = 0;
      for (const Place after : model_.after[place])
        if (positions_[after] <= last) needed |= masks_[positions_[after] - from];
      if (next > begin && found_[next - 1].launch == place) {
        needed |= Mask{1} << (--next - begin);
        seen |= Mask{1} << (next - begin);
      }
      masks_[at - from] = needed;
      if (model_.kinds[place] == StepKind::kKernel) independent |= seen & ~needed;
    }
    for (std::size_t i = begin; i < end; ++i)
      found_[i].potentially_hidden = (independent >> (i - begin) & 1) != 0;
  }

  // Notes the kernel for those of the candidates under which it, behind their waits, was ready: the
  // longest counts.
  void take_ready(std::size_t begin, Mask candidates, Place kernel, double last_end) {
    const double ready = ready_at(kernel);
    if (ready >= last_end) return;
    for (; candidates != 0; candidates &= candidates - 1) {
      const auto bit = static_cast<std::size_t>(std::countr_zero(candidates));
      CollectiveExposure& found = found_[begin + bit];
      if (ready >= found.end) continue;
      if (found.hidden_by == kNoPlace || model_.seconds[kernel] > model_.seconds[found.hidden_by])
        found.hidden_by = kernel;
    }
  }
  double ready_at(Place place) const {
    double ready = 0;
    for (const Place before : model_.before[place]) ready = std::max(ready, simulator_.end(before));
    return ready;
  }

  void explain(std::size_t i) {
    CollectiveExposure& found = found_[i];
    const double seconds = found.end - found.start;
    if (is_hidden(found)) return;
    const double ready = ready_at(found.launch);
    const double free = previous_[i] == kNoPlace ? 0 : simulator_.end(previous_[i]);
    const double late = found.start - std::max(ready, free);                  // launched behind other compute
    const double queued = free - std::max(ready, launched_at(found.launch));  // behind another collective
    const Place waited_early = found.hidden_by;
    if (!found.potentially_hidden) return blame(found, ExposureReason::kNoCompute, first_user(found.launch));
    if (queued >= found.exposed / 2) return blame(found, ExposureReason::kQueue, previous_[i]);
    if (late >= found.exposed / 2) return explain_late(found, std::max(ready, free));
    if (waited_early != kNoPlace) return blame(found, ExposureReason::kWaitedEarly, waits_[found.launch]);
    if (queued > kNotHidden * seconds) return blame(found, ExposureReason::kQueue, previous_[i]);
    if (late > kNotHidden * seconds) return explain_late(found, std::max(ready, free));
    blame(found, ExposureReason::kDependence, first_user(found.launch));
  }

  static bool is_hidden(const CollectiveExposure& found) {
    return found.exposed <= kNotHidden * (found.end - found.start);
  }
  static void blame(CollectiveExposure& found, ExposureReason reason, Place place) {
    found.reason = reason;
    found.blame = place;
  }

  // It could have started at `time`: the kernel that ran then could have hidden it, if its result
  // had had room.
  void explain_late(CollectiveExposure& found, double time) {
    const auto kernels = simulator_.kernels();
    const auto start_of = [&](Place place) { return simulator_.start(place); };
    auto kernel = std::ranges::upper_bound(kernels, time, {}, start_of);
    if (kernel != kernels.begin() && simulator_.end(*(kernel - 1)) > time) --kernel;
    if (kernel != kernels.end()) found.hidden_by = *kernel;
    blame(found, ExposureReason::kLaunchedLate, kernel_before(found.launch));
    if (found.hidden_by == kNoPlace) return;
    std::int64_t made = 0;
    for (const std::uint32_t storage : model_.storages[found.launch])
      if (model_.storage_homes[storage] == found.launch) made += model_.storage_bytes[storage];
    // Started as late as still hides it: by its own length.
    const auto latest =
        std::ranges::upper_bound(kernels, found.start - (found.end - found.start), {}, start_of);
    const Place from = latest == kernels.begin() ? kernels.front() : *(latest - 1);
    for (std::uint32_t at = positions_[from]; at < positions_[found.launch]; ++at)
      if (live_[at] + made > peak_) return blame(found, ExposureReason::kMemory, order_[at]);
  }

  // When the compute launched before it is done.
  double launched_at(Place launch) const {
    const Place kernel = kernel_before(launch);
    return kernel == kNoPlace || model_.cluster.launch_joins == 0 ? 0 : simulator_.end(kernel);
  }
  Place kernel_before(Place launch) const {
    const auto kernels = simulator_.kernels();
    const auto behind =
        std::ranges::lower_bound(kernels, positions_[launch], {}, [&](Place k) { return positions_[k]; });
    return behind == kernels.begin() ? kNoPlace : *(behind - 1);
  }

  // The first kernel that needs it, behind its wait and views of it; where there is none, the last
  // of these that reads it. None where nothing does.
  Place first_user(Place launch) const {
    Place at = waits_[launch] == kNoPlace ? launch : waits_[launch];
    for (std::size_t steps = 0; steps < 64; ++steps) {
      const auto users = model_.after[at];
      if (users.empty()) return at == launch ? kNoPlace : at;
      at = *std::ranges::min_element(users, {}, [&](Place user) { return positions_[user]; });
      if (model_.kinds[at] == StepKind::kKernel) return at;
    }
    return at;
  }

  const StepModel& model_;
  std::span<const Place> order_;
  Simulator& simulator_;
  std::vector<std::uint32_t> positions_;
  std::vector<Place> waits_;  // by launch: its first wait
  std::vector<std::int64_t> live_;
  std::int64_t peak_ = 0;
  std::vector<CollectiveExposure> found_;
  std::vector<Place> previous_;  // the collective ahead on its group
  std::vector<Mask> masks_;
};

}  // namespace

std::string_view name_of(ExposureReason reason) {
  static constexpr std::array<std::string_view, 7> kNames = {
      "", "dependence", "queue", "launched-late", "waited-early", "memory", "no-compute"};
  return kNames[static_cast<std::size_t>(reason)];
}

std::vector<CollectiveExposure> explain_exposure(const StepModel& model, std::span<const Place> order,
                                                 Simulator& simulator) {
  return Explainer(model, order, simulator).run();
}

}  // namespace epweave
