// Numbers that a part has of its own: of rows, which it counts from its own first one, and places
// among rows in its own order. They may be moved and sorted, and pick or place the rows that they
// number; what else is made of them is the part's own (part_facts.h).
//
//   index_put(o, [order], arange)     numbers: of each row, where `order` has it
//   x[order]          rows, where order numbers as many rows as x has along the dimension in which
//                     they are picked
//   x[order // c]     rows of each c-th of what was numbered, where c divides each part's
//   order % c         data: which of its c entries, of rows in the order of the tokens
//                     (verify_frames.h)
//   x[order + s[e]]   rows, in an order of the part's own if x's are; order - order and
//                     order + order are no places
#include <algorithm>

#include "compare/rewrite/conditions.h"
#include "compare/rewrite/part_facts.h"
#include "ir/types/dimension.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/named_arg.h"
#include "ops/number_ops.h"
#include "ops/sorting.h"

namespace epweave {
namespace {

bool is_number_of_rows(PartFact fact) {
  return fact == PartFact::kNumbers || fact == PartFact::kPlaces;
}

// Narrower integers wrap where there are many rows.
bool counts(const TensorType* type) {
  return type != nullptr && (type->dtype == DType::kInt64 || type->dtype == DType::kInt32);
}

}  // namespace

// Those of the value and its parts along a dimension.
PartFact PartFacts::number_rows(NodeId origin, std::size_t dim) {
  NumberedRows rows;
  const TensorType* whole = claims_.tensor_a(origin);
  if (whole == nullptr || dim >= whole->rank()) return PartFact::kOwn;
  rows.whole = whole->sizes[dim];
  for (std::uint32_t k = 0; k < claims_.part_count(origin); ++k) {
    const NodeId part = claims_.part_of(origin, k);
    const TensorType* type = part ? claims_.tensor_b(part) : nullptr;
    if (type == nullptr || dim >= type->rank()) return PartFact::kOwn;
    rows.of_parts.push_back(type->sizes[dim]);
  }
  numbered_ = static_cast<std::uint32_t>(numbered_rows_.size());
  numbered_rows_.push_back(std::move(rows));
  return PartFact::kNumbers;
}

// Each counted row's number, as often as it is counted (repeat_interleave), or of those rows that
// are not zero (nonzero).
PartFact PartFacts::number_chosen_rows(const Operand& chosen) {
  if (is_own(chosen.fact) || chosen.is_divided.size() != 1 || !chosen.taken->value.is_node())
    return PartFact::kOwn;
  const Claim& claim = claims_[chosen.taken->value.as_node()];
  if (claim.kind == ClaimKind::kPart) return number_rows(claim.origin, 0);
  numbered_ = static_cast<std::uint32_t>(numbered_rows_.size());
  numbered_rows_.push_back({claims_.tensor_a(claim.origin)->sizes[0], {}});
  return PartFact::kNumbers;
}

// Of the call that is looked at; none: it makes data, as others do.
std::optional<PartFact> PartFacts::find_numbers(NodeId origin, NodeId part) {
  const Operand* first = operands_.empty() ? nullptr : &operands_.front();
  const OpFamily family = op_->family;
  if (family == OpFamily::kIota) return find_iota(origin, part);
  if (family == OpFamily::kSort && op_->returns.size() == 1 && sorts_rows())
    return number_rows(origin, static_cast<std::size_t>(std::ranges::find(first->is_divided, true) -
                                                        first->is_divided.begin()));
  if (undoes_order(origin, part)) return number_rows(origin, 0);
  if (numbers_chosen_rows(*op_) && first != nullptr && first->is_rows()) return number_chosen_rows(*first);
  if (first == nullptr || !first->is_tensor) return {};
  if (first->fact == PartFact::kNumbers && number_rule(*op_) != NumberRule::kNone)
    return find_quotient(origin);
  const auto may_shift = [&](const Operand& operand) {
    return operand.is_tensor && (is_number_of_rows(operand.fact) || operand.fact == PartFact::kEntries);
  };
  const bool adds = op_->family == OpFamily::kElementwise && op_->linearity == Linearity::kSum &&
                    op_->find_param("alpha").has_value();
  if (adds && std::ranges::any_of(operands_, may_shift)) return find_places();
  if (!may_shift(*first) || !moves_elements(origin)) return {};
  if (!picks_own_rows()) return PartFact::kOwn;
  numbered_ = first->numbered;
  return first->fact;
}

// arange(E) numbers as many rows as it has; one that begins elsewhere or takes other steps, places
// among them.
PartFact PartFacts::find_iota(NodeId origin, NodeId part) {
  if (!counts(claims_.tensor_a(origin))) return PartFact::kOwn;
  if (!counts_from_zero(context_, *node_)) return PartFact::kPlaces;
  return divided_dimensions(origin, part).size() == 1 ? number_rows(origin, 0) : PartFact::kOwn;
}

// 0, 1, .. of a part's rows, written to an order of these, which names each once.
bool PartFacts::undoes_order(NodeId origin, NodeId part) const {
  const auto inverse = inverse_order(context_, facts_a_, a_, origin);
  if (!inverse || !inverse->rows || !inverse_order(context_, claims_.facts_b(), b_, part)) return false;
  const auto is_unwritten = [&](NodeId value) { return !effects_.is_written(effects_.storage_of(value)); };
  const auto numbers = [&](const Operand& operand) {
    return operand.taken->param == 0 || !operand.is_tensor || operand.fact == PartFact::kNumbers;
  };
  return std::ranges::all_of(operands_, numbers) && is_unwritten(inverse->order) &&
         is_unwritten(inverse->rows);
}

// A number or place, moved by entries; or entries added up. Two numbers have no place for a sum.
PartFact PartFacts::find_places() const {
  bool any_number = false, is_place = true, any_data = false, is_all_rows = true;
  const auto subtracted = subtracted_operand(*op_);
  const Arg alpha = named_arg(context_, *node_, "alpha");
  if (!holds(Condition::kMovesOnePlace, alpha.is_none() || alpha == Arg::integer(1))) return PartFact::kOwn;
  for (const Operand& operand : operands_) {
    if (operand.taken->param > 1) continue;
    if (operand.is_tensor && is_number_of_rows(operand.fact)) {
      is_place &= !any_number && operand.taken->param != subtracted;
      any_number = true;
    } else if (!operand.is_tensor || operand.fact != PartFact::kEntries) {
      any_data = true;
      is_all_rows &= operand.is_tensor && operand.fact == PartFact::kRows;
    }
  }
  if (any_data) return !any_number && is_all_rows && may_take_own_sums() ? PartFact::kRows : PartFact::kOwn;
  if (!holds(Condition::kMovesOnePlace, is_place)) return PartFact::kOwn;
  return any_number ? PartFact::kPlaces : PartFact::kEntries;
}

// Of c rows that were numbered each; or which of its c rows one is.
PartFact PartFacts::find_quotient(NodeId origin) {
  const Arg slots = operands_.front().taken->value;
  const std::int64_t blocks = slots.is_node() ? blocks_.numbered_blocks(slots.as_node()) : 0;
  const auto rows = divide_rows(operands_.front().numbered, named_arg(context_, *node_, "other"), blocks);
  if (!rows || !counts(claims_.tensor_a(origin))) return PartFact::kOwn;
  if (number_rule(*op_) == NumberRule::kRemainder) return PartFact::kRows;
  numbered_ = static_cast<std::uint32_t>(numbered_rows_.size());
  numbered_rows_.push_back(*rows);
  return PartFact::kNumbers;
}

// None where c does not divide the rows that each part has of each block.
std::optional<PartFacts::NumberedRows> PartFacts::divide_rows(std::uint32_t numbered, Arg divisor,
                                                              std::int64_t blocks) {
  if (numbered == 0 || !divisor.is_int() || divisor.as_int() <= 0) return {};
  const NumberedRows& rows = numbered_rows_[numbered];
  ExprPool& exprs = context_.exprs;
  const ExprId c = exprs.number(divisor.as_int());
  const ExprId of_all = exprs.number(divisor.as_int() * std::max<std::int64_t>(blocks, 1));
  NumberedRows result{exprs.floordiv(rows.whole, c), {}};
  for (ExprId of_part : rows.of_parts) {
    result.of_parts.push_back(exprs.floordiv(of_part, c));
    const bool is_whole = numbers_.is_same(exprs.mul(exprs.floordiv(of_part, of_all), of_all), of_part);
    if (!holds(Condition::kEntriesDivideRows, is_whole)) return {};
  }
  return rows.of_parts.empty() ? std::nullopt : std::optional(result);
}

// Elements come out as they went in, wherever they lie. Of a sort it is the values that do.
bool PartFacts::moves_elements(NodeId origin) const {
  if (op_->family == OpFamily::kCast)
    return holds(Condition::kMovesIntegers, counts(claims_.tensor_a(origin)));
  return shows_elements(op_->family) || (op_->family == OpFamily::kSort && op_->returns.size() == 2);
}

std::optional<std::size_t> PartFacts::picked_dimension(const Operand& operand) const {
  if (!takes_rows(op_->family) && !puts_rows(op_->family)) return {};
  const std::size_t param = operand.taken->param;
  if (!operand.is_tensor || param >= op_->params.size() || !is_position(param)) return {};
  if (op_->params[param].type.ends_with("[]")) return operand.taken->item;
  const Arg dim = named_arg(context_, *node_, "dim");
  // A number alone is indexed as one row.
  const std::size_t rank = std::max<std::size_t>(operands_.front().is_divided.size(), 1);
  return find_dimension(dim.is_int() ? dim.as_int() : 0, rank);
}

// Of a sum that each part has of its own, one for each row.
bool PartFacts::picks_entries() const {
  return !operands_.empty() && operands_.front().fact == PartFact::kShare &&
         std::ranges::any_of(operands_, [&](const Operand& operand) {
           return operand.is_rows() && picked_dimension(operand).has_value();
         });
}

// Whether the rows of a share are in an order of the part's own, or say nothing yet.
bool PartFacts::may_hold_places(NodeId value) const {
  const OpInfo* op = claims_[value].kind == ClaimKind::kPart ? b_.nodes[value].op : nullptr;
  return blocks_.has_own_order(value) || (op != nullptr && makes_rows_alike(op->family));
}

// x[:, p] of rows of x in parts: each row needs all positions. Those of a gather pair with rows,
// and so do those of x[i, p] where i picks the rows.
bool PartFacts::picks_for_all_rows(const Operand& positions) const {
  const bool pairs_rows = traits_of(op_->family).positions == PositionForm::kForEach;
  const Operand& source = operands_.front();
  if (pairs_rows || !positions.is_rows() || !source.is_rows()) return false;
  return std::ranges::none_of(operands_, [&](const Operand& other) {
    const auto dim = picked_dimension(other);
    return dim && *dim < source.is_divided.size() && source.is_divided[*dim];
  });
}

// Whether positions number the rows that they pick or place: a part's own its rows, data and what
// all parts have any others.
bool PartFacts::picks_own_rows() {
  for (const Operand& positions : operands_) {
    const auto dim = picked_dimension(positions);
    if (!dim) continue;
    const Operand& source = operands_.front();
    const bool is_along = source.is_tensor && *dim < source.is_divided.size() && source.is_divided[*dim];
    const NodeId value = positions.taken->value.as_node();
    const TensorType* type = claims_.tensor_b(value);
    // Which of the rows that it pairs with: data of these rows, or of all parts.
    if (type != nullptr && type->dtype == DType::kBool) {
      if (!holds(Condition::kMasksByData, is_data(positions.fact))) return false;
      continue;
    }
    if (!holds(Condition::kPositionsMeetNoRows, !picks_for_all_rows(positions))) return false;
    switch (positions.fact) {
      case PartFact::kNumbers: {
        const NodeId from = is_along ? claims_[source.taken->value.as_node()].origin : NodeId();
        if (!from) {
          if (holds(Condition::kNumbersPickParts, false)) break;
          return false;
        }
        if (holds(Condition::kNumbersCountRows, false)) break;
        if (positions.numbered == 0 ||
            !facts_a_.equal(claims_.tensor_a(from)->sizes[*dim], numbered_rows_[positions.numbered].whole))
          return false;
        break;
      }
      case PartFact::kPlaces:
      case PartFact::kEntries:
        if (!is_along) return false;
        if (!holds(Condition::kPlacesPickOwnRows, may_hold_places(source.taken->value.as_node())))
          return false;
        break;
      case PartFact::kRows:
      case PartFact::kSame:
      case PartFact::kZero:
        if (!holds(Condition::kDataPickNoParts, !is_along)) return false;
        break;
      case PartFact::kShare:
      case PartFact::kStatistics:
      case PartFact::kOwn:
        return false;
    }
  }
  return true;
}

}  // namespace epweave
