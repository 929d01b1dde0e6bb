#include "placement/scaling/scaling_rules.h"

#include <algorithm>
#include <limits>

#include "ops/bind.h"
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
  const std::int64_t dim = integer(param).value_or(fallback);
  const auto wrapped = dim < 0 ? dim + static_cast<std::int64_t>(rank) : dim;
  return wrapped < 0 || wrapped >= static_cast<std::int64_t>(rank) ? rank : static_cast<std::size_t>(wrapped);
}

std::vector<bool> ScalingCall::dims(std::size_t param, std::size_t rank) const {
  std::vector<bool> named(rank);
  auto name = [&](Arg item) {
    if (!item.is_int()) return;
    const std::int64_t dim =
        item.as_int() < 0 ? item.as_int() + static_cast<std::int64_t>(rank) : item.as_int();
    if (dim >= 0 && dim < static_cast<std::int64_t>(rank)) named[static_cast<std::size_t>(dim)] = true;
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

// --------------------------------------------------------------------------- rules

namespace {

using Span = std::span<const ExtentId>;

Extents without(Span extents, std::size_t dim) {
  Extents result(extents.begin(), extents.end());
  if (dim < result.size()) result.erase(result.begin() + static_cast<std::ptrdiff_t>(dim));
  return result;
}

// Every tensor argument broadcasts to every result.
void pointwise(ScalingCall& call) {
  for (std::size_t e = 0; e < call.out_count(); ++e)
    for (std::size_t p = 0; p < call.param_count(); ++p) call.align(call.out(e), call.in(p));
}

std::int64_t product_of(const ScalingCall& call, Span extents) {
  std::int64_t product = 1;
  for (ExtentId extent : extents)
    if (!extent || __builtin_mul_overflow(product, call.solver.number(extent), &product)) return 0;
  return product;
}

// Autograd's gradient of a mean divides what it expands by the number of elements that each element
// is expanded to: that number follows their extents. Another division by that many elements is the
// model's own.
void divide(ScalingCall& call) {
  pointwise(call);
  const std::optional<std::int64_t> divisor = call.integer(1);
  if (!divisor || *divisor < 2 || !call.arg(0).is_node() || !call.table.is_gradient_of_mean(call.node))
    return;
  const NodeId expanded = call.arg(0).as_node();
  const Node& expand = call.graph.step().nodes[expanded];
  const Arg source = arg_of(*call.graph.context, expand, 0);
  if (!has_family(expand, OpFamily::kExpand) || !source.is_node()) return;
  const Span from = call.table.of(source.as_node()), to = call.table.of(expanded);
  const std::int64_t elements = product_of(call, to);
  if (elements == 0 || elements % *divisor != 0 || elements / *divisor != product_of(call, from)) return;
  const ExtentId times = call.solver.add(*divisor);
  Extents left(from.begin(), from.end());
  left.push_back(times);
  call.solver.relate_products(left, Extents(to.begin(), to.end()), call.id);
  call.literal(1, std::nullopt, times);
}

// The results have the first argument's extents, the other arguments their own.
void like_self(ScalingCall& call) {
  for (std::size_t e = 0; e < call.out_count(); ++e) call.align(call.out(e), call.in(std::size_t{0}));
}

// ... each item of the first argument, a list.
void like_each(ScalingCall& call) {
  const auto items = call.items(call.arg(0));
  for (std::size_t e = 0; e < items.size(); ++e) call.align(call.out(e), call.in(items[e]));
}

void convert_bits(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  if (in.empty() || out.size() != in.size()) return;
  call.unite_except(out, in, in.size() - 1);
  if (!in.back() || !out.back()) return;
  const std::int64_t a = call.solver.number(in.back()), b = call.solver.number(out.back());
  if (a == b) return call.unite(in.back(), out.back());
  if (b > a && a > 0 && b % a == 0)
    call.solver.relate_dimensions({in.back(), call.solver.add_fixed(b / a)}, {out.back()}, call.id);
  if (a > b && b > 0 && a % b == 0)
    call.solver.relate_dimensions({in.back()}, {out.back(), call.solver.add_fixed(a / b)}, call.id);
}

// ---- views

// Consecutive dimensions with equal products, left to right. What cannot be matched is left open.
void reshape(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  call.literals(1, out);
  auto number = [&](ExtentId id) { return id ? call.solver.number(id) : -1; };
  std::size_t i = 0, j = 0;
  while (i < in.size() && j < out.size()) {
    Extents left = {in[i]}, right = {out[j]};
    std::int64_t a = number(in[i++]), b = number(out[j++]);
    if (a <= 0 || b <= 0) {
      // Extents that depend on data: they match where both sides have one.
      if (a != b) return;
      continue;
    }
    while (a != b) {
      const bool extend_left = a < b;
      if (extend_left ? i == in.size() : j == out.size()) return;
      const ExtentId next = extend_left ? in[i++] : out[j++];
      if (number(next) <= 0) return;
      (extend_left ? a : b) *= number(next);
      (extend_left ? left : right).push_back(next);
    }
    call.solver.relate_dimensions(left, right, call.id);
  }
}

void expand(ScalingCall& call) {
  call.literals(1, call.out());
  call.align(call.out(), call.in(std::size_t{0}));
}

void permute(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  const auto order = call.items(call.arg(1));
  for (std::size_t i = 0; i < order.size() && i < out.size(); ++i) {
    if (!order[i].is_int()) continue;
    const std::int64_t dim = order[i].as_int();
    const auto source = static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(in.size()) : dim);
    if (source < in.size()) call.unite(out[i], in[source]);
  }
}

void transpose(ScalingCall& call) {
  const Span in = call.in(std::size_t{0});
  Extents moved(in.begin(), in.end());
  const std::size_t a = call.dim(1, in.size()), b = call.dim(2, in.size());
  if (a < in.size() && b < in.size()) std::swap(moved[a], moved[b]);
  call.align(call.out(), moved);
}

void t(ScalingCall& call) {
  const Span in = call.in(std::size_t{0});
  Extents moved(in.rbegin(), in.rend());
  call.align(call.out(), moved);
}

// Dimensions of extent 1 come or go; all others keep their order.
void drop_ones(ScalingCall& call) {
  auto others = [&](Span extents) {
    Extents kept;
    for (ExtentId id : extents)
      if (!id || call.solver.number(id) != 1) kept.push_back(id);
    return kept;
  };
  const Extents in = others(call.in(std::size_t{0})), out = others(call.out());
  if (in.size() == out.size()) call.align(out, in);
}

void select(ScalingCall& call) {
  const Span in = call.in(std::size_t{0});
  call.align(call.out(), without(in, call.dim(1, in.size())));
}

// As many results as the extent has rows: it is a number by nature.
void unbind(ScalingCall& call) {
  const Span in = call.in(std::size_t{0});
  const std::size_t dim = call.dim(1, in.size());
  for (std::size_t e = 0; e < call.out_count(); ++e) call.align(call.out(e), without(in, dim));
  if (dim < in.size())
    call.solver.fix(in[dim], call.id,
                    "the number of results of '" + std::string(call.graph.text(call.node.name)) + "'");
}

// One of equal pieces: it begins and ends at a multiple of its length.
void place_piece(ScalingCall& call, ExtentId piece, std::size_t start, std::size_t end) {
  const std::int64_t length = piece ? call.solver.number(piece) : 0;
  if (length <= 0) return;
  for (std::size_t param : {start, end}) {
    if (param == end && end == start) break;  // a length in place of an end
    const auto place = call.integer(param);
    if (!place || *place <= 0 || *place % length != 0) continue;
    if (*place == std::numeric_limits<std::int64_t>::max()) continue;
    const ExtentId extent = call.solver.add(*place);
    call.solver.relate_products({extent}, {call.solver.add_fixed(*place / length), piece}, call.id);
    call.literal(param, std::nullopt, extent);
  }
}

// Where a piece that does not start at 0 starts. The rest of a dimension starts where what is
// before it ends: one of three copies of the tokens, and two behind it.
void place_behind(ScalingCall& call, ExtentId whole, ExtentId piece, std::size_t start, std::size_t end,
                  bool to_end) {
  const auto place = call.integer(start);
  if (!piece || !place || *place <= 0) return;
  const std::int64_t length = call.solver.number(piece);
  if (!to_end || length <= 0 || *place % length == 0) return place_piece(call, piece, start, end);
  if (!whole || call.solver.number(whole) != *place + length) return;
  const ExtentId extent = call.solver.add(*place);
  call.solver.relate_sum(whole, {extent, piece}, call.id);
  call.literal(start, std::nullopt, extent);
}

// slice(self, dim, start, end, step). The end of a slice from the start is its extent, whatever it
// is cut from: the first rows of a table, one for each token.
void slice(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  const std::size_t dim = call.dim(1, in.size());
  if (dim >= in.size() || out.size() != in.size()) return;
  call.unite_except(out, in, dim);
  const bool from_start = call.arg(2).is_none() || call.integer(2) == 0;
  const bool to_end = call.arg(3).is_none() || call.integer(3) == std::numeric_limits<std::int64_t>::max();
  const bool each = call.arg(4).is_none() || call.integer(4) == 1;
  if (from_start && to_end && each) return call.unite(out[dim], in[dim]);
  if (from_start && each) call.literal(3, std::nullopt, out[dim]);
  if (each && !from_start) place_behind(call, in[dim], out[dim], 2, 3, to_end);
}

void narrow(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  const std::size_t dim = call.dim(1, in.size());
  if (dim >= in.size() || out.size() != in.size()) return;
  call.unite_except(out, in, dim);
  call.literal(3, std::nullopt, out[dim]);
  const auto start = call.integer(2);
  if (!start || !out[dim] || !in[dim]) return;
  const bool to_end = *start + call.solver.number(out[dim]) == call.solver.number(in[dim]);
  place_behind(call, in[dim], out[dim], 2, 2, to_end);
}

// slice_backward, select_backward (grad_output, input_sizes, dim, ...).
void pad_to_input(ScalingCall& call) {
  call.literals(1, call.out());
  const Span grad = call.in(std::size_t{0}), out = call.out();
  const std::size_t dim = call.dim(2, out.size());
  if (grad.size() + 1 == out.size()) return call.align(without(out, dim), grad);
  if (grad.size() != out.size() || dim >= out.size()) return;
  call.unite_except(out, grad, dim);
  const bool each = call.integer(5).value_or(1) == 1;
  const bool from_start = call.integer(3) == 0 && each;
  const bool to_end = call.integer(4) == std::numeric_limits<std::int64_t>::max();
  if (from_start && to_end) return call.unite(out[dim], grad[dim]);
  if (from_start) call.literal(4, std::nullopt, grad[dim]);
  if (each && !from_start) place_behind(call, out[dim], grad[dim], 3, 4, to_end);
}

// ---- pieces and joins

void split_along(ScalingCall& call, std::size_t dim) {
  const Span in = call.in(std::size_t{0});
  if (dim >= in.size()) return;
  Extents pieces;
  for (std::size_t e = 0; e < call.out_count(); ++e) {
    const Span out = call.out(e);
    if (out.size() != in.size()) return;
    call.unite_except(out, in, dim);
    if (call.equal_pieces && !pieces.empty()) call.unite(pieces[0], out[dim]);  // where they are equal
    pieces.push_back(out[dim]);
  }
  call.solver.relate_sum(in[dim], pieces, call.id);
}

void split_with_sizes(ScalingCall& call) {
  const std::size_t dim = call.dim(2, call.in(std::size_t{0}).size());
  for (std::size_t e = 0; e < call.out_count() && e < call.items(call.arg(1)).size(); ++e)
    if (dim < call.out(e).size()) call.literal(1, e, call.out(e)[dim]);
  split_along(call, dim);
}

// One length for all pieces, where it divides the extent. A graph has so many results, whatever the
// extent is.
void chunk(ScalingCall& call) {
  const std::size_t dim = call.dim(2, call.in(std::size_t{0}).size());
  for (std::size_t e = 1; e < call.out_count(); ++e)
    if (dim < call.out(e).size() && dim < call.out().size()) call.unite(call.out()[dim], call.out(e)[dim]);
  split_along(call, dim);
}
void split(ScalingCall& call) {
  const std::size_t dim = call.dim(2, call.in(std::size_t{0}).size());
  if (dim < call.out().size()) call.literal(1, std::nullopt, call.out()[dim]);
  chunk(call);
}

void cat(ScalingCall& call) {
  const Span out = call.out();
  const std::size_t dim = call.dim(1, out.size());
  Extents pieces;
  for (Arg item : call.items(call.arg(0))) {
    const Span in = call.in(item);
    if (in.size() == 1 && out.size() != 1) continue;  // an empty one
    if (in.size() != out.size() || dim >= in.size()) return;
    call.unite_except(out, in, dim);
    pieces.push_back(in[dim]);
  }
  if (dim < out.size()) call.solver.relate_sum(out[dim], pieces, call.id);
}

void stack(ScalingCall& call) {
  const Span out = call.out();
  const Extents rest = without(out, call.dim(1, out.size()));
  for (Arg item : call.items(call.arg(0))) call.align(rest, call.in(item));
}

// constant_pad_nd(self, pad): pad lists (before, after) from the last dimension on.
void pad(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  const auto pads = call.items(call.arg(1));
  if (in.size() != out.size()) return;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::size_t at = 2 * (in.size() - 1 - i);
    std::int64_t added = 0;
    for (std::size_t k = at; k < at + 2 && k < pads.size(); ++k) {
      if (!pads[k].is_int()) return;
      added += pads[k].as_int();
    }
    if (added == 0) call.unite(in[i], out[i]);
    if (added > 0 && in[i]) call.solver.relate_sum(out[i], {in[i], call.solver.add_fixed(added)}, call.id);
  }
}

void repeat(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  const auto repeats = call.items(call.arg(1));
  for (std::size_t k = 0; k < in.size() && k < repeats.size(); ++k) {
    const Arg times = repeats[repeats.size() - 1 - k];
    const ExtentId a = in[in.size() - 1 - k], b = out[out.size() - 1 - k];
    if (!times.is_int() || times.as_int() < 1) continue;
    if (times.as_int() == 1) call.unite(a, b);
    if (times.as_int() > 1)
      call.solver.relate_dimensions({call.solver.add_fixed(times.as_int()), a}, {b}, call.id);
  }
}

// ---- factories

// Parameter 0 is the size.
void factory(ScalingCall& call) {
  call.literals(0, call.out());
}
void sized_by_name(ScalingCall& call) {
  if (const auto size = call.find_param("size")) call.literals(*size, call.out());
}
void sized_by_third(ScalingCall& call) {
  call.literals(2, call.out());
}
// A row of draws for each row of weights.
void drawn_of_rows(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  if (in.size() == 2 && out.size() == 2) call.unite(out[0], in[0]);
}
void new_factory(ScalingCall& call) {
  call.literals(1, call.out());
}
void counted_by_first(ScalingCall& call) {
  if (call.out().size() == 1) call.literal(0, std::nullopt, call.out()[0]);
}
void arange_start(ScalingCall& call) {
  const bool each = call.param_count() < 3 || call.node.op->params[2].name != "step" ||
                    call.arg(2).is_none() || call.integer(2) == 1;
  if (call.integer(0) == 0 && each && call.out().size() == 1) call.literal(1, std::nullopt, call.out()[0]);
}

// ---- reductions

void reduce(ScalingCall& call) {
  const Span in = call.in(std::size_t{0});
  const auto param = call.find_param("dim");
  if (!param) return;
  const bool names_none = call.graph.step().nodes[call.id].op->family == OpFamily::kTruth &&
                          call.arg(*param).is_list() && call.items(call.arg(*param)).empty();
  if (names_none) return call.align(call.out(), in);
  const std::vector<bool> reduced = call.dims(*param, in.size());
  for (std::size_t e = 0; e < call.out_count(); ++e) {
    const Span out = call.out(e);
    const bool is_kept = out.size() == in.size();
    std::size_t j = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!reduced[i] && j < out.size()) call.unite(out[j], in[i]);
      if (is_kept || !reduced[i]) ++j;
    }
  }
}

