#include "analysis/uneven_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "analysis/collectives.h"
#include "analysis/placeholders.h"
#include "analysis/received.h"
#include "analysis/returned_values.h"
#include "analysis/world.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/mesh_calls.h"
#include "ops/named_arg.h"
#include "ops/op.h"

namespace epweave {
namespace {

// How many ranks gather an input, as the first call with their number behind casts, pads, views and
// joins of it says: a gather, or the packing of a bucket for one. Of other values, how many the
// reduce-scatter is of by which they are received. 1 where none is found.
class Gathers {
 public:
  explicit Gathers(const Graph& graph) : context_(*graph.context), step_(graph.step()) {
    for (NodeId id : step_.order) {
      const Node& node = step_.nodes[id];
      if (node.op == nullptr) continue;
      if (passes_received(node) || has_family(node, OpFamily::kElementwise)) {
        pass_on(id);
        continue;
      }
      const Arg size = named_arg(context_, node, "group_size");
      if (!size.is_int()) continue;
      if (has_family(node, OpFamily::kReduceScatter))
        ranks_.at(id) = size.as_int();
      else
        find_inputs(id, size.as_int());
    }
  }

  std::int64_t ranks_of(NodeId value) const { return std::max<std::int64_t>(ranks_[value], 1); }

 private:
  static bool keeps_rows(const Node& node) {
    return node.op != nullptr && (keeps_numbers(node.op->family) || has_family(node, OpFamily::kPad) ||
                                  has_family(node, OpFamily::kJoin));
  }

  void pass_on(NodeId id) {
    for_each_input(context_, step_.nodes[id], [&](NodeId input) {
      if (step_.nodes[input].kind != NodeKind::kCall || ranks_[id] != 0) return;
      const std::int64_t ranks = ranks_[input];  // `at` may move the table
      ranks_.at(id) = ranks;
    });
  }

  void find_inputs(NodeId gather, std::int64_t ranks) {
    std::vector<NodeId> next = {gather};
    while (!next.empty()) {
      const NodeId id = next.back();
      next.pop_back();
      for_each_input(context_, step_.nodes[id], [&](NodeId input) {
        if (!seen_.insert(input)) return;
        if (step_.nodes[input].kind == NodeKind::kPlaceholder) ranks_.at(input) = ranks;
        if (keeps_rows(step_.nodes[input])) next.push_back(input);
      });
    }
  }

  const Context& context_;
  const Body& step_;
  IdSet<NodeId> seen_;                     // on the way from inputs to their first gathers
  SideTable<NodeId, std::int64_t> ranks_;  // 0: not known
};

// Into how many equal shards a dimension can be cut: products of some of a mesh's extents.
std::set<std::int64_t> list_shard_counts(const std::vector<std::uint32_t>& extents) {
  std::set<std::int64_t> counts = {1};
  for (std::uint32_t extent : extents) {
    const std::vector<std::int64_t> before(counts.begin(), counts.end());
    for (std::int64_t count : before) counts.insert(count * extent);
  }
  return counts;
}

// Of each parameter the mesh that the graph records, among its inputs or beside its gradient.
std::map<StringId, MeshValue> list_parameter_meshes(const Graph& graph) {
  std::map<StringId, MeshValue> meshes;
  const auto add = [&](StringId fqn, NodeId value) {
    if (!fqn) return;
    if (auto mesh = recorded_mesh(*graph.context, graph.step().nodes[value]))
      meshes.emplace(fqn, std::move(*mesh));
  };
  const std::map<StringId, NodeId> placeholders = list_placeholders(graph);
  for (const InputRole& input : graph.inputs)
    if (const auto at = placeholders.find(input.name); at != placeholders.end()) add(input.fqn, at->second);
  const std::vector<NodeId> outputs = list_outputs(graph);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i]) add(graph.outputs[i].fqn, outputs[i]);
  return meshes;
}

class UnevenShards {
 public:
  explicit UnevenShards(const Graph& graph)
      : graph_(graph),
        context_(*graph.context),
        world_size_(recorded_world_size(graph)),
        gathers_(graph),
        placeholders_(list_placeholders(graph)) {
    for (const auto& [fqn, mesh] : list_parameter_meshes(graph))
      counts_.emplace(fqn, list_shard_counts(mesh.shape));
  }

  std::optional<UnevenShard> find(const InputRole& input) const {
    const auto at = placeholders_.find(input.name);
    return at == placeholders_.end() ? std::nullopt : find(at->second, input);
  }
  template <class Role>
  std::optional<UnevenShard> find(NodeId value, const Role& role) const {
    const Arg* global = find_entry(context_, role.more, "global_shape");
    const TensorType* tensor = tensor_of(context_, graph_.step().nodes[value].type);
    if (global == nullptr || !global->is_list() || tensor == nullptr) return std::nullopt;
    const auto extents = context_.args.children(*global);
    if (extents.size() != tensor->rank()) return std::nullopt;
    std::optional<UnevenShard> uneven, cut;  // the first dimension that is, and that is a shard
    bool is_known = true;
    std::int64_t ranks = gathers_.ranks_of(value);  // among which no dimension is divided
    for (std::size_t d = 0; d < extents.size(); ++d) {
      const auto local = context_.exprs.constant(tensor->sizes[d]);
      is_known = is_known && local && extents[d].is_int();
      if (!local || !extents[d].is_int() || extents[d].as_int() == *local) continue;
      const UnevenShard shard{value, role.fqn, d, *local, extents[d].as_int(), gathers_.ranks_of(value)};
      const std::int64_t count = *local > 0 && shard.global % *local == 0 ? shard.global / *local : 0;
      if (!can_be_count(role.fqn, count)) {
        if (uneven)
          uneven->is_only_one = false;
        else
          uneven = shard;
        continue;
      }
      ranks /= std::gcd(ranks, count);
      if (!cut) cut = shard;
    }
    if (uneven) return uneven;
    return is_known && ranks != 1 ? cut : std::nullopt;
  }

