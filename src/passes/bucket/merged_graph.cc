#include "passes/bucket/merged_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "ops/type_rules.h"
#include "passes/retype.h"

namespace epweave {

MergedGraph::MergedGraph(Graph& graph, const NodeLists& inputs, const NodeLists& users)
    : graph_(graph),
      inputs_(inputs),
      users_(users),
      first_new_(graph.step().nodes.size()),
      order_(graph.step().order) {}

NodeId MergedGraph::add(Node node) {
  const NodeId id = body().nodes.push_back(node);
  std::vector<NodeId>& inputs = new_inputs_.emplace_back();
  for_each_input(*graph_.context, node, [&](NodeId input) {
    if (std::ranges::find(inputs, input) != inputs.end()) return;
    inputs.push_back(input);
    new_users_[input].push_back(id);
  });
  return id;
}

std::vector<NodeId> MergedGraph::list_users(NodeId value) const {
  const auto given = users_[value];
  std::vector<NodeId> users(given.begin(), given.end());
  if (const auto made = new_users_.find(value); made != new_users_.end())
    users.insert(users.end(), made->second.begin(), made->second.end());
  return users;
}

void MergedGraph::sort(NodeId first, NodeId last) {
  std::vector<NodeId> pending;  // the next one at the back
  for (NodeId id = first;; id = order_.next(id)) {
    pending.push_back(id);
    if (id == last) break;
  }
  std::ranges::reverse(pending);
  for (NodeId id : pending) unplaced_.insert(id);
  std::unordered_map<NodeId, std::vector<NodeId>> waiting;
  std::vector<std::pair<NodeId, bool>> sorted;  // and whether it waited
  const auto place = [&](NodeId id, bool waited) {
    unplaced_.erase(id);
    sorted.emplace_back(id, waited);
  };
  std::vector<NodeId> released;
  while (!pending.empty() || !released.empty()) {
    const bool waited = !released.empty();
    std::vector<NodeId>& from = waited ? released : pending;
    const NodeId id = from.back();
    from.pop_back();
    NodeId missing;  // the last one in the order of arguments
    visit_inputs(id, [&](NodeId input) {
      if (unplaced_.contains(input)) missing = input;
      return true;
    });
    if (missing) {
      waiting[missing].push_back(id);
      continue;
    }
    place(id, waited);
    if (const auto next = waiting.extract(id))
      released.insert(released.end(), next.mapped().rbegin(), next.mapped().rend());
  }
  keep_order(sorted);
}

// Those that waited stand behind the node in front of them.
void MergedGraph::keep_order(std::span<const std::pair<NodeId, bool>> sorted) {
  for (const auto& [id, waited] : sorted)
    if (waited) {
      order_.remove(id);
      moved_.push_back(id);
    }
  std::vector<NodeId> together;
  NodeId before;
  const auto insert = [&] {
    if (!together.empty()) order_.insert_after(before, together);
    together.clear();
  };
  for (const auto& [id, waited] : sorted) {
    if (waited) {
      together.push_back(id);
      continue;
    }
    insert();
    before = id;
  }
  insert();
}

void MergedGraph::replace(NodeId value, NodeId by) {
  replaced_.at(value) = by;
  if (body().nodes[value].type != body().nodes[by].type) retyped_.insert(by);
}

void MergedGraph::redirect() {
  body().order = order_.list();
  const auto by = [&](Arg arg) { return arg.is_node() ? Arg::node(current(arg.as_node())) : arg; };
  for (NodeId id : body().order) map_arguments(*graph_.context, body(), id, by);
}

void MergedGraph::finish(Facts& facts, TypeMemo& types) {
  redirect();
  retype_users(
      graph_, facts, [&](const Node& node) { return infer(node, types); }, retyped_);
}

// What fitted a value fits the one in its place, unless what is recorded was wrong.
TypeId MergedGraph::infer(const Node& node, TypeMemo& types) {
  try {
    return types.infer(graph_, body(), node);
  } catch (const TypeMismatch& error) {
    throw CheckError(fmt::format("bucket: '{}' ({}) does not fit what was merged: {}", graph_.text(node.name),
                                 graph_.text(node.target), error.what()));
  }
}

}  // namespace epweave