void topk(ScalingCall& call) {
  const Span in = call.in(std::size_t{0});
  const std::size_t dim = call.dim(2, in.size(), -1);
  for (std::size_t e = 0; e < call.out_count(); ++e) call.unite_except(call.out(e), in, dim);
}

// (input, normalized_shape, ...) -> (output, statistics...)
void norm(ScalingCall& call) {
  const Span in = call.in(std::size_t{0});
  const std::size_t normalised = call.items(call.arg(1)).size();
  call.align(call.out(), in);
  for (std::size_t e = 1; e < call.out_count(); ++e)
    for (std::size_t i = 0; i + normalised < in.size() && i < call.out(e).size(); ++i)
      call.unite(call.out(e)[i], in[i]);
}

// (grad_out, input, normalized_shape, ...) -> (grad_input, grad_weight...)
void norm_backward(ScalingCall& call) {
  const Span in = call.in(1);
  call.align(call.out(), in);
  call.align(in, call.in(std::size_t{0}));
  const std::size_t normalised = call.items(call.arg(2)).size();
  if (normalised > in.size()) return;
  for (std::size_t e = 1; e < call.out_count(); ++e) call.align(call.out(e), in.last(normalised));
  for (std::size_t p = 3; p < call.param_count(); ++p) {
    const Span other = call.in(p);
    // Statistics have the rows, weights the rest.
    for (std::size_t i = 0; i < in.size() - normalised && other.size() == in.size(); ++i)
      call.unite(other[i], in[i]);
    if (other.size() == normalised && other.size() < in.size()) call.align(other, in.last(normalised));
  }
}

