#include "testing/graph_editor.h"

#include <algorithm>

#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {

std::size_t GraphEditor::position(NodeId id) {
  const std::vector<NodeId>& order = step().order;
  return static_cast<std::size_t>(std::ranges::find(order, id) - order.begin());
}

TypeId GraphEditor::infer(const Node& call) {
  try {
    return has_type_rule(call) ? infer_type(facts_, graph_, step(), call) : TypeId();
  } catch (const TypeMismatch&) {
    return {};
  } catch (const InputError&) {  // an expression that is too large
    return {};
  }
}

NodeId GraphEditor::insert_behind(NodeId id, const Node& call) {
  const NodeId added = step().nodes.push_back(call);
  std::vector<NodeId>& order = step().order;
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(position(id)) + 1, added);
  return added;
}

void GraphEditor::replace_uses(NodeId value, NodeId with, NodeId except) {
  const auto replace = [&](Arg arg) { return arg == Arg::node(value) ? Arg::node(with) : arg; };
  for (NodeId id : step().order) {
    if (id == except) continue;
    Node& user = node(id);
    map_arguments(context(), user, replace);
  }
}

bool GraphEditor::retype(NodeId changed) {
  IdVector<NodeId, bool> is_changed(step().nodes.size());
  is_changed[changed] = true;
  for (std::size_t i = position(changed); i < step().order.size(); ++i) {
    const NodeId id = step().order[i];
    bool depends = id == changed;
    for_each_input(context(), node(id), [&](NodeId input) { depends = depends || is_changed[input]; });
    is_changed[id] = false;
    if (!depends || node(id).kind != NodeKind::kCall || !has_type_rule(node(id))) continue;
    const TypeId type = infer(node(id));
    if (!type) {
      if (!node(id).type) continue;  // a call without a value
      return false;
    }
    if (node(id).type && same_type(facts_, context(), type, node(id).type)) continue;
    node(id).type = type;
    is_changed[id] = true;
  }
  return true;
}

void GraphEditor::return_also(NodeId value) {
  Node& output = node(step().order.back());
  const Arg old = context().args[output.args].front();
  const auto children = context().args.children(old);
  std::vector<Arg> items(children.begin(), children.end());
  items.push_back(Arg::node(value));
  const Arg tree = context().args.add_tree(old.kind(), items);
  output.args = context().args.add({&tree, 1});
  graph_.outputs.push_back({.role = graph_.intern("other")});
}

void change_leaf(Context& context, Node& call, std::size_t i, const std::function<Arg(Arg)>& map) {
  std::size_t seen = 0;
  const auto change = [&](Arg leaf) { return seen++ == i ? map(leaf) : leaf; };
  map_arguments(context, call, change);
}

std::vector<Arg> list_leaves(const Context& context, const Node& call) {
  std::vector<Arg> leaves;
  const auto visit = [&](const auto& self, Arg arg) -> void {
    if (!arg.is_tree()) return leaves.push_back(arg);
    for (const Arg& child : context.args.children(arg)) self(self, child);
  };
  for (const Arg& arg : context.args[call.args]) visit(visit, arg);
  for (const Arg& arg : context.args[call.kwargs]) visit(visit, arg);
  return leaves;
}

}  // namespace epweave
