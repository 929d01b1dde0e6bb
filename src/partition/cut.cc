#include "partition/cut.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/collectives.h"
#include "analysis/recompute_tags.h"
#include "ops/op.h"
#include "ops/random_draws.h"

namespace epweave {
namespace {

bool is_needed(const Graph& graph, const Joint& joint, const Cut& cut, NodeId id) {
  return std::ranges::any_of(joint.users[id], [&](NodeId user) {
    if (graph.step().nodes[user].kind == NodeKind::kOutput)
      return std::ranges::any_of(joint.backward_outputs,
                                 [&](std::uint32_t position) { return joint.outputs[position] == id; });
    return !joint.seed(user) && (joint.backward(user) || cut.recomputes(user));
  });
}

}  // namespace

bool can_save(const Context& context, const Node& node) {
  if (!node.type || node.kind == NodeKind::kGetAttr) return false;
  const Type& type = context.types[node.type];
  if (type.kind != TypeKind::kScalar) return type.kind == TypeKind::kTensor;
  return context.text(type.py_type) != "SymFloat" || !can_run_twice(context, node);
}

bool can_run_twice(const Context& context, const Node& node) {
  if (node.kind == NodeKind::kGetAttr) return true;
  if (node.kind != NodeKind::kCall || node.op == nullptr || draws_random(context, node) || node.op->writes)
    return false;
  if (node.extra != nullptr && !node.extra->bindings.empty()) return false;
  return !node.op->is_effectful || is_wait(node);
}

IdSet<NodeId> find_written_in_forward(const Effects& effects, const Joint& joint) {
  const Body& body = effects.body();
  IdSet<NodeId> written(body.nodes.size());
  for (NodeId id : body.order) {
    if (joint.backward(id) || is_wait(body.nodes[id])) continue;
    for (const StorageAccess& access : effects.accesses_of(id))
      if (access.writes) written.insert(access.storage);
  }
  return written;
}

bool try_cut(const Graph& graph, const Joint& joint, const Choose& choose, Cut& cut, NodeId& problem) {
  const Body& body = graph.step();
  cut.saved.clear();
  cut.recomputed.assign(body.nodes.size(), 0);
  for (auto id = body.order.rbegin(); id != body.order.rend(); ++id) {
    const Node& node = body.nodes[*id];
    if (node.kind == NodeKind::kOutput || joint.backward(*id) || !is_needed(graph, joint, cut, *id)) continue;
    if (node.kind == NodeKind::kPlaceholder) {
      cut.saved.push_back(*id);
      continue;
    }
    const ValueChoice choice = choose(*id);
    if (choice.can_save && !(choice.is_recomputed && choice.can_recompute)) {
      cut.saved.push_back(*id);
    } else if (choice.can_recompute) {
      cut.recomputed[id->index()] = 1;
    } else {
      problem = *id;
      return false;
    }
  }
  std::ranges::reverse(cut.saved);
  return true;
}

Cut make_cut(const Graph& graph, const Joint& joint, const Choose& choose) {
  Cut cut;
  NodeId problem;
  if (try_cut(graph, joint, choose, cut, problem)) return cut;
  throw PassError("partition.cut",
                  "backward needs it; it can neither be saved, as it is no tensor and no number, nor "
                  "computed again, as it "
                  "does more than compute its value",
                  site_of(graph, graph.step().nodes[problem]),
                  "save what is computed from it: tag that MUST_SAVE");
}

Cut cut_by_tags(const Graph& graph, const Joint& joint) {
  const RecomputeTags tags(graph);
  const Body& body = graph.step();
  for (NodeId id : body.order)
    if (const Node& node = body.nodes[id]; tags.is_recomputed(node) && draws_random(*graph.context, node))
      throw PassError(
          "partition.random",
          "it draws random numbers and is tagged to be computed again: backward would draw others",
          site_of(graph, node), "tag it MUST_SAVE; memory-policy{policy=full} does so");
  const Effects effects(*graph.context, body);
  const IdSet<NodeId> written = find_written_in_forward(effects, joint);
  return make_cut(graph, joint, [&](NodeId id) {
    const Node& node = body.nodes[id];
    const bool is_of_backward = node.is_backward() && !joint.forward(id);
    return ValueChoice{.is_recomputed = tags.is_recomputed(node) || is_of_backward,
                       .can_save = can_save(*graph.context, node),
                       .can_recompute = can_run_twice(*graph.context, node) && !written.contains(id)};
  });
}

}  // namespace epweave
