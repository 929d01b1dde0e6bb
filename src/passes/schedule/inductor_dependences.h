// What must come before what while collectives are merged, as PyTorch's bucketer sees it (torch
// 2.15, AugmentedGraphHelper): the step's own dependences, others beside them, and nodes that count
// as one.
//
//   g0 -> y -> w0   g1 -> z -> w1     merge(g0, g1): a path to g0 is one to g1
//
// Nodes are named by their place; add_node() makes more, for what stands in place of merged ones.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "cost/step_model.h"

namespace epweave {

class InductorDependences {
 public:
  // `reaches(a, b)`: whether the step needs a for b, where b is the start or the wait of a
  // collective. It outlives this, as `inputs` does.
  using Reaches = std::function<bool(Place, Place)>;
  InductorDependences(const PlaceLists& inputs, Reaches reaches);

  void add(Place after, Place before);
  void remove(Place after, Place before);

  void merge(Place existing, Place alone);
  void separate(Place node);
  // Not of two nodes that are merged.
  bool has_path(Place from, Place to);

  Place add_node();
  // What was added for nodes holds for those in their place now. `takes(a, b)`: whether a takes the
  // value of b in the step as it is now.
  using Takes = std::function<bool(Place, Place)>;
  void transfer(std::span<const std::pair<Place, Place>> replaced, const Takes& takes);

  // What was added, in that order.
  std::span<const Place> before(Place node) const { return before_[node]; }

 private:
  bool leads_to(Place node, std::span<const Place> merged) const;

  const PlaceLists& inputs_;
  Reaches reaches_;
  std::vector<std::vector<Place>> before_, after_;  // what was added
  std::vector<std::uint32_t> set_of_;               // by place
  std::vector<std::vector<Place>> sets_;            // of merged nodes
  std::vector<std::uint32_t> seen_;
  std::uint32_t epoch_ = 0;
};

}  // namespace epweave
