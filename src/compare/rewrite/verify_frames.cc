#include "compare/rewrite/verify_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/row_assumptions.h"
#include "compare/rewrite/conditions.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/named_arg.h"
#include "ops/number_ops.h"
#include "ops/only_index.h"
#include "ops/op.h"
#include "ops/sorting.h"
#include "ops/traffic.h"

namespace epweave {
namespace {

bool is_uninitialised(const Node& node) {
  return node.op != nullptr && leaves_unset(*node.op);
}

}  // namespace

FrameCheck::FrameCheck(RewriteClaims& claims, const BothEffects& effects, const OrderCheck& orders)
    : claims_(claims),
      effects_(effects.of_a),
      orders_(orders),
      context_(*claims.graph_a().context),
      a_(claims.graph_a().step()),
      facts_a_(claims.facts_a()),
      numbers_(claims.graph_a(), effects_, claims.original()),
      effects_b_(effects.of_b),
      counts_(claims.graph_a(), effects_, numbers_),
      terms_(claims.graph_a(), numbers_),
      contents_(numbers_, effects_) {
  token_order_ = tokens_in(0);
  // As many numbers as an uninitialised value has rows, which fill it, name each row once, or A
  // would read what nobody wrote.
  for (const auto [id, node] : walk(a_)) {
    if (!has_family(node, OpFamily::kIndexPut) || !node.op->writes) continue;
    const Arg into = arg_of(context_, node, 0);
    const auto [index, dim] = only_index(context_, arg_of(context_, node, 1));
    if (into.is_node() && is_uninitialised(a_.nodes[into.as_node()]) && index.is_node() && dim == 0 &&
        !is_written(index.as_node()) && numbers_each_row(index.as_node(), into.as_node(), dim))
      permutations_.insert(numbers_[index.as_node()]);
  }
  for (const auto [id, node] : walk(a_))
    if (node.kind == NodeKind::kCall && node.extra != nullptr)
      for (const Binding& binding : node.extra->bindings) read_.insert(binding.symbol);
}

// A write that leaves the rows of what it writes in their order is none.
void FrameCheck::note_writes_of(NodeId a) {
  if (!keeps_order_) contents_.note_writes_of(a);
  if (!claims_.parts(a).empty()) content_when_made_.at(a) = contents_[a];
  for (NodeId view : written_views_) {
    entries_.at(view) = entries_[a];
    content_when_made_.at(view) = contents_[view];
  }
  keeps_order_ = false;
  written_views_.clear();
}

void FrameCheck::add(NodeId origin, NodeId part, const PartFacts& facts) {
  facts_ = &facts;
  node_ = &a_.nodes[origin];
  part_ = part;
  if (!node_->type) return;
  const bool is_tensor = claims_.tensor_a(origin) != nullptr;
  const std::vector<bool> is_divided =
      is_tensor ? facts.divided_dimensions(origin, part) : std::vector<bool>();
  const bool is_rows = std::ranges::find(is_divided, true) != is_divided.end();
  const Operand* written = written_operand();
  const Order before = written != nullptr ? order_of(*written) : Order();
  met_.clear();
  Entry entry = node_->op != nullptr ? visit(origin) : Entry();
  entry = {settled(entry.rows), settled(entry.numbered)};
  if (is_rows && entry.rows.kind == Order::Kind::kNoRows) entry.rows = unknown(origin);
  if (is_tensor && !is_rows) entry = {};
  if (is_tokens(entry.rows)) entry.rows = token_order_;  // in which blocks, OrderCheck follows
  if (entry.rows.kind != Order::Kind::kNoRows) {
    entries_.at(origin) = entry;
    if (is_rows) views_.at(effects_.storage_of(origin)).push_back({origin, row_of(origin, is_divided)});
  }
  if (written != nullptr && is_rows) note_write(origin, entry, before);
  assume_alike_on_ranks();
  if (facts[origin] != PartFact::kShare) return;
  for (const Operand& operand : facts.operands())
    if (const Order rows = order_of(operand); rows.is_known() && terms_.may_lack_rows(rows.frame))
      assume_all_rows(operand);
}

// What a call writes in place and returns, of a part's own.
const FrameCheck::Operand* FrameCheck::written_operand() const {
  if (node_->op == nullptr || node_->op->returns.size() != 1) return nullptr;
  const Operand* found = nullptr;
  for (const Operand& operand : facts_->operands()) {
    if (!operand.taken->is_written) continue;
    const bool is_result =
        node_->op->params[operand.taken->param].alias_set == node_->op->returns.front().alias_set;
    if (found != nullptr || !is_result || !operand.is_rows()) return nullptr;
    if (claims_[operand.taken->value.as_node()].kind == ClaimKind::kPart) found = &operand;
  }
  return found;
}

// What is written is in each view of the storage. A view of the same elements has the rows that
// were written, and so has one whose rows were like each other.
void FrameCheck::note_write(NodeId origin, const Entry& made, const Order& before) {
  const Operand& written = *written_operand();
  keeps_order_ = made.rows == before && made.numbered == numbered_by(written);
  const NodeId value = value_in_a(written), storage = effects_.storage_of(value);
  if (effects_.storage_of(origin) != storage) return;
  written_views_.push_back(value);
  const Row row = row_of(value, written.is_divided);
  if (!row.stride) return;
  for (const View& view : views_[storage]) {
    const bool were_alike = before.kind == Order::Kind::kAny && view.row.begins_with(row) &&
                            entries_[view.value].rows == before &&
                            contents_[view.value] == content_when_made_[view.value];
    if (view.value != value && (were_alike || view.row == row)) written_views_.push_back(view.value);
  }
}

// Where a row lies in memory, of a value whose rows lie one behind another.
FrameCheck::Row FrameCheck::row_of(NodeId value, const std::vector<bool>& is_divided) const {
  const TensorType* type = claims_.tensor_a(value);
  if (std::ranges::count(is_divided, true) != 1 || type->strides.size() != is_divided.size()) return {};
  const auto at = static_cast<std::size_t>(std::ranges::find(is_divided, true) - is_divided.begin());
  const auto number = [&](ExprId expr) {
    return expr ? context_.exprs.constant(expr) : std::optional<std::int64_t>(0);
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
  return lies_in_one ? Row{stride, facts_a_.normalize(type->sizes[at]), *first, std::move(dims), type->dtype}
                     : Row();
}

FrameCheck::Order FrameCheck::unknown(NodeId value, FrameId base) {
  return known(terms_.intern({FrameTerms::kUnknown, base, {word_of_value(value), contents_[value]}}));
}

// Of a call that regroups, joins or cuts rows in the order of the tokens, the blocks are followed
// (verify_orders.h). Where that loses them, the result's order is its own.
FrameCheck::Order FrameCheck::in_blocks(NodeId origin, const Order& rows) {
  return is_tokens(rows) && orders_.has_lost_order(part_) ? unknown(origin) : rows;
}

FrameCheck::Order FrameCheck::tokens_in(std::int64_t blocks) {
  return known(terms_.intern({FrameTerms::kTokenOrder, FrameId(), {static_cast<std::uint64_t>(blocks)}}));
}

FrameCheck::Order FrameCheck::tokens_of(NodeId share) {
  return tokens_in(orders_.known_blocks(share));
}

FrameCheck::Order FrameCheck::order_of(const Operand& operand) {
  if (!operand.is_rows()) return {};
  const NodeId share = operand.taken->value.as_node();
  const Claim& claim = claims_[share];
  if (claim.kind != ClaimKind::kPart) return tokens_of(share);
  const Order& order = entries_[claim.origin].rows;
  if (order == token_order_) return tokens_of(share);
  const bool is_as_made = contents_[claim.origin] == content_when_made_[claim.origin];
  return is_as_made ? order : unknown(claim.origin);
}

FrameCheck::Order FrameCheck::numbered_by(const Operand& operand) {
  const Claim& claim = claims_[operand.taken->value.as_node()];
  if (claim.kind != ClaimKind::kPart) return {};
  const Order& order = entries_[claim.origin].numbered;
  const bool is_as_made = contents_[claim.origin] == content_when_made_[claim.origin];
  return is_as_made || order == Order() ? order : unknown(claim.origin);
}

NodeId FrameCheck::value_in_a(const Operand& operand) const {
  return claims_[operand.taken->value.as_node()].origin;
}

FrameCheck::Entry FrameCheck::visit(NodeId origin) {
  if (makes_rows_alike(node_->op->family)) return {{Order::Kind::kAny, {}}, {Order::Kind::kAny, {}}};
  if (node_->op->family == OpFamily::kIota) return counted(origin);
  if (node_->op->family == OpFamily::kElement) return element(origin);
  const auto operands = facts_->operands();
  if (operands.empty() && arg_of(context_, *node_, 0).is_node())  // arguments that do not fit: refused
    return {unknown(origin), unknown(origin)};
  Entry entry;
  // Numbers that are moved, picked or divided number what they did; the order that a sort gives,
  // what it sorts.
  const bool makes_numbers = claims_.tensor_a(origin) == nullptr || (*facts_)[origin] == PartFact::kNumbers;
  if (!operands.empty() && operands.front().is_tensor && makes_numbers)
    entry.numbered = numbered_by(operands.front());
  entry.rows = rows_of_result(origin, entry);
  return entry;
}

// 0, 1, ..; other progressions are places among rows, of which nothing is known.
FrameCheck::Entry FrameCheck::counted(NodeId origin) const {
  const bool are_numbers = (*facts_)[origin] == PartFact::kNumbers;
  return are_numbers ? Entry{{Order::Kind::kCounted, {}}, {Order::Kind::kCounted, {}}}
                     : Entry{{Order::Kind::kAny, {}}, {}};
}

FrameCheck::Order FrameCheck::rows_of_result(NodeId origin, Entry& entry) {
  const auto operands = facts_->operands();
  const auto positions = std::ranges::find_if(operands, [&](const Operand& operand) {
    return operand.is_rows() && facts_->picked_dimension(operand).has_value();
  });
  const OpFamily family = node_->op->family;
  switch (row_order(family)) {
    case RowOrder::kSorted:
      if (!facts_->sorts_rows()) break;
      if (node_->op->returns.size() == 1) entry.numbered = order_of(operands.front());
      return sorted(origin);
    case RowOrder::kOwn:
      entry.numbered = common();
      if (entry.numbered.kind != Order::Kind::kNoRows) return made_by(origin, entry.numbered);
      return family == OpFamily::kRepeatRows && operands.front().fact == PartFact::kShare
                 ? in_runs(operands.front())
                 : unknown(origin);
    case RowOrder::kExchanged:
      return exchanged(origin);
    case RowOrder::kGathered:
      return gathered(origin);
    case RowOrder::kScattered:
      return scattered(origin);
    case RowOrder::kReduced:
      return reduced();
    case RowOrder::kJoined:
      return joined(origin);
    case RowOrder::kRegrouped:
      if (family != OpFamily::kReshape) break;
      return reshaped(origin, part_);
    case RowOrder::kExpanded:
      if (operands.empty() || !operands.front().is_rows()) return {Order::Kind::kAny, {}};
      break;
    case RowOrder::kByPositions:
      if (positions == operands.end()) break;
      // 0, 1, .. picked by numbers are these.
      if (order_of(operands.front()).is_counted()) entry.numbered = numbered_by(*positions);
      return picked(*positions);
    case RowOrder::kOfFirst:
      if (positions == operands.end()) break;
      if (inverse_order(context_, facts_a_, a_, origin)) entry.numbered = order_of(*positions);
      return put(origin, *positions);
    case RowOrder::kPaired:
      if (family == OpFamily::kGroupedMatmul) check_groups(origin);
      if (traits_of(family).exchange != ExchangeKind::kNone) return reduced();
      break;
    case RowOrder::kHandedOn:
    case RowOrder::kCounted:
    case RowOrder::kRepeated:
    case RowOrder::kSplit:
    case RowOrder::kAlike:
    case RowOrder::kUnknown:
      break;
  }
  const Order rows = common();
  if (number_rule(*node_->op) == NumberRule::kRemainder) {
    require_tokens_numbered();
    // What the remainder of its number says of a row is data of the tokens.
    if (rows.is_counted()) return token_order_;
  }
  if (rows.kind == Order::Kind::kNoRows || rows.kind == Order::Kind::kAny || is_tokens(rows)) return rows;
  const auto as_many = [&](const Operand& operand) {
    return !operand.is_rows() || has_as_many_rows(operand, origin);
  };
  return std::ranges::all_of(operands, as_many) ? rows : unknown(origin, rows.frame);
}

// Of the number of a row that lies elsewhere in a part than in the whole, the remainder is no data.
void FrameCheck::require_tokens_numbered() {
  const auto operands = facts_->operands();
  if (operands.empty() || operands.front().fact != PartFact::kNumbers) return;
  const Order numbered = numbered_by(operands.front());
  if (holds(Condition::kRemainderNumbersTokens, numbered.is_counted() || is_tokens(numbered))) return;
  claims_.fail(
      part_, "rewrite-rows",
      fmt::format("takes the remainder of {}, which numbers rows that a part has in an order of its own",
                  name_of(operands.front())));
}

// In one dimension, or of a result without rows.
bool FrameCheck::has_as_many_rows(const Operand& source, NodeId origin) const {
  if (claims_.tensor_a(origin) == nullptr) return true;
  const ExprId before = divided_extent(value_in_a(source), source.is_divided),
               after = divided_extent(origin, facts_->divided_dimensions(origin, part_));
  return !after || (before && facts_a_.equal(before, after));
}

// Of a tuple; the order that a sort gives numbers what was sorted.
FrameCheck::Entry FrameCheck::element(NodeId origin) {
  const auto found = tuple_element(context_, a_, *node_);
  const auto operands = facts_->operands();
  if (!found || operands.empty() || !operands.front().taken->value.is_node()) return {};
  const Claim& claim = claims_[operands.front().taken->value.as_node()];
  if (claim.kind != ClaimKind::kPart) return {};
  Entry entry = entries_[claim.origin];
  const Node& tuple = a_.nodes[claim.origin];
  const OpFamily family = tuple.op != nullptr ? tuple.op->family : OpFamily::kOpaque;
  const Arg first = arg_of(context_, tuple, 0);
  const NodeId from = first.is_node() ? first.as_node() : NodeId();
  const bool is_in_parts = from && !claims_.parts(from).empty();
  if (family == OpFamily::kSort && found->index == 1 && (*facts_)[origin] == PartFact::kNumbers)
    entry.numbered = sorted_order(operands.front().taken->value.as_node(), is_in_parts ? from : NodeId());
  // Of several tensors that were sent together, each has an order of its own.
  const bool is_sent = tuple.op != nullptr && tuple.op->cost == CostClass::kCollective;
  if (is_sent && entry.rows.is_known()) entry.rows = unknown(origin, entry.rows.frame);
  if (family == OpFamily::kSplit) entry.rows = in_blocks(origin, entry.rows);
  if (family == OpFamily::kSplit && (entry.rows.is_known() || entry.rows.is_counted()) &&
      entry.rows != token_order_) {
    // Some of the rows, where it is their dimension that is split.
    const std::vector<bool> is_divided = facts_->divided_dimensions(origin, part_);
    const ExprId before = is_in_parts ? divided_extent(from, is_divided) : ExprId(),
                 after = divided_extent(origin, is_divided);
    if (after && (!before || !facts_a_.equal(before, after))) entry.rows = unknown(origin, entry.rows.frame);
  }
  return entry;
}

// Of what a sort of B takes. `made`: of A, where that is made in parts; what was cut for them is in
// the order of the tokens.
FrameCheck::Order FrameCheck::sorted_order(NodeId sort, NodeId made) {
  const Order order = made ? entries_[made].rows : token_order_;
  const Arg keys = arg_of(context_, claims_.graph_b().step().nodes[sort], 0);
  return order == token_order_ && keys.is_node() ? tokens_of(keys.as_node()) : order;
}

// The one order of all operands with rows. Where one of them is taken to be in that of the others,
// theirs.
FrameCheck::Order FrameCheck::common() {
  Order result;
  const Operand* first = nullptr;
  for (const Operand& operand : facts_->operands()) {
    if (!operand.is_tensor) continue;
    const Order order = order_of(operand);
    const bool says_more = order.is_counted() ? !result.is_known() : result.kind == Order::Kind::kNoRows;
    if (!order.is_known() && says_more) result = order;
    if (!order.is_known()) continue;
    if (first != nullptr) pair(*first, result, operand, order);
    if (first == nullptr || is_unknown(result)) {
      first = &operand;
      result = order;
    }
  }
  return result;
}

// Of values of A that are equal, and whose parts in B are, the first. B can cut one value in two
// ways: then the parts of equal values differ.
NodeId FrameCheck::first_equal(NodeId value) {
  if (claims_.parts(value).empty() || holds(Condition::kEqualPartsAreOne, false)) return numbers_[value];
  std::vector<NodeId> equal = {numbers_[value]};
  for (std::uint32_t k = 0; k < claims_.part_count(value); ++k) {
    const NodeId part = claims_.part_of(value, k);
    equal.push_back(part ? of_b().parts.numbers()[part] : NodeId());
  }
  return first_equal_.try_emplace(std::move(equal), value).first->second;
}

std::uint64_t FrameCheck::word_of_value(NodeId value) {
  return FrameTerms::kNodeWord | first_equal(value).index();
}

// As many rows of each kind as a part's own counts say.
FrameCheck::Order FrameCheck::in_runs(const Operand& counts) {
  const NodeId value = value_in_a(counts);
  return known(terms_.intern({FrameTerms::kRuns, {}, {word_of_value(value), contents_[value]}}));
}

FrameCheck::Order FrameCheck::made_by(NodeId call, const Order& rows) {
  const std::uint64_t word = word_of_value(call);
  if (rows.is_known() && !is_tokens(rows))
    return known(terms_.intern({FrameTerms::kPick, rows.frame, {word}}));
  // Of tokens in other blocks, another order.
  const std::uint64_t blocks = rows.is_known() ? terms_[rows.frame].values[0] : 0;
  return known(terms_.intern({FrameTerms::kSort, {}, {word, blocks}}));
}

// Sorting the order that a sort gave, upwards, gives what was sorted back.
FrameCheck::Order FrameCheck::sorted(NodeId call) {
  const Operand& keys = facts_->operands().front();
  const Order numbered = numbered_by(keys);
  if (sort_of(value_in_a(keys)) && sorts_upwards(context_, *node_) && keys.fact == PartFact::kNumbers &&
      numbered.kind != Order::Kind::kNoRows)
    return numbered;
  return made_by(call, order_of(keys));
}

// The sort whose order a value is.
NodeId FrameCheck::sort_of(NodeId order) const {
  return order && !is_written(order) ? sort_of_order(context_, a_, order) : NodeId();
}

// An order by its sort, else a value.
std::uint64_t FrameCheck::word_of(NodeId positions) {
  const NodeId sort = sort_of(positions);
  return word_of_value(sort ? sort : positions);
}

// Whether each row of a value is named once along a dimension.
bool FrameCheck::is_permutation(NodeId positions, NodeId of, std::size_t dim) const {
  const bool names_each_once =
      sort_of(positions) || (!is_written(positions) && permutations_.contains(numbers_[positions]));
  return names_each_once && numbers_each_row(positions, of, dim);
}

// Whether there are as many numbers as rows.
bool FrameCheck::numbers_each_row(NodeId positions, NodeId of, std::size_t dim) const {
  const TensorType *numbers = claims_.tensor_a(positions), *rows = claims_.tensor_a(of);
  return numbers != nullptr && rows != nullptr && numbers->rank() == 1 && dim < rows->rank() &&
         facts_a_.equal(numbers->sizes[0], rows->sizes[dim]);
}

bool FrameCheck::is_mask(const Operand& positions) const {
  const TensorType* type = claims_.tensor_a(value_in_a(positions));
  return type != nullptr && type->dtype == DType::kBool;
}

bool FrameCheck::is_along(const Operand& operand, std::int64_t dim) {
  const auto rank = static_cast<std::int64_t>(operand.is_divided.size());
  const std::int64_t at = dim < 0 ? dim + rank : dim;
  return operand.is_tensor && at >= 0 && at < rank && operand.is_divided[static_cast<std::size_t>(at)];
}

// Positions along several dimensions are of one row each.
void FrameCheck::pair_positions(const Operand& positions, const Order& order) {
  for (const Operand& other : facts_->operands())
    if (&other != &positions && other.is_rows() && facts_->picked_dimension(other))
      pair(positions, order, other, order_of(other));
}

// That of numbers which pick or place rows in an order. 0, 1, .. that were moved are a permutation
// of each part's own rows.
FrameCheck::Order FrameCheck::order_among(const Order& rows, const Operand& positions) {
  const Order order = order_of(positions);
  if (!rows.is_known()) return order;
  if (order.is_counted()) return rows;
  const bool are_moved = numbered_by(positions).is_counted() && order.is_known() && !is_unknown(order);
  return are_moved && !is_tokens(rows)
             ? known(terms_.intern({FrameTerms::kPick, rows.frame, {word_of(value_in_a(positions))}}))
             : order;
}

FrameCheck::Order FrameCheck::picked(const Operand& positions) {
  const Operand& source = facts_->operands().front();
  const bool is_along_rows =
      is_along(source, static_cast<std::int64_t>(*facts_->picked_dimension(positions)));
  const Order rows = order_of(source), target = numbered_by(positions);
  const Order index = is_along_rows ? order_among(rows, positions) : order_of(positions);
  pair_positions(positions, index);
  if (!is_along_rows) return source.is_rows() ? common() : index;
  const NodeId value = value_in_a(positions);
  if (is_mask(positions)) {
    pair(source, rows, positions, index);
    return known(
        terms_.intern({FrameTerms::kPick, (rows.is_known() ? rows : index).frame, {word_of(value)}}));
  }
  if (!rows.is_known()) return index.is_counted() ? rows : index;
  if (target.kind != Order::Kind::kNoRows) {
    if (target.is_known() && !holds(Condition::kNumbersOfTheirRows, false))
      pair(source, rows, positions, target);
    return index;
  }
  const FrameTerms::Term& term = terms_[rows.frame];
  if (term.kind == FrameTerms::kPlace && are_undone(term.values, std::array{word_of(value)}))
    return known(term.base);
  const FrameTerms::Kind kind =
      is_permutation(value, value_in_a(source), *facts_->picked_dimension(positions)) ? FrameTerms::kPick
                                                                                      : FrameTerms::kUnknown;
  return known(terms_.intern({kind, rows.frame, {word_of(value)}}));
}

FrameCheck::Order FrameCheck::put(NodeId origin, const Operand& positions) {
  const auto operands = facts_->operands();
  const Operand& into = operands.front();
  const bool is_along_rows = is_along(into, static_cast<std::int64_t>(*facts_->picked_dimension(positions)));
  if (!is_along_rows) pair_positions(positions, order_of(positions));
  if (!is_along_rows && into.is_rows()) return common();
  const Order rows = order_of(into), target = numbered_by(positions);
  // 0, 1, .. along a destination that says nothing puts rows as they are.
  const Order numbers = is_along_rows ? order_among(rows, positions) : order_of(positions);
  Order values;
  const Operand* written = nullptr;
  for (const Operand& operand : operands)
    if (&operand != &into && &operand != &positions && operand.is_rows() &&
        !facts_->picked_dimension(operand)) {
      written = &operand;
      values = order_of(operand);
    }
  if (is_mask(positions) && is_along_rows) pair(into, rows, positions, numbers);
  if (is_along_rows) pair_positions(positions, numbers);
  const bool are_numbers = target.kind != Order::Kind::kNoRows;
  // What says of each row where it goes is in its order, or was picked with it.
  const bool are_both_tokens = is_tokens(numbers) && is_tokens(values);
  if (written != nullptr && (are_numbers || !is_along_rows || are_both_tokens))
    pair(positions, numbers, *written, values);
  if (!is_along_rows) return {};
  if (are_numbers) {
    if (rows.is_known() && target.is_known()) pair(into, rows, positions, target);
    return rows.is_known() ? rows : target.is_known() ? target : values;
  }
  if (!values.is_known()) return is_mask(positions) ? rows : unknown(origin);
  const NodeId value = value_in_a(positions);
  const FrameTerms::Term& term = terms_[values.frame];
  if (term.kind == FrameTerms::kPick && (rows.kind == Order::Kind::kAny || rows == known(term.base)) &&
      are_undone(term.values, std::array{word_of(value)}))
    return known(term.base);
  return is_uninitialised(a_.nodes[value_in_a(into)]) &&
                 is_permutation(value, value_in_a(into), *facts_->picked_dimension(positions))
             ? known(terms_.intern({FrameTerms::kPlace, values.frame, {word_of(value)}}))
             : unknown(origin);
}

// Along the first dimension. Rows that come from all ranks, and back by the same tables, are those
// that went. Blocks that change places as a whole stay blocks (verify_orders.h).
FrameCheck::Order FrameCheck::exchanged(NodeId origin) {
  const Operand& source = facts_->operands().front();
  const Order rows = order_of(source);
  if (!rows.is_known() || !is_along(source, 0)) return reduced();
  if (is_tokens(rows) && orders_.known_blocks(part_) > 0) return rows;
  bool are_counted = true;
  const auto words = [&](std::span<const Arg> items) {
    std::vector<std::uint64_t> result;
    for (Arg item : items)
      result.push_back(item.is_node() ? word_of_value(item.as_node()) : terms_.word(item));
    are_counted &= std::ranges::any_of(items, [&](Arg item) { return is_read_from_data(item); });
    return result;
  };
  const std::uint64_t group = group_of_call();
  const std::vector<std::uint64_t> out = words(named_items(context_, *node_, "output_split_sizes")),
                                   in = words(named_items(context_, *node_, "input_split_sizes"));
  const auto joined = [&](const std::vector<std::uint64_t>& first, const std::vector<std::uint64_t>& second) {
    std::vector<std::uint64_t> all = {group};
    all.insert(all.end(), first.begin(), first.end());
    all.insert(all.end(), second.begin(), second.end());
    return all;
  };
  const FrameTerms::Term& term = terms_[rows.frame];
  const FrameTerms::Kind kind = are_counted ? FrameTerms::kExchange : FrameTerms::kDeal;
  if (term.kind == kind && are_undone(term.values, joined(in, out))) return known(term.base);
  if (are_counted && !in.empty()) check_counts(origin, rows);
  const FrameId made = terms_.intern({kind, rows.frame, joined(out, in)});
  if (NodeId& first = exchanges_.at(made); !first) first = origin;
  return known(made);
}

// A part sends its rows to the ranks that the whole sends them to.
void FrameCheck::check_counts(NodeId origin, const Order& rows) {
  const NodeId sort = sort_behind(rows);
  const CountCheck::Finding finding = sort ? counts_.check(origin, sort) : CountCheck::Finding();
  if (finding.verdict == CountCheck::Verdict::kOthers) return fail_counts(finding, "its split sizes count");
  if (finding.verdict == CountCheck::Verdict::kCounted && are_parts_counted(origin, sort)) return;
  assumptions_.push_back(fmt::format("{} is right in parts, though {}", context_.text(a_.nodes[origin].name),
                                     kSplitSizesMayNotCount));
}

// A product multiplies each group of a part's rows by what it multiplies those of the whole by.
void FrameCheck::check_groups(NodeId origin) {
  const auto operands = facts_->operands();
  const auto ends = std::ranges::find_if(operands, [&](const Operand& operand) {
    return operand.is_tensor && node_->op->params[operand.taken->param].name == "offs";
  });
  const auto cut = std::ranges::find_if(operands, [](const Operand& operand) { return operand.is_rows(); });
  if (ends == operands.end() || cut == operands.end()) return;
  const Order rows = order_of(*cut);
  const NodeId sort = sort_behind(rows), counted = value_in_a(*ends);
  const auto placed = sort ? std::nullopt : placed_rows(rows);
  CountCheck::Finding finding;
  if (sort) finding = counts_.check_ends(counted, sort);
  if (placed)
    finding = counts_.check_ends_of_places(counted, placed->places, placed->of.exchange, placed->of.sort);
  if (finding.verdict == CountCheck::Verdict::kOthers) return fail_counts(finding, "its groups count");
  const bool is_counted = finding.verdict == CountCheck::Verdict::kCounted;
  if (is_counted && (sort ? are_parts_counted(origin, sort) : are_parts_placed(origin, *placed))) return;
  if (assumes_groups_) return;
  assumes_groups_ = true;
  assumptions_.emplace_back(kGroupSizesCountRows);
}

// The call whose order the rows are in, if they were sorted, by whatever order they were in before.
NodeId FrameCheck::sort_behind(const Order& rows) const {
  if (!rows.is_known()) return {};
  const FrameTerms::Term& term = terms_[rows.frame];
  if (term.kind != FrameTerms::kSort && term.kind != FrameTerms::kPick) return {};
  const NodeId call = FrameTerms::node_of(term.values[0]);
  return has_family(a_.nodes[call], OpFamily::kSort) ? call : NodeId();
}

FrameCheck::OfB& FrameCheck::of_b() {
  if (!of_b_) of_b_.emplace(claims_, numbers_, effects_b_, orders_);
  return *of_b_;
}

// What B counts and sorts is one value in A: others are parts that B cuts in two ways.
CountCheck::Verdict FrameCheck::verdict_of(const CountCheck::Finding& finding) {
  using Verdict = CountCheck::Verdict;
  if (finding.verdict != Verdict::kUnknown || !finding.counted) return finding.verdict;
  const NodeId counted = claims_[finding.counted].origin, sorted_by = claims_[finding.sorted_by].origin;
  if (!counted || !sorted_by || numbers_[counted] != numbers_[sorted_by]) return Verdict::kUnknown;
  if (holds(Condition::kEqualPartsAreOne, false)) return Verdict::kCounted;
  const bool are_others =
      of_b().parts.compare(finding.counted, finding.sorted_by) == EqualParts::Verdict::kOther;
  return are_others ? Verdict::kOthers : Verdict::kUnknown;
}

// One value of the whole can be cut in two ways, of which a part counts one and sorts the other.
// False: that is not known. Parts that are known to do so are reported.
bool FrameCheck::are_parts_counted(NodeId call, NodeId sort) {
  const Graph& b = claims_.graph_b();
  const CountCheck& counts = of_b().counts;
  for (const NodeId part : claims_.parts(call)) {
    const NodeId own_sort = claims_.part_of(sort, claims_[part].part);
    if (!own_sort) return false;
    const Node& node = b.step().nodes[part];
    const Arg ends = named_arg(context_, node, "offs");
    const CountCheck::Finding finding =
        node.op->family == OpFamily::kAllToAll ? counts.compare_ids(part, own_sort)
        : ends.is_node()                       ? counts.compare_ids_of_ends(ends.as_node(), own_sort)
                                               : CountCheck::Finding();
    if (verdict_in(part, finding) == CountCheck::Verdict::kUnknown) return false;
  }
  return true;
}

// Reports a part that counts other rows.
CountCheck::Verdict FrameCheck::verdict_in(NodeId part, const CountCheck::Finding& finding) {
  const CountCheck::Verdict verdict = verdict_of(finding);
  if (verdict == CountCheck::Verdict::kOthers)
    claims_.fail(part, "rewrite-rows",
                 fmt::format("it counts the rows of {}, and its rows are sorted by {}",
                             claims_.name_b(finding.counted), claims_.name_b(finding.sorted_by)));
  return verdict;
}

std::optional<FrameCheck::SortedRows> FrameCheck::sorted_rows(FrameId frame) const {
  const FrameTerms::Term& term = terms_[frame];
  const bool is_sent = term.kind == FrameTerms::kExchange;
  const NodeId sort = sort_behind(known(is_sent ? term.base : frame));
  if (!sort || claims_.parts(sort).empty()) return {};
  return SortedRows{is_sent ? exchanges_[frame] : NodeId(), sort};
}

std::optional<FrameCheck::SortedRows> FrameCheck::of_part(const SortedRows& rows, std::uint32_t part) const {
  const SortedRows own{rows.exchange ? claims_.part_of(rows.exchange, part) : NodeId(),
                       claims_.part_of(rows.sort, part)};
  return own.sort && own.exchange.valid() == rows.exchange.valid() ? std::optional(own) : std::nullopt;
}

std::optional<FrameCheck::PlacedRows> FrameCheck::placed_rows(const Order& rows) const {
  if (!rows.is_known() || terms_[rows.frame].kind != FrameTerms::kPick) return {};
  const FrameTerms::Term& pick = terms_[rows.frame];
  const NodeId places = FrameTerms::node_of(pick.values[0]);
  const auto of = pick.base ? sorted_rows(pick.base) : std::nullopt;
  if (!of || claims_.parts(places).empty()) return {};
  return PlacedRows{places, *of};
}

// The places of a part are made of its own counts.
bool FrameCheck::are_parts_placed(NodeId call, const PlacedRows& rows) {
  const CountCheck& counts = of_b().counts;
  for (const NodeId part : claims_.parts(call)) {
    const std::uint32_t k = claims_[part].part;
    const NodeId places = claims_.part_of(rows.places, k);
    const auto own = of_part(rows.of, k);
    const Arg ends = named_arg(context_, claims_.graph_b().step().nodes[part], "offs");
    if (!places || !own || !ends.is_node()) return false;
    const CountCheck::Finding finding =
        counts.check_ends_of_places(ends.as_node(), places, own->exchange, own->sort);
    if (verdict_in(part, finding) == CountCheck::Verdict::kUnknown) return false;
  }
  return true;
}

void FrameCheck::fail_counts(const CountCheck::Finding& finding, std::string_view what) {
  if (finding.counted == finding.sorted_by)
    return claims_.fail(part_, "rewrite-rows",
                        fmt::format("{} {} from the first number on, and its rows are sorted downwards by it",
                                    what, claims_.name_a(finding.counted)));
  claims_.fail(part_, "rewrite-rows",
               fmt::format("{} {}, and its rows are sorted by {}", what, claims_.name_a(finding.counted),
                           claims_.name_a(finding.sorted_by)));
}

// Whether data say what the number is, and not how many rows there are.
bool FrameCheck::is_read_from_data(Arg number) const {
  const TypeId type = number.is_node() ? a_.nodes[number.as_node()].type : TypeId();
  const bool is_scalar = type && context_.types[type].kind == TypeKind::kScalar;
  if (!is_scalar && !number.is(ArgKind::kSymbolic)) return false;
  const ExprId expr = is_scalar ? context_.types[type].expr : number.as_expr();
  return expr && std::ranges::any_of(facts_a_.pool().symbols(expr),
                                     [&](StringId symbol) { return read_.contains(symbol); });
}

}  // namespace epweave
