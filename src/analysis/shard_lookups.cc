#include "analysis/shard_lookups.h"

#include <optional>

#include "analysis/returned_values.h"
#include "analysis/shard_bounds.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/indexed_dims.h"
#include "ops/named_arg.h"
#include "ops/number_calls.h"
#include "ops/op.h"

namespace epweave {
namespace {

bool is_number(const Context& context, const Body& body, Arg arg) {
  if (arg.is_int() || arg.is(ArgKind::kSymbolic)) return true;
  if (!arg.is_node()) return false;
  const TypeId type = body.nodes[arg.as_node()].type;
  return type && context.types[type].kind == TypeKind::kScalar;
}

bool shifts(const Context& context, const Body& body, NodeId at) {
  const Node& node = body.nodes[at];
  return node.kind == NodeKind::kCall && node.op != nullptr && is_shift(number_use_of(*node.op)) &&
         is_number(context, body, arg_of(context, node, 1));
}

}  // namespace

NodeId source_of_ids(const Context& context, const Body& body, NodeId at) {
  const Node& node = body.nodes[at];
  if (node.kind != NodeKind::kCall || node.op == nullptr) return {};
  const Arg from = arg_of(context, node, 0);
  return keeps_each(node.op->family) && from.is_node() && holds_whole_numbers(context, body, from.as_node())
             ? from.as_node()
             : NodeId();
}

NodeId find_shift(const Context& context, const Body& body, NodeId at) {
  while (at && !shifts(context, body, at)) at = source_of_ids(context, body, at);
  return at;
}

LookupFinder::LookupFinder(const Graph& graph, const ShardFinder& shards)
    : context_(*graph.context), body_(graph.step()), shards_(shards) {
  read_recorded(graph);
  for (const auto [id, node] : walk(context_, graph.step()))
    if (node.op != nullptr) visit(id, node);
  for (NodeId id : backwards_) add_backward(id, graph.step().nodes[id]);
}

void LookupFinder::read_recorded(const Graph& graph) {
  const Arg* tables = find_entry(context_, graph.info, kTablesKey);
  if (tables != nullptr && tables->is_list())
    for (Arg item : context_.args.children(*tables)) {
      const auto row = items_of(context_, item, 2);
      const auto shard = row.empty() ? std::nullopt : read_shard(context_, row[1]);
      if (shard && row[0].is(ArgKind::kText)) tables_.emplace_back(row[0].as_name(), *shard);
    }
  std::vector<NodeId> returned;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Arg* places = find_entry(context_, graph.outputs[i].more, kPlacesKey);
    const auto shard = places != nullptr ? read_shard(context_, *places) : std::nullopt;
    if (!shard) continue;
    if (returned.empty()) returned = list_outputs(graph);
    if (i < returned.size() && returned[i] && body_.nodes[returned[i]].op != nullptr)
      found_.push_back({returned[i], returned[i], *shard});
  }
}

void LookupFinder::visit(NodeId id, const Node& node) {
  if (node.op->family == OpFamily::kEmbeddingBackward) return backwards_.push_back(id);
  for (const IndexedDim& indexed : list_indexed_dims(context_, node)) {
    if (const ShardedDim* shard = shards_.find(indexed.table, indexed.dim)) {
      found_.push_back({id, indexed.positions, *shard});
      if (node.op->family == OpFamily::kEmbedding) tables_.emplace_back(node.module, *shard);
    } else if (const auto rows = indexed_extent(context_, body_, indexed); rows && *rows > 1) {
      plain_.push_back({indexed.positions, *rows});
    }
  }
}

void LookupFinder::add_backward(NodeId id, const Node& node) {
  const Arg rows = named_arg(context_, node, "num_weights"), positions = named_arg(context_, node, "indices");
  for (const auto& [module, shard] : tables_)
    if (module == node.module && rows.is_int() && rows.as_int() == shard.local && positions.is_node())
      return found_.push_back({id, positions.as_node(), shard});
}

}  // namespace epweave
