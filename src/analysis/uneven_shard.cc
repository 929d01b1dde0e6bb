#include "analysis/uneven_shard.h"

#include <fmt/format.h>

#include <map>

#include "analysis/world.h"

namespace epweave {
std::optional<std::string> find_uneven_shard(const Graph& graph) {
  const Context& context = *graph.context;
  const Body& step = graph.step();
  const std::int64_t world_size = recorded_world_size(graph);  // 0: every count of shards divides it
  std::map<StringId, const Node*> placeholders;
  for (NodeId id : step.order) {
    if (step.nodes[id].kind != NodeKind::kPlaceholder) break;
    placeholders.emplace(step.nodes[id].name, &step.nodes[id]);
  }
  for (const InputRole& input : graph.inputs) {
    const auto at = placeholders.find(input.name);
    const Arg* global = find_entry(context, input.more, "global_shape");
    const TensorType* tensor = at == placeholders.end() ? nullptr : tensor_of(context, at->second->type);
    if (global == nullptr || !global->is_list() || tensor == nullptr) continue;
    const auto extents = context.args.children(*global);
    for (std::size_t d = 0; d < tensor->rank() && extents.size() == tensor->rank(); ++d) {
      const auto local = context.exprs.constant(tensor->sizes[d]);
      if (!local || !extents[d].is_int() || extents[d].as_int() == *local) continue;
      if (*local > 0 && extents[d].as_int() % *local == 0 && world_size % (extents[d].as_int() / *local) == 0)
        continue;
      return fmt::format("%{} ({}, {} of {})", graph.text(input.name), graph.text(input.fqn), *local,
                         extents[d].as_int());
    }
  }
  return std::nullopt;
}

}  // namespace epweave
