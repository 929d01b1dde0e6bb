#include "passes/schedule/whole_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "analysis/collectives.h"
#include "analysis/uneven_shard.h"
#include "analysis/users.h"
#include "ir/facts.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/named_arg.h"
#include "ops/op.h"
#include "ops/rebind.h"
#include "ops/type_rules.h"
#include "passes/pieces.h"

namespace epweave {
namespace {

// Whether the node shows what its first operand received, or a part of it.
bool passes_received(const Node& node) {
  const OpFamily family = node.op->family;
  return is_wait(node) || keeps_numbers(family) || family == OpFamily::kElement ||
         family == OpFamily::kSplit || family == OpFamily::kSlice || family == OpFamily::kAllReduce;
}

class CutFinder {
 public:
  explicit CutFinder(const Graph& graph)
      : context_(*graph.context), step_(graph.step()), users_(list_users(context_, step_)) {}

  IdSet<NodeId> run() {
    IdSet<NodeId> cuts;
    for (NodeId id : step_.order) {
      const Node& node = step_.nodes[id];
      if (node.op == nullptr) continue;
      const Arg from = arg_of(context_, node, 0);
      const bool is_received =
          has_family(node, OpFamily::kReduceScatter) ||
          (from.is_node() && received_.contains(from.as_node()) && passes_received(node));
      if (!is_received) continue;
      received_.insert(id);
      if (cuts_padding(node)) cuts.insert(id);
    }
    return cuts;
  }

 private:
  // From the front, and nobody reads what is behind.
  bool cuts_padding(const Node& node) const {
    if (!has_family(node, OpFamily::kSlice)) return false;
    const auto piece = find_piece(context_, step_, node);
    if (!piece || piece->start != 0) return false;
    const TensorType* whole = tensor_of(context_, step_.nodes[piece->of].type);
    const auto extent = context_.exprs.constant(whole->sizes[static_cast<std::size_t>(piece->dim)]);
    return piece->end < *extent && std::ranges::all_of(users_[piece->of], [&](NodeId user) {
             return find_piece(context_, step_, step_.nodes[user]) == piece;
           });
  }

  const Context& context_;
  const Body& step_;
  const NodeLists users_;
  IdSet<NodeId> received_;  // of reduce-scatters
};

// A step that gets whole shards, or the first reason why it cannot.
class Completer {
 public:
  explicit Completer(const Graph& given)
      : given_(given), graph_(given), context_(*graph_.context), facts_(graph_) {}

  WholeShards run() {
    const std::vector<UnevenShard> shards = find_uneven_shards(given_);
    WholeShards result{.graph = {}, .uneven_inputs = shards.size(), .problem = {}};
    if (shards.empty()) return result;
    for (const UnevenShard& shard : shards) shard_of_.at(shard.input) = &shard;
    find_pads();
    for (const UnevenShard& shard : shards)
      if (!problem_) complete_input(shard);
    if (!problem_ && grown_inputs_ > 0 && !has_empty_pad_) fail(shards.front(), "no call pads by nothing");
    if (!problem_) complete_calls(shards.front());
    if (problem_)
      result.problem = std::move(problem_);
    else if (is_changed_)
      result.graph = std::move(graph_);
    return result;
  }

 private:
  const Node& node(NodeId id) const { return given_.step().nodes[id]; }
  void fail(const UnevenShard& shard, std::string_view why) {
    if (!problem_) problem_ = fmt::format("{} is cut unevenly ({})", describe(given_, shard), why);
  }

  // The pads in front of gathers say what a whole shard is.
  void find_pads() {
    for (NodeId id : given_.step().order) {
      const Node& call = node(id);
      for_each_input(context_, call, [&](NodeId input) {
        const UnevenShard* shard = shard_of_[input];
        if (shard == nullptr || call.kind == NodeKind::kOutput) return;
        if (call.op != nullptr && keeps_numbers(call.op->family) && !call.op->writes)
          shard_of_.at(id) = shard;
        else if (has_family(call, OpFamily::kPad))
          take_pad(*shard, call);
        else
          fail(*shard, fmt::format("%{} takes it as it is", given_.text(call.name)));
      });
      if (has_family(call, OpFamily::kPad)) has_empty_pad_ |= pads_nothing(call);
    }
  }
  bool pads_nothing(const Node& pad) const {
    const Arg amounts = arg_of(context_, pad, 1);
    return amounts.is_list() && std::ranges::all_of(context_.args.children(amounts), [](Arg amount) {
             return amount.is_int() && amount.as_int() == 0;
           });
  }
  void take_pad(const UnevenShard& shard, const Node& pad) {
    const TensorType* padded = tensor_of(context_, pad.type);
    if (padded == nullptr) return fail(shard, fmt::format("%{} has no type", given_.text(pad.name)));
    std::vector<ExprId>& sizes = whole_.at(shard.input);
    if (sizes.empty()) sizes = padded->sizes;
    if (sizes != padded->sizes) fail(shard, "it is padded to several sizes");
  }