// (self, target, ...): rows of both.
void nll_loss(ScalingCall& call) {
  const Span self = call.in(std::size_t{0}), target = call.in(1);
  if (self.size() < 2 || target.empty()) return;
  call.unite(self[0], target[0]);
  if (!call.out().empty()) call.unite(call.out()[0], target[0]);
}
void nll_loss_backward(ScalingCall& call) {
  const Span self = call.in(1), target = call.in(2);
  call.align(call.out(), self);
  if (self.size() >= 2 && !target.empty()) call.unite(self[0], target[0]);
}

// (self, target, ...): terms, or one number.
void loss(ScalingCall& call) {
  call.align(call.in(std::size_t{0}), call.in(1));
  call.align(call.out(), call.in(std::size_t{0}));
}
// (grad_output, self, target, ...)
void loss_backward(ScalingCall& call) {
  call.align(call.out(), call.in(1));
  call.align(call.out(), call.in(2));
}

// Two halves of a dimension become one, or one's gradient that of both.
void halve(ScalingCall& call, Span halves, Span whole, std::size_t dim) {
  if (dim >= whole.size() || halves.size() != whole.size()) return;
  call.unite_except(halves, whole, dim);
  call.solver.relate_sum(whole[dim], Extents{halves[dim], halves[dim]}, call.id);
}
void glu(ScalingCall& call) {
  const Span in = call.in(std::size_t{0});
  halve(call, call.out(), in, call.dim(1, in.size(), -1));
}
void glu_backward(ScalingCall& call) {
  const Span self = call.in(1);
  call.align(call.out(), self);
  halve(call, call.in(std::size_t{0}), self, call.dim(2, self.size(), -1));
}

