#include "passes/schedule/whole_shards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "analysis/collectives.h"
#include "analysis/received.h"
#include "analysis/uneven_shard.h"
#include "analysis/users.h"
#include "analysis/world.h"
#include "base/error.h"
#include "ir/facts.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/op.h"
#include "ops/rebind.h"
#include "ops/type_rules.h"
#include "passes/padded_shards.h"
#include "passes/pieces.h"

namespace epweave {
namespace {

class CutFinder {
 public:
  CutFinder(const Graph& graph, const PaddedShards& padded)
      : context_(*graph.context),
        step_(graph.step()),
        padded_(padded),
        users_(list_users(context_, step_)),
        finder_(context_) {}

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
  // A whole shard to one that this rank has, from the front; nobody reads what is behind.
  bool cuts_padding(const Node& node) {
    if (!has_family(node, OpFamily::kSlice)) return false;
    const auto piece = finder_.find(step_, node);
    if (!piece || piece->start != 0) return false;
    const TensorType* whole = tensor_of(context_, step_.nodes[piece->of].type);
    const TensorType* cut = tensor_of(context_, node.type);
    return cut != nullptr && whole->sizes != cut->sizes && is_shard(*whole, *cut) &&
           std::ranges::all_of(users_[piece->of],
                               [&](NodeId user) { return finder_.find(step_, step_.nodes[user]) == piece; });
  }
  bool is_shard(const TensorType& whole, const TensorType& cut) const {
    for (std::size_t s = 0; s < padded_.shards.size(); ++s)
      if (padded_.sizes[s] == whole.sizes &&
          tensor_of(context_, step_.nodes[padded_.shards[s].value].type)->sizes == cut.sizes)
        return true;
    return false;
  }

  const Context& context_;
  const Body& step_;
  const PaddedShards& padded_;
  const NodeLists users_;
  PieceFinder finder_;
  IdSet<NodeId> received_;  // of reduce-scatters
};

[[noreturn]] void refuse_shard(std::string problem, Site site = {}) {
  throw PassError("schedule.uneven-shard", std::move(problem), std::move(site),
                  "on all ranks, leave out what decides by predicted time: chunk{parts=N}, "
                  "bucket{plan=blocks} and overlap-ep do the same on each");
}

// Gives a step whole shards.
class Completer {
 public:
  Completer(const Graph& given, const PaddedShards& padded, const IdSet<NodeId>& cuts)
      : given_(given),
        graph_(given),
        context_(*graph_.context),
        facts_(graph_),
        padded_(padded),
        cuts_(cuts) {}

  Graph run() {
    for (std::size_t s = 0; s < padded_.shards.size(); ++s)
      complete_input(padded_.shards[s].value, padded_.sizes[s]);
    for (NodeId id : given_.step().order) {
      try {
        complete(id);
      } catch (const TypeMismatch&) {
        refuse(id);
      }
    }
    return std::move(graph_);
  }

 private:
  const Node& node(NodeId id) const { return given_.step().nodes[id]; }
  void set_type(NodeId id, TypeId type) {
    graph_.step().nodes[id].type = type;
    grown_.insert(id);
  }

  void complete_input(NodeId id, const std::vector<ExprId>& sizes) {
    TensorType type = *tensor_of(context_, node(id).type);
    if (type.sizes == sizes) return;
    type.sizes = sizes;
    const Dims strides = contiguous_strides(facts_, sizes);
    type.strides.assign(strides.begin(), strides.end());
    set_type(id, context_.types.tensor(std::move(type)));
  }

