#include "replay/inputs/indexed_extents.h"

#include <algorithm>

#include "ops/bind.h"
#include "ops/family.h"
#include "ops/indexed_dims.h"
#include "ops/op.h"

namespace epweave::replay {

IndexedExtents::IndexedExtents(const Graph& graph)
    : graph_(graph), context_(*graph.context), step_(graph.step()) {
  for (NodeId id : step_.order) {
    const Node& node = step_.nodes[id];
    if (node.kind == NodeKind::kPlaceholder) shown_.at(id) = id;
    if (node.op == nullptr) continue;
    note_indices(node);
    if (shows_elements(node.op->family))
      if (const Arg first = arg_of(context_, node, 0); first.is_node())
        shown_.at(id) = shown_[first.as_node()];
  }
}

std::optional<std::int64_t> IndexedExtents::of(std::string_view input) const {
  for (NodeId id : step_.order) {
    if (step_.nodes[id].kind != NodeKind::kPlaceholder) break;
    if (graph_.text(step_.nodes[id].name) == input) return extents_[id];
  }
  return std::nullopt;
}

void IndexedExtents::note_indices(const Node& node) {
  for (const IndexedDim& indexed : list_indexed_dims(context_, node)) {
    const auto extent = indexed_extent(context_, step_, indexed);
    note(indexed.positions, extent);
    if (node.op->family == OpFamily::kEmbedding && !first_embedding_) first_embedding_ = extent;
  }
  if (node.op->family == OpFamily::kClassLoss) note_classes(node);
}

// Labels choose among the scores of each row.
void IndexedExtents::note_classes(const Node& node) {
  const Arg scores = arg_of(context_, node, 0), labels = arg_of(context_, node, 1);
  if (!scores.is_node() || !labels.is_node()) return;
  const TensorType* type = tensor_of(context_, step_.nodes[scores.as_node()].type);
  const std::int64_t dim = type != nullptr && type->rank() == 1 ? 0 : 1;
  note(labels.as_node(), indexed_extent(context_, step_, {scores.as_node(), dim, labels.as_node()}));
}

void IndexedExtents::note(NodeId index, std::optional<std::int64_t> extent) {
  const NodeId input = shown_[index];
  if (!input || !extent || *extent <= 0) return;
  const TensorType* type = tensor_of(context_, step_.nodes[input].type);
  if (type != nullptr && type->dtype == DType::kBool) return;  // a mask chooses no place
  std::optional<std::int64_t>& least = extents_.at(input);
  least = std::min(least.value_or(*extent), *extent);
}

}  // namespace epweave::replay
