#include "compare/rewrite/moved_groups.h"

#include <algorithm>
#include <tuple>

#include "analysis/collectives.h"
#include "analysis/looked_up_group.h"
#include "analysis/rank_view.h"
#include "compare/rewrite/conditions.h"
#include "compare/rewrite/verify_interface.h"
#include "ir/types/dimension.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

// Numbers of recorded groups, of lookups, and of names that nothing records are apart.
constexpr std::uint64_t kLookedUp = std::uint64_t{1} << 32, kUnrecorded = std::uint64_t{2} << 32;

void collect_integers(const Context& context, Arg list, std::vector<std::int64_t>& into) {
  if (list.is_int()) into.push_back(list.as_int());
  if (!list.is_list()) return;
  for (Arg item : context.args.children(list)) collect_integers(context, item, into);
}

}  // namespace

MovedGroups::MovedGroups(const RewriteClaims& claims)
    : claims_(claims), graph_a_(claims.graph_a()), graph_b_(claims.graph_b()), context_(*graph_a_.context) {
  const Body& a = graph_a_.step();
  for (const Launch& launch : find_launches(context_, a)) {
    const Node& node = a.nodes[launch.node];
    const Arg group = arg_of(context_, node, group_position(*node.op));
    if (group.is_node() && launch.group.is_node()) lookups_.at(group.as_node()) = launch.group.as_node();
  }
  number_lookups();
}

// Lookups of one recorded group along the same axis are one, also those that no launch of A names:
// of what B does again.
void MovedGroups::number_lookups() {
  std::map<std::tuple<StringId, std::uint32_t, std::uint32_t>, NodeId> first;
  for (const auto [id, node] : walk(graph_a_.step())) {
    const auto group = looked_up_group(context_, graph_a_.step(), node);
    if (!group) continue;
    const auto [known, is_new] = first.try_emplace({group->name, group->stride, group->extent}, id);
    lookups_.at(id) = known->second;
    if (is_new) lookups_of_[group->name].push_back(id);
  }
}

std::optional<Sequence> MovedGroups::send(MovementTerms& terms, const Node& node, const Sequence& sent,
                                          bool of_b) {
  auto group = number_of(arg_of(context_, node, group_position(*node.op)), of_b);
  const auto ranks_at = node.op->find_param("group_size"), reduction_at = node.op->find_param("reduce_op");
  const Arg size = ranks_at ? arg_of(context_, node, *ranks_at) : Arg(),
            given = reduction_at ? arg_of(context_, node, *reduction_at) : Arg();
  if (group && holds(Condition::kSendsInGroup, false)) group = kUnrecorded;
  const Arg reduction = holds(Condition::kReducesAlike, false) ? Arg() : given;
  if (!group || (ranks_at && !size.is_int())) return {};
  const std::int64_t ranks = ranks_at ? size.as_int() : 1;
  const bool has_members = *group < groups_.size();
  if (ranks < 1 || ranks > kMaxPieces) return {};
  if (ranks_at && has_members && ranks != std::ssize(groups_[*group].group->ranks)) return {};
  std::optional<Sequence> result;
  if (node.op->family == OpFamily::kAllGather && ranks_at) {
    result = terms.gather(sent, *group, ranks);
  } else if (node.op->family == OpFamily::kReduceScatter && ranks_at) {
    result = terms.scatter(terms.reduce(sent, *group, reduction.bits()), *group, ranks);
  } else if (node.op->family == OpFamily::kAllReduce) {
    result = terms.reduce(sent, *group, reduction.bits());
  }
  return result && result->is_followed() ? result : std::nullopt;
}

// The lookup in A of the group from which this one of either graph was split; none where A looks up
// more than one of that name.
NodeId MovedGroups::lookup_split(const Graph& graph, StringId name) const {
  const ProcessGroup* group = graph.find_group(name);
  if (group == nullptr || !group->split_from) return {};
  const ProcessGroup* whole = graph_a_.find_group(group->split_from);
  const auto lookups = lookups_of_.find(group->split_from);
  if (whole == nullptr || lookups == lookups_of_.end() || !is_one_group(graph_a_, *whole, graph, *group))
    return {};
  return lookups->second.size() == 1 ? lookups->second.front() : NodeId();
}

