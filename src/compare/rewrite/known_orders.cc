#include "compare/rewrite/known_orders.h"

#include <algorithm>

#include "ops/op.h"

namespace epweave {

KnownOrders::KnownOrders(const RewriteClaims& claims, const Effects& effects, const ValueNumbers& numbers,
                         const OrderCheck& orders, FrameTerms& terms, PositionNames& names)
    : claims_(claims),
      effects_(effects),
      blocks_(orders),
      terms_(terms),
      names_(names),
      contents_(numbers, effects),
      tokens_(tokens_in(0)) {}

// The order of the tokens, in so many blocks; 0: whichever, or rows that meet all.
FrameOrder KnownOrders::tokens_in(std::int64_t blocks) {
  return FrameOrder::known(
      terms_.intern({FrameTerms::kTokenOrder, FrameId(), {static_cast<std::uint64_t>(blocks)}}));
}

FrameOrder KnownOrders::tokens_of(NodeId share) {
  // Pieces of one cut lie alike.
  if (blocks_.has_lost_order(share) || blocks_.has_own_order(share))
    return FrameOrder::known(terms_.intern({FrameTerms::kUnknown, {}, {blocks_.split_of(share).index()}}));
  return tokens_in(blocks_.known_blocks(share));
}

FrameOrder KnownOrders::unknown(NodeId value, FrameId base) {
  return FrameOrder::known(
      terms_.intern({FrameTerms::kUnknown, base, {names_.of_value(value), contents_[value]}}));
}

FrameOrder KnownOrders::runs_of(NodeId counts) {
  return FrameOrder::known(
      terms_.intern({FrameTerms::kRuns, {}, {names_.of_value(counts), contents_[counts]}}));
}

FrameOrder KnownOrders::of(const Operand& operand) {
  if (!operand.is_rows()) return {};
  const NodeId share = operand.taken->value.as_node();
  const Claim& claim = claims_[share];
  if (claim.kind != ClaimKind::kPart) return tokens_of(share);
  const FrameOrder& order = orders_of_[claim.origin].rows;
  if (order == tokens_) return tokens_of(share);
  return is_as_made(claim.origin) ? order : unknown(claim.origin);
}

FrameOrder KnownOrders::numbered_by(const Operand& operand) {
  const Claim& claim = claims_[operand.taken->value.as_node()];
  if (claim.kind != ClaimKind::kPart) return {};
  const FrameOrder& order = orders_of_[claim.origin].numbered;
  return is_as_made(claim.origin) || order == FrameOrder() ? order : unknown(claim.origin);
}

void KnownOrders::add_view(NodeId a, const std::vector<bool>& is_divided) {
  views_.at(effects_.storage_of(a)).push_back({a, row_of(a, is_divided)});
}

// What is written is in each view of the storage. A view of the same elements has the rows that
// were written, and so has one whose rows were like each other.
void KnownOrders::note_write(NodeId call, const FrameOrders& made, const Operand& written,
                             const FrameOrder& before) {
  keeps_order_ = made.rows == before && made.numbered == numbered_by(written);
  const NodeId value = claims_[written.taken->value.as_node()].origin, storage = effects_.storage_of(value);
  if (effects_.storage_of(call) != storage) return;
  written_views_.push_back(value);
  const Row row = row_of(value, written.is_divided);
  if (!row.stride) return;
  for (const View& view : views_[storage]) {
    const bool were_alike = before.kind == FrameOrder::Kind::kAny && view.row.begins_with(row) &&
                            orders_of_[view.value].rows == before && is_as_made(view.value);
    if (view.value != value && (were_alike || view.row == row)) written_views_.push_back(view.value);
  }
}

// A write that leaves the rows of what it writes in their order is none.
void KnownOrders::leave(NodeId a) {
  if (!keeps_order_) contents_.note_writes_of(a);
  if (!claims_.parts(a).empty()) content_when_made_.at(a) = contents_[a];
  const FrameOrders made = orders_of_[a];
  for (NodeId view : written_views_) {
    orders_of_.at(view) = made;
    content_when_made_.at(view) = contents_[view];
  }
  keeps_order_ = false;
  written_views_.clear();
}

// Where a row lies in memory, of a value whose rows lie one behind another.
KnownOrders::Row KnownOrders::row_of(NodeId value, const std::vector<bool>& is_divided) const {
  const TensorType* type = claims_.tensor_a(value);
  const ExprPool& exprs = claims_.graph_a().context->exprs;
  if (std::ranges::count(is_divided, true) != 1 || type->strides.size() != is_divided.size()) return {};
  const auto at = static_cast<std::size_t>(std::ranges::find(is_divided, true) - is_divided.begin());
  const auto number = [&](ExprId expr) {
    return expr ? exprs.constant(expr) : std::optional<std::int64_t>(0);
  };
  const auto stride = number(type->strides[at]), first = number(type->offset);
  std::int64_t last = first.value_or(0);
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;
  for (std::size_t i = 0; i < is_divided.size(); ++i) {
    const auto size = number(type->sizes[i]), step = number(type->strides[i]);
    if (i != at && (!size || !step)) return {};
    if (i != at) last += (*size - 1) * *step;
    if (i != at && *size != 1) dims.emplace_back(*size, *step);
  }
  const bool lies_in_one = stride && first && *first >= 0 && last < *stride;
  return lies_in_one
             ? Row{stride, claims_.facts_a().normalize(type->sizes[at]), *first, std::move(dims), type->dtype}
             : Row();
}

}  // namespace epweave
