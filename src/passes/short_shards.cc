#include "passes/short_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/collectives.h"
#include "analysis/returned_values.h"
#include "base/error.h"
#include "ir/facts.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/node_names.h"
#include "passes/padded_shards.h"
#include "passes/record.h"

namespace epweave {
namespace {

// What another rank holds less of than this one.
struct ShortShard {
  NodeId value;  // an input, or a gradient whose parameter is none
  StringId fqn;
  std::size_t dim = 0;
  std::int64_t extent = 0;      // there
  std::vector<ExprId> whole{};  // sizes
};

PassError refusal(const ShardChange& change, std::string problem, Site site = {}) {
  return {fmt::format("{}.uneven-shard", change.pass), std::move(problem), std::move(site),
          fmt::format("trace the graph on rank {}", change.ranks.to)};
}

class ShardFinder {
 public:
  ShardFinder(const Graph& graph, const ShardChange& change)
      : graph_(graph), change_(change), extents_(graph) {}

  std::vector<ShortShard> run() {
    const PaddedShards padded = read_padded_shards(graph_);
    if (padded.problem)
      throw refusal(change_,
                    fmt::format("{}: what rank {} runs is not known", *padded.problem, change_.ranks.to));
    for (std::size_t s = 0; s < padded.shards.size(); ++s) add(padded.shards[s], padded.sizes[s]);
    for (const UnevenShard& shard : find_uneven_gradients(graph_))
      add(shard, tensor_of(*graph_.context, graph_.step().nodes[shard.value].type)->sizes);
    return std::move(found_);
  }

 private:
  void add(const UnevenShard& shard, const std::vector<ExprId>& sizes) {
    const auto whole = graph_.context->exprs.constant(sizes[shard.dim]);
    const auto extent = whole ? extents_.find(shard, *whole, change_.ranks) : std::nullopt;
    if (!extent)
      throw refusal(change_, fmt::format("{} is cut unevenly, and what rank {} holds of it does not follow",
                                         describe(graph_, shard), change_.ranks.to));
    if (*extent == shard.local) return;
    if (shard.local != *whole)
      throw refusal(change_, fmt::format("{} is less than a whole shard, which has {}; rank {} holds {}",
                                         describe(graph_, shard), *whole, change_.ranks.to, *extent));
    found_.push_back({shard.value, shard.fqn, shard.dim, *extent, sizes});
  }

  const Graph& graph_;
  const ShardChange& change_;
  const ShardExtents extents_;
  std::vector<ShortShard> found_;
};

class Shortener {
 public:
  Shortener(Graph& graph, const ShardChange& change, const std::vector<ShortShard>& shards)
      : graph_(graph),
        context_(*graph.context),
        step_(graph_.step()),
        facts_(graph_),
        names_(graph_, step_),
        change_(change),
        pass_(graph_.intern(change.pass)),
        reason_(graph_.intern(change.reason)),
        shards_(shards) {}

  void run() {
    find_cuts();
    for (const ShortShard& shard : shards_)
      if (step_.nodes[shard.value].kind == NodeKind::kPlaceholder) shorten(shard.value, shard);
    std::vector<NodeId> order;
    for (NodeId id : step_.order) {
      try {
        follow(id);
        order.push_back(id);
        if (const ShortShard* shard = cut_behind_[id]; shard != nullptr) order.push_back(cut(id, *shard));
      } catch (const TypeMismatch&) {
        refuse(id);
      }
    }
    step_.order = std::move(order);
    for (NodeId gradient : gradients_)
      if (!cut_of_[gradient] && !short_.contains(gradient)) refuse(gradient);
  }

 private:
  const TensorType* tensor(NodeId id) const { return tensor_of(context_, step_.nodes[id].type); }
  bool is_whole(NodeId id, const ShortShard& shard) const {
    return tensor(id) != nullptr && tensor(id)->sizes == shard.whole;
  }

  // Gradients of short shards are cut where they come out of something else: behind the wait for
  // the reduce-scatter, or the view that names their sizes (of the piece of a bucket).
  void find_cuts() {
    std::map<StringId, const ShortShard*> shard_of;  // by parameter
    for (const ShortShard& shard : shards_) shard_of.emplace(shard.fqn, &shard);
    const std::vector<NodeId> outputs = list_outputs(graph_);
    for (std::size_t i = 0; i < std::min(outputs.size(), graph_.outputs.size()); ++i) {
      const auto found = shard_of.find(graph_.outputs[i].fqn);
      if (found == shard_of.end() || !outputs[i] || !is_whole(outputs[i], *found->second)) continue;
      gradients_.push_back(outputs[i]);
      find_cuts_of(outputs[i], *found->second);
    }
  }

  void find_cuts_of(NodeId gradient, const ShortShard& shard) {
    std::vector<NodeId> next = {gradient};
    while (!next.empty()) {
      const NodeId id = next.back();
      next.pop_back();
      if (!seen_.insert(id)) continue;
      bool takes_whole = false;
      if (!completes_scatter(id) && !has_family(step_.nodes[id], OpFamily::kReshape))
        for_each_input(context_, step_.nodes[id], [&](NodeId input) {
          if (!is_whole(input, shard)) return;
          takes_whole = true;
          next.push_back(input);
        });
      if (!takes_whole && step_.nodes[id].kind == NodeKind::kCall) cut_behind_.at(id) = &shard;
    }
  }
  bool completes_scatter(NodeId id) const {
    const NodeId launch = find_waited_launch(context_, step_, id);
    return launch && has_family(step_.nodes[launch], OpFamily::kReduceScatter);
  }

