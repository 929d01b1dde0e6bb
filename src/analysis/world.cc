#include "analysis/world.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "analysis/global_meshes.h"

namespace epweave {
namespace {

constexpr std::uint32_t kMostRanks = 1 << 16;  // a larger number is no rank

std::vector<std::uint32_t> read_numbers(const Context& context, Arg list) {
  std::vector<std::uint32_t> numbers;
  if (!list.is_list()) return numbers;
  for (Arg item : context.args.children(list))
    if (item.is_int() && item.as_int() >= 0) numbers.push_back(static_cast<std::uint32_t>(item.as_int()));
  return numbers;
}

template <class MembersOf>
std::vector<std::vector<Rank>> for_each_rank(std::uint32_t world, const MembersOf& members_of) {
  std::vector<std::vector<Rank>> result;
  for (Rank rank = 0; rank < world; ++rank) result.push_back(members_of(rank));
  return result;
}

std::vector<std::vector<Rank>> derive_by_mesh(const Graph& graph, const World& world,
                                              const ProcessGroup& group) {
  if (!group.axes) return {};
  for (StringId name : *group.axes) {
    for (const Mesh& mesh : world.meshes) {
      const auto at = std::find(mesh.axes.begin(), mesh.axes.end(), graph.text(name));
      if (at == mesh.axes.end()) continue;
      const auto axis = static_cast<std::size_t>(at - mesh.axes.begin());
      if (members_along(mesh, axis, world.file_rank) == group.ranks)
        return for_each_rank(world.size, [&](Rank rank) { return members_along(mesh, axis, rank); });
    }
  }
  return {};
}

std::vector<std::vector<Rank>> derive_by_stride(const World& world, const std::vector<Rank>& ranks) {
  const auto rule = find_group_rule(ranks, world.size);
  if (!rule || rule->members(world.file_rank) != ranks) return {};
  return for_each_rank(world.size, [&](Rank rank) { return rule->members(rank); });
}

GroupMembers derive_group(const Graph& graph, const World& world, const ProcessGroup& group) {
  GroupMembers result;
  const std::vector<Rank>& ranks = group.ranks;
  if (std::find(ranks.begin(), ranks.end(), world.file_rank) == ranks.end()) {
    result.problem = fmt::format("it does not hold the file's own rank {}", world.file_rank);
    return result;
  }
  if (std::any_of(ranks.begin(), ranks.end(), [&](Rank rank) { return rank >= world.size; })) {
    result.problem = fmt::format("it holds a rank outside of the world of {}", world.size);
    return result;
  }
  if (ranks.size() == 1) {
    result.of_rank = for_each_rank(world.size, [](Rank rank) { return std::vector<Rank>{rank}; });
  } else if (ranks.size() == world.size) {
    result.of_rank = for_each_rank(world.size, [&](Rank) { return ranks; });
  } else if (result.of_rank = derive_by_mesh(graph, world, group); result.of_rank.empty()) {
    result.of_rank = derive_by_stride(world, ranks);
  }
  if (result.of_rank.empty())
    result.problem = fmt::format("the members [{}] of rank {} are no axis of a known mesh, nor evenly spaced",
                                 fmt::join(ranks, ", "), world.file_rank);
  return result;
}

}  // namespace

std::vector<Mesh> read_global_meshes(const Graph& graph) {
  const Context& context = *graph.context;
  std::vector<Mesh> meshes;
  const Arg* all = find_entry(context, graph.info, "global_meshes");
  if (all == nullptr || !all->is(ArgKind::kDict)) return meshes;
  const auto entries = context.args.children(*all);
  for (std::size_t i = 1; i < entries.size(); i += 2) {
    const Arg* axes = find_entry(context, entries[i], "axes");
    const Arg* shape = find_entry(context, entries[i], "shape");
    if (axes == nullptr || shape == nullptr || !axes->is_list()) continue;
    Mesh mesh;
    for (Arg axis : context.args.children(*axes))
      mesh.axes.emplace_back(axis.is(ArgKind::kText) ? context.text(axis.as_name()) : "");
    mesh.shape = read_numbers(context, *shape);
    if (mesh.axes.size() == mesh.shape.size()) meshes.push_back(std::move(mesh));
  }
  return meshes;
}

std::vector<Rank> members_along(const Mesh& mesh, std::size_t axis, Rank rank) {
  std::uint32_t stride = 1;
  for (std::size_t d = axis + 1; d < mesh.shape.size(); ++d) stride *= mesh.shape[d];
  const Rank first = rank - mesh.coordinate(rank, axis) * stride;
  std::vector<Rank> members;
  for (std::uint32_t i = 0; i < mesh.shape[axis]; ++i) members.push_back(first + i * stride);
  return members;
}

std::uint32_t Mesh::size() const {
  std::uint32_t product = 1;
  for (std::uint32_t extent : shape) product *= extent;
  return product;
}

std::uint32_t Mesh::coordinate(Rank rank, std::size_t axis) const {
  std::uint32_t stride = 1;
  for (std::size_t d = axis + 1; d < shape.size(); ++d) stride *= shape[d];
  return rank / stride % shape[axis];
}

const Arg* find_entry(const Context& context, Arg dict, std::string_view key) {
  return dict.is(ArgKind::kDict) ? find_entry(context, dict.children(), key) : nullptr;
}

const Arg* find_entry(const Context& context, ArgRange names_and_values, std::string_view key) {
  const auto entries = context.args[names_and_values];
  for (std::size_t i = 0; i + 1 < entries.size(); i += 2)
    if (entries[i].is(ArgKind::kText) && context.text(entries[i].as_name()) == key) return &entries[i + 1];
  return nullptr;
}

std::vector<Rank> GroupRule::members(Rank rank) const {
  const Rank first = rank - coordinate(rank) * stride;
  std::vector<Rank> members;
  for (std::uint32_t i = 0; i < extent; ++i) members.push_back(first + i * stride);
  return members;
}

std::optional<GroupRule> find_group_rule(const std::vector<Rank>& members, std::uint32_t world_size) {
  const auto extent = static_cast<std::uint32_t>(members.size());
  if (extent == 0 || extent > world_size || members[0] >= world_size) return std::nullopt;
  if (extent == 1) return GroupRule{};
  if (members[1] <= members[0]) return std::nullopt;
  const GroupRule rule{members[1] - members[0], extent};
  if (rule.stride > world_size / extent || world_size % (rule.stride * extent) != 0) return std::nullopt;
  if (rule.members(members[0]) != members) return std::nullopt;
  return rule;
}

std::int64_t recorded_world_size(const Graph& graph) {
  const Arg* size = find_entry(*graph.context, graph.info, "world_size");
  return size != nullptr && size->is_int() ? size->as_int() : 0;
}

Rank own_rank(const Graph& graph) {
  const Arg* rank = find_entry(*graph.context, graph.info, "rank");
  if (rank == nullptr || !rank->is_int()) return 0;
  return static_cast<Rank>(std::clamp<std::int64_t>(rank->as_int(), 0, kMostRanks));
}

World read_world(const Graph& graph, std::uint32_t ranks) {
  const Context& context = *graph.context;
  World world;
  world.file_rank = own_rank(graph);
  std::uint32_t recorded = 0;
  if (const Arg* size = find_entry(context, graph.info, "world_size"); size != nullptr && size->is_int())
    recorded = static_cast<std::uint32_t>(std::clamp<std::int64_t>(size->as_int(), 0, kMostRanks + 1));
  std::uint32_t needed = world.file_rank + 1;
  for (const ProcessGroup& group : graph.groups)
    for (Rank rank : group.ranks) needed = std::max(needed, rank + 1);
  if (ranks != 0 && recorded != 0 && ranks != recorded)
    throw UsageError(fmt::format("the graph is one of {} ranks, not {}", recorded, ranks));
  world.size = recorded != 0 ? recorded : ranks != 0 ? ranks : needed;
  if (world.size < needed) {
    const std::string problem =
        fmt::format("the graph{} rank {}, the world has {} ranks",
                    needed == world.file_rank + 1 ? " is of" : "'s groups name", needed - 1, world.size);
    if (recorded != 0) throw InputError(problem);
    throw UsageError(problem);
  }
  if (world.size > kMostRanks) throw InputError(fmt::format("a world of more than {} ranks", kMostRanks));
  world.meshes = read_global_meshes(graph);
  std::erase_if(world.meshes, [&](const Mesh& mesh) { return mesh.size() != world.size; });
  return world;
}

World derive_world(const Graph& graph, std::uint32_t ranks) {
  World world = read_world(graph, ranks);
  for (const ProcessGroup& group : graph.groups)
    world.groups[std::string(graph.text(group.name))] = derive_group(graph, world, group);
  for (const ProcessGroup& group : graph.groups) {
    const auto parent = world.groups.find(std::string(graph.text(group.split_from)));
    GroupMembers& members = world.groups[std::string(graph.text(group.name))];
    if (parent == world.groups.end() || parent->second.of_rank.empty()) continue;
    if (parent->second.of_rank[world.file_rank] == group.ranks) members = parent->second;
  }
  return world;
}

std::optional<std::uint32_t> find_coordinate(const World& world, std::string_view axis, Rank rank) {
  for (const Mesh& mesh : world.meshes)
    for (std::size_t d = 0; d < mesh.axes.size(); ++d)
      if (mesh.axes[d] == axis) return mesh.coordinate(rank, d);
  return std::nullopt;
}

}  // namespace epweave
