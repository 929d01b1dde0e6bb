#include "compare/ranks/one_rank_calls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "analysis/rank_view.h"
#include "analysis/sharded_dims.h"
#include "compare/ranks/rank_program.h"
#include "ir/walk.h"
#include "ops/mesh_calls.h"

namespace epweave {
namespace {

void find_named_groups(const Graph& graph, std::vector<OneRankCall>& found) {
  const std::uint32_t world_size = read_world(graph).size;
  for (const auto [id, node] : walk(*graph.context, graph.step())) {
    const std::vector<StringId> groups = list_guessed_groups(graph, node);
    // One that some ranks are not in.
    const auto group = std::ranges::find_if(
        groups, [&](StringId name) { return graph.find_group(name)->ranks.size() < world_size; });
    if (group == groups.end()) continue;
    found.push_back({id, fmt::format("group {}", graph.text(*group)),
                     fmt::format("it takes the group by name, which is another on other ranks, and is not "
                                 "in the op table, which would say where the name stands")});
  }
}

// "[0, 512]"; none where an entry is no number, or all are one number.
std::optional<std::string> print_uneven(const std::vector<Extent>& sends,
                                        const std::vector<Extent>& receives) {
  std::set<Extent> entries(sends.begin(), sends.end());
  entries.insert(receives.begin(), receives.end());
  if (entries.contains(std::nullopt) || entries.size() < 2) return std::nullopt;
  const auto print = [](const std::vector<Extent>& table) {
    std::vector<std::int64_t> numbers;
    for (const Extent& entry : table) numbers.push_back(*entry);
    return fmt::format("[{}]", fmt::join(numbers, ", "));
  };
  return fmt::format("{} to the members, {} from them", print(sends), print(receives));
}

void find_uneven_exchanges(const Graph& graph, std::vector<OneRankCall>& found) {
  std::map<std::string_view, NodeId> nodes;
  for (NodeId id : graph.step().order) nodes.emplace(graph.text(graph.step().nodes[id].name), id);
  const RankProgram program = list_rank_program(graph);
  for (const RankLaunch& launch : program.calls->launches) {
    if (launch.is_as_traced || launch.is_faulty) continue;
    const auto table = print_uneven(launch.sends, launch.receives);
    const auto node = nodes.find(std::string_view(launch.node).substr(0, launch.node.find('/')));
    if (table && node != nodes.end())
      found.push_back({node->second, *table,
                       "all ranks run this call, and then what one sends is not what the other expects: the "
                       "ranks run different programs"});
  }
}

// Products of some of the mesh's extents: into so many equal shards it can cut a dimension.
std::set<std::int64_t> list_shard_counts(const MeshValue& mesh) {
  std::set<std::int64_t> counts = {1};
  for (std::uint32_t extent : mesh.shape) {
    const std::vector<std::int64_t> before(counts.begin(), counts.end());
    for (std::int64_t count : before) counts.insert(count * extent);
  }
  return counts;
}

// A dimension that the mesh of the parameter does not cut into equal shards.
std::optional<std::string> print_uneven_shard(const Context& context, const TensorType& tensor, Arg global,
                                              const MeshValue& mesh) {
  const std::set<std::int64_t> counts = list_shard_counts(mesh);
  const std::span<const Arg> extents = items_of(context, global, tensor.rank());
  for (std::size_t d = 0; d < extents.size(); ++d) {
    const auto local = context.exprs.constant(tensor.sizes[d]);
    if (!local || !extents[d].is_int() || *local < 0) continue;
    const std::int64_t whole = extents[d].as_int();
    if (whole == *local || (*local != 0 && whole % *local == 0 && counts.contains(whole / *local))) continue;
    return fmt::format("{} of {} places of dimension {}", *local, whole, d);
  }
  return std::nullopt;
}

void find_uneven_parameters(const Graph& graph, std::vector<OneRankCall>& found) {
  const Context& context = *graph.context;
  const Body& step = graph.step();
  std::map<StringId, NodeId> placeholders;
  for (NodeId id : step.order)
    if (step.nodes[id].kind == NodeKind::kPlaceholder) placeholders.emplace(step.nodes[id].name, id);
  std::map<StringId, MeshValue> meshes;  // by parameter
  for (const InputRole& input : graph.inputs)
    if (const auto at = placeholders.find(input.name); at != placeholders.end())
      if (auto mesh = recorded_mesh(context, step.nodes[at->second])) meshes.emplace(input.fqn, *mesh);
  for (const InputRole& input : graph.inputs) {
    const auto at = placeholders.find(input.name);
    const auto mesh = meshes.find(input.fqn);
    const Arg* global = find_entry(context, input.more, "global_shape");
    if (at == placeholders.end() || mesh == meshes.end() || global == nullptr) continue;
    const TensorType* tensor = tensor_of(context, step.nodes[at->second].type);
    if (tensor == nullptr) continue;
    if (const auto shard = print_uneven_shard(context, *tensor, *global, mesh->second))
      found.push_back({at->second, *shard,
                       fmt::format("ranks of the mesh [{}] hold shards of {} of other sizes",
                                   fmt::join(mesh->second.shape, ", "), graph.text(input.fqn))});
  }
}

}  // namespace

std::vector<OneRankCall> find_one_rank_calls(const Graph& graph) {
  std::vector<OneRankCall> found;
  find_uneven_parameters(graph, found);
  find_named_groups(graph, found);
  find_uneven_exchanges(graph, found);
  return found;
}

}  // namespace epweave
