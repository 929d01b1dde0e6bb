// A step on a clock while its collectives are merged on trial: what each merge would change,
// exactly.
//
//   as it is   c0 L0 W0 k0  c1 L1 W1 k1       L a launch, W its wait, c casts, k kernels
//   merged     P L W C k0  k1                 P packs what L sends, C cuts the results out
//
// Both run from the state in front of the first of them until they differ by a shift alone: from
// there on nothing else can differ. So a trial costs what it changes, not the length of the step.
// Compute, a stream for each group, and a host that costs nothing, as schedulers see it
// (schedule/order_value.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cost/simulate.h"
#include "passes/bucket/mergeable.h"
#include "passes/bucket/node_order.h"

namespace epweave {

// What the trial knows of one collective. Places are those of the step's model.
struct MergeTerms {
  MergeKind kind = MergeKind::kAllGather;
  Place launch = kNoPlace, wait = kNoPlace;
  Place operand = kNoPlace;  // what is packed
  Place cast = kNoPlace;     // that packing does; or none
  double pack = 0, cut = 0;  // seconds that it adds to packing and cutting
  double latency = 0;        // seconds of its launch that two of them pay once
  std::int64_t bytes = 0;    // of its part of the buffer
  std::int64_t held = 0;     // that live as long as what it sends does; inputs of the step do not count
};

// The fixed seconds of a bucket's kernels.
struct BucketKernels {
  double pack = 0, cut_gather = 0;  // cutting of others shows views
};

// Merged launches and waits stand where BucketWriter puts them, with the wait for reductions at the
// last (WaitPlace).
class TrialMerges {
 public:
  // All must outlive it. `budget`: bytes that may live at any node.
  TrialMerges(const StepModel& model, std::span<const MergeTerms> terms, const BucketKernels& kernels,
              std::int64_t budget);

  // A bucket, or a collective that is not merged; by index. Those of `terms` come first, alone.
  using BucketId = std::uint32_t;
  std::span<const std::uint32_t> members(BucketId id) const { return buckets_[id].members; }
  bool begins_before(BucketId a, BucketId b) const {
    return order_.precedes(NodeId(buckets_[a].first), NodeId(buckets_[b].first));
  }

  // Whether something else rests on where its wait stands.
  bool is_bound(BucketId id) const { return steps_[buckets_[id].back].is_bound; }

  // Back to the front of the step. From there, merges are tried from the front to the back.
  void rewind();
  // The bucket that holds all members of these, if the step is shorter with it, all nodes stay
  // within the budget, and no collective that the given step hides is exposed; these are gone then.
  // None of them may begin in front of those that were tried since `rewind`.
  std::optional<BucketId> try_merge(std::span<const BucketId> ids);

 private:
  using Slot = std::uint32_t;  // a place, or the front or the back of a bucket
  enum class Work : std::uint8_t { kNone, kKernel, kLaunch, kWait };
  struct Step {
    Work work = Work::kNone;
    double kernel = 0;   // seconds of compute: in front of a launch, behind a wait
    double seconds = 0;  // of a launch
    std::uint32_t group = 0;
    Slot launch = kNoPlace;       // of a wait
    bool must_be_hidden = false;  // of a launch: the given step hides it
    bool is_merged = false;       // elsewhere now
    bool is_bound = false;        // a read of a copy to the host rests on where it stands
    std::int64_t live = 0;        // bytes while it runs, what merges add included
  };
  struct Bucket {
    std::vector<std::uint32_t> members;
    Slot first = 0, front = 0, back = 0, last = 0;  // the stretch that it changes
    std::int64_t bytes = 0, held = 0, carried = 0;
    MergeKind kind = MergeKind::kAllGather;
  };
  // The clock at one point of an order.
  struct Lane {
    double compute = 0;
    std::vector<double> groups;
    std::vector<Interval> stalls;  // of the compute stream, as far as something in flight saw them
    std::vector<Slot> in_flight;   // launched, not waited for
    double end() const;
  };
  struct Plan {
    Slot first = 0, last = 0;  // the stretch that changes
    Slot anchor = 0;           // the launch is behind it
    Slot back_at = 0;          // the wait is behind it
    Step front, back;
    std::int64_t bytes = 0, held = 0, carried = 0;
    MergeKind kind = MergeKind::kAllGather;
    std::vector<Slot> delayed;  // what takes results, behind the wait
  };

  void add_bucket(std::uint32_t term);
  void run(Lane& lane, std::vector<Interval>& times, Slot slot);
  void advance_to(Slot slot);
  double exposed(const Lane& lane, Interval time) const;
  bool keeps_hidden(const Lane& lane, Slot wait) const;
  Plan make_plan(std::span<const BucketId> ids);
  bool fits(const Plan& plan) const;
  bool sends_result(Slot slot) const;
  std::int64_t carried_bytes(std::span<const Slot> delayed);
  bool is_legal(Plan& plan, std::span<const BucketId> ids);
  bool pays(const Plan& plan);
  bool is_shifted(const Lane& a, const Lane& b) const;
  void mark(std::span<const BucketId> ids, std::uint8_t as);
  void apply(const Plan& plan, std::span<const BucketId> ids);
  template <class Visit>
  void visit_memory(const Bucket& bucket, const Visit& visit) const;
  void count_memory(const Bucket& bucket, std::int64_t sign);

  Slot next(Slot slot) const {
    const NodeId id = order_.next(NodeId(slot));
    return id ? id.index() : kNoPlace;
  }
  bool precedes(Slot a, Slot b) const { return order_.precedes(NodeId(a), NodeId(b)); }
  Slot later(Slot a, Slot b) const { return precedes(a, b) ? b : a; }

  const StepModel& model_;
  std::span<const MergeTerms> terms_;
  BucketKernels kernels_;
  std::int64_t budget_;
  NodeOrder order_;
  std::vector<Step> steps_;       // by slot
  std::vector<Slot> stands_for_;  // by slot: where a node is now that was merged
  std::vector<Bucket> buckets_;
  std::vector<std::uint32_t> bucket_at_;  // of a front: 1 + its bucket
  // By slot: what a trial removes, and what takes its results.
  enum Mark : std::uint8_t { kKept, kRemoved, kResult };
  std::vector<std::uint8_t> marks_;
  std::vector<std::uint32_t> seen_;  // by storage: the last plan that carried it
  std::uint32_t plans_ = 0;
  Lane base_, with_, without_;
  std::vector<Interval> times_, times_with_, times_without_;  // of launches, by slot
  Slot at_ = 0;                                               // the base has run what is in front of it
};

}  // namespace epweave
