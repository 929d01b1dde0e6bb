#include "passes/chunk/chunk_strides.h"

#include <algorithm>

#include "ir/types/layout.h"
#include "ops/bind.h"

namespace epweave {

std::vector<NodeId> StrideReaders::list_seen(NodeId id, NodeId made) {
  const Node &before = graph_.step().nodes[id], &after = chunked_.step().nodes[made];
  const bool reads = reads_layout(*graph_.context, before);
  if (!reads && !shows_otherwise(id, made)) return {};
  std::vector<NodeId> xs, ys, seen;
  for_each_input(*graph_.context, before, [&](NodeId input) { xs.push_back(input); });
  for_each_input(*graph_.context, after, [&](NodeId input) { ys.push_back(input); });
  for (std::size_t i = 0; i < std::min(xs.size(), ys.size()); ++i)
    if (!reads || lies_otherwise(graph_.step().nodes[xs[i]].type, chunked_.step().nodes[ys[i]].type))
      seen.push_back(xs[i]);
  return seen;
}

bool StrideReaders::shows_otherwise(NodeId id, NodeId made) {
  if (!may_copy(graph_.step().nodes[id])) return false;
  if (!later_) later_.emplace(effects_);
  if (!later_->any(id)) return false;
  return showing_of(facts_before_, graph_, id) != showing_of(facts_, chunked_, made);
}

NodeId StrideReaders::find_addressed(NodeId id) const {
  if (!addresses_storage(graph_.step().nodes[id])) return {};
  for (NodeId shown; (shown = shown_operand(*graph_.context, graph_.step(), id)); id = shown) {
  }
  return id;
}

bool StrideReaders::lies_otherwise(TypeId before, TypeId after) {
  const TensorType *x = tensor_of(*graph_.context, before), *y = tensor_of(*graph_.context, after);
  if (x == nullptr || y == nullptr || x == y) return false;
  if (x->strides.size() != y->strides.size()) return true;
  for (std::size_t i = 0; i < x->strides.size(); ++i)
    if (!is_one(facts_before_, x->sizes[i]) && !is_equal(x->strides[i], y->strides[i])) return true;
  return false;
}

// By the facts, or by the numbers that there were when it was traced.
bool StrideReaders::is_equal(ExprId before, ExprId after) {
  if (facts_.equal(before, after)) return true;
  const auto x = facts_before_.hint(before), y = facts_.hint(after);
  return x && x == y;
}

std::optional<std::vector<std::int64_t>> find_memory_order(Facts& facts, const TensorType& type) {
  if (type.strides.size() != type.sizes.size()) return std::nullopt;
  std::vector<std::size_t> fill = fill_order(facts, type.strides, Ties::kLastInside);
  const Dims dense = filled_strides(facts, type.sizes, fill);
  for (std::size_t i = 0; i < dense.size(); ++i)
    if (!is_one(facts, type.sizes[i]) && !facts.equal_strides(dense[i], type.strides[i])) return std::nullopt;
  return std::vector<std::int64_t>(fill.rbegin(), fill.rend());
}

}  // namespace epweave
