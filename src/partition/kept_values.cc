#include "partition/kept_values.h"

#include "analysis/recompute_tags.h"
#include "analysis/seeds.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

// Directions as they are recorded: copies in backward count as forward's, of which they have the
// price.
Joint read_directions(const Graph& graph, Cut& copies) {
  const Body& body = graph.step();
  const RecomputeTags tags(graph);
  Joint joint;
  joint.inputs = list_inputs(*graph.context, body);
  joint.users = invert(joint.inputs, body.order);
  joint.is_seed.resize(body.nodes.size());
  joint.is_backward.resize(body.nodes.size());
  joint.is_forward.resize(body.nodes.size());
  joint.seeds = find_seeds(graph, joint.inputs, joint.users);
  for (NodeId id : joint.seeds) joint.is_seed[id.index()] = 1;
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    const bool is_copy = tags.is_repeated(graph, node);
    const bool is_of_forward = has_family(node, OpFamily::kElement) && !joint.inputs[id].empty() &&
                               !joint.backward(joint.inputs[id].front());
    const bool is_of_copy = is_of_forward && copies.recomputes(joint.inputs[id].front());
    copies.recomputed[id.index()] = is_copy || is_of_copy;
    joint.is_backward[id.index()] = node.is_backward() && !is_copy && !is_of_forward;
    joint.is_forward[id.index()] = !joint.backward(id);
  }
  return joint;
}

}  // namespace

KeptValues find_kept_values(const Graph& graph, const Cluster& cluster) {
  const Body& body = graph.step();
  KeptValues kept;
  kept.cut.recomputed.resize(body.nodes.size());
  const Joint joint = read_directions(graph, kept.cut);
  kept.costs = price_values(graph, joint, cluster);
  const auto runs_in_backward = [&](NodeId id) { return joint.backward(id) || kept.cut.recomputes(id); };
  for (NodeId id : body.order) {
    if (runs_in_backward(id) || joint.seed(id) || !can_save(graph, body.nodes[id])) continue;
    for (NodeId user : joint.users[id])
      if (runs_in_backward(user) && !joint.seed(user)) {
        kept.cut.saved.push_back(id);
        break;
      }
  }
  kept.totals = add_up(graph, kept.cut, kept.costs);
  return kept;
}

}  // namespace epweave
