// Maps, views, pieces and joins, factories.
#include <algorithm>
#include <limits>

#include "ir/types/dimension.h"
#include "placement/scaling/scaling_rules.h"

namespace epweave::scaling {

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

namespace {

std::int64_t product_of(const ScalingCall& call, Span extents) {
  std::int64_t product = 1;
  for (ExtentId extent : extents)
    if (!extent || __builtin_mul_overflow(product, call.solver.number(extent), &product)) return 0;
  return product;
}

}  // namespace

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

// A complex number is a pair of real ones, along the last dimension.
void drop_pair(ScalingCall& call) {
  const Span in = call.in(std::size_t{0}), out = call.out();
  call.align(without(in, out.size()), without(out, in.size()));
}

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
    if (const auto source = find_dimension(order[i].as_int(), in.size())) call.unite(out[i], in[*source]);
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

namespace {

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

}  // namespace

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

namespace {

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

}  // namespace

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
  const std::size_t rank = std::min(in.size(), out.size());  // a call may have no type
  for (std::size_t k = 0; k < rank && k < repeats.size(); ++k) {
    const Arg times = repeats[repeats.size() - 1 - k];
    const ExtentId a = in[in.size() - 1 - k], b = out[out.size() - 1 - k];
    if (!times.is_int() || times.as_int() < 1) continue;
    if (times.as_int() == 1) call.unite(a, b);
    if (times.as_int() > 1)
      call.solver.relate_dimensions({call.solver.add_fixed(times.as_int()), a}, {b}, call.id);
  }
}

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

void eye(ScalingCall& call) {
  const Span out = call.out();
  if (out.size() != 2) return;
  call.literal(0, std::nullopt, out[0]);
  if (call.find_param("m")) return call.literal(1, std::nullopt, out[1]);
  call.unite(out[0], out[1]);
}

}  // namespace epweave::scaling
