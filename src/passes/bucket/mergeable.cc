#include "passes/bucket/mergeable.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "analysis/aliases.h"
#include "analysis/collectives.h"
#include "analysis/rank_view.h"
#include "base/counted.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/bucket_dtypes.h"
#include "ops/family.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"
#include "passes/coordinates.h"

namespace epweave {
namespace {

// Of each node the one input of the step that it is computed from. Meshes do not count.
class InputBehind {
 public:
  InputBehind(const Context& context, const Body& body, const NodeLists& inputs,
              const IdSet<NodeId>& rank_nodes) {
    for (const auto [id, node] : walk(body)) {
      if (rank_nodes.contains(id)) continue;
      const bool is_input = node.kind == NodeKind::kPlaceholder && !recorded_mesh(context, node);
      NodeId only = is_input ? id : NodeId();
      bool is_mixed = false;
      for (NodeId input : inputs[id]) {
        is_mixed = is_mixed || mixed_.contains(input) || (only && only_[input] && only != only_[input]);
        if (only_[input]) only = only_[input];
      }
      if (is_mixed) mixed_.insert(id);
      if (only) only_.at(id) = only;
    }
  }
  bool is_one(NodeId id) const { return only_[id] && !mixed_.contains(id); }

 private:
  SideTable<NodeId, NodeId> only_;
  IdSet<NodeId> mixed_;
};

// Nodes from which calls of one operand each lead to outputs and to nothing else.
IdSet<NodeId> find_unread(const Body& body, const NodeLists& inputs, const NodeLists& users,
                          const IdSet<NodeId>& rank_nodes) {
  const auto takes_one = [&](NodeId id) {
    return std::ranges::count_if(inputs[id], [&](NodeId i) { return !rank_nodes.contains(i); }) == 1;
  };
  IdSet<NodeId> unread(body.nodes.size());
  for (auto id = body.order.rbegin(); id != body.order.rend(); ++id) {
    const bool is_unread = std::ranges::all_of(users[*id], [&](NodeId user) {
      if (body.nodes[user].kind == NodeKind::kOutput) return true;
      return takes_one(user) && unread.contains(user);
    });
    if (is_unread) unread.insert(*id);
  }
  return unread;
}

// One tensor in, one new tensor out.
std::optional<MergeKind> kind_of(const Node& node) {
  if (!is_launch(node) || node.op->writes) return {};
  if (node.op->returns.size() != 1 || node.op->returns.front().type != "Tensor") return {};
  switch (exchange_of(node.op->family)) {
    case ExchangeKind::kGather:
      return MergeKind::kAllGather;
    case ExchangeKind::kScatter:
      return MergeKind::kReduceScatter;
    case ExchangeKind::kReduce:
      return MergeKind::kAllReduce;
    case ExchangeKind::kNone:
    case ExchangeKind::kAllToAll:
    case ExchangeKind::kBroadcast:
      return {};
  }
  return {};
}

class Finder {
 public:
  Finder(const Graph& graph, const NodeLists& inputs, const NodeLists& users, const Effects& effects,
         MergeScope scope)
      : scope_(scope),
        graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        inputs_(inputs),
        users_(users),
        is_rank_agnostic_(is_rank_agnostic(graph)),
        world_size_(is_rank_agnostic_ ? read_world(graph).size : 0),
        rank_nodes_(find_rank_nodes(graph)),
        input_behind_(context_, body_, inputs, rank_nodes_),
        unread_(find_unread(body_, inputs, users, rank_nodes_)),
        later_writes_(effects),
        stretches_(body_.nodes.size(), 0) {
    std::uint32_t stretch = 0;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      stretch += node.kind == NodeKind::kCall && node.op == nullptr ? 1 : 0;
      stretches_[id] = stretch;
    }
  }

  Mergeables run() {
    for (const Launch& launch : find_launches(context_, body_)) consider(launch);
    for (const auto& [why, nodes] : left_out_)
      found_.left_out.push_back(fmt::format("{} left alone, as %{}: {}", counted(nodes.size(), "collective"),
                                            graph_.text(body_.nodes[nodes.front()].name), why));
    return std::move(found_);
  }

 private:
  void consider(const Launch& launch) {
    const Node& node = body_.nodes[launch.node];
    const auto kind = kind_of(node);
    if (!kind || !is_in_scope(launch.node, *kind)) return;
    Mergeable found{.launch = launch.node, .kind = *kind, .group = launch.group};
    found.group_arg = arg_of(context_, node, group_position(*node.op));
    if (const char* why = complete(found, node)) {
      left_out_[why].push_back(launch.node);
    } else {
      found_.list.push_back(found);
    }
  }

  bool is_in_scope(NodeId launch, MergeKind kind) const {
    if (scope_ == MergeScope::kAll) return true;
    if (kind == MergeKind::kAllGather) return input_behind_.is_one(launch);
    return kind != MergeKind::kReduceScatter || unread_.contains(launch);
  }