  // What takes larger values than before gets the type that follows.
  void complete(NodeId id) {
    if (cuts_.contains(id)) {
      rebind(context_, graph_.step().nodes[id], {.param = 3, .value = Arg::none()});
      const NodeId whole = PieceFinder(context_).find(given_.step(), node(id))->of;
      return set_type(id, graph_.step().nodes[whole].type);
    }
    if (!padded_.pads_all && padded_.pads.contains(id)) return show_as_it_is(id);
    bool is_concerned = false;
    for_each_input(context_, node(id), [&](NodeId input) { is_concerned |= grown_.contains(input); });
    if (!is_concerned || node(id).kind == NodeKind::kOutput) return;
    if (!has_type_rule(node(id))) refuse(id);
    if (has_family(node(id), OpFamily::kPad)) return pad_by_nothing(id);
    const Node& call = graph_.step().nodes[id];
    const TypeId type = infer_type(facts_, graph_, graph_.step(), call);
    if (!type != !call.type) refuse(id);
    if (!type) return;
    if (!same_type(facts_, context_, type, call.type))
      set_type(id, type);
    else if (names_short_extents(id))
      refuse(id);
  }
  // Ranks with whole shards need not have the pad.
  void show_as_it_is(NodeId id) {
    Node& pad = graph_.step().nodes[id];
    const Arg args[] = {arg_of(context_, pad, 0)};
    pad.target = graph_.intern("aten.alias.default");
    pad.args = context_.args.add(args);
    pad.kwargs = {};
    resolve_op(context_, pad);
    if (!same_type(facts_, context_, infer_type(facts_, graph_, graph_.step(), pad), pad.type)) refuse(id);
  }
  // It gives what it gave.
  void pad_by_nothing(NodeId id) {
    Node& pad = graph_.step().nodes[id];
    const Arg amounts = arg_of(context_, pad, 1);
    if (!amounts.is_list()) refuse(id);
    const std::vector<Arg> nothing(context_.args.children(amounts).size(), Arg::integer(0));
    set_arg(context_, pad, 1, context_.args.add_tree(ArgKind::kList, nothing));
    if (!same_type(facts_, context_, infer_type(facts_, graph_, graph_.step(), pad), pad.type)) refuse(id);
  }
  // The result has the sizes that a grown operand had: by numbers in the call.
  bool names_short_extents(NodeId id) const {
    const TensorType* result = tensor_of(context_, node(id).type);
    bool found = false;
    for_each_input(context_, node(id), [&](NodeId input) {
      const TensorType* operand = tensor_of(context_, node(input).type);
      found |= result != nullptr && operand != nullptr && grown_.contains(input) &&
               operand->sizes == result->sizes;
    });
    return found;
  }
  [[noreturn]] void refuse(NodeId id) const {
    refuse_shard(
        fmt::format("{} is cut unevenly, and %{} takes no whole shard: this rank's prices are not those of "
                    "ranks with whole shards",
                    describe(given_, padded_.shards.front()), given_.text(node(id).name)),
        site_of(given_, node(id)));
  }

  const Graph& given_;
  Graph graph_;
  Context& context_;
  Facts facts_;
  const PaddedShards& padded_;
  const IdSet<NodeId>& cuts_;
  IdSet<NodeId> grown_;
};

// Whether this rank holds of each shard what the mesh gives it where a whole one is as large as the
// padded, or the gathered as it is. So do the others then: no rank has to see what they write.
std::optional<std::string> check_extents(const Graph& graph, const PaddedShards& padded) {
  if (!padded.problem && padded.other_use) return padded.other_use;
  const ShardExtents extents(graph);
  const Rank own = own_rank(graph);
  std::optional<std::string> problem = padded.problem;
  const UnevenShard* short_shard = nullptr;
  for (std::size_t s = 0; s < padded.shards.size(); ++s) {
    const UnevenShard& shard = padded.shards[s];
    const std::set<std::int64_t> wholes = extents.list_wholes(shard, own);
    if (!wholes.empty() && !wholes.contains(shard.local) && short_shard == nullptr) short_shard = &shard;
    if (problem) continue;
    const auto whole = graph.context->exprs.constant(padded.sizes[s][shard.dim]);
    if (!shard.is_only_one || !whole || wholes.empty())
      problem = fmt::format("{} is cut unevenly (no piece of a gradient is padded by nothing)",
                            describe(graph, shard));
    else if (!wholes.contains(*whole))
      problem = fmt::format("{} is cut unevenly (by its mesh whole shards have {}, and {} are gathered)",
                            describe(graph, shard), fmt::join(wholes, " or "), *whole);
  }
  if (problem && short_shard != nullptr)
    refuse_shard(
        fmt::format("{} is less than a whole shard, and nothing shows what ranks with whole shards "
                    "run: {}",
                    describe(graph, *short_shard), *problem));
  return problem;
}

}  // namespace

WholeShards find_whole_shards(const Graph& graph) {
  PaddedShards padded = read_padded_shards(graph);
  WholeShards result{.graph = {},
                     .padding = {},
                     .uneven_inputs = padded.shards.size(),
                     .problem = padded.problem,
                     .merge_problem = padded.problem};
  if (padded.shards.empty()) return result;
  if (!padded.pads_all) {
    if (!padded.problem)
      result.merge_problem = fmt::format("{} is cut unevenly (no piece of a gradient is padded by nothing)",
                                         describe(graph, padded.shards[0]));
    result.problem = check_extents(graph, padded);
  }
  std::vector<NodeId> dropped;  // pads
  if (!padded.pads_all)
    for (NodeId id : graph.step().order)
      if (padded.pads.contains(id)) dropped.push_back(id);
  if (result.problem || (padded.are_whole && dropped.empty())) return result;
  result.padding = CutFinder(graph, padded).run();
  result.graph = Completer(graph, padded, result.padding).run();
  for (NodeId pad : dropped) result.padding.insert(pad);
  return result;
}

}  // namespace epweave
