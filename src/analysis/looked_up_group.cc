#include "analysis/looked_up_group.h"

#include "ops/bind.h"
#include "ops/mesh_calls.h"

namespace epweave {

std::optional<LookedUpGroup> looked_up_group(const Context& context, const Body& body, const Node& node) {
  if (node.op == nullptr || mesh_call_of(node) != MeshCall::kGroup || !node.type) return std::nullopt;
  const Type& type = context.types[node.type];
  if (type.kind != TypeKind::kValue || !type.value.is(ArgKind::kProcessGroup)) return std::nullopt;
  const Arg of = arg_of(context, node, 0), dim = arg_of(context, node, 1);
  const auto mesh = of.is_node() ? recorded_mesh(context, body.nodes[of.as_node()]) : read_mesh(context, of);
  if (!mesh || !dim.is_int()) return std::nullopt;
  const auto rank = static_cast<std::int64_t>(mesh->shape.size());
  const std::int64_t at = dim.as_int() < 0 ? dim.as_int() + rank : dim.as_int();
  const auto strides = strides_of(*mesh);
  if (!strides || at < 0 || at >= rank) return std::nullopt;
  const auto axis = static_cast<std::size_t>(at);
  return LookedUpGroup{type.value.as_name(), (*strides)[axis], mesh->shape[axis]};
}

}  // namespace epweave
