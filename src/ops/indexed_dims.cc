#include "ops/indexed_dims.h"

#include "ir/types/dimension.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/only_index.h"

namespace epweave {

std::vector<IndexedDim> list_indexed_dims(const Context& context, const Node& node) {
  std::vector<IndexedDim> found;
  if (node.op == nullptr) return found;
  const Arg table = arg_of(context, node, 0);
  const Arg positions = arg_of(context, node, indexed_params(*node.op).positions);
  const auto add = [&](std::int64_t dim, Arg chosen) {
    if (table.is_node() && chosen.is_node()) found.push_back({table.as_node(), dim, chosen.as_node()});
  };
  switch (traits_of(node.op->family).positions) {
    case PositionForm::kNone:
      break;
    case PositionForm::kOfRows:
      add(0, positions);
      break;
    case PositionForm::kAlong:
    case PositionForm::kForEach:
      if (const Arg dim = arg_of(context, node, 1); dim.is_int()) add(dim.as_int(), positions);
      break;
    case PositionForm::kInList:
      if (positions.is_list()) {
        std::int64_t dim = 0;
        for (const Arg chosen : context.args.children(positions)) add(dim++, chosen);
      }
      break;
  }
  return found;
}

IndexedParams indexed_params(const OpInfo& op) {
  const PositionForm form = traits_of(op.family).positions;
  const bool names_dim = form == PositionForm::kAlong || form == PositionForm::kForEach;
  return names_dim ? IndexedParams{2, 3} : IndexedParams{1, 2};
}

Arg only_positions(const Context& context, const Node& node) {
  const Arg positions = arg_of(context, node, indexed_params(*node.op).positions);
  return positions.is_list() ? only_index(context, positions).index : positions;
}

std::optional<std::int64_t> indexed_extent(const Context& context, const Body& body,
                                           const IndexedDim& indexed) {
  const TensorType* tensor = tensor_of(context, body.nodes[indexed.table].type);
  if (tensor == nullptr) return std::nullopt;
  const auto dim = find_dimension(indexed.dim, tensor->rank());
  return dim ? context.exprs.constant(tensor->sizes[*dim]) : std::nullopt;
}

}  // namespace epweave
