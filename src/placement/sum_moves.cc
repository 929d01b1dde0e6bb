#include "placement/sum_moves.h"

#include <algorithm>

#include "analysis/collectives.h"
#include "analysis/element_call.h"
#include "ir/walk.h"
#include "ops/family.h"
#include "ops/op.h"

namespace epweave {
namespace {

bool is_sum(const Placement& placement) {
  if (!placement.is(PlacementKind::kTuple)) return placement.is_partial();
  return std::ranges::all_of(placement.elements, [](const Placement& e) { return e.is_partial(); });
}

class SumMoves {
 public:
  SumMoves(const Graph& graph, Placements& placements) : graph_(graph), placements_(placements) {}

  void run() {
    std::vector<NodeId>& divided = placements_.divided;
    for (std::size_t i = divided.size(); i-- > 0;) visit(divided[i]);
    std::vector<NodeId> left;
    for (NodeId id : divided) {
      if (moved_.contains(id) && !is_element_of_parts(id)) {
        placements_.placement.set(id, Placement::whole());
      } else {
        left.push_back(id);
      }
    }
    divided = std::move(left);
  }

 private:
  const Node& node(NodeId id) const { return graph_.step().nodes[id]; }

  // Users come before what they use.
  void visit(NodeId id) {
    if (!wanted_in_parts_.contains(id) && moves_sum(id)) {
      moved_.insert(id);
      return;
    }
    for_each_input(*graph_.context, node(id), [&](NodeId input) { wanted_in_parts_.insert(input); });
  }

  bool moves_sum(NodeId id) const {
    const OpInfo& op = *node(id).op;
    // What nobody has waited for cannot be added up.
    if (!keeps_all_elements(op.family) || is_wait(node(id)) || op.writes) return false;
    if (!is_sum(placements_.placement[id])) return false;
    std::size_t tensors = 0;
    bool takes_sums = true;
    for_each_input(*graph_.context, node(id), [&](NodeId input) {
      ++tensors;
      takes_sums = takes_sums && placements_.has_parts_for(input, placements_.region[id]) &&
                   is_sum(placements_.placement[input]);
    });
    return tensors == 1 && takes_sums;
  }

  // A tuple cannot be joined: its elements are whole where it is. In execution order.
  bool is_element_of_parts(NodeId id) const {
    const NodeId tuple = tuple_of(*graph_.context, node(id));
    return tuple && placements_.placement[tuple].is_divided();
  }

  const Graph& graph_;
  Placements& placements_;
  IdSet<NodeId> wanted_in_parts_;  // by a divided node that stays one
  IdSet<NodeId> moved_;
};

}  // namespace

void move_sums_once(const Graph& graph, Placements& placements) {
  SumMoves(graph, placements).run();
}

}  // namespace epweave
