#include "replay/check/bound_plan.h"

#include <algorithm>

#include "ops/op.h"
#include "replay/check/sum_check.h"
#include "replay/values/message.h"

namespace epweave::replay {
namespace {

// Value, bound, ideal.
std::int64_t kept_bytes_of(const Extents& sizes, DType dtype) {
  return count_elements(sizes) * static_cast<std::int64_t>(info(dtype).bytes + bytes_of_bounds(dtype));
}
std::int64_t kept_bytes_of(const Seen& value) {
  return value.kind == Seen::Kind::kTensor ? kept_bytes_of(value.sizes, value.dtype) : 0;
}

BoundedNodes find_bounded(const Graph& graph, const IdSet<NodeId>& roots) {
  RegroupedSums found = find_regrouped(graph, roots);
  return {std::move(found.sums), std::move(found.reached), {}, {}, {}};
}

// Sums that the rewrite itself adds up, as of the gradients that several calls give for a part's
// keys (chunk{attention=prefix}), with what it made to add them, and what they stand for in A.
struct AddedSums {
  IdSet<NodeId> a, b;
  bool is_any = false;
};

bool has_role(const Node& node, ProvenanceRole role) {
  return !node.provenance.empty() && node.provenance.back().role == role;
}

bool adds(const Node& node) {
  return node.op != nullptr && node.op->family == OpFamily::kElementwise &&
         node.op->linearity == Linearity::kSum;
}

AddedSums find_added_sums(const PairedGraphs& graphs) {
  const Body& body = graphs.b.step();
  std::set<std::string_view> names;
  AddedSums found;
  for (auto id = body.order.rbegin(); id != body.order.rend(); ++id) {
    const Node& node = body.nodes[*id];
    if (adds(node) && has_role(node, ProvenanceRole::kPartInput)) {
      found.b.insert(*id);
      for (StringId name : node.provenance.back().origins) names.insert(graphs.b.text(name));
    }
    if (!found.b.contains(*id)) continue;
    for_each_input(*graphs.b.context, node, [&](NodeId input) {
      if (has_role(body.nodes[input], ProvenanceRole::kAdded)) found.b.insert(input);
    });
  }
  for (NodeId id : graphs.a.step().order)
    if (names.contains(graphs.a.text(graphs.a.step().nodes[id].name))) found.is_any |= found.a.insert(id);
  return found;
}

// Whether parts of floating-point numbers have the whole's recorded size: they may be added up.
bool has_size_of_whole(const PairedGraphs& graphs, const Group& group) {
  const auto type_of = [](const Graph& graph, NodeId node) {
    return tensor_of(*graph.context, graph.step().nodes[node].type);
  };
  const TensorType* whole = type_of(graphs.a, group.whole);
  if (whole == nullptr || !is_inexact(whole->dtype)) return false;
  return std::ranges::all_of(group.values, [&](NodeId value) {
    const TensorType* part = value ? type_of(graphs.b, value) : nullptr;
    return part != nullptr && std::ranges::equal(whole->sizes, part->sizes, [&](ExprId x, ExprId y) {
             return graphs.a.context->exprs.text(x) == graphs.b.context->exprs.text(y);
           });
  });
}

}  // namespace

void SumsFound::add(const Judgements& judgements, const std::vector<OutputCheck>& outputs,
                    const RankOutputs& of_a) {
  for (std::size_t i = 0; i < judgements.size(); ++i) {
    const auto group = static_cast<std::int64_t>(i);
    if (judgements[i].judgement.is_sum) sums.insert(group);
    if (judgements[i].skipped.empty() && needs_bound(judgements[i].judgement)) bytes[group] = 0;
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (const Tensor& tensor = of_a[i].tensor; !of_a[i].is_number && needs_bound(outputs[i]))
      output_bytes[static_cast<std::int64_t>(i)] += kept_bytes_of(tensor.sizes, tensor.dtype);
}

void SumsFound::count_bytes(const PairedGraphs& graphs, const Watcher& seen_a, RankRange ranks) {
  for (auto& [group, size] : bytes)
    for (Rank rank = ranks.first; rank < ranks.end; ++rank)
      size += kept_bytes_of(seen_a.at(rank, graphs.groups[static_cast<std::size_t>(group)].whole));
}

std::string SumsFound::encode() const {
  Writer writer;
  writer.numbers({std::vector(sums.begin(), sums.end())});
  for (const auto* all : {&bytes, &output_bytes}) {
    std::vector<std::int64_t> places, sizes;
    for (const auto& [place, size] : *all) {
      places.push_back(place);
      sizes.push_back(size);
    }
    writer.numbers(places).numbers(sizes);
  }
  return writer.take();
}

void SumsFound::add_process(std::string_view text) {
  Reader reader(text);
  for (std::int64_t group : reader.numbers()) sums.insert(group);
  for (auto* all : {&bytes, &output_bytes}) {
    const std::vector<std::int64_t> places = reader.numbers(), sizes = reader.numbers();
    if (places.size() != sizes.size()) throw WireError("a message that no rank sends");
    for (std::size_t i = 0; i < places.size(); ++i) (*all)[places[i]] = std::max((*all)[places[i]], sizes[i]);
  }
}

BoundPlan plan_bounds(const PairedGraphs& graphs, const SumsFound& found, std::size_t kept_bytes) {
  BoundPlan plan;
  AddedSums roots = find_added_sums(graphs);
  if (found.sums.empty() && (found.bytes.empty() || !roots.is_any)) return plan;
  for (std::int64_t i : found.sums) {
    const Group& group = graphs.groups[static_cast<std::size_t>(i)];
    roots.a.insert(group.whole);
    for (NodeId value : group.values) roots.b.insert(value);
  }
  plan.a = find_bounded(graphs.a, roots.a);
  plan.b = find_bounded(graphs.b, roots.b);
  plan.lots.emplace_back();
  std::size_t kept = 0;
  const auto add = [&](std::int64_t place, std::int64_t bytes, auto list) {
    if (kept != 0 && kept + static_cast<std::size_t>(bytes) > kept_bytes) {
      plan.lots.emplace_back();
      kept = 0;
    }
    (plan.lots.back().*list).push_back(static_cast<std::size_t>(place));
    kept += static_cast<std::size_t>(bytes);
  };
  for (const auto& [group, bytes] : found.bytes)
    if (is_reached(plan, graphs.groups[static_cast<std::size_t>(group)]))
      add(group, bytes, &BoundPlan::Lot::groups);
  for (const auto& [output, bytes] : found.output_bytes) add(output, bytes, &BoundPlan::Lot::outputs);
  return plan;
}

FollowedNodes find_followed(const Graph& a, const Graph& b) {
  const PairedGraphs graphs(a, b);
  AddedSums roots = find_added_sums(graphs);
  for (const Group& group : graphs.groups) {
    if (!group.is_parts || !has_size_of_whole(graphs, group)) continue;
    roots.is_any = true;
    roots.a.insert(group.whole);
    for (const NodeId value : group.values)
      if (value) roots.b.insert(value);
  }
  return {find_regrouped(a, roots.a).reached, find_regrouped(b, roots.b).reached, roots.is_any};
}

bool is_reached(const BoundPlan& plan, const Group& group) {
  return std::any_of(group.values.begin(), group.values.end(),
                     [&](NodeId value) { return value && plan.b.nodes.contains(value); });
}

}  // namespace epweave::replay
