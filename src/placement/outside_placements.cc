#include "placement/outside_placements.h"

#include <algorithm>
#include <vector>

#include "analysis/element_call.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "placement/placement_blocks.h"
#include "placement/placement_reshape.h"

namespace epweave {

Placement OutsidePlacements::of_type(TypeId id) {
  if (!id) return Placement::whole();
  const Type& type = graph_.context->types[id];
  if (type.kind == TypeKind::kTensor) {
    const auto dims = tokens_.dimensions(type.tensor);
    if (dims.size() > 1) return {PlacementKind::kAmbiguous, -1, {}};
    return dims.empty() ? Placement::whole() : Placement::split(dims[0]);
  }
  if (type.kind == TypeKind::kScalar) {
    if (!tokens_.scales(type.expr)) return Placement::whole();
    return tokens_.is_linear(type.expr) ? Placement::partial() : Placement::local();
  }
  if (type.elements.empty()) return Placement::whole();
  std::vector<Placement> elements;
  for (TypeId element : type.elements) elements.push_back(of_type(element));
  Placement tuple = Placement::tuple(std::move(elements));
  return tuple.is_divided() ? tuple : Placement::whole();
}

void OutsidePlacements::infer(NodeId id) {
  const TypeId type = step_.nodes[id].type;
  if (!type) return;
  if (placed_types_.insert(type)) by_type_.at(type) = of_type(type);
  if (!by_type_[type].is_divided()) return;
  if (!by_type_[type].is(PlacementKind::kTuple)) return made_.set(id, ordered(id, type, by_type_[type]));
  Placement tuple = by_type_[type];
  for (std::size_t i = 0; i < tuple.elements.size(); ++i)
    tuple.elements[i] = ordered(id, graph_.context->types[type].elements[i], tuple.elements[i]);
  made_.set(id, tuple);
}

// With the blocks of a dimension that more is merged into than the tokens: those of what it is
// made from.
Placement OutsidePlacements::ordered(NodeId id, TypeId type_id, const Placement& placement) {
  const TensorType* type = tensor_of(*graph_.context, type_id);
  if (type == nullptr || !placement.is(PlacementKind::kSplit)) return placement;
  const ExprId extent = type->sizes[static_cast<std::size_t>(placement.dim)];
  const auto multiple = tokens_.multiple(extent);
  if (multiple && multiple->factor == 1) return placement;
  const Node& node = step_.nodes[id];
  if (node.kind == NodeKind::kPlaceholder && sharing_ranks_ > 1 && multiple &&
      multiple->factor == tokens_.source(multiple->symbol).factor)
    return join_blocks(facts_.pool(), placement, sharing_ranks_);
  if (has_family(node, OpFamily::kElement)) return element_of(node, placement);
  std::optional<Placement> found;
  for_each_input(*graph_.context, node, [&](NodeId input) {
    const Placement& from = made_[input];
    const TensorType* source = tensor_of(*graph_.context, step_.nodes[input].type);
    if (found || source == nullptr || !from.is(PlacementKind::kSplit)) return;
    const ExprId source_extent = source->sizes[static_cast<std::size_t>(from.dim)];
    if (facts_.equal(source_extent, extent)) {
      found = placement;
      found->blocks = from.blocks;
    } else if (has_family(node, OpFamily::kAllGather) && from.dim == 0 && placement.dim == 0) {
      if (const auto ranks = count_runs(facts_, extent, source_extent))
        found = join_blocks(facts_.pool(), from, *ranks);
    } else if (has_family(node, OpFamily::kReduceScatter) && from.dim == 0 && placement.dim == 0) {
      if (const auto ranks = count_runs(facts_, source_extent, extent))
        found = cut_blocks(facts_.pool(), from, *ranks);
    } else if (has_family(node, OpFamily::kReshape)) {
      if (const auto result = follow_reshape(facts_, *source, *type, from); result.placement)
        found = result.placement;
    }
  });
  // Inside a grid the tokens are behind the batch, elsewhere in front of all else.
  return found.value_or(tokens_.is_inner() ? Placement{PlacementKind::kUnordered, -1, {}} : placement);
}

Placement OutsidePlacements::element_of(const Node& getitem, const Placement& placement) const {
  const NodeId tuple = tuple_of(*graph_.context, getitem);
  const Arg index = arg_of(*graph_.context, getitem, 1);
  if (!tuple || !index.is_int() || index.as_int() < 0) return placement;
  const Placement& from = made_[tuple];
  const auto i = static_cast<std::size_t>(index.as_int());
  return i < from.elements.size() ? from.elements[i] : placement;
}

void OutsidePlacements::find_sharing_ranks() {
  std::int64_t all = 1;
  for (StringId symbol : tokens_.symbols()) all = std::max(all, tokens_.source(symbol).factor);
  if (all == 1) return;
  std::vector<std::int64_t> gathered = {1};  // what gathers make, in multiples of the symbol
  for (NodeId id : step_.order) {
    const Node& node = step_.nodes[id];
    if (!has_family(node, OpFamily::kAllGather)) continue;
    const Arg source = arg_of(*graph_.context, node, 0);
    if (!source.is_node()) continue;  // a list of them
    const auto result = rows_of(id), operand = rows_of(source.as_node());
    if (!result || !operand || std::ranges::find(gathered, *operand) == gathered.end()) continue;
    if (std::ranges::find(gathered, *result) == gathered.end()) gathered.push_back(*result);
  }
  if (std::ranges::find(gathered, all) != gathered.end()) sharing_ranks_ = all;
}

// Of a tensor's first dimension, in multiples of a token symbol.
std::optional<std::int64_t> OutsidePlacements::rows_of(NodeId id) {
  const TensorType* type = tensor_of(*graph_.context, step_.nodes[id].type);
  if (type == nullptr || type->sizes.empty()) return std::nullopt;
  const auto multiple = tokens_.multiple(type->sizes[0]);
  return multiple ? std::optional(multiple->factor) : std::nullopt;
}

}  // namespace epweave