  void shorten(NodeId id, const ShortShard& shard) {
    TensorType type = *tensor(id);
    type.sizes[shard.dim] = context_.exprs.number(shard.extent);
    const Dims strides = contiguous_strides(facts_, type.sizes);
    type.strides.assign(strides.begin(), strides.end());
    set_type(id, context_.types.tensor(std::move(type)));
    shard_of_.at(id) = &shard;
  }
  void set_type(NodeId id, TypeId type) {
    step_.nodes[id].type = type;
    short_.insert(id);
  }

  // What takes shorter values than before gets the type that follows; a pad gives what it gave.
  void follow(NodeId id) {
    Node& call = step_.nodes[id];
    const ShortShard* shard = nullptr;
    bool is_concerned = false;
    map_arguments(context_, call, [&](Arg arg) {
      return arg.is_node() && cut_of_[arg.as_node()] ? Arg::node(cut_of_[arg.as_node()]) : arg;
    });
    for_each_input(context_, call, [&](NodeId input) {
      is_concerned |= short_.contains(input);
      if (shard_of_[input] != nullptr) shard = shard_of_[input];
    });
    if (!is_concerned || call.kind == NodeKind::kOutput) return;
    if (!has_type_rule(call) || is_exchange(call)) refuse(id);
    if (has_family(call, OpFamily::kPad)) {
      if (shard == nullptr) refuse(id);
      return pad_to_whole(id, *shard);
    }
    const TypeId type = infer_type(facts_, graph_, step_, call);
    if (!type != !call.type) refuse(id);
    if (!type) return;
    if (!same_type(facts_, context_, type, call.type)) {
      set_type(id, type);
      record_specialized(context_, call, pass_, reason_);
      if (keeps_numbers(call.op->family)) shard_of_.at(id) = shard;
    } else if (names_whole_extents(id)) {
      refuse(id);
    }
  }
  // What each rank must give as much to as the others.
  static bool is_exchange(const Node& call) {
    return has_family(call, OpFamily::kAllGather) || has_family(call, OpFamily::kReduceScatter) ||
           has_family(call, OpFamily::kAllToAll);
  }
  bool names_whole_extents(NodeId id) const {
    bool found = false;
    for_each_input(context_, step_.nodes[id], [&](NodeId input) {
      if (short_.contains(input))
        for (const ShortShard& shard : shards_) found |= is_whole(id, shard);
    });
    return found;
  }

  void pad_to_whole(NodeId id, const ShortShard& shard) {
    Node& pad = step_.nodes[id];
    const Arg list = arg_of(context_, pad, 1);
    const std::size_t behind = 2 * (shard.whole.size() - shard.dim) - 1;  // from the last dimension on
    if (!list.is_list()) refuse(id);
    std::vector<Arg> amounts(context_.args.children(list).begin(), context_.args.children(list).end());
    const auto whole = context_.exprs.constant(shard.whole[shard.dim]);
    if (behind >= amounts.size() || !amounts[behind].is_int() || amounts[behind].as_int() != 0) refuse(id);
    amounts[behind] = Arg::integer(*whole - shard.extent);
    set_arg(context_, pad, 1, context_.args.add_tree(ArgKind::kList, amounts));
    if (!same_type(facts_, context_, infer_type(facts_, graph_, step_, pad), pad.type)) refuse(id);
    record_specialized(context_, pad, pass_, reason_);
  }

  NodeId cut(NodeId whole, const ShortShard& shard) {
    Node slice = step_.nodes[whole];
    slice.target = graph_.intern("aten.slice.Tensor");
    slice.name = names_.make("slice");
    const Arg args[] = {Arg::node(whole), Arg::integer(static_cast<std::int64_t>(shard.dim)), Arg::integer(0),
                        Arg::integer(shard.extent)};
    slice.args = context_.args.add(args);
    slice.kwargs = {};
    slice.provenance = {};
    append_provenance(context_, slice,
                      {.pass = pass_,
                       .role = ProvenanceRole::kAdded,
                       .origins = origins_of(step_.nodes[whole]),
                       .reason = reason_});
    resolve_op(context_, slice);
    slice.type = infer_type(facts_, graph_, step_, slice);
    const NodeId id = step_.nodes.push_back(slice);
    cut_of_.at(whole) = id;
    short_.insert(id);
    return id;
  }

  [[noreturn]] void refuse(NodeId id) const {
    const Node& node = step_.nodes[id];
    throw refusal(
        change_,
        fmt::format("rank {} holds {} of %{} ({}), less than this rank, and %{} has no form for that",
                    change_.ranks.to, shards_[0].extent, graph_.text(step_.nodes[shards_[0].value].name),
                    graph_.text(shards_[0].fqn), graph_.text(node.name)),
        site_of(graph_, node));
  }

  Graph& graph_;
  Context& context_;
  Body& step_;
  Facts facts_;
  NodeNames names_;
  const ShardChange& change_;
  StringId pass_, reason_;
  const std::vector<ShortShard>& shards_;
  std::vector<NodeId> gradients_;
  IdSet<NodeId> seen_, short_;
  SideTable<NodeId, const ShortShard*> cut_behind_{nullptr}, shard_of_{nullptr};
  SideTable<NodeId, NodeId> cut_of_;  // the slices that readers take in its place
};

}  // namespace

void take_shards_of(Graph& graph, const ShardChange& change) {
  if (change.ranks.from == change.ranks.to) return;
  if (const auto shards = ShardFinder(graph, change).run(); !shards.empty())
    Shortener(graph, change, shards).run();
}

}  // namespace epweave
