#include "compare/rewrite/known_orders.h"

#include <algorithm>

#include "ops/op.h"

namespace epweave {

KnownOrders::KnownOrders(const RewriteClaims& claims, const Effects& effects, const ValueNumbers& numbers,
                         RowBlocks& blocks, FrameTerms& terms, PositionNames& names)
    : claims_(claims),
      effects_(effects),
      blocks_(blocks),
      terms_(terms),
      names_(names),
      contents_(numbers, effects) {}

FrameOrder KnownOrders::tokens_in(std::int64_t blocks) {
  return FrameOrder::known(
      terms_.intern({FrameTerms::kTokenOrder, FrameId(), {static_cast<std::uint64_t>(blocks)}}));
}

bool KnownOrders::joins_tokens(const FrameOrder& order) const {
  if (!order.is_known() || terms_[order.frame].kind != FrameTerms::kJoin) return false;
  const std::vector<std::uint64_t>& words = terms_[order.frame].values;
  for (std::size_t i = 0; i < words.size(); i += 2)
    if (words[i] != FrameTerms::kNoFrame && terms_[FrameId(words[i])].kind != FrameTerms::kTokenOrder)
      return false;
  return true;
}

// Pieces of one cut lie alike.
FrameOrder KnownOrders::cut(NodeId share) {
  const std::int64_t blocks = blocks_.known_blocks(share);
  return blocks > 0 ? tokens_in(blocks)
                    : FrameOrder::known(
                          terms_.intern({FrameTerms::kUnknown, {}, {blocks_.split_of(share).index()}}));
}

FrameOrder KnownOrders::unknown(NodeId value, FrameId base) {
  return FrameOrder::known(
      terms_.intern({FrameTerms::kUnknown, base, {names_.of_value(value), contents_[value]}}));
}

FrameOrder KnownOrders::own(NodeId value) {
  return FrameOrder::known(terms_.intern({FrameTerms::kOwn, {}, {names_.of_value(value), contents_[value]}}));
}

FrameOrder KnownOrders::runs_of(NodeId counts) {
  return FrameOrder::known(
      terms_.intern({FrameTerms::kRuns, {}, {names_.of_value(counts), contents_[counts]}}));
}

FrameOrder KnownOrders::of(const Operand& operand) {
  return operand.is_rows() ? of_share(operand.taken->value.as_node()) : FrameOrder();
}

FrameOrder KnownOrders::of_share(NodeId share) {
  const Claim& claim = claims_[share];
  if (claim.kind != ClaimKind::kPart) return cut(share);
  const FrameOrder& order = orders_of_[claim.origin].rows;
  const bool is_known = is_as_made(claim.origin) && order.kind != FrameOrder::Kind::kNoRows;
  return is_known ? order : unknown(claim.origin);
}

FrameOrder KnownOrders::numbered_by(const Operand& operand) {
  const Claim& claim = claims_[operand.taken->value.as_node()];
  if (claim.kind != ClaimKind::kPart) return {};
  const FrameOrder& order = orders_of_[claim.origin].numbered;
  return is_as_made(claim.origin) || order == FrameOrder() ? order : unknown(claim.origin);
}

void KnownOrders::set_by(NodeId call, NodeId a, const FrameOrders& orders) {
  orders_of_.at(a) = orders;
  const std::int64_t rows = blocks_of(orders.rows), numbered = blocks_of(orders.numbered);
  const auto &shares = claims_.parts(a), &calls = claims_.parts(call);
  for (std::size_t k = 0; k < shares.size(); ++k)
    blocks_.set(shares[k], rows, numbered, k < calls.size() ? calls[k] : claims_.whole(call));
}

std::int64_t KnownOrders::blocks_of(const FrameOrder& order) const {
  switch (order.kind) {
    case FrameOrder::Kind::kNoRows:
      return RowBlocks::kUnknown;
    case FrameOrder::Kind::kAny:
      return RowBlocks::kAny;
    case FrameOrder::Kind::kCounted:
      return RowBlocks::kCounted;
    case FrameOrder::Kind::kKnown:
      break;
  }
  if (terms_.is_own(order.frame) || joins_tokens(order)) return RowBlocks::kOwn;
  if (!is_tokens(order)) return RowBlocks::kUnknown;
  const auto blocks = static_cast<std::int64_t>(terms_[order.frame].values[0]);
  return blocks > 0 ? blocks : RowBlocks::kCounted;
}

void KnownOrders::add_view(NodeId a, const std::vector<bool>& is_divided) {
  views_.at(effects_.storage_of(a)).push_back({a, row_of(a, is_divided)});
}

std::span<const KnownOrders::View> KnownOrders::views_of(NodeId storage) const {
  const std::vector<View>* views = views_.find(storage);
  return views == nullptr ? std::span<const View>() : *views;
}

// What is written is in each view of the storage. A view of the same elements has the rows that
// were written, and so has one whose rows were like each other.
void KnownOrders::note_write(NodeId call, const FrameOrders& made, const Operand& written,
                             const FrameOrder& before) {
  const NodeId value = claims_[written.taken->value.as_node()].origin, storage = effects_.storage_of(value);
  keeps_order_ = made.rows == before && made.numbered == numbered_by(written) && !shows_any_order(storage);
  if (effects_.storage_of(call) != storage) return;
  written_views_.push_back(value);
  const Row row = row_of(value, written.is_divided);
  if (!row.stride) return;
  for (const View& view : views_of(storage)) {
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
    set_by(a, view, made);
    content_when_made_.at(view) = contents_[view];
  }
  note_others(a);
  keeps_order_ = false;
  written_views_.clear();
}

// Whether a view of it has rows that meet those of any order: they no longer do once others are
// written among them.
bool KnownOrders::shows_any_order(NodeId storage) {
  const FrameOrder repeated = tokens_in(0);
  return std::ranges::any_of(views_of(storage), [&](const View& view) {
    const FrameOrder& rows = orders_of_[view.value].rows;
    return rows.kind == FrameOrder::Kind::kAny || rows.is_counted() || rows == repeated;
  });
}

// Other views of what was written have rows of which nothing is known. Those in which rows were
// alike, and which do not begin their rows where those that were written begin, are in an order of
// their own.
void KnownOrders::note_others(NodeId call) {
  for (const StorageAccess& access : effects_.accesses_of(call)) {
    if (!access.writes) continue;
    for (const View& view : views_of(access.storage)) {
      const FrameOrder rows = orders_of_[view.value].rows;
      if (is_as_made(view.value) || is_unknown(rows)) continue;
      const bool were_alike =
          rows.kind == FrameOrder::Kind::kAny || (rows.is_known() && terms_.is_own(rows.frame));
      set_by(call, view.value, {were_alike ? own(view.value) : unknown(view.value), {}});
      if (were_alike) content_when_made_.at(view.value) = contents_[view.value];
    }
  }
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
