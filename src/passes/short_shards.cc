#include "passes/short_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/collectives.h"
#include "analysis/returned_values.h"
#include "analysis/world.h"
#include "base/error.h"
#include "ir/facts.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/mesh_calls.h"
#include "ops/named_arg.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/node_names.h"
#include "passes/padded_shards.h"
#include "passes/record.h"

namespace epweave {
namespace {

// What another rank holds less of than this one.
struct ShortShard : UnevenShard {  // of an input, or a gradient whose parameter is none
  std::int64_t extent = 0;         // there
  std::vector<ExprId> whole{};     // sizes
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
    if (!shard.is_only_one)
      throw refusal(change_,
                    fmt::format("{} is cut unevenly along several dimensions: what rank {} holds of it "
                                "does not follow",
                                describe(graph_, shard), change_.ranks.to));
    const auto whole = graph_.context->exprs.constant(sizes[shard.dim]);
    const auto extent = whole ? extents_.find(shard, *whole, change_.ranks) : std::nullopt;
    if (!extent)
      throw refusal(change_, fmt::format("{} is cut unevenly, and what rank {} holds of it does not follow",
                                         describe(graph_, shard), change_.ranks.to));
    if (*extent == shard.local) return;
    if (shard.local != *whole)
      throw refusal(change_, fmt::format("{} is less than a whole shard, which has {}; rank {} holds {}",
                                         describe(graph_, shard), *whole, change_.ranks.to, *extent));
    found_.push_back({shard, *extent, sizes});
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
        extents_(graph_),
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
        refuse(id, concerned_shard(id));
      }
    }
    step_.order = std::move(order);
    for (const auto& [gradient, shard] : gradients_) require_extent(gradient, *shard);
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
    const StringId role = graph_.intern("grad");
    const std::vector<NodeId> outputs = list_outputs(graph_);
    for (std::size_t i = 0; i < std::min(outputs.size(), graph_.outputs.size()); ++i) {
      const auto found = shard_of.find(graph_.outputs[i].fqn);
      if (graph_.outputs[i].role != role || found == shard_of.end() || !outputs[i] ||
          tensor(outputs[i]) == nullptr)
        continue;
      gradients_.emplace_back(outputs[i], found->second);
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

  void require_extent(NodeId gradient, const ShortShard& shard) const {
    std::vector<ExprId> sizes = shard.whole;
    sizes[shard.dim] = context_.exprs.number(shard.extent);
    if (tensor(cut_of_[gradient] ? cut_of_[gradient] : gradient)->sizes != sizes) refuse(gradient, shard);
  }

  void shorten(NodeId id, const ShortShard& shard) {
    if (!is_contiguous(id)) refuse(id, shard);
    TensorType type = *tensor(id);
    type.sizes[shard.dim] = context_.exprs.number(shard.extent);
    const Dims strides = contiguous_strides(facts_, type.sizes);
    type.strides.assign(strides.begin(), strides.end());
    set_type(id, context_.types.tensor(std::move(type)), shard);
    shard_of_.at(id) = &shard;
  }
  bool is_contiguous(NodeId id) {
    TensorType type = *tensor(id);
    const Dims strides = contiguous_strides(facts_, type.sizes);
    type.strides.assign(strides.begin(), strides.end());
    return reaches_same_elements(facts_, context_, context_.types.tensor(std::move(type)),
                                 step_.nodes[id].type);
  }
  void set_type(NodeId id, TypeId type, const ShortShard& shard) {
    step_.nodes[id].type = type;
    short_by_.at(id) = &shard;
  }
  // By which the first shorter value that the node takes is shorter, or what it cuts.
  const ShortShard& concerned_shard(NodeId id) const {
    const ShortShard* shard = cut_behind_[id];
    for_each_input(context_, step_.nodes[id], [&](NodeId input) {
      if (shard == nullptr) shard = short_by_[input];
    });
    return shard != nullptr ? *shard : shards_[0];
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
      is_concerned |= short_by_[input] != nullptr;
      if (shard_of_[input] != nullptr) shard = shard_of_[input];
    });
    if (!is_concerned)
      if (const ShortShard* unnamed = find_unnamed_shard(call); unnamed != nullptr) refuse(id, *unnamed);
    if (!is_concerned || call.kind == NodeKind::kOutput) return;
    const ShortShard& concerned = concerned_shard(id);
    if (!has_type_rule(call) || is_exchange(call) || names_own_extents(call)) refuse(id, concerned);
    if (has_family(call, OpFamily::kAllReduce) && !meets_equals(call)) refuse(id, concerned);
    if (has_family(call, OpFamily::kPad)) {
      if (shard == nullptr) refuse(id, concerned);
      return pad_to_whole(id, *shard);
    }
    const TypeId type = infer_type(facts_, graph_, step_, call);
    if (!type != !call.type) refuse(id, concerned);
    if (!type) return;
    if (!same_type(facts_, context_, type, call.type)) {
      set_type(id, type, concerned);
      record_specialized(context_, call, pass_, reason_);
      if (keeps_numbers(call.op->family)) shard_of_.at(id) = shard;
    } else if (names_whole_extents(id)) {
      refuse(id, concerned);
    }
  }
  // What each rank must give as much to as the others.
  static bool is_exchange(const Node& call) {
    return has_family(call, OpFamily::kAllGather) || has_family(call, OpFamily::kReduceScatter) ||
           has_family(call, OpFamily::kAllToAll);
  }
  // Those that a result has are in the call, not the operand's: as_strided, new_zeros.
  static bool names_own_extents(const Node& call) {
    return has_family(call, OpFamily::kOpaque) || has_family(call, OpFamily::kNew);
  }
  // A backward half may be given what forward made of a shard, without its global shape: the shard
  // that a pad of such a value may be of, or null.
  const ShortShard* find_unnamed_shard(const Node& pad) {
    if (!has_family(pad, OpFamily::kPad)) return nullptr;
    const NodeId taken = arg_of(context_, pad, 0).as_node();
    NodeId from = taken;
    while (step_.nodes[from].op != nullptr && keeps_numbers(step_.nodes[from].op->family)) {
      const Arg behind = arg_of(context_, step_.nodes[from], 0);
      if (!behind.is_node()) break;
      from = behind.as_node();
    }
    if (step_.nodes[from].kind != NodeKind::kPlaceholder ||
        !same_type(facts_, context_, pad.type, step_.nodes[taken].type))
      return nullptr;
    const auto found =
        std::ranges::find_if(shards_, [&](const ShortShard& shard) { return is_whole(taken, shard); });
    return found == shards_.end() ? nullptr : &*found;
  }
  // Whether all ranks of the group hold as much as the other rank.
  bool meets_equals(const Node& reduce) {
    auto members = members_there(named_arg(context_, reduce, "group_name"));
    if (!members) return false;
    const auto [row, is_new] = are_equal_.try_emplace(std::move(*members), true);
    if (!is_new) return row->second;
    for (std::uint32_t rank : row->first)
      for (const ShortShard& shard : shards_) {
        const auto whole = context_.exprs.constant(shard.whole[shard.dim]);
        row->second &= extents_.find(shard, *whole, {change_.ranks.from, rank}) == shard.extent;
      }
    return row->second;
  }
  std::optional<std::vector<std::uint32_t>> members_there(Arg group) const {
    if (group.is_node()) {
      const Node& look_up = step_.nodes[group.as_node()];
      if (mesh_call_of(look_up) != MeshCall::kGroup) return std::nullopt;
      const Arg of = arg_of(context_, look_up, 0), axis = arg_of(context_, look_up, 1);
      const auto here = of.is_node() ? recorded_mesh(context_, step_.nodes[of.as_node()]) : std::nullopt;
      const auto there = here ? mesh_through(*here, change_.ranks) : std::nullopt;
      if (!there || !axis.is_int()) return std::nullopt;
      return ranks_along(*there, static_cast<std::size_t>(axis.as_int()), change_.ranks.to);
    }
    const ProcessGroup* row = group.is(ArgKind::kText) ? graph_.find_group(group.as_name()) : nullptr;
    if (row == nullptr) return std::nullopt;
    const auto rule = find_group_rule(row->ranks, static_cast<std::uint32_t>(recorded_world_size(graph_)));
    return rule ? std::optional(rule->members(change_.ranks.to)) : std::nullopt;
  }
  bool names_whole_extents(NodeId id) const {
    bool found = false;
    for_each_input(context_, step_.nodes[id], [&](NodeId input) {
      if (short_by_[input] != nullptr)
        for (const ShortShard& shard : shards_) found |= is_whole(id, shard);
    });
    return found;
  }

  void pad_to_whole(NodeId id, const ShortShard& shard) {
    Node& pad = step_.nodes[id];
    const Arg list = arg_of(context_, pad, 1);
    const std::size_t behind = 2 * (shard.whole.size() - shard.dim) - 1;  // from the last dimension on
    if (!list.is_list()) refuse(id, shard);
    std::vector<Arg> amounts(context_.args.children(list).begin(), context_.args.children(list).end());
    const auto whole = context_.exprs.constant(shard.whole[shard.dim]);
    if (behind >= amounts.size() || !amounts[behind].is_int() || amounts[behind].as_int() != 0)
      refuse(id, shard);
    amounts[behind] = Arg::integer(*whole - shard.extent);
    set_arg(context_, pad, 1, context_.args.add_tree(ArgKind::kList, amounts));
    if (!same_type(facts_, context_, infer_type(facts_, graph_, step_, pad), pad.type)) refuse(id, shard);
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
    short_by_.at(id) = &shard;
    return id;
  }

  [[noreturn]] void refuse(NodeId id, const ShortShard& shard) const {
    const Node& node = step_.nodes[id];
    throw refusal(
        change_,
        fmt::format("rank {} holds {} of %{} ({}), less than this rank, and %{} has no form for that",
                    change_.ranks.to, shard.extent, graph_.text(step_.nodes[shard.value].name),
                    graph_.text(shard.fqn), graph_.text(node.name)),
        site_of(graph_, node));
  }

  Graph& graph_;
  Context& context_;
  Body& step_;
  Facts facts_;
  NodeNames names_;
  const ShardExtents extents_;
  const ShardChange& change_;
  StringId pass_, reason_;
  const std::vector<ShortShard>& shards_;
  std::map<std::vector<std::uint32_t>, bool> are_equal_;  // by members of a group: they hold as much
  std::vector<std::pair<NodeId, const ShortShard*>> gradients_;
  IdSet<NodeId> seen_;
  SideTable<NodeId, const ShortShard*> short_by_{nullptr};  // what is shorter on the other rank, by which
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
