#include "analysis/uneven_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "analysis/placeholders.h"
#include "analysis/world.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/mesh_calls.h"
#include "ops/named_arg.h"
#include "ops/op.h"

namespace epweave {
namespace {

// How many ranks gather an input, as the first all-gather behind casts, pads and views of it says;
// 1 where none is found.
class Gathers {
 public:
  explicit Gathers(const Graph& graph) : context_(*graph.context), step_(graph.step()) {
    for (NodeId id : step_.order) {
      const Node& node = step_.nodes[id];
      if (node.kind == NodeKind::kPlaceholder) origins_.at(id) = id;
      const Arg from = node.op == nullptr ? Arg() : arg_of(context_, node, 0);
      const NodeId origin = from.is_node() ? origins_[from.as_node()] : NodeId();
      if (!origin) continue;
      if (node.op->family == OpFamily::kAllGather) {
        if (const Arg size = named_arg(context_, node, "group_size"); size.is_int() && ranks_[origin] == 0)
          ranks_.at(origin) = size.as_int();
      } else if (keeps_rows(node.op->family)) {
        origins_.at(id) = origin;
      }
    }
  }

  std::int64_t ranks_of(NodeId input) const { return std::max<std::int64_t>(ranks_[input], 1); }

 private:
  static bool keeps_rows(OpFamily family) { return keeps_numbers(family) || family == OpFamily::kPad; }

  const Context& context_;
  const Body& step_;
  SideTable<NodeId, NodeId> origins_;      // inputs
  SideTable<NodeId, std::int64_t> ranks_;  // of inputs; 0: not known
};

// Into how many equal shards a dimension can be cut: products of some of the mesh's extents.
std::set<std::int64_t> list_shard_counts(const MeshValue& mesh) {
  std::set<std::int64_t> counts = {1};
  for (std::uint32_t extent : mesh.shape) {
    const std::vector<std::int64_t> before(counts.begin(), counts.end());
    for (std::int64_t count : before) counts.insert(count * extent);
  }
  return counts;
}

class UnevenShards {
 public:
  explicit UnevenShards(const Graph& graph)
      : graph_(graph),
        context_(*graph.context),
        world_size_(recorded_world_size(graph)),
        gathers_(graph),
        placeholders_(list_placeholders(graph)) {
    for (const InputRole& input : graph.inputs)
      if (const auto at = placeholders_.find(input.name); at != placeholders_.end())
        if (const auto mesh = recorded_mesh(context_, graph.step().nodes[at->second]))
          counts_.emplace(input.fqn, list_shard_counts(*mesh));
  }

  std::optional<UnevenShard> find(const InputRole& input) const {
    const auto at = placeholders_.find(input.name);
    const Arg* global = find_entry(context_, input.more, "global_shape");
    const TensorType* tensor =
        at == placeholders_.end() ? nullptr : tensor_of(context_, graph_.step().nodes[at->second].type);
    if (global == nullptr || !global->is_list() || tensor == nullptr) return std::nullopt;
    const auto extents = context_.args.children(*global);
    if (extents.size() != tensor->rank()) return std::nullopt;
    std::optional<UnevenShard> cut;  // the first dimension that is a shard
    bool is_known = true;
    std::int64_t ranks = gathers_.ranks_of(at->second);  // among which no dimension is divided
    for (std::size_t d = 0; d < extents.size(); ++d) {
      const auto local = context_.exprs.constant(tensor->sizes[d]);
      is_known = is_known && local && extents[d].is_int();
      if (!local || !extents[d].is_int() || extents[d].as_int() == *local) continue;
      const UnevenShard shard{at->second, input.fqn, d, *local, extents[d].as_int()};
      const std::int64_t count = *local > 0 && shard.global % *local == 0 ? shard.global / *local : 0;
      if (!can_be_count(input.fqn, count)) return shard;
      ranks /= std::gcd(ranks, count);
      if (!cut) cut = shard;
    }
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

}  // namespace

std::vector<UnevenShard> find_uneven_shards(const Graph& graph) {
  const UnevenShards shards(graph);
  std::vector<UnevenShard> found;
  for (const InputRole& input : graph.inputs)
    if (const auto shard = shards.find(input)) found.push_back(*shard);
  return found;
}

std::string describe(const Graph& graph, const UnevenShard& shard) {
  return fmt::format("%{} ({}, {} of {})", graph.text(graph.step().nodes[shard.input].name),
                     graph.text(shard.fqn), shard.local, shard.global);
}

std::string describe(const Graph& graph, const std::vector<UnevenShard>& shards) {
  if (shards.empty()) return "";
  const std::size_t others = shards.size() - 1;
  const std::string more =
      others == 0 ? " is" : fmt::format(" and {} more input{} are", others, others == 1 ? "" : "s");
  return fmt::format("{}{} cut unevenly: ranks that hold shards of other sizes run another program",
                     describe(graph, shards[0]), more);
}

}  // namespace epweave
