// The order that PyTorch's overlap scheduler (Inductor, torch 2.15, schedule_overlap_bucketing
// without its bucketing) gives a step: greedy, by credit instead of a clock.
//
//   Two queues. Nodes that some compute node needs are taken by the first that needs them, so
//   compute keeps its order; the others (gradients' reductions, mostly) by their place, when a rule
//   allows it or nothing else is left. A collective is exposed for as long as it takes. A node of t
//   ms takes t ms off the exposed time of what each group has in flight, and what is left of the t
//   ms starts collectives ahead, within limits of memory. A wait that is still exposed hides other
//   groups'.
//
//   given   g = all_gather(p)  w = wait(g)  y = mm(x, x)  z = mm(y, w)
//   made    g  y  w  z
//
// Legality is ours: whatever must stay in order (ScheduleProblem::inputs) does, where the reference
// knows values alone. A wait that something else must precede is not forced. On a graph whose calls
// have no effects this changes nothing.
//
// Time: n log n for the queues; for each node at most max_coll_distance candidates, each with what
// it still needs.
#pragma once

#include <vector>

#include "passes/schedule/inductor_facts.h"
#include "passes/schedule/inductor_knobs.h"

namespace epweave {

// A collective as the order leaves it.
struct InductorHiding {
  double exposed = 0;            // milliseconds
  std::vector<Place> hidden_by;  // each once, in the order in which they were found to hide it
};

struct InductorOrder {
  std::vector<Place> order;
  std::vector<Place> scheduled;        // the same as it was found: inputs stand where they were taken
  std::vector<InductorHiding> hiding;  // by collective of the facts
  // By its own arithmetic: collectives, those that nothing hides, and milliseconds.
  std::size_t collectives = 0, exposed = 0;
  double collective_ms = 0, exposed_ms = 0;
  // By its own account, in which inputs whose name does not begin with `primals` end behind their
  // last use.
  std::int64_t given_peak = 0, peak = 0;
};

InductorOrder order_like_inductor(const Graph& graph, const StepModel& model, const ScheduleProblem& problem,
                                  const InductorFacts& facts, const InductorKnobs& knobs);

}  // namespace epweave
