#include "analysis/uneven_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/world.h"
#include "ops/bind.h"
#include "ops/family.h"
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

}  // namespace

std::vector<UnevenShard> find_uneven_shards(const Graph& graph) {
  std::vector<UnevenShard> found;
  const Context& context = *graph.context;
  const Body& step = graph.step();
  const std::int64_t world_size = recorded_world_size(graph);  // 0: every count of shards divides it
  const Gathers gathers(graph);
  std::map<StringId, NodeId> placeholders;
  for (NodeId id : step.order) {
    if (step.nodes[id].kind != NodeKind::kPlaceholder) break;
    placeholders.emplace(step.nodes[id].name, id);
  }
  for (const InputRole& input : graph.inputs) {
    const auto at = placeholders.find(input.name);
    const Arg* global = find_entry(context, input.more, "global_shape");
    const TensorType* tensor =
        at == placeholders.end() ? nullptr : tensor_of(context, step.nodes[at->second].type);
    if (global == nullptr || !global->is_list() || tensor == nullptr) continue;
    const auto extents = context.args.children(*global);
    for (std::size_t d = 0; d < tensor->rank() && extents.size() == tensor->rank(); ++d) {
      const auto local = context.exprs.constant(tensor->sizes[d]);
      if (!local || !extents[d].is_int() || extents[d].as_int() == *local) continue;
      const std::int64_t shards =
          *local > 0 && extents[d].as_int() % *local == 0 ? extents[d].as_int() / *local : 0;
      if (shards > 0 && world_size % shards == 0 && shards % gathers.ranks_of(at->second) == 0) continue;
      found.push_back({at->second, d, *local, extents[d].as_int()});
      break;
    }
  }
  return found;
}

std::string describe(const Graph& graph, const UnevenShard& shard) {
  const StringId name = graph.step().nodes[shard.input].name;
  const auto role = std::ranges::find(graph.inputs, name, &InputRole::name);
  return fmt::format("%{} ({}, {} of {})", graph.text(name), graph.text(role->fqn), shard.local,
                     shard.global);
}

}  // namespace epweave