// ---- products of matrices

void multiply(ScalingCall& call, Span a, Span b) {
  const Span out = call.out();
  if (a.size() < 2 || b.size() < 2 || out.size() < 2) return;
  call.unite(a[a.size() - 1], b[b.size() - 2]);
  call.unite(out[out.size() - 2], a[a.size() - 2]);
  call.unite(out[out.size() - 1], b[b.size() - 1]);
  if (a.size() != 3 || b.size() != 3 || out.size() != 3) return;
  call.unite(out[0], a[0]);
  call.unite(out[0], b[0]);
}
void mm(ScalingCall& call) {
  multiply(call, call.in(std::size_t{0}), call.in(1));
}
void addmm(ScalingCall& call) {
  multiply(call, call.in(1), call.in(2));
  call.align(call.out(), call.in(std::size_t{0}));
}
// X of A X = B.
void solve(ScalingCall& call) {
  const Span matrix = call.in(std::size_t{0}), out = call.out();
  call.align(out, call.in(1));
  if (matrix.size() > 2 && out.size() > 2)
    call.align(out.first(out.size() - 2), matrix.first(matrix.size() - 2));
}
void mv(ScalingCall& call) {
  const Span a = call.in(std::size_t{0}), b = call.in(1);
  if (a.size() != 2 || b.size() != 1) return;
  call.unite(a[1], b[0]);
  call.unite(call.out()[0], a[0]);
}
void dot(ScalingCall& call) {
  call.align(call.in(std::size_t{0}), call.in(1));
}
// Where one operand is 2-dimensional its groups lie behind each other.
void grouped_mm(ScalingCall& call) {
  const Span a = call.in(std::size_t{0}), b = call.in(1), out = call.out();
  if (a.size() < 2 || b.size() < 2 || out.size() < 2) return;
  call.unite(a[a.size() - 1], b[b.size() - 2]);
  call.unite(out[out.size() - 2], a[a.size() - 2]);
  call.unite(out[out.size() - 1], b[b.size() - 1]);
  if (a.size() == 3 && b.size() == 3) call.unite(a[0], b[0]);
  if (out.size() == 3 && a.size() == 3) call.unite(out[0], a[0]);
  if (out.size() == 3 && b.size() == 3) call.unite(out[0], b[0]);
}