std::optional<std::uint64_t> MovedGroups::number_of(Arg group, bool of_b) {
  if (group.is_node()) {
    const NodeId a = of_b ? claims_[group.as_node()].origin : group.as_node();
    if (!a) return {};
    if (of_b && !claims_.is_whole(group.as_node())) {
      const StringId before = recorded_group(context_, graph_a_.step(), Arg::node(a));
      if (!before || before != recorded_group(context_, graph_b_.step(), group)) return {};
    }
    const NodeId first = lookups_[a] ? lookups_[a] : claims_.find_class(a);
    return kLookedUp + first.index();
  }
  if (!group.is(ArgKind::kText) && !group.is(ArgKind::kProcessGroup)) return {};
  const Graph& graph = of_b ? graph_b_ : graph_a_;
  if (const NodeId lookup = lookup_split(graph, group.as_name())) return kLookedUp + lookup.index();
  const ProcessGroup* found = graph.find_group(group.as_name());
  if (found == nullptr || found->ranks.empty()) return kUnrecorded + group.as_name().index();
  return number_recorded(graph, *found);
}

// Of all that are one on every rank.
std::size_t MovedGroups::number_recorded(const Graph& graph, const ProcessGroup& group) {
  const auto [number, is_new] = group_numbers_.try_emplace({&graph, group.name}, groups_.size());
  if (!is_new) return number->second;
  const auto known = std::ranges::find_if(groups_, [&](const RecordedGroup& other) {
    return is_one_group(*other.graph, *other.group, graph, group);
  });
  number->second = static_cast<std::size_t>(known - groups_.begin());
  if (known == groups_.end()) groups_.push_back({&graph, &group});
  return number->second;
}

bool is_place_in(const Graph& graph, NodeId coordinate, const ProcessGroup& group, Numbers& numbers,
                 const LaterWrites& writes) {
  const Context& context = *graph.context;
  const Body& body = graph.step();
  const Arg of = arg_of(context, body.nodes[coordinate], 0), dim = arg_of(context, body.nodes[coordinate], 1);
  const World world = read_world(graph);
  const std::uint32_t world_size = world.size;
  const auto rule = find_group_rule(group.ranks, world_size);
  if (!rule || !of.is_node() || !dim.is_int()) return false;
  const Node& table = body.nodes[of.as_node()];
  const auto sizes = find_sizes(numbers, tensor_of(context, table.type));
  const bool is_constant = table.kind == NodeKind::kGetAttr && table.attr.is(ArgKind::kTensor);
  if (!is_constant || writes.any(of.as_node()) || !sizes) return false;
  const auto fields = context.args.children(table.attr);
  std::vector<std::int64_t> ranks;
  if (fields.size() == 3) collect_integers(context, fields[2], ranks);
  const auto at = find_dimension(dim.as_int(), sizes->size());
  if (!at || std::ssize(ranks) != std::int64_t{world_size} || *count_of(*sizes) != std::int64_t{world_size})
    return false;
  const std::int64_t stride = row_major(*sizes)[*at];
  std::vector<bool> seen(world_size);
  for (std::int64_t i = 0; i < std::ssize(ranks); ++i) {
    const std::int64_t rank = ranks[static_cast<std::size_t>(i)];
    if (rank < 0 || rank >= world_size || seen[static_cast<std::size_t>(rank)]) return false;
    seen[static_cast<std::size_t>(rank)] = true;
    if (i / stride % (*sizes)[*at] != rule->coordinate(static_cast<Rank>(rank))) return false;
    const auto there = group_on_rank(graph, world, group, static_cast<Rank>(rank));
    if (!there || there->ranks != rule->members(static_cast<Rank>(rank))) return false;
  }
  return true;
}

}  // namespace epweave
