#include "passes/chunk/chunk_strides.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/types/layout.h"
#include "ops/bind.h"

namespace epweave {

std::vector<NodeId> StrideReaders::list_seen(NodeId id, NodeId made) {
  const Node &before = graph_.step().nodes[id], &after = chunked_.step().nodes[made];
  const bool reads = reads_layout(graph_, before);
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

void JoinStrides::note_whole(NodeId id, TypeId type) {
  if (type != graph_.step().nodes[id].type) {
    retyped_.insert(id);
  } else {
    retyped_.erase(id);
  }
}

TypeId JoinStrides::retype(NodeId id) {
  try {
    return writer_.retype(id);
  } catch (const PassError&) {
    std::vector<NodeId> joins;
    for_each_input(*graph_.context, graph_.step().nodes[id], [&](NodeId input) {
      for (NodeId joined : list_joins_behind(input))
        if (can_have_strides(joined)) joins.push_back(joined);
    });
    if (joins.empty()) throw;
    missed_.insert(missed_.end(), joins.begin(), joins.end());
    return graph_.step().nodes[id].type;
  }
}

void JoinStrides::check_reader(NodeId id, NodeId made) {
  for (NodeId seen : readers_.list_seen(id, made))
    for (NodeId joined : list_joins_behind(seen)) {
      if (!can_have_strides(joined)) fail_strides(joined, id);
      missed_.push_back(joined);
    }
}

void JoinStrides::require_shows(NodeId id, NodeId whole) const {
  for (NodeId shown = id; shown != whole;) {
    shown = shown_operand(*chunked_.context, chunked_.step(), shown);
    if (!shown) fail_strides(id, id);
  }
}

void JoinStrides::require_shows_alike(NodeId id, NodeId part) {
  if (readers_.shows_otherwise(id, part))
    fail(id,
         "is a view for all tokens and a copy for a part of them, or the other way around, and what it "
         "shows is written in place behind it");
}

// The joins because of which a whole value has another type than it had.
std::vector<NodeId> JoinStrides::list_joins_behind(NodeId id) const {
  std::vector<NodeId> open{id}, joins;
  IdSet<NodeId> done;
  while (!open.empty()) {
    const NodeId value = open.back();
    open.pop_back();
    if (!retyped_.contains(value) || !done.insert(value)) continue;
    if (joined_.contains(value)) {
      joins.push_back(value);
    } else {
      for_each_input(*graph_.context, graph_.step().nodes[value],
                     [&](NodeId input) { open.push_back(input); });
    }
  }
  return joins;
}

// Whether the join can have the strides of what it rejoins, and has none.
bool JoinStrides::can_have_strides(NodeId joined) {
  const Placement& placement = placements_.of(joined);
  const TensorType* type = tensor_of(*graph_.context, graph_.step().nodes[joined].type);
  return placement.is(PlacementKind::kSplit) && (!placement.blocks || placement.any_order) &&
         type != nullptr && find_memory_order(writer_.facts(), *type) && !strided_.contains(joined);
}

void JoinStrides::fail_strides(NodeId joined, NodeId reader) const {
  fail(reader,
       fmt::format("depends on how '{}' lies in memory, and put together from parts it lies otherwise",
                   graph_.text(graph_.step().nodes[joined].name)));
}

void JoinStrides::fail(NodeId reader, std::string_view why) const {
  const Node& node = graph_.step().nodes[reader];
  throw PassError("chunk.strides",
                  fmt::format("'{}' ({}) {}", graph_.text(node.name), graph_.text(node.target), why),
                  site_of(graph_, node),
                  "make its operand contiguous inside the selected module (clone), or select other roots");
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