// ---- indices

// For each dimension of self, the index tensor or none.
std::vector<Span> indices_of(ScalingCall& call, std::size_t rank, std::vector<bool>& is_indexed) {
  std::vector<Span> indices(rank);
  is_indexed.assign(rank, false);
  const auto items = call.items(call.arg(1));
  for (std::size_t i = 0; i < items.size() && i < rank; ++i) {
    is_indexed[i] = items[i].is_node();
    indices[i] = call.in(items[i]);
  }
  return indices;
}

// Equates the shape that indexing `self` gives with `result`.
void relate_index(ScalingCall& call, Span self, Span result) {
  std::vector<bool> is_indexed;
  const std::vector<Span> indices = indices_of(call, self.size(), is_indexed);
  std::size_t runs = 0, index_rank = 0, first = self.size();
  for (std::size_t i = 0; i < self.size(); ++i) {
    if (!is_indexed[i]) continue;
    if (i == 0 || !is_indexed[i - 1]) ++runs;
    first = std::min(first, i);
    index_rank = std::max(index_rank, indices[i].size());
  }
  if (runs == 0) return;
  const std::size_t begin = runs == 1 ? first : 0;
  Extents shape;
  for (std::size_t i = 0; i < self.size(); ++i)
    if (!is_indexed[i]) shape.push_back(self[i]);
  if (result.size() != shape.size() + index_rank) {
    // Values that broadcast: only the trailing dimensions are sure.
    if (result.size() < shape.size() + index_rank && begin == 0)
      call.align(shape, result.last(std::min(result.size(), shape.size())));
    return;
  }
  for (std::size_t i = 0; i < shape.size(); ++i) call.unite(shape[i], result[i < begin ? i : i + index_rank]);
  const Span at = result.subspan(begin, index_rank);
  for (std::size_t i = 0; i < self.size(); ++i)
    if (is_indexed[i]) call.align(at, indices[i]);
}

void index(ScalingCall& call) {
  relate_index(call, call.in(std::size_t{0}), call.out());
}
void index_put(ScalingCall& call) {
  call.align(call.out(), call.in(std::size_t{0}));
  relate_index(call, call.in(std::size_t{0}), call.in(2));
}
void gather(ScalingCall& call) {
  const Span self = call.in(std::size_t{0}), at = call.in(2);
  call.align(call.out(), at);
  call.unite_except(at, self, call.dim(1, self.size()));
}
void scatter(ScalingCall& call) {
  const Span self = call.in(std::size_t{0}), at = call.in(2);
  call.align(call.out(), self);
  call.unite_except(at, self, call.dim(1, self.size()));
  call.align(at, call.in(3));
}
void index_add(ScalingCall& call) {
  const Span self = call.in(std::size_t{0}), at = call.in(2), source = call.in(3);
  const std::size_t dim = call.dim(1, self.size());
  call.align(call.out(), self);
  if (source.size() != self.size()) return;
  call.unite_except(source, self, dim);
  if (dim < source.size() && at.size() == 1) call.unite(source[dim], at[0]);
}
void deterministic_scatter_add(ScalingCall& call) {
  const Span self = call.in(std::size_t{0}), at = call.in(1), source = call.in(2);
  call.align(call.out(), self);
  call.align(at, source);
  call.unite_except(source, self, 0);
}
void index_select(ScalingCall& call) {
  const Span self = call.in(std::size_t{0}), at = call.in(2), out = call.out();
  const std::size_t dim = call.dim(1, self.size());
  call.unite_except(out, self, dim);
  if (dim < out.size() && at.size() == 1) call.unite(out[dim], at[0]);
}
void embedding(ScalingCall& call) {
  const Span weight = call.in(std::size_t{0}), at = call.in(1), out = call.out();
  for (std::size_t i = 0; i < at.size() && i < out.size(); ++i) call.unite(out[i], at[i]);
  if (weight.size() == 2 && !out.empty()) call.unite(out.back(), weight[1]);
}
void embedding_backward(ScalingCall& call) {
  const Span grad = call.in(std::size_t{0}), at = call.in(1), out = call.out();
  for (std::size_t i = 0; i < at.size() && i < grad.size(); ++i) call.unite(grad[i], at[i]);
  if (out.size() == 2 && !grad.empty()) call.unite(out[1], grad.back());
  if (out.size() == 2) call.literal(2, std::nullopt, out[0]);
}
void repeat_interleave(ScalingCall& call) {
  if (call.out().size() == 1) call.literal(1, std::nullopt, call.out()[0]);
}
void like_second(ScalingCall& call) {
  call.align(call.out(), call.in(1));
}

