#include "compare/rewrite/same_values.h"

#include "analysis/collectives.h"
#include "analysis/element_call.h"
#include "analysis/random_draws.h"
#include "analysis/repeated_waits.h"
#include "compare/rewrite/conditions.h"
#include "ir/call_words.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

bool is_transpose(const Node& node) {
  return node.op != nullptr && node.op->target == "aten.t.default";
}

}  // namespace

SameValues::SameValues(const Graph& graph, Facts& facts, const IdVector<NodeId, NodeId>& original)
    : graph_(graph),
      body_(graph.step()),
      facts_(facts),
      effects_(graph, graph.step()),
      number_(body_.nodes.size()) {
  for (NodeId id : body_.order)
    for (const StorageAccess& access : effects_.accesses_of(id))
      if (access.writes && !is_wait(body_.nodes[id])) written_.insert(access.storage);
  find_written_tuples();
  WordTable keys;
  std::vector<NodeId> first_of_key;
  RepeatedWaits repeated_waits(*graph_.context, body_, effects_);
  for (NodeId id : body_.order) {
    number_[id] = id;
    const NodeId first_wait = repeated_waits.find(id, number_);
    const NodeId first = original.contains(id) ? original[id] : NodeId();
    if (first && !is_written(id) && !is_written(first)) {
      number_[id] = number_[first];
    } else if (first_wait) {
      number_[id] = number_[first_wait];
    } else if (const NodeId aliased = find_aliased(id)) {
      number_[id] = number_[aliased];
    } else if (is_pure(id)) {
      const auto of_node = [&](NodeId input) {
        keys.push(tagged_word(ArgKind::kNode, number_[input].index()));
      };
      push_call_words(keys, graph_.context->args, body_.nodes[id].target.index(), body_.nodes[id], of_node);
      const auto [key, is_new] = keys.intern();
      if (is_new) first_of_key.push_back(id);
      number_[id] = first_of_key[key];
    }
  }
}

NodeId SameValues::find_aliased(NodeId id) {
  const Node& node = body_.nodes[id];
  const auto args = graph_.context->args[node.args];
  if (node.op == nullptr || !node.op->is_view || node.op->writes || args.empty() || !args[0].is_node())
    return {};
  const NodeId from = args[0].as_node();
  if (has_family(node, OpFamily::kIdentity)) return from;
  const Node& source = body_.nodes[from];
  const bool may_show_all = has_family(node, OpFamily::kReshape) || has_family(node, OpFamily::kSlice);
  if (may_show_all && node.type && source.type && same_type(facts_, *graph_.context, node.type, source.type))
    return from;
  const Node& same = body_.nodes[number_[from]];  // behind views that change nothing
  if (is_transpose(node) && is_transpose(same)) {
    const auto inner = graph_.context->args[same.args];
    if (!inner.empty() && inner[0].is_node()) return inner[0].as_node();
  }
  return {};
}

// Of what a call computes, an element is written.
void SameValues::find_written_tuples() {
  for (auto id = body_.order.rbegin(); id != body_.order.rend(); ++id) {
    const NodeId tuple = tuple_of(*graph_.context, body_.nodes[*id]);
    if (!tuple) continue;
    if (written_.contains(effects_.storage_of(*id)) || written_tuples_.contains(*id))
      written_tuples_.insert(tuple);
  }
}

// Two calls that make what is written later make two values, equal as they are made.
bool SameValues::is_pure(NodeId id) const {
  const Node& node = body_.nodes[id];
  if (node.kind != NodeKind::kCall || node.op == nullptr || node.op->writes ||
      !holds(Condition::kMergesNoDraws, !draws_random(graph_, node)))
    return false;
  if (holds(Condition::kMergesUnwritten, false)) return true;
  const bool makes_storage = effects_.storage_of(id) == id;
  if (written_tuples_.contains(id) || (makes_storage && written_.contains(id))) return false;
  for (const StorageAccess& access : effects_.accesses_of(id))
    if (written_.contains(access.storage)) return false;
  return true;
}

}  // namespace epweave
