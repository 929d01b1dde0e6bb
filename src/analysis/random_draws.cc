#include "analysis/random_draws.h"

#include <algorithm>

#include "ops/bind.h"
#include "ops/op.h"
#include "ops/random_draws.h"

namespace epweave {

bool draws_random(const Graph& graph, const Body& body, const Node& node) {
  if (node.op == nullptr) return false;
  const Context& context = *graph.context;
  if (draws_itself(context, node)) return true;
  if (!has_family(node, OpFamily::kFlexAttention)) return false;
  bool draws = false;
  for_each_input(context, node, [&](NodeId input) {
    const Arg attr = body.nodes[input].attr;
    const Body* function = attr.is(ArgKind::kGraph) ? graph.find_body(attr.as_name()) : nullptr;
    draws = draws || (function != nullptr && std::ranges::any_of(function->order, [&](NodeId id) {
                        return draws_itself(context, function->nodes[id]);
                      }));
  });
  return draws;
}

}  // namespace epweave