// ---- convolutions: [batch, channels, extents..]

// An extent that a step of 1 and as much padding as the windows reach leave as it is.
void keep_extents(ScalingCall& call, Span in, Span made) {
  const auto stride = call.find_param("stride");
  const auto steps = stride ? call.items(call.arg(*stride)) : std::vector<Arg>();
  for (std::size_t i = 2; i < in.size() && i < made.size(); ++i) {
    const std::size_t at = std::min(i - 2, steps.empty() ? 0 : steps.size() - 1);
    const bool is_each = at < steps.size() && steps[at].is_int() && steps[at].as_int() == 1;
    if (is_each && in[i] && made[i] && call.solver.number(in[i]) == call.solver.number(made[i]))
      call.unite(in[i], made[i]);
  }
}
void convolution(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  if (in.empty() || out.size() != in.size()) return;
  call.unite(out[0], in[0]);
  keep_extents(call, in, out);
}
void convolution_backward(ScalingCall& call) {
  const Span grad = call.in(std::size_t{0}), in = call.in(1);
  if (grad.empty() || in.size() != grad.size()) return;
  call.unite(grad[0], in[0]);
  keep_extents(call, in, grad);
  for (std::size_t p = 1; p <= 2; ++p)
    if (call.out(p - 1).size() == call.in(p).size()) call.align(call.out(p - 1), call.in(p));
}

// ---- attention: [batch, heads, length, head dimension]

void attend(ScalingCall& call, Span q, Span k, Span v) {
  if (q.size() != 4 || k.size() != 4 || v.size() != 4) return;
  call.unite(q[0], k[0]);
  call.unite(q[3], k[3]);
  call.unite(k[2], v[2]);
  call.unite(k[0], v[0]);
  call.unite(k[1], v[1]);
}
// A mask or bias: of batch, head, query and key, or it broadcasts to them.
void attention_bias(ScalingCall& call, Span q, Span k) {
  if (q.size() != 4 || k.size() != 4) return;
  const Extents scores = {q[0], q[1], q[2], k[2]};
  for (std::string_view name : {"attn_bias", "attn_mask"})
    if (const auto bias = call.find_param(name)) call.align(call.in(*bias), scores);
}
void attention(ScalingCall& call) {
  const Span q = call.in(std::size_t{0}), k = call.in(1), v = call.in(2), out = call.out();
  attend(call, q, k, v);
  attention_bias(call, q, k);
  if (q.size() != 4 || v.size() != 4 || out.size() != 4) return;
  call.unite_except(out, q, 3);
  call.unite(out[3], v[3]);
  // Statistics of rows, whose number one kernel pads.
  const Span rows = call.out(1);
  const std::size_t known = call.node.op->type_rule == rules::efficient_attention ? 2 : 3;
  for (std::size_t i = 0; i < known && i < rows.size(); ++i) call.unite(rows[i], q[i]);
  if (call.node.op->type_rule == rules::flex_attention) call.align(call.out(2), rows);
}
// A block mask: the lengths, then tables that have the query's batch and heads or broadcast to
// them.
void block_mask(ScalingCall& call, Span q, Span k) {
  const auto mask = call.find_param("block_mask");
  if (!mask || call.items(call.arg(*mask)).size() < 2 || q.size() != 4 || k.size() != 4) return;
  call.literal(*mask, 0, q[2]);
  call.literal(*mask, 1, k[2]);
  for (Arg table : call.items(call.arg(*mask)))
    for (std::size_t dim = 0; dim < 2 && dim < call.in(table).size(); ++dim)
      call.unite(call.in(table)[dim], q[dim]);
}
void flex_attention(ScalingCall& call) {
  attention(call);
  block_mask(call, call.in(std::size_t{0}), call.in(1));
}
// (query, key, value, out, logsumexp, grad_out, grad_logsumexp, ...)
void flex_attention_backward(ScalingCall& call) {
  const Span q = call.in(std::size_t{0}), k = call.in(1), v = call.in(2);
  attend(call, q, k, v);
  for (std::size_t i = 0; i < 3; ++i) call.align(call.out(i), call.in(i));
  call.align(call.in(5), call.in(3));
  for (std::size_t p = 3; p < 7; ++p)
    for (std::size_t i = 0; i < 3 && i < call.in(p).size() && q.size() == 4; ++i)
      call.unite(call.in(p)[i], q[i]);
  block_mask(call, q, k);
}
// (grad_out, query, key, value, ..., out, logsumexp, ...)
void attention_backward(ScalingCall& call) {
  const Span grad = call.in(std::size_t{0}), q = call.in(1);
  attend(call, q, call.in(2), call.in(3));
  attention_bias(call, q, call.in(2));
  for (std::size_t i = 0; i < 3; ++i) call.align(call.out(i), call.in(i + 1));
  if (const auto bias = call.find_param("attn_bias")) call.align(call.out(3), call.in(*bias));
  const auto out = call.find_param("out");
  if (out) call.align(grad, call.in(*out));
  if (grad.size() == 4 && q.size() == 4) call.unite_except(grad, q, 3);
  for (std::string_view name : {"max_q", "max_k"}) {
    const auto length = call.find_param(name);
    const Span rows = name == "max_q" ? q : call.in(2);
    if (length && rows.size() == 4) call.literal(*length, std::nullopt, rows[2]);
  }
}