  void complete_input(const UnevenShard& shard) {
    const std::vector<ExprId>& sizes = whole_[shard.input];
    if (sizes.empty()) return fail(shard, "nothing pads it to a whole shard");
    Node& input = graph_.step().nodes[shard.input];
    TensorType type = *tensor_of(context_, input.type);
    if (type.sizes.size() != sizes.size()) return fail(shard, "it is padded under other dimensions");
    if (type.sizes == sizes) return;
    type.sizes = sizes;
    const Dims strides = contiguous_strides(facts_, sizes);
    type.strides.assign(strides.begin(), strides.end());
    set_type(shard.input, context_.types.tensor(std::move(type)));
    ++grown_inputs_;
  }
  void set_type(NodeId id, TypeId type) {
    graph_.step().nodes[id].type = type;
    grown_.insert(id);
    is_changed_ = true;
  }

  // What takes larger values than before gets the type that follows.
  void complete_calls(const UnevenShard& first) {
    const IdSet<NodeId> cuts = find_padding_cuts(given_);
    for (NodeId id : given_.step().order) {
      if (problem_) return;
      if (cuts.contains(id)) {
        const NodeId from = find_piece(context_, given_.step(), node(id))->of;
        rebind(context_, graph_.step().nodes[id], {.param = 3, .value = Arg::none()});
        set_type(id, graph_.step().nodes[from].type);
        continue;
      }
      bool is_concerned = false;
      for_each_input(context_, node(id), [&](NodeId input) { is_concerned |= grown_.contains(input); });
      if (!is_concerned || node(id).kind == NodeKind::kOutput) continue;
      if (has_family(node(id), OpFamily::kPad))
        pad_by_nothing(id, first);
      else
        complete_call(id, first);
    }
  }
  void complete_call(NodeId id, const UnevenShard& first) {
    const Node& call = graph_.step().nodes[id];
    if (!has_type_rule(call)) return refuse(id, first);
    try {
      const TypeId type = infer_type(facts_, graph_, graph_.step(), call);
      if (type && !same_type(facts_, context_, type, call.type)) set_type(id, type);
    } catch (const TypeMismatch&) {
      refuse(id, first);
    }
  }
  void refuse(NodeId id, const UnevenShard& first) {
    fail(first, fmt::format("%{} takes no whole shard", given_.text(node(id).name)));
  }
  // It gives what it gave.
  void pad_by_nothing(NodeId id, const UnevenShard& first) {
    Node& pad = graph_.step().nodes[id];
    const std::vector<Arg> nothing(context_.args.children(arg_of(context_, pad, 1)).size(), Arg::integer(0));
    set_arg(context_, pad, 1, context_.args.add_tree(ArgKind::kList, nothing));
    const TypeId type = infer_type(facts_, graph_, graph_.step(), pad);
    if (!same_type(facts_, context_, type, pad.type)) refuse(id, first);
  }

  const Graph& given_;
  Graph graph_;
  Context& context_;
  Facts facts_;
  SideTable<NodeId, const UnevenShard*> shard_of_;  // of inputs, and casts and views of them
  SideTable<NodeId, std::vector<ExprId>> whole_;    // sizes, of inputs
  bool has_empty_pad_ = false;
  std::size_t grown_inputs_ = 0;
  IdSet<NodeId> grown_;
  bool is_changed_ = false;
  std::optional<std::string> problem_;
};

}  // namespace

IdSet<NodeId> find_padding_cuts(const Graph& graph) {
  return CutFinder(graph).run();
}

WholeShards find_whole_shards(const Graph& graph) {
  return Completer(graph).run();
}

}  // namespace epweave
