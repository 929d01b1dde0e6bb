#include "placement/scaling/scaling_call.h"

#include <algorithm>

#include "ir/types/dimension.h"
#include "ops/rules.h"

namespace epweave {

// --------------------------------------------------------------------------- extents

namespace {

bool is_mean(const Node& node) {
  return node.op != nullptr &&
         (node.op->type_rule == rules::mean_all || node.op->type_rule == rules::mean_dims);
}

}  // namespace

ExtentTable::ExtentTable(const Graph& graph, Facts& facts, ScalingSolver& solver)
    : graph_(graph), facts_(facts), solver_(solver) {
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (is_mean(node) && !node.backward && node.seq_nr) means_.insert(*node.seq_nr);
    const TypeId type = node.type;
    if (!type) continue;
    const auto begin = static_cast<std::uint32_t>(tensors_.size());
    const Type& value = graph.context->types[type];
    if (value.kind == TypeKind::kTuple || value.kind == TypeKind::kList) {
      for (TypeId element : value.elements) add_tensor(element);
    } else {
      add_tensor(type);
    }
    shapes_.at(id) = {begin, static_cast<std::uint32_t>(tensors_.size()) - begin};
  }
}

void ExtentTable::add_tensor(TypeId type) {
  Tensor tensor{static_cast<std::uint32_t>(extents_.size()), 0};
  if (const TensorType* t = tensor_of(*graph_.context, type)) {
    for (ExprId size : t->sizes) extents_.push_back(add_extent(size));
    tensor.rank = static_cast<std::uint32_t>(t->sizes.size());
  }
  tensors_.push_back(tensor);
}

ExtentId ExtentTable::add_extent(ExprId extent) {
  const PolyId poly = facts_.pool().poly(extent);
  if (!facts_.pool().symbols(poly).empty()) return of_poly(poly);
  const auto number = facts_.pool().constant(poly);
  return number ? solver_.add(*number) : ExtentId();
}

// Equal expressions are the same number wherever they occur.
ExtentId ExtentTable::of_poly(PolyId poly) {
  if (ExtentId known = of_poly_[poly]) return known;
  const auto number = facts_.pool().constant(facts_.normalize(poly));
  if (!number) return {};
  const ExtentId id = solver_.add(*number);
  sums_.emplace_back(poly, id);
  return of_poly_.at(poly) = id;
}

std::span<const ExtentId> ExtentTable::of(NodeId id, std::size_t element) const {
  const Shape& shape = shapes_[id];
  if (element >= shape.count) return {};
  const Tensor& tensor = tensors_[shape.begin + element];
  return {extents_.data() + tensor.begin, tensor.rank};
}

// --------------------------------------------------------------------------- calls

ScalingCall::ScalingCall(const Graph& graph_in, NodeId id_in, ExtentTable& table_in, ScalingSolver& solver_in,
                         std::vector<SizeLiteral>& literals_in, bool equal_pieces_in)
    : graph(graph_in),
      id(id_in),
      node(graph_in.step().nodes[id_in]),
      solver(solver_in),
      table(table_in),
      equal_pieces(equal_pieces_in),
      bound_(bind_args(*graph_in.context, node)),
      literals_(literals_in) {}

std::optional<std::int64_t> ScalingCall::integer(std::size_t param) const {
  return arg(param).is_int() ? std::optional(arg(param).as_int()) : std::nullopt;
}

std::span<const ExtentId> ScalingCall::in(Arg value) const {
  return value.is_node() ? table.of(value.as_node()) : std::span<const ExtentId>();
}

std::span<const Arg> ScalingCall::items(Arg list) const {
  return list.is_list() ? graph.context->args.children(list) : std::span<const Arg>();
}

std::size_t ScalingCall::dim(std::size_t param, std::size_t rank, std::int64_t fallback) const {
  return find_dimension(integer(param).value_or(fallback), rank).value_or(rank);
}

std::vector<bool> ScalingCall::dims(std::size_t param, std::size_t rank) const {
  std::vector<bool> named(rank);
  auto name = [&](Arg item) {
    const auto dim = item.is_int() ? find_dimension(item.as_int(), rank) : std::nullopt;
    if (dim) named[*dim] = true;
  };
  name(arg(param));
  for (Arg item : items(arg(param))) name(item);
  if (std::find(named.begin(), named.end(), true) == named.end()) named.assign(rank, true);
  return named;
}

void ScalingCall::align(std::span<const ExtentId> a, std::span<const ExtentId> b) {
  const std::size_t rank = std::min(a.size(), b.size());
  for (std::size_t i = 1; i <= rank; ++i) unite(a[a.size() - i], b[b.size() - i]);
}

void ScalingCall::unite_except(std::span<const ExtentId> a, std::span<const ExtentId> b, std::size_t dim) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (i != dim) unite(a[i], b[i]);
}

void ScalingCall::literal(std::size_t param, std::optional<std::size_t> item, ExtentId extent) {
  if (!extent) return;
  const Arg value = item ? items(arg(param))[*item] : arg(param);
  if (value.is_int() && value.as_int() == solver.number(extent))
    literals_.push_back({id, param, item, extent});
}

void ScalingCall::literals(std::size_t param, std::span<const ExtentId> extents) {
  const std::size_t count = items(arg(param)).size();
  for (std::size_t i = 0; i < count && i < extents.size(); ++i) literal(param, i, extents[i]);
  if (arg(param).is_int() && extents.size() == 1) literal(param, std::nullopt, extents[0]);
}

}  // namespace epweave
