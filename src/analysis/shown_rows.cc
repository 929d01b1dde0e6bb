#include "analysis/shown_rows.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "ops/bind.h"
#include "ops/op.h"
#include "ops/rules.h"

namespace epweave {
namespace {

const TensorType* operand_of(const Graph& graph, const Node& node) {
  const Arg self = arg_of(*graph.context, node, 0);
  return self.is_node() ? tensor_of(*graph.context, graph.step().nodes[self.as_node()].type) : nullptr;
}

std::optional<ShownRows> find_slice_rows(const Graph& graph, Facts& facts, NodeId id) {
  const Node& node = graph.step().nodes[id];
  const Context& context = *graph.context;
  const auto start_at = node.op->find_param("start"), end_at = node.op->find_param("end"),
             step_at = node.op->find_param("step");
  const TensorType *from = operand_of(graph, node), *shown = tensor_of(context, node.type);
  const auto dim = from != nullptr ? find_dim(context, node, from->rank()) : std::nullopt;
  if (!dim || !start_at || !end_at || !step_at || shown == nullptr || shown->rank() != from->rank())
    return {};
  const Arg start = arg_of(context, node, *start_at), end = arg_of(context, node, *end_at),
            step = arg_of(context, node, *step_at);
  if (!step.is_none() && !(step.is_int() && step.as_int() == 1)) return {};
  ExprPool& exprs = graph.context->exprs;
  const bool is_to_end =
      end.is_none() || (end.is_int() && end.as_int() == std::numeric_limits<std::int64_t>::max());
  const ExprId first = start.is_none() ? exprs.number(0) : number_of(*graph.context, graph.step(), start);
  const ExprId last = is_to_end ? from->sizes[*dim] : number_of(*graph.context, graph.step(), end);
  const bool is_within = first && last && facts.is_nonnegative(facts.pool().poly(first)) &&
                         (is_to_end || facts.at_least(from->sizes[*dim], last)) &&
                         facts.equal(exprs.sub(last, first), shown->sizes[*dim]);
  return is_within ? std::optional(ShownRows{arg_of(context, node, 0).as_node(), *dim, first}) : std::nullopt;
}

}  // namespace

std::optional<std::size_t> find_dim(const Context& context, const Node& node, std::size_t rank) {
  const auto at = node.op != nullptr ? node.op->find_param("dim") : std::nullopt;
  const Arg arg = at ? arg_of(context, node, *at) : Arg();
  if (!at || !(arg.is_none() || arg.is_int())) return {};
  const auto extent = static_cast<std::int64_t>(rank);
  std::int64_t dim = arg.is_none() ? 0 : arg.as_int();
  if (dim < 0) dim += extent;
  return dim >= 0 && dim < extent ? std::optional(static_cast<std::size_t>(dim)) : std::nullopt;
}

std::optional<SplitRows> find_split_rows(const Graph& graph, NodeId split) {
  const Node& node = graph.step().nodes[split];
  const Context& context = *graph.context;
  const bool is_split =
      node.kind == NodeKind::kCall && has_family(node, OpFamily::kSplit) && node.op->is_view;
  const TensorType* from = is_split ? operand_of(graph, node) : nullptr;
  const auto dim = from != nullptr ? find_dim(context, node, from->rank()) : std::nullopt;
  if (!dim || !node.type || context.types[node.type].kind != TypeKind::kList) return {};
  const std::size_t pieces = context.types[node.type].elements.size();
  const Arg size = arg_of(context, node, 1);
  SplitRows rows{arg_of(context, node, 0).as_node(), *dim, {}};
  if (node.op->type_rule == rules::split) {
    rows.extents.assign(pieces, number_of(*graph.context, graph.step(), size));
  } else if (node.op->type_rule == rules::split_with_sizes && size.is_list()) {
    for (Arg item : context.args.children(size))
      rows.extents.push_back(number_of(*graph.context, graph.step(), item));
  }
  const bool is_known = rows.extents.size() == pieces &&
                        std::ranges::all_of(rows.extents, [](ExprId extent) { return extent.valid(); });
  return is_known ? std::optional(std::move(rows)) : std::nullopt;
}

NodeId find_cut_operand(const Graph& graph, NodeId id) {
  const Node& node = graph.step().nodes[id];
  if (node.kind != NodeKind::kCall || node.op == nullptr) return {};
  const auto element = tuple_element(*graph.context, graph.step(), node);
  const Node& cut = element ? graph.step().nodes[element->tuple] : node;
  const bool is_cut = cut.op != nullptr && cut.op->is_view &&
                      cut.op->family == (element ? OpFamily::kSplit : OpFamily::kSlice);
  const Arg self = is_cut ? arg_of(*graph.context, cut, 0) : Arg();
  return self.is_node() ? self.as_node() : NodeId();
}

std::optional<ShownRows> ShownRowsFinder::find(Facts& facts, NodeId id) {
  const Node& node = graph_.step().nodes[id];
  if (node.kind != NodeKind::kCall || node.op == nullptr) return {};
  if (node.op->family == OpFamily::kSlice && node.op->is_view) return find_slice_rows(graph_, facts, id);
  const auto element = tuple_element(*graph_.context, graph_.step(), node);
  if (!element || element->index < 0) return {};
  const SplitStarts& split = read_split(element->tuple);
  if (element->index >= std::ssize(split.starts)) return {};
  return ShownRows{split.of, split.dim, split.starts[static_cast<std::size_t>(element->index)]};
}

const ShownRowsFinder::SplitStarts& ShownRowsFinder::read_split(NodeId split) {
  const auto [known, is_new] = splits_.try_emplace(split);
  SplitStarts& made = known->second;
  const auto rows = is_new ? find_split_rows(graph_, split) : std::nullopt;
  if (!rows) return made;
  ExprPool& exprs = graph_.context->exprs;
  made.of = rows->of;
  made.dim = rows->dim;
  ExprId start = exprs.number(0);
  for (ExprId extent : rows->extents) {
    made.starts.push_back(start);
    start = exprs.add(start, extent);
  }
  return made;
}

}  // namespace epweave