 private:
  bool can_be_count(StringId fqn, std::int64_t count) const {
    const auto counts = counts_.find(fqn);
    return count > 0 && world_size_ % count == 0 &&
           (counts == counts_.end() || counts->second.contains(count));
  }

  const Graph& graph_;
  const Context& context_;
  std::int64_t world_size_ = 0;  // 0: every count of shards divides it
  Gathers gathers_;
  std::map<StringId, NodeId> placeholders_;
  std::map<StringId, std::set<std::int64_t>> counts_;  // by parameter whose mesh is recorded
};

// A rank's place along an axis of the mesh through it.
std::int64_t place_along(const MeshValue& mesh, std::size_t axis, std::uint32_t rank) {
  std::int64_t place = std::ranges::find(mesh.ranks, rank) - mesh.ranks.begin();
  for (std::size_t d = mesh.shape.size(); d-- > axis + 1;) place /= mesh.shape[d];
  return place % mesh.shape[axis];
}

// What other axes leave of a dimension, cut along one: pieces of the extent `whole`, and the rest.
struct Cut {
  std::size_t axis = 0;
  std::int64_t left = 0, whole = 0;
};
// All that fit the dimension and the ranks that gather it.
std::vector<Cut> list_cuts(const UnevenShard& shard, const MeshValue& mesh) {
  std::vector<Cut> cuts;
  for (std::size_t axis = 0; axis < mesh.shape.size(); ++axis) {
    const std::int64_t pieces = mesh.shape[axis];
    if (pieces == 1 || (shard.gathered_by != 1 && shard.gathered_by != pieces)) continue;
    std::vector<std::uint32_t> others = mesh.shape;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(axis));
    for (std::int64_t count : list_shard_counts(others))
      if (shard.global % count == 0) {
        const std::int64_t left = shard.global / count;
        cuts.push_back({axis, left, (left + pieces - 1) / pieces});
      }
  }
  return cuts;
}
std::int64_t held(const Cut& cut, const MeshValue& mesh, std::uint32_t rank) {
  return std::clamp<std::int64_t>(cut.left - place_along(mesh, cut.axis, rank) * cut.whole, 0, cut.whole);
}

}  // namespace

ShardExtents::ShardExtents(const Graph& graph) : meshes_(list_parameter_meshes(graph)) {}

std::optional<std::int64_t> ShardExtents::find(const UnevenShard& shard, std::int64_t whole,
                                               RankChange change) const {
  const auto mesh = meshes_.find(shard.fqn);
  if (mesh == meshes_.end() || whole <= 0) return std::nullopt;
  const auto there = mesh_through(mesh->second, change);
  if (!there) return std::nullopt;
  std::set<std::int64_t> found;
  for (const Cut& cut : list_cuts(shard, mesh->second))
    if (cut.whole == whole && held(cut, mesh->second, change.from) == shard.local)
      found.insert(held(cut, *there, change.to));
  return found.size() == 1 ? std::optional(*found.begin()) : std::nullopt;
}

std::set<std::int64_t> ShardExtents::list_wholes(const UnevenShard& shard, std::uint32_t rank) const {
  std::set<std::int64_t> wholes;
  const auto mesh = meshes_.find(shard.fqn);
  if (mesh == meshes_.end() || std::ranges::find(mesh->second.ranks, rank) == mesh->second.ranks.end())
    return wholes;
  for (const Cut& cut : list_cuts(shard, mesh->second))
    if (held(cut, mesh->second, rank) == shard.local) wholes.insert(cut.whole);
  return wholes;
}

std::vector<UnevenShard> find_uneven_shards(const Graph& graph) {
  const UnevenShards shards(graph);
  std::vector<UnevenShard> found;
  for (const InputRole& input : graph.inputs)
    if (const auto shard = shards.find(input)) found.push_back(*shard);
  return found;
}

std::vector<UnevenShard> find_uneven_gradients(const Graph& graph) {
  const UnevenShards shards(graph);
  std::set<StringId> inputs;
  const std::map<StringId, NodeId> placeholders = list_placeholders(graph);
  for (const InputRole& input : graph.inputs) {
    const auto at = placeholders.find(input.name);  // the parameter itself, not its mesh
    if (at != placeholders.end() &&
        tensor_of(*graph.context, graph.step().nodes[at->second].type) != nullptr &&
        find_entry(*graph.context, input.more, "global_shape") != nullptr)
      inputs.insert(input.fqn);
  }
  std::vector<UnevenShard> found;
  const std::vector<NodeId> outputs = list_outputs(graph);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i] && !inputs.contains(graph.outputs[i].fqn))
      if (const auto shard = shards.find(outputs[i], graph.outputs[i])) found.push_back(*shard);
  return found;
}

std::string describe(const Graph& graph, const UnevenShard& shard) {
  return fmt::format("%{} ({}{}{} of {})", graph.text(graph.step().nodes[shard.value].name),
                     graph.text(shard.fqn), shard.fqn ? ", " : "", shard.local, shard.global);
}

std::string describe(const Graph& graph, const std::vector<UnevenShard>& shards) {
  if (shards.empty()) return "";
  const std::size_t others = shards.size() - 1;
  const std::string more =
      others == 0 ? " is" : fmt::format(" and {} more input{} are", others, others == 1 ? "" : "s");
  return fmt::format("{}{} cut unevenly: specialize gives ranks that hold less their own program, or refuses",
                     describe(graph, shards[0]), more);
}

}  // namespace epweave
