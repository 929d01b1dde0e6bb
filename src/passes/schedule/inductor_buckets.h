// Which collectives PyTorch's overlap-preserving bucketer (torch 2.15) merges in a step that its
// scheduler has put in order.
//
//   given   g0 g1 y w0 z w1       y hides g0, z hides g1
//   merged  {g0, g1}, launched where g0 is, waited for where w1 is: y and z are still between
//
// Each group has a time line of its launches, its waits, all compute and what hides its
// collectives. Of collectives of one key each in turn, from the front or from the most exposed, is
// the first of a bucket, and those behind it are tried: launch and wait of the candidate move to
// those of the bucket, or the bucket's to its, such that nothing is hidden less. What moves a wait
// over what another collective is hidden by is refused, for collectives of one group are done in
// the order of their launches.
//
// Time: for each pair that is tried up to 16 searches for a path.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "passes/schedule/inductor_dependences.h"
#include "passes/schedule/inductor_facts.h"
#include "passes/schedule/inductor_knobs.h"
#include "passes/schedule/inductor_order.h"

namespace epweave {

struct InductorBuckets {
  // Positions in InductorFacts::collectives, two or more each, in the order in which they were
  // merged.
  std::vector<std::vector<std::uint32_t>> buckets;
  // What is hidden stays so in an order that keeps these.
  std::unique_ptr<InductorDependences> dependences;
};

// `may_merge`: by collective; others stay alone. `problem` outlives the result.
InductorBuckets find_inductor_buckets(const StepModel& model, const ScheduleProblem& problem,
                                      const InductorFacts& facts, const InductorOrder& order,
                                      const InductorKnobs& knobs, const std::vector<bool>& may_merge);

}  // namespace epweave
