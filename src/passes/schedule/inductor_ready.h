// What PyTorch's overlap scheduler takes next of the nodes that may execute: two queues.
//
//   on the path    what some compute node needs, by the first that needs it, so compute keeps its
//                  order; then what leads to a collective alone, exposed waits last
//   off the path   what none needs (gradients' reductions, mostly), by place; taken when a rule
//                  allows it or nothing else is left
//
// A node is added when all that must precede it is scheduled.
#pragma once

#include <cstdint>
#include <vector>

#include "passes/schedule/inductor_facts.h"
#include "passes/schedule/inductor_flight.h"
#include "passes/schedule/inductor_knobs.h"
#include "passes/schedule/python_heap.h"

namespace epweave {

class InductorReady {
 public:
  // All must outlive this; the two that change are read as they are at each call. `is_scheduled`:
  // by place.
  InductorReady(const InductorFacts& facts, const InductorKnobs& knobs, const InductorFlight& flight,
                const std::vector<bool>& is_scheduled)
      : f_(facts),
        knobs_(knobs),
        flight_(flight),
        is_scheduled_(is_scheduled),
        potential_bytes_(facts.keys) {}

  bool empty() const { return on_path_.empty() && off_path_.empty(); }
  void add(Place place);
  // What to schedule next, usually one node; some may have been scheduled since they were added.
  // `is_memory_short`: whether what is live exceeds its budget.
  std::vector<Place> pop(bool is_memory_short);
  // That a node, which was popped, is scheduled now.
  void note_taken(Place place);

 private:
  // A place in a queue; the least is taken first. No two are equal.
  struct Entry {
    // The compute node that needs it; of those that none needs, 0 if a reduce-scatter does.
    std::uint32_t first = 0;
    std::int32_t second = 0;
    Place place = kNoPlace;
    friend auto operator<=>(const Entry&, const Entry&) = default;
  };

  bool is_off_path(Place i) const { return f_.needed_by[i] == kNeverNeeded; }
  const InductorCollective& collective_of(Place i) const { return f_.collectives[f_.collective[i]]; }
  double exposed(Place i) const { return flight_[f_.collective[i]].exposed; }
  std::int32_t local_priority(Place i) const;
  bool leads_to_collective(Place i) const;
  bool may_take_off_path(Place i, bool is_memory_short) const;
  void pop_of_same_key(std::vector<Place>& batch);

  const InductorFacts& f_;
  const InductorKnobs& knobs_;
  const InductorFlight& flight_;
  const std::vector<bool>& is_scheduled_;
  PythonHeap<Entry> on_path_, off_path_;
  // The last place, in the given order, that was taken and some compute node needs.
  std::int64_t last_on_path_ = -1;
  std::vector<std::int64_t> potential_bytes_;  // by key: of ready collectives that no compute node needs
};

}  // namespace epweave