// ---- collectives

void relate_ranks(ScalingCall& call, Span shard, Span whole, std::size_t group_size) {
  if (shard.empty() || shard.size() != whole.size()) return;
  call.unite_except(shard, whole, 0);
  const auto ranks = call.integer(group_size);
  if (!ranks || *ranks < 1) return;
  if (*ranks == 1) return call.unite(shard[0], whole[0]);
  call.solver.relate_dimensions({call.solver.add_fixed(*ranks), shard[0]}, {whole[0]}, call.id);
}
void all_gather(ScalingCall& call) {
  relate_ranks(call, call.in(std::size_t{0}), call.out(), 1);
}
void reduce_scatter(ScalingCall& call) {
  relate_ranks(call, call.out(), call.in(std::size_t{0}), 2);
}
void all_gather_each(ScalingCall& call) {
  const auto items = call.items(call.arg(0));
  for (std::size_t e = 0; e < items.size(); ++e) relate_ranks(call, call.in(items[e]), call.out(e), 1);
}
void reduce_scatter_each(ScalingCall& call) {
  const auto items = call.items(call.arg(0));
  for (std::size_t e = 0; e < items.size(); ++e) relate_ranks(call, call.out(e), call.in(items[e]), 2);
}

// Rows are the sum of their splits: of sizes read from data, or of numbers.
void relate_splits(ScalingCall& call, ExtentId rows, std::size_t param) {
  const auto splits = call.items(call.arg(param));
  if (splits.empty() || !rows) return;
  ExprPool& pool = call.table.facts().pool();
  PolyId sum = pool.poly_number(0);
  bool all_numbers = true, all_equal = true;
  for (Arg split : splits) {
    all_numbers &= split.is_int();
    all_equal &= split == splits[0];
    if (split.is_int()) {
      sum = pool.add(sum, pool.poly_number(split.as_int()));
    } else if (split.is_node()) {
      const TypeId type = call.graph.step().nodes[split.as_node()].type;
      if (!type || call.graph.context->types[type].kind != TypeKind::kScalar) return;
      sum = pool.add(sum, pool.poly(call.graph.context->types[type].expr));
    } else {
      return;
    }
  }
  if (!all_numbers) return call.unite(rows, call.table.of_poly(sum));
  // An even exchange.
  if (!all_equal || splits[0].as_int() < 1) return;
  Extents pieces;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    pieces.push_back(call.solver.add(splits[i].as_int()));
    call.unite(pieces[0], pieces[i]);
    call.literal(param, i, pieces[i]);
  }
  call.solver.relate_sum(rows, pieces, call.id);
}
void all_to_all(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  if (in.empty() || out.size() != in.size()) return;
  call.unite_except(out, in, 0);
  relate_splits(call, out[0], 1);
  relate_splits(call, in[0], 2);
  if (call.graph.context->args.equal(call.arg(1), call.arg(2))) call.unite(out[0], in[0]);
}

void getitem(ScalingCall& call) {
  const auto index = call.integer(1);
  if (!call.arg(0).is_node() || !index) return;
  const NodeId source = call.arg(0).as_node();
  const auto count = static_cast<std::int64_t>(call.table.tensor_count(source));
  const std::int64_t element = *index < 0 ? *index + count : *index;
  if (element >= 0 && element < count)
    call.align(call.out(), call.table.of(source, static_cast<std::size_t>(element)));
}

struct ScalingRow {
  TypeRule type_rule;
  ScalingRule rule;
};

