#include "compare/rewrite/counted_extents.h"

#include <algorithm>
#include <vector>

#include "ir/types/dimension.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {

namespace {

constexpr std::size_t kSequenceDim = 2, kAttentionRank = 4;  // of queries and keys
constexpr std::size_t kQueryLength = 0, kKeyLength = 1;      // of a block mask

}  // namespace

class CountedExtent {
 public:
  CountedExtent(CountedExtents& extents, const Node& node)
      : extents_(extents), context_(extents.context_), body_(extents.body_), node_(node) {}

  ExprId find(const NumberPlace& place) const {
    const OpParam& param = node_.op->params[place.param];
    if (param.name == "block_mask") return length_of_mask(place);
    if (param.name == "max_q") return length_of("query");
    if (param.name == "max_k") return length_of("key");
    if (place.item) return param.type.starts_with("SymInt[") ? in_list(param, place) : ExprId();
    if (param.name == "split_size") return of_equal_pieces();
    if (param.name == "length" || (param.name == "end" && node_.op->find_param("dim")))
      return of_sliced_dimension();
    if (param.name == "end") return of_range();
    if (param.name == "output_size") return extent(result(), 0);
    return {};
  }

 private:
  ExprId in_list(const OpParam& param, const NumberPlace& place) const {
    const Arg list = value(place.param);
    if (param.name.find("split_size") != param.name.npos)
      return result_list().empty() ? in_table(param, list, *place.item) : of_piece(*place.item);
    const TensorType* type = result();
    if (type == nullptr || context_.args.children(list).size() != type->rank()) return {};
    if (param.name.find("stride") != param.name.npos)
      return *place.item < type->strides.size() ? type->strides[*place.item] : ExprId();
    const bool is_size = param.name.find("size") != param.name.npos || param.name == "shape";
    return is_size ? type->sizes[*place.item] : ExprId();
  }

  // Rows for each rank: what is left of the rows for this one.
  ExprId in_table(const OpParam& param, Arg list, std::size_t item) const {
    const auto items = context_.args.children(list);
    const TensorType* rows = param.name.starts_with("input") ? tensor_of(0) : result();
    const ExprId all = extent(rows, 0);
    ExprPool& exprs = context_.exprs;
    CountedExtents::Table& table = extents_.table_;
    if (table.items != list || table.rows != all) table = {list, all, rows_left(all, items)};
    const ExprId given = number(items[item]);
    if (!table.left || !given) return {};
    return exprs.constant(table.left) == 0 ? given
                                           : exprs.from_poly(exprs.add(table.left, exprs.poly(given)));
  }

  PolyId rows_left(ExprId all, std::span<const Arg> items) const {
    if (!all) return {};
    ExprPool& exprs = context_.exprs;
    std::vector<PolyId> taken;
    for (const Arg& item : items) {
      const ExprId rows = number(item);
      if (!rows) return {};
      taken.push_back(exprs.poly(rows));
    }
    return extents_.normalize_(exprs.sub(exprs.poly(all), exprs.sum(taken)));
  }

  ExprId of_piece(std::size_t piece) const {
    const auto pieces = result_list();
    const TensorType* type =
        piece < pieces.size() && pieces[piece] ? epweave::tensor_of(context_, pieces[piece]) : nullptr;
    const auto along = dimension(type);
    return along ? extent(type, *along) : ExprId();
  }

  // All pieces but the last are so large.
  ExprId of_equal_pieces() const {
    const ExprId first = of_piece(0);
    for (std::size_t i = 1; i + 1 < result_list().size(); ++i)
      if (of_piece(i) != first) return {};
    return first;
  }

  // From the first to the last: any other slice of a part has not the part's rows of the slice.
  ExprId of_sliced_dimension() const {
    if (!is_left_out_or("start", 0) || !is_left_out_or("step", 1)) return {};
    const TensorType* type = node_.op->find_param("input_sizes") ? result() : tensor_of(0);
    const auto along = dimension(type);
    return along ? extent(type, *along) : ExprId();
  }

  // 0, 1, .. to the last row.
  ExprId of_range() const {
    const bool counts_up = is_left_out_or("start", 0) && is_left_out_or("step", 1);
    return counts_up ? extent(result(), 0) : ExprId();
  }

  ExprId length_of_mask(const NumberPlace& place) const {
    if (place.item == kQueryLength) return length_of("query");
    return place.item == kKeyLength ? length_of("key") : ExprId();
  }

  // Of an operand of attention, [batch, heads, sequence, size].
  ExprId length_of(std::string_view operand) const {
    const auto param = node_.op->find_param(operand);
    const TensorType* type = param ? tensor_of(*param) : nullptr;
    return type != nullptr && type->rank() == kAttentionRank ? extent(type, kSequenceDim) : ExprId();
  }

  Arg value(std::size_t param) const { return arg_of(context_, node_, param); }

  bool is_left_out_or(std::string_view name, std::int64_t number) const {
    const auto param = node_.op->find_param(name);
    if (!param) return true;
    const Arg given = value(*param);
    return given.is_none() || (given.is_int() && given.as_int() == number);
  }

  ExprId number(Arg arg) const {
    if (arg.is_int()) return context_.exprs.number(arg.as_int());
    if (arg.is(ArgKind::kSymbolic)) return arg.as_expr();
    const TypeId type = arg.is_node() ? body_.nodes[arg.as_node()].type : TypeId();
    return type && context_.types[type].kind == TypeKind::kScalar ? context_.types[type].expr : ExprId();
  }

  const TensorType* result() const { return epweave::tensor_of(context_, node_.type); }
  const TensorType* tensor_of(std::size_t param) const {
    const Arg arg = value(param);
    return arg.is_node() ? epweave::tensor_of(context_, body_.nodes[arg.as_node()].type) : nullptr;
  }
  std::span<const TypeId> result_list() const {
    return node_.type ? std::span<const TypeId>(context_.types[node_.type].elements)
                      : std::span<const TypeId>();
  }

  std::optional<std::size_t> dimension(const TensorType* type) const {
    const auto param = node_.op->find_param("dim");
    if (type == nullptr || !param) return std::nullopt;
    const Arg given = value(*param);
    if (!given.is_int() && !given.is_none()) return std::nullopt;
    return find_dimension(given.is_int() ? given.as_int() : 0, type->rank());
  }

  ExprId extent(const TensorType* type, std::size_t dim) const {
    return type != nullptr && dim < type->rank() ? without_bound(type->sizes[dim]) : ExprId();
  }

  // n for Max(0, n): a number of rows that was less would have been refused.
  ExprId without_bound(ExprId size) const {
    ExprPool& exprs = context_.exprs;
    const Poly& poly = exprs[exprs.poly(size)];
    if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) return size;
    const Atom& atom = exprs[poly.terms[0].atoms[0]];
    if (atom.kind != AtomKind::kMax || atom.operands.size() != 2) return size;
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}})
      if (exprs.constant(atom.operands[i]) == 0 && poly.terms[0].coefficient == Rational{1, 1})
        return exprs.from_poly(atom.operands[1 - i]);
    return size;
  }

  CountedExtents& extents_;
  Context& context_;
  const Body& body_;
  const Node& node_;
};

ExprId CountedExtents::find(const Node& node, const NumberPlace& place) {
  if (node.op == nullptr || place.param >= node.op->params.size()) return {};
  return CountedExtent(*this, node).find(place);
}

}  // namespace epweave
