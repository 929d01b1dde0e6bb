#include "analysis/looked_up_group.h"

#include "ir/types/dimension.h"
#include "ops/bind.h"

namespace epweave {

std::optional<LookedUpGroup> looked_up_group(const Context& context, const Body& body, const Node& node) {
  if (node.op == nullptr || mesh_call_of(node) != MeshCall::kGroup || !node.type) return std::nullopt;
  const Type& type = context.types[node.type];
  if (type.kind != TypeKind::kValue || !type.value.is(ArgKind::kProcessGroup)) return std::nullopt;
  const Arg of = arg_of(context, node, 0);
  const auto mesh = of.is_node() ? recorded_mesh(context, body.nodes[of.as_node()]) : read_mesh(context, of);
  if (!mesh) return std::nullopt;
  const auto axis = axis_looked_up(context, node, *mesh);
  const auto strides = strides_of(*mesh);
  if (!axis || !strides) return std::nullopt;
  return LookedUpGroup{type.value.as_name(), (*strides)[*axis], mesh->shape[*axis]};
}

std::optional<std::size_t> axis_looked_up(const Context& context, const Node& lookup, const MeshValue& mesh) {
  const Arg dim = arg_of(context, lookup, 1);
  return dim.is_int() ? find_dimension(dim.as_int(), mesh.shape.size()) : std::nullopt;
}

}  // namespace epweave