constexpr ScalingRow kScalingRows[] = {
    {rules::unary, pointwise},
    {rules::unary_float, pointwise},
    {rules::unary_bool, pointwise},
    {rules::absolute, pointwise},
    {rules::binary, pointwise},
    {rules::binary_second_first, pointwise},
    {rules::backward_formula, pointwise},
    {rules::binary_float, divide},
    {rules::binary_bool, pointwise},
    {rules::ternary, pointwise},
    {rules::divide_rounded, pointwise},
    {rules::clamp, pointwise},
    {rules::where, pointwise},
    {rules::masked_fill, pointwise},
    {rules::unary_in_place, pointwise},
    {rules::binary_in_place, pointwise},
    {rules::ternary_in_place, pointwise},
    {rules::copy_in_place, pointwise},
    {rules::complex, pointwise},
    {rules::log_softmax_backward, pointwise},
    {rules::softmax_backward, pointwise},
    {rules::log_sigmoid, like_self},
    {rules::dropout, like_self},
    {rules::convert, like_self},
    {rules::to_copy, like_self},
    {rules::clone, like_self},
    {rules::alias, like_self},
    {rules::copy_of_self, like_self},
    {rules::contiguous_of_self, like_self},
    {rules::scatter_view, like_self},
    {rules::flip, like_self},
    {rules::factory_like, like_self},
    {rules::scan, like_self},
    {rules::scan_floats, like_self},
    {rules::scan_extreme, like_self},
    {rules::softmax, like_self},
    {rules::safe_softmax, like_self},
    {rules::sort, like_self},
    {rules::argsort, like_self},
    {rules::bucketize, like_self},
    {rules::all_reduce, like_self},
    {rules::real_part, like_self},
    {rules::imaginary_part, like_self},
    {rules::offload, like_self},
    {rules::searchsorted, like_second},
    {rules::all_reduce_each, like_each},
    {rules::same_each, like_each},
    {rules::view_dtype, convert_bits},
    {rules::view, reshape},
    {rules::reshape, reshape},
    {rules::reshape_copy, reshape},
    {rules::expand, expand},
    {rules::permute, permute},
    {rules::transpose, transpose},
    {rules::t, t},
    {rules::squeeze, drop_ones},
    {rules::squeeze_dim, drop_ones},
    {rules::unsqueeze, drop_ones},
    {rules::select, select},
    {rules::unbind, unbind},
    {rules::slice, slice},
    {rules::slice_copy, slice},
    {rules::narrow, narrow},
    {rules::zeros_of_input, pad_to_input},
    {rules::split, split},
    {rules::split_with_sizes, split_with_sizes},
    {rules::split_with_sizes_copy, split_with_sizes},
    {rules::chunk, chunk},
    {rules::cat, cat},
    {rules::stack, stack},
    {rules::pad, pad},
    {rules::repeat, repeat},
    {rules::view_as_real,
     [](ScalingCall& call) {
       call.align(without(call.out(), call.in(std::size_t{0}).size()), call.in(std::size_t{0}));
     }},
    {rules::view_as_complex,
     [](ScalingCall& call) { call.align(call.out(), without(call.in(std::size_t{0}), call.out().size())); }},
    {rules::factory, factory},
    {rules::full, factory},
    {rules::empty_permuted, factory},
    {rules::randint, sized_by_name},
    {rules::masked_scatter_backward, sized_by_third},
    {rules::sized_floats, sized_by_name},
    {rules::multinomial, drawn_of_rows},
    {rules::new_factory, new_factory},
    {rules::arange, counted_by_first},
    {rules::randperm, counted_by_first},
    {rules::arange_start, arange_start},
    {rules::arange_step, arange_start},
    {rules::sum_dims, reduce},
    {rules::mean_dims, reduce},
    {rules::reduce_dims, reduce},
    {rules::logsumexp, reduce},
    {rules::extremes, reduce},
    {rules::reduce_bool_dims, reduce},
    {rules::extreme_dim, reduce},
    {rules::argextreme, reduce},
    {rules::variance, reduce},
    {rules::variance_mean, reduce},
    {rules::vector_norm, reduce},
    {rules::topk, topk},
    {rules::rms_norm, norm},
    {rules::layer_norm, norm},
    {rules::rms_norm_backward, norm_backward},
    {rules::layer_norm_backward, norm_backward},
    {rules::glu, glu},
    {rules::glu_backward, glu_backward},
    {rules::loss, loss},
    {rules::cross_entropy, loss},
    {rules::cross_entropy_with_logits, loss},
    {rules::loss_backward, loss_backward},
    {rules::nll_loss, nll_loss},
    {rules::nll_loss_backward, nll_loss_backward},
    {rules::mm, mm},
    {rules::bmm, mm},
    {rules::scaled_mm, mm},
    {rules::addmm, addmm},
    {rules::baddbmm, addmm},
    {rules::mv, mv},
    {rules::dot, dot},
    {rules::grouped_mm, grouped_mm},
    {rules::convolution, convolution},
    {rules::convolution_backward, convolution_backward},
    {rules::scaled_grouped_mm, grouped_mm},
    {rules::index, index},
    {rules::index_put, index_put},
    {rules::index_put_in_place, index_put},
    {rules::gather, gather},
    {rules::scatter, scatter},
    {rules::scatter_in_place, scatter},
    {rules::solve_triangular, solve},
    {rules::index_add, index_add},
    {rules::index_add_in_place, index_add},
    {rules::deterministic_scatter_add, deterministic_scatter_add},
    {rules::index_select, index_select},
    {rules::embedding, embedding},
    {rules::embedding_backward, embedding_backward},
    {rules::repeat_interleave, repeat_interleave},
    {rules::flex_attention, flex_attention},
    {rules::flex_attention_backward, flex_attention_backward},
    {rules::cudnn_attention, attention},
    {rules::flash_attention, attention},
    {rules::efficient_attention, attention},
    {rules::cpu_attention, attention},
    {rules::overrideable_attention, attention},
    {rules::attention_backward, attention_backward},
    {rules::efficient_attention_backward, attention_backward},
    {rules::cpu_attention_backward, attention_backward},
    {rules::overrideable_attention_backward, attention_backward},
    {rules::all_gather, all_gather},
    {rules::reduce_scatter, reduce_scatter},
    {rules::all_gather_each, all_gather_each},
    {rules::reduce_scatter_each, reduce_scatter_each},
    {rules::all_to_all, all_to_all},
    {rules::getitem, getitem},
};

std::vector<ScalingRule> rules_by_op() {
  std::vector<ScalingRule> result(ops().size(), nullptr);
  for (const OpInfo& op : ops())
    for (const ScalingRow& row : kScalingRows)
      if (row.type_rule == op.type_rule) result[op.index] = row.rule;
  return result;
}

}  // namespace

ScalingRule find_scaling_rule(const OpInfo& op) {
  static const std::vector<ScalingRule> kByOp = rules_by_op();
  return kByOp[op.index];
}

}  // namespace epweave
