#include "compare/rewrite/same_values.h"

#include <algorithm>

#include "analysis/collectives.h"
#include "analysis/element_call.h"
#include "analysis/random_draws.h"
#include "analysis/repeated_waits.h"
#include "compare/rewrite/conditions.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

bool is_one_of(const Node& node, std::initializer_list<std::string_view> targets) {
  return node.op != nullptr && std::ranges::find(targets, node.op->target) != targets.end();
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
      keys.push(body_.nodes[id].target.index());
      push_key(keys, body_.nodes[id].args);
      push_key(keys, body_.nodes[id].kwargs);
      const auto [key, is_new] = keys.intern();
      if (is_new) first_of_key.push_back(id);
      number_[id] = first_of_key[key];
    }
  }
}

NodeId SameValues::find_aliased(NodeId id) {
  const Node& node = body_.nodes[id];
  const auto args = graph_.context->args[node.args];
  if (args.empty() || !args[0].is_node()) return {};
  const NodeId from = args[0].as_node();
  if (is_one_of(node, {"aten.detach.default"})) return from;
  const Node& source = body_.nodes[from];
  const bool is_view = is_one_of(
      node, {"aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.slice.Tensor"});
  if (is_view && node.type && source.type && same_type(facts_, *graph_.context, node.type, source.type))
    return from;
  const Node& same = body_.nodes[number_[from]];  // behind views that change nothing
  if (is_one_of(node, {"aten.t.default"}) && is_one_of(same, {"aten.t.default"})) {
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

void SameValues::push_key(WordTable& keys, ArgRange range) const {
  keys.push(range.count);
  for (const Arg& arg : graph_.context->args[range]) {
    keys.push(static_cast<std::uint64_t>(arg.kind()));
    if (arg.is_tree()) {
      push_key(keys, arg.children());
    } else {
      keys.push(arg.is_node() ? number_[arg.as_node()].index() : arg.bits());
    }
  }
}

}  // namespace epweave