  // What else there is to know; or why it cannot be merged.
  const char* complete(Mergeable& found, const Node& node) const {
    const auto users = users_[found.launch];
    if (users.size() != 1 || !is_wait(body_.nodes[users.front()]))
      return "more than one wait takes the result";
    found.wait = users.front();
    found.launch_stretch = stretches_[found.launch];
    found.wait_stretch = stretches_[found.wait];
    const Arg operand = arg_of(context_, node, 0);
    const TensorType *result = tensor_of(context_, node.type),
                     *wait = tensor_of(context_, body_.nodes[found.wait].type);
    if (!operand.is_node() || result == nullptr || wait == nullptr) return "its types are not recorded";
    found.operand = operand.as_node();
    found.dtype = result->dtype;
    if (found.kind == MergeKind::kAllGather) take_cast(found);
    const TensorType* packed = tensor_of(context_, body_.nodes[found.operand].type);
    if (packed == nullptr) return "its types are not recorded";
    if (!is_static(*packed) || !is_static(*result)) return "its sizes are no numbers";
    if (!has_elements(*packed)) return "it moves nothing";
    if (found.kind != MergeKind::kAllReduce && packed->rank() == 0) return "it moves a number";
    if (const char* why = read_arguments(found, node)) return why;
    if (found.kind == MergeKind::kAllGather)
      if (const char* why = find_place(found)) return why;
    if (found.kind == MergeKind::kAllGather && !position_of_dtype(found.dtype))
      return "its dtype cannot be packed";
    if (later_writes_.any(found.operand)) return "what it sends is written again";
    return nullptr;
  }

  // A cast that only the gather reads.
  void take_cast(Mergeable& found) const {
    const Node& node = body_.nodes[found.operand];
    if (!has_family(node, OpFamily::kCast) || users_[found.operand].size() != 1) return;
    const Arg from = arg_of(context_, node, 0);
    if (!from.is_node() || inputs_[found.operand].size() != 1) return;
    const TensorType *before = tensor_of(context_, body_.nodes[from.as_node()].type),
                     *after = tensor_of(context_, node.type);
    if (before == nullptr || after == nullptr || before->device != after->device) return;
    found.cast = found.operand;
    found.operand = from.as_node();
  }

  const char* read_arguments(Mergeable& found, const Node& node) const {
    const auto size = node.op->find_param("group_size"), reduction = node.op->find_param("reduce_op");
    if (size) {
      const Arg ranks = arg_of(context_, node, *size);
      if (!ranks.is_int() || ranks.as_int() < 1) return "the size of its group is no number";
      found.ranks = ranks.as_int();
    }
    if (reduction) {
      const Arg name = arg_of(context_, node, *reduction);
      if (!name.is(ArgKind::kText)) return "its reduction is not known";
      found.reduction = name.as_name();
    }
    return nullptr;
  }

  // Where this rank's shard stands in what is gathered.
  const char* find_place(Mergeable& found) const {
    const ProcessGroup* group = graph_.find_group(recorded_group(context_, body_, found.group));
    if (group == nullptr) return "its group is not in the graph's table";
    const auto place = std::ranges::find(group->ranks, own_rank(graph_));
    if (place == group->ranks.end() || !std::cmp_equal(group->ranks.size(), found.ranks))
      return "its group is not in the graph's table";
    found.rank = place - group->ranks.begin();
    if (!is_rank_agnostic_) return nullptr;
    found.axis = find_group_rule(group->ranks, world_size_);
    found.axis_name = group->axes && !group->axes->empty() ? graph_.text(group->axes->front())
                                                           : graph_.text(group->description);
    return found.axis ? nullptr : "its group's ranks are not evenly spaced, and the graph is all ranks'";
  }

  bool is_static(const TensorType& type) const {
    return std::ranges::all_of(type.sizes,
                               [&](ExprId size) { return context_.exprs.constant(size).has_value(); });
  }
  bool has_elements(const TensorType& type) const {
    return std::ranges::none_of(type.sizes, [&](ExprId size) { return context_.exprs.constant(size) == 0; });
  }

  MergeScope scope_;
  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const NodeLists& inputs_;
  const NodeLists& users_;
  bool is_rank_agnostic_;
  std::uint32_t world_size_;  // where it is
  IdSet<NodeId> rank_nodes_;
  InputBehind input_behind_;
  IdSet<NodeId> unread_;
  LaterWrites later_writes_;
  IdVector<NodeId, std::uint32_t> stretches_;  // calls of unknown effects in front
  Mergeables found_;
  std::map<std::string_view, std::vector<NodeId>> left_out_;
};

}  // namespace

Mergeables find_mergeables(const Graph& graph, const NodeLists& inputs, const NodeLists& users,
                           const Effects& effects, MergeScope scope) {
  return Finder(graph, inputs, users, effects, scope).run();
}

}  // namespace epweave
