#include "passes/bucket/trial_merges.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "cost/live_bytes.h"

namespace epweave {
namespace {

constexpr double kNoTime = 1e-12;       // seconds that do not count
constexpr double kExposedShare = 0.01;  // a collective of which more is exposed is not hidden
// A trial that has not become a shift after as many nodes counts only if it is ahead on every
// stream.
constexpr std::size_t kLookAhead = 20000;

double overlap(Interval a, Interval b) {
  return std::max(0.0, std::min(a.end, b.end) - std::max(a.start, b.start));
}

// Bytes that live while the node at each place runs.
std::vector<std::int64_t> live_by_place(const StepModel& model) {
  LiveBytes memory(model);
  std::vector<std::int64_t> live(model.size());
  for (Place i = 0; i < model.size(); ++i) {
    live[i] = memory.live() + memory.change(i).made;
    memory.place(i);
  }
  return live;
}

std::vector<NodeId> slots_of(const StepModel& model) {
  std::vector<NodeId> slots;
  for (std::uint32_t i = 0; i < model.size(); ++i) slots.emplace_back(i);
  return slots;
}

}  // namespace

double TrialMerges::Lane::end() const {
  double end = compute;
  for (double group : groups) end = std::max(end, group);
  return end;
}

TrialMerges::TrialMerges(const StepModel& model, std::span<const MergeTerms> terms,
                         const BucketKernels& kernels, std::int64_t budget)
    : model_(model),
      terms_(terms),
      kernels_(kernels),
      budget_(budget),
      order_(slots_of(model)),
      steps_(model.size()),
      bucket_at_(model.size()),
      marks_(model.size()),
      seen_(model.storage_bytes.size()),
      times_(model.size()),
      times_with_(model.size()),
      times_without_(model.size()) {
  const std::vector<std::int64_t> live = live_by_place(model);
  for (Place i = 0; i < model.size(); ++i) {
    Step& step = steps_[i];
    step.live = live[i];
    if (model.kinds[i] == StepKind::kKernel) {
      step.work = Work::kKernel;
      step.kernel = model.seconds[i];
    } else if (model.is_costed_launch(i)) {
      step.work = Work::kLaunch;
      step.seconds = model.seconds[i];
      step.group = model.groups[i];
    } else if (model.kinds[i] == StepKind::kWait && model.launches[i] != kNoPlace &&
               model.is_costed_launch(model.launches[i])) {
      step.work = Work::kWait;
      step.launch = model.launches[i];
    }
    stands_for_.push_back(i);
  }
  for (const auto& [done, read] : model.host_reads) steps_[done].is_bound = steps_[read].is_bound = true;
  for (std::uint32_t i = 0; i < terms.size(); ++i) add_bucket(i);
  rewind();
  while (at_ != kNoPlace) {
    const Slot slot = at_;
    advance_to(next(slot));
    if (steps_[slot].work == Work::kWait) {
      const Slot launch = steps_[slot].launch;
      steps_[launch].must_be_hidden =
          exposed(base_, times_[launch]) <= kExposedShare * steps_[launch].seconds;
    }
  }
}

void TrialMerges::add_bucket(std::uint32_t term) {
  const MergeTerms& terms = terms_[term];
  const Slot first = terms.cast == kNoPlace ? terms.launch : terms.cast;
  buckets_.push_back({.members = {term},
                      .first = first,
                      .front = terms.launch,
                      .back = terms.wait,
                      .last = terms.wait,
                      .bytes = terms.bytes,
                      .held = terms.held,
                      .kind = terms.kind});
}

void TrialMerges::rewind() {
  base_ = {};
  base_.groups.assign(model_.step_groups.size(), 0);
  at_ = model_.size() == 0 ? kNoPlace : 0;
}

// --------------------------------------------------------------------------- the clock

void TrialMerges::run(Lane& lane, std::vector<Interval>& times, Slot slot) {
  const Step& step = steps_[slot];
  switch (step.work) {
    case Work::kNone:
      break;
    case Work::kKernel:
      lane.compute += step.kernel;
      break;
    case Work::kLaunch: {
      lane.compute += step.kernel;
      double& group = lane.groups[step.group];
      times[slot].start = std::max(group, lane.compute);
      times[slot].end = group = times[slot].start + step.seconds;
      lane.in_flight.push_back(slot);
      break;
    }
    case Work::kWait: {
      const double end = times[step.launch].end;
      if (end > lane.compute) {
        lane.stalls.push_back({lane.compute, end});
        lane.compute = end;
      }
      std::erase(lane.in_flight, step.launch);
      lane.compute += step.kernel;
      break;
    }
  }
}

void TrialMerges::advance_to(Slot slot) {
  for (; at_ != slot && at_ != kNoPlace; at_ = next(at_)) {
    run(base_, times_, at_);
    if (steps_[at_].work != Work::kLaunch || base_.in_flight.size() > 1) continue;
    // Nothing that runs now has seen the stalls before.
    base_.stalls.clear();
  }
}

double TrialMerges::exposed(const Lane& lane, Interval time) const {
  double sum = 0;
  for (std::size_t i = lane.stalls.size(); i-- > 0 && lane.stalls[i].end > time.start;)
    sum += overlap(lane.stalls[i], time);
  return sum;
}

bool TrialMerges::keeps_hidden(const Lane& lane, Slot wait) const {
  const Slot launch = steps_[wait].launch;
  if (!steps_[launch].must_be_hidden) return true;
  return exposed(lane, times_with_[launch]) <= kExposedShare * steps_[launch].seconds + kNoTime;
}

// --------------------------------------------------------------------------- a trial

std::optional<TrialMerges::BucketId> TrialMerges::try_merge(std::span<const BucketId> ids) {
  if (std::ranges::any_of(ids, [&](BucketId id) { return is_bound(id); })) return {};
  Plan plan = make_plan(ids);
  if (at_ == kNoPlace || precedes(plan.first, at_)) return {};
  for (BucketId id : ids) count_memory(buckets_[id], -1);
  mark(ids, kResult);
  const bool is_good = is_legal(plan, ids) && fits(plan) && (advance_to(plan.first), pays(plan));
  mark(ids, kKept);
  if (!is_good) {
    for (BucketId id : ids) count_memory(buckets_[id], 1);
    return {};
  }
  apply(plan, ids);
  return static_cast<BucketId>(buckets_.size() - 1);
}

TrialMerges::Plan TrialMerges::make_plan(std::span<const BucketId> ids) {
  Plan plan;
  const Bucket& one = buckets_[ids.front()];
  plan.kind = one.kind;
  plan.first = one.first;
  plan.last = one.last;
  Slot first_launch = one.front, first_wait = one.back, last_wait = one.back;
  double latency = 0;
  std::size_t count = 0;
  plan.front.work = Work::kLaunch;
  plan.front.kernel = kernels_.pack;
  plan.back.work = Work::kWait;
  plan.back.kernel = plan.kind == MergeKind::kAllGather ? kernels_.cut_gather : 0;
  for (BucketId id : ids) {
    const Bucket& bucket = buckets_[id];
    if (precedes(bucket.first, plan.first)) plan.first = bucket.first;
    if (precedes(bucket.front, first_launch)) first_launch = bucket.front;
    if (precedes(bucket.back, first_wait)) first_wait = bucket.back;
    last_wait = later(last_wait, bucket.back);
    plan.bytes += bucket.bytes;
    plan.held += bucket.held;
    for (std::uint32_t member : bucket.members) {
      const MergeTerms& terms = terms_[member];
      plan.front.kernel += terms.pack;
      plan.back.kernel += terms.cut;
      plan.front.seconds += model_.seconds[terms.launch] - terms.latency;
      latency = terms.latency;
      plan.front.group = model_.groups[terms.launch];
      plan.front.must_be_hidden |= steps_[terms.launch].must_be_hidden;
      ++count;
    }
  }
  plan.front.seconds += latency;
  plan.anchor = first_launch;
  for (BucketId id : ids)
    for (std::uint32_t member : buckets_[id].members)
      plan.anchor = later(plan.anchor, stands_for_[terms_[member].operand]);
  const Slot wait = plan.kind == MergeKind::kReduceScatter ? last_wait : first_wait;
  plan.back_at = later(wait, plan.anchor);
  plan.last = later(last_wait, plan.anchor);
  return plan;
}

// What a bucket holds beyond what its members hold alone, by the slot:
//
//   gathers       the buffer from its launch on, and, from the cut on, all results
//   reductions    what is sent, until the last of it is there; then the buffer beside it
//   all           what delayed nodes take
template <class Visit>
void TrialMerges::visit_memory(const Bucket& bucket, const Visit& visit) const {
  const bool has_results = bucket.kind != MergeKind::kReduceScatter;
  std::int64_t more = bucket.held;
  for (Slot slot = bucket.first; slot != kNoPlace; slot = next(slot)) {
    std::int64_t here = more;
    if (slot == bucket.front) {
      more = bucket.bytes;
      here = bucket.held + bucket.bytes;
    }
    if (slot == bucket.back) {
      more = has_results ? bucket.bytes : 0;
      here = std::max(here, has_results ? 2 * bucket.bytes : bucket.bytes);
    }
    visit(slot, here + bucket.carried);
    if (slot == bucket.last) break;
  }
}

void TrialMerges::count_memory(const Bucket& bucket, std::int64_t sign) {
  if (bucket.members.size() == 1) return;
  visit_memory(bucket, [&](Slot slot, std::int64_t more) { steps_[slot].live += sign * more; });
}

// By the slots in front of which front and back would be.
bool TrialMerges::fits(const Plan& plan) const {
  const Bucket bucket{.members = {},
                      .first = plan.first,
                      .front = plan.anchor,
                      .back = plan.back_at,
                      .last = plan.last,
                      .bytes = plan.bytes,
                      .held = plan.held,
                      .carried = plan.carried,
                      .kind = plan.kind};
  bool fits = true;
  visit_memory(bucket, [&](Slot slot, std::int64_t more) {
    fits = fits && (more == 0 || steps_[slot].live + more <= budget_);
  });
  return fits;
}

void TrialMerges::mark(std::span<const BucketId> ids, std::uint8_t as) {
  for (BucketId id : ids) {
    const Bucket& bucket = buckets_[id];
    for (std::uint32_t member : bucket.members) {
      const MergeTerms& terms = terms_[member];
      marks_[terms.wait] = as;
      marks_[terms.launch] = as == kKept ? kKept : kRemoved;
      if (terms.cast != kNoPlace) marks_[terms.cast] = as == kKept ? kKept : kRemoved;
    }
    if (bucket.members.size() == 1) continue;
    marks_[bucket.front] = as == kKept ? kKept : kRemoved;
    marks_[bucket.back] = as;
  }
}

// Whether what a launch sends needs a result of the trial.
bool TrialMerges::sends_result(Slot slot) const {
  if (slot < model_.size())
    return steps_[slot].work == Work::kLaunch &&
           std::ranges::any_of(model_.inputs[slot], [&](Place input) { return marks_[input] == kResult; });
  return bucket_at_[slot] != 0 &&
         std::ranges::any_of(buckets_[bucket_at_[slot] - 1].members,
                             [&](std::uint32_t member) { return marks_[terms_[member].operand] == kResult; });
}

// Finds what is delayed. Not legal: one collective needs another's result, or what is delayed would
// pass what must stay behind it for the sake of storage.
bool TrialMerges::is_legal(Plan& plan, std::span<const BucketId> ids) {
  const auto is_result = [&](Place place) { return marks_[place] == kResult; };
  bool is_legal = true;
  for (Slot slot = plan.first; is_legal; slot = next(slot)) {
    const bool is_node = slot < model_.size();
    if (marks_[slot] != kKept || !is_node) {
      is_legal = !sends_result(slot);
    } else if (!steps_[slot].is_merged) {
      if (std::ranges::any_of(model_.inputs[slot], is_result)) {
        marks_[slot] = kResult;
        plan.delayed.push_back(slot);
        is_legal = !steps_[slot].is_bound;
      } else {
        is_legal = std::ranges::none_of(model_.before[slot], is_result);
      }
    }
    if (slot == plan.back_at) break;
  }
  // What a member sends stands in front of its launch, which may be behind the stretch.
  for (BucketId id : ids)
    for (std::uint32_t member : buckets_[id].members)
      is_legal = is_legal && !is_result(terms_[member].operand);
  for (Slot slot : plan.delayed) marks_[slot] = kKept;
  plan.carried = carried_bytes(plan.delayed);
  return is_legal;
}

// Of all storages that the nodes touch: they may live as much longer.
std::int64_t TrialMerges::carried_bytes(std::span<const Slot> delayed) {
  ++plans_;
  std::int64_t bytes = 0;
  for (Slot slot : delayed)
    for (std::uint32_t storage : model_.storages[slot])
      if (model_.storage_lives[storage] != StorageLife::kInput &&
          std::exchange(seen_[storage], plans_) != plans_)
        bytes += model_.storage_bytes[storage];
  return bytes;
}

bool TrialMerges::is_shifted(const Lane& a, const Lane& b) const {
  const double shift = b.compute - a.compute;
  const auto moved = [&](double in_a, double in_b) {
    return std::abs(std::max(in_b, b.compute) - std::max(in_a, a.compute) - shift) <= kNoTime;
  };
  for (std::size_t g = 0; g < a.groups.size(); ++g)
    if (!moved(a.groups[g], b.groups[g])) return false;
  return std::ranges::all_of(a.in_flight, [&](Slot launch) {
    return moved(times_without_[launch].end, times_with_[launch].end) &&
           (times_with_[launch].start >= b.compute || !steps_[launch].must_be_hidden ||
            std::abs(times_with_[launch].start - times_without_[launch].start - shift) <= kNoTime);
  });
}

// From the state of the base, both ways side by side.
bool TrialMerges::pays(const Plan& plan) {
  without_ = base_;
  with_ = base_;
  for (Slot launch : base_.in_flight) times_without_[launch] = times_with_[launch] = times_[launch];
  const auto front = static_cast<Slot>(steps_.size()), back = front + 1;
  steps_.push_back(plan.front);
  steps_.push_back(plan.back);
  steps_[back].launch = front;
  for (auto* times : {&times_, &times_with_, &times_without_}) times->resize(steps_.size());
  bool is_hidden = true;
  const auto run_with = [&](Slot slot) {
    run(with_, times_with_, slot);
    if (steps_[slot].work == Work::kWait) is_hidden = is_hidden && keeps_hidden(with_, slot);
  };
  std::size_t next_delayed = 0, ahead = 0;
  bool is_behind = false, is_over = false;
  for (Slot slot = plan.first; slot != kNoPlace && is_hidden; slot = next(slot)) {
    run(without_, times_without_, slot);
    const bool is_delayed = next_delayed < plan.delayed.size() && plan.delayed[next_delayed] == slot;
    if (is_delayed) ++next_delayed;
    const bool is_gone = !is_behind && slot < marks_.size() && marks_[slot] != kKept;
    if (!is_gone && !is_delayed) run_with(slot);
    if (slot == plan.anchor) run_with(front);
    if (slot == plan.back_at) {
      run_with(back);
      for (Slot delayed : plan.delayed) run_with(delayed);
    }
    if (slot == plan.last) is_behind = true;
    if (!is_behind) continue;
    if (steps_[slot].work == Work::kWait && is_shifted(without_, with_)) is_over = true;
    if (is_over || ++ahead > kLookAhead) break;
  }
  steps_.resize(front);
  if (!is_hidden) return false;
  if (is_over) return with_.compute < without_.compute - kNoTime;
  const auto ends_before = [&](Slot launch) { return times_with_[launch].end <= times_without_[launch].end; };
  if (ahead > kLookAhead)
    return with_.compute < without_.compute - kNoTime &&
           std::ranges::equal(with_.groups, without_.groups, std::less_equal<>()) &&
           std::ranges::all_of(without_.in_flight, ends_before);
  return with_.end() < without_.end() - kNoTime;
}

// --------------------------------------------------------------------------- a merge

void TrialMerges::apply(const Plan& plan, std::span<const BucketId> ids) {
  const auto front = static_cast<Slot>(steps_.size()), back = front + 1;
  Bucket made{.members = {},
              .first = plan.first,
              .front = front,
              .back = back,
              .last = plan.last == plan.back_at ? back : plan.last,
              .bytes = plan.bytes,
              .held = plan.held,
              .carried = plan.carried,
              .kind = plan.kind};
  steps_.push_back(plan.front);
  steps_.push_back(plan.back);
  steps_[front].live = steps_[plan.anchor].live;
  steps_[back].live = steps_[plan.back_at].live;
  steps_[back].launch = front;
  for (auto* times : {&times_, &times_with_, &times_without_}) times->resize(steps_.size());
  marks_.resize(steps_.size());
  bucket_at_.resize(steps_.size());
  bucket_at_[front] = static_cast<std::uint32_t>(buckets_.size()) + 1;
  order_.insert_after(NodeId(plan.back_at), std::array{NodeId(back)});
  std::vector<NodeId> delayed;
  for (Slot slot : plan.delayed) {
    delayed.emplace_back(slot);
    order_.remove(delayed.back());
  }
  order_.insert_after(NodeId(back), delayed);
  order_.insert_after(NodeId(plan.anchor), std::array{NodeId(front)});
  // What was merged keeps its slot, and does nothing there.
  const auto drop = [&](Slot slot) {
    steps_[slot].work = Work::kNone;
    steps_[slot].is_merged = true;
  };
  for (BucketId id : ids) {
    const Bucket& bucket = buckets_[id];
    made.members.insert(made.members.end(), bucket.members.begin(), bucket.members.end());
    for (std::uint32_t member : bucket.members) {
      stands_for_[terms_[member].wait] = back;
      if (terms_[member].cast != kNoPlace) drop(terms_[member].cast);
    }
    drop(bucket.front);
    drop(bucket.back);
    bucket_at_[bucket.front] = 0;
  }
  count_memory(made, 1);
  buckets_.push_back(std::move(made));
}

}  // namespace epweave
