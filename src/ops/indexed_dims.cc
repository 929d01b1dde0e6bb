#include "ops/indexed_dims.h"

#include "ops/bind.h"
#include "ops/family.h"
#include "ops/op.h"

namespace epweave {

std::vector<IndexedDim> list_indexed_dims(const Context& context, const Node& node) {
  std::vector<IndexedDim> found;
  if (node.op == nullptr) return found;
  const Arg table = arg_of(context, node, 0);
  const auto add = [&](std::int64_t dim, Arg positions) {
    if (table.is_node() && positions.is_node()) found.push_back({table.as_node(), dim, positions.as_node()});
  };
  switch (traits_of(node.op->family).positions) {
    case PositionForm::kNone:
      break;
    case PositionForm::kOfRows:
      add(0, arg_of(context, node, 1));
      break;
    case PositionForm::kAlong:
    case PositionForm::kForEach:
      if (const Arg dim = arg_of(context, node, 1); dim.is_int()) add(dim.as_int(), arg_of(context, node, 2));
      break;
    case PositionForm::kInList:
      if (const Arg indices = arg_of(context, node, 1); indices.is_list()) {
        std::int64_t dim = 0;
        for (const Arg positions : context.args.children(indices)) add(dim++, positions);
      }
      break;
  }
  return found;
}

std::optional<std::int64_t> indexed_extent(const Context& context, const Body& body,
                                           const IndexedDim& indexed) {
  const TensorType* tensor = tensor_of(context, body.nodes[indexed.table].type);
  if (tensor == nullptr) return std::nullopt;
  const auto rank = static_cast<std::int64_t>(tensor->rank());
  const std::int64_t dim = indexed.dim < 0 ? indexed.dim + rank : indexed.dim;
  if (dim < 0 || dim >= rank) return std::nullopt;
  return context.exprs.constant(tensor->sizes[static_cast<std::size_t>(dim)]);
}

}  // namespace epweave
