#include "analysis/rank_view.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "analysis/listed_groups.h"
#include "base/parse_number.h"

namespace epweave {
namespace {

bool holds(const std::vector<Rank>& ranks, Rank rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

bool is_true(const Arg* value) {
  return value != nullptr && value->is(ArgKind::kBool) && value->as_bool();
}

std::vector<Rank> read_ranks(const Context& context, Arg list) {
  std::vector<Rank> ranks;
  if (!list.is_list()) return ranks;
  for (Arg item : context.args.children(list))
    if (item.is_int() && item.as_int() >= 0) ranks.push_back(static_cast<Rank>(item.as_int()));
  return ranks;
}

std::optional<GroupOnRank> find_listed(const Graph& graph, const ProcessGroup& group, Rank rank) {
  for (GroupOnRank& row : list_recorded_groups(graph, group.name))
    if (holds(row.ranks, rank)) return std::move(row);
  return std::nullopt;
}

// Whether a record says what the group, or the one that it is split from, is on some rank.
bool is_listed(const Graph& graph, const ProcessGroup& group) {
  const Arg* all = find_entry(*graph.context, graph.info, kRankGroupsKey);
  return all != nullptr && std::ranges::any_of(std::array{group.name, group.split_from}, [&](StringId name) {
           return name && find_entry(*graph.context, *all, graph.text(name)) != nullptr;
         });
}

std::optional<GroupOnRank> find_by_rule(const Graph& graph, const World& world, const ProcessGroup& group,
                                        Rank rank) {
  const auto rule = find_group_rule(group.ranks, world.size);
  if (!rule || !holds(group.ranks, world.file_rank)) return std::nullopt;
  GroupOnRank found{group.name, rule->members(rank)};
  const auto number = parse_number<std::uint64_t>(graph.text(group.name));
  if (!number) return found;
  const std::uint64_t own = rule->index(world.file_rank);
  if (*number < own) return std::nullopt;
  found.name = graph.intern(std::to_string(*number - own + rule->index(rank)));
  found.is_numbered = true;
  return found;
}

// "0_ep_extra", split from 0, is "1_ep_extra" where that group is 1.
StringId rename_split(const Graph& graph, const ProcessGroup& group, StringId source) {
  const std::string prefix = std::string(graph.text(group.split_from)) + "_";
  const std::string_view name = graph.text(group.name);
  if (!name.starts_with(prefix)) return group.name;
  return graph.intern(std::string(graph.text(source)) + "_" + std::string(name.substr(prefix.size())));
}

}  // namespace

bool is_rank_agnostic(const Graph& graph) {
  return is_true(find_entry(*graph.context, graph.info, kRankAgnosticKey)) ||
         is_true(find_entry(*graph.context, graph.info, kOneRankKey));
}

void set_info(Graph& graph, std::string_view key, std::optional<Arg> value) {
  std::vector<Arg> items;
  if (graph.info.is(ArgKind::kDict)) {
    const auto present = graph.context->args.children(graph.info);
    items.assign(present.begin(), present.end());
  }
  const StringId name = graph.intern(key);
  std::size_t at = 0;
  while (at + 1 < items.size() && !(items[at].is(ArgKind::kText) && items[at].as_name() == name)) at += 2;
  const bool is_present = at + 1 < items.size();
  if (is_present && value) items[at + 1] = *value;
  if (is_present && !value)
    items.erase(items.begin() + static_cast<long>(at), items.begin() + static_cast<long>(at) + 2);
  if (!is_present && value) items.insert(items.end(), {Arg::text(name), *value});
  graph.info = graph.context->args.add_tree(ArgKind::kDict, items);
}

std::optional<GroupOnRank> group_on_rank(const Graph& graph, const World& world, const ProcessGroup& group,
                                         Rank rank) {
  if (rank == world.file_rank || holds(group.ranks, rank)) return GroupOnRank{group.name, group.ranks};
  if (auto listed = find_listed(graph, group, rank)) return listed;
  if (group.split_from)
    for (const ProcessGroup& source : graph.groups)
      if (source.name == group.split_from && source.ranks == group.ranks && source.name != group.name &&
          !source.split_from)
        if (const auto of_source = group_on_rank(graph, world, source, rank))
          return GroupOnRank{rename_split(graph, group, of_source->name), of_source->ranks};
  return find_by_rule(graph, world, group, rank);
}

bool is_one_group(const Graph& a, const ProcessGroup& x, const Graph& b, const ProcessGroup& y) {
  if (x.ranks != y.ranks) return false;
  if (!is_rank_agnostic(a) && !is_rank_agnostic(b)) return true;
  if (!is_listed(a, x) && !is_listed(b, y)) return true;  // by the same rule, or none
  const World world = read_world(a), other_world = read_world(b);
  if (world.size != other_world.size || world.file_rank != other_world.file_rank) return false;
  for (Rank rank = 0; rank < world.size; ++rank) {
    const auto before = group_on_rank(a, world, x, rank), after = group_on_rank(b, other_world, y, rank);
    if (before.has_value() != after.has_value() || (before && before->ranks != after->ranks)) return false;
  }
  return true;
}

std::vector<GroupOnRank> list_recorded_groups(const Graph& graph, StringId group) {
  const Context& context = *graph.context;
  std::vector<GroupOnRank> found;
  const Arg* all = find_entry(context, graph.info, kRankGroupsKey);
  const Arg* rows = all != nullptr ? find_entry(context, *all, graph.text(group)) : nullptr;
  if (rows == nullptr || !rows->is_list()) return found;
  for (Arg row : context.args.children(*rows)) {
    if (!row.is_list() || row.children().count != 2) continue;
    const auto fields = context.args.children(row);
    if (fields[0].is(ArgKind::kText)) found.push_back({fields[0].as_name(), read_ranks(context, fields[1])});
  }
  return found;
}

std::vector<StringId> list_guessed_groups(const Graph& graph, const Node& node) {
  std::vector<StringId> groups;
  if (node.kind != NodeKind::kCall || node.op != nullptr) return groups;
  for (ArgRange range : {node.args, node.kwargs})
    for (Arg arg : graph.context->args[range])
      if ((arg.is(ArgKind::kText) || arg.is(ArgKind::kProcessGroup)) &&
          graph.find_group(arg.as_name()) != nullptr)
        groups.push_back(arg.as_name());
  return groups;
}

}  // namespace epweave
