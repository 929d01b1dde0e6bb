#include "compare/rewrite/verify_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compare/rewrite/conditions.h"
#include "ir/types/dimension.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/named_arg.h"
#include "ops/number_ops.h"
#include "ops/op.h"
#include "ops/sliced_run.h"
#include "ops/sorting.h"
#include "ops/traffic.h"

namespace epweave {
FrameCheck::FrameCheck(RewriteClaims& claims, const BothEffects& effects, RowBlocks& blocks)
    : claims_(claims),
      blocks_(blocks),
      context_(*claims.graph_a().context),
      a_(claims.graph_a().step()),
      facts_a_(claims.facts_a()),
      numbers_(claims.graph_a(), effects.of_a, claims.original()),
      terms_(claims.graph_a(), numbers_),
      counts_(claims, effects, blocks, numbers_, terms_),
      names_(claims, effects.of_a, numbers_, counts_),
      orders_(claims, effects.of_a, numbers_, blocks, terms_, names_),
      meetings_(numbers_, terms_, counts_),
      assumed_(claims, terms_) {
  for (const auto [id, node] : walk(a_))
    if (node.kind == NodeKind::kCall && node.extra != nullptr)
      for (const Binding& binding : node.extra->bindings) read_.insert(binding.symbol);
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
  const Order before = written != nullptr ? orders_.of(*written) : Order();
  meetings_.begin();
  for (NodeId each : claims_.parts(origin)) blocks_.check_remainders(each);
  Entry entry = node_->op != nullptr ? visit(origin) : Entry();
  entry = {meetings_.settled(entry.rows), meetings_.settled(entry.numbered)};
  if (is_rows && entry.rows.kind == Order::Kind::kNoRows) entry.rows = orders_.unknown(origin);
  if (is_tensor && !is_rows) entry = {};
  if (entry.rows.kind != Order::Kind::kNoRows) {
    orders_.set(origin, entry);
    for (NodeId each : claims_.parts(origin)) blocks_.note_extents(each);
    if (is_rows) orders_.add_view(origin, is_divided);
  }
  if (written != nullptr && is_rows) orders_.note_write(origin, entry, *written, before);
  assume_alike_on_ranks();
  // In whatever order rows are, they are as many.
  if (facts[origin] != PartFact::kShare || has_family(*node_, OpFamily::kSize)) return;
  for (const Operand& operand : facts.operands())
    if (const Order rows = orders_.of(operand); rows.is_known() && terms_.may_lack_rows(rows.frame))
      assumed_.all_rows({value_in_a(operand), rows.frame}, part_);
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

NodeId FrameCheck::value_in_a(const Operand& operand) const {
  return claims_[operand.taken->value.as_node()].origin;
}

FrameCheck::Entry FrameCheck::visit(NodeId origin) {
  if (makes_rows_alike(node_->op->family)) return {{Order::Kind::kAny, {}}, {Order::Kind::kAny, {}}};
  if (node_->op->family == OpFamily::kIota) return counted(origin);
  if (node_->op->family == OpFamily::kElement) return element(origin);
  const auto operands = facts_->operands();
  if (operands.empty() && arg_of(context_, *node_, 0).is_node())  // arguments that do not fit: refused
    return {orders_.unknown(origin), orders_.unknown(origin)};
  Entry entry;
  // Numbers that are moved, picked or divided number what they did; the order that a sort gives,
  // what it sorts.
  const bool makes_numbers = claims_.tensor_a(origin) == nullptr || (*facts_)[origin] == PartFact::kNumbers;
  if (!operands.empty() && operands.front().is_tensor && makes_numbers)
    entry.numbered = orders_.numbered_by(operands.front());
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
      if (node_->op->returns.size() == 1) entry.numbered = numbering(orders_.of(operands.front()));
      return sorted(origin);
    case RowOrder::kOwn:
      entry.numbered = numbering(common());
      if (entry.numbered.kind != Order::Kind::kNoRows) return made_by(origin, entry.numbered);
      return family == OpFamily::kRepeatRows && operands.front().fact == PartFact::kShare
                 ? orders_.runs_of(value_in_a(operands.front()))
                 : orders_.own(origin);
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
      return reshaped(origin, part_);
    case RowOrder::kRepeated:
      return repeated(origin);
    case RowOrder::kSplit:
      return split(origin);
    case RowOrder::kExpanded:
      if (operands.empty() || !operands.front().is_rows()) return {Order::Kind::kAny, {}};
      break;
    case RowOrder::kByPositions:
      if (positions == operands.end()) break;
      // 0, 1, .. picked by numbers are these.
      if (orders_.of(operands.front()).is_counted()) entry.numbered = orders_.numbered_by(*positions);
      return picked(*positions);
    case RowOrder::kOfFirst:
      if (positions == operands.end()) break;
      if (inverse_order(context_, facts_a_, a_, origin)) entry.numbered = orders_.of(*positions);
      return put(origin, *positions);
    case RowOrder::kPaired:
      if (family == OpFamily::kGroupedMatmul) check_groups(origin);
      if (traits_of(family).exchange != ExchangeKind::kNone) return reduced();
      break;
    case RowOrder::kHandedOn:
      if (takes_run_of_rows()) return sliced(origin);
      break;
    case RowOrder::kCounted:
    case RowOrder::kAlike:
      break;
    case RowOrder::kUnknown:
      if (claims_.tensor_a(origin) != nullptr) return orders_.unknown(origin, common().frame);
      break;
  }
  const Order rows = common();
  if (number_rule(*node_->op) == NumberRule::kRemainder) {
    require_tokens_numbered();
    // What the remainder of its number says of a row is data of the tokens.
    if (rows.is_counted()) return orders_.tokens_in(0);
  }
  if (rows.kind == Order::Kind::kNoRows || rows.kind == Order::Kind::kAny) return rows;
  if (orders_.is_tokens(rows)) return rows;
  const auto as_many = [&](const Operand& operand) {
    return !operand.is_rows() || has_as_many_rows(operand, origin);
  };
  return std::ranges::all_of(operands, as_many) ? rows : orders_.unknown(origin, rows.frame);
}

// Of the number of a row that lies elsewhere in a part than in the whole, the remainder is no data.
void FrameCheck::require_tokens_numbered() {
  const auto operands = facts_->operands();
  if (operands.empty() || operands.front().fact != PartFact::kNumbers) return;
  const Order numbered = orders_.numbered_by(operands.front());
  if (holds(Condition::kRemainderNumbersTokens, numbered.is_counted() || orders_.is_tokens(numbered))) return;
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
  Entry entry = orders_[claim.origin];
  const Node& tuple = a_.nodes[claim.origin];
  const OpFamily family = tuple.op != nullptr ? tuple.op->family : OpFamily::kOpaque;
  const Arg first = arg_of(context_, tuple, 0);
  const NodeId from = first.is_node() ? first.as_node() : NodeId();
  const bool is_in_parts = from && !claims_.parts(from).empty();
  if (family == OpFamily::kSort && found->index == 1 && (*facts_)[origin] == PartFact::kNumbers)
    entry.numbered = sorted_order(operands.front().taken->value.as_node());
  // Of several tensors that were sent together, each has an order of its own.
  const bool is_sent = tuple.op != nullptr && tuple.op->cost == CostClass::kCollective;
  if (is_sent && entry.rows.is_known()) entry.rows = orders_.unknown(origin, entry.rows.frame);
  if (family == OpFamily::kSplit && entry.rows.is_known() && !orders_.is_tokens(entry.rows)) {
    // Some of the rows, where it is their dimension that is split.
    const std::vector<bool> is_divided = facts_->divided_dimensions(origin, part_);
    const ExprId before = is_in_parts ? divided_extent(from, is_divided) : ExprId(),
                 after = divided_extent(origin, is_divided);
    if (after && (!before || !facts_a_.equal(before, after)))
      entry.rows = orders_.unknown(origin, entry.rows.frame);
  }
  return entry;
}

// Of what says which rows these are: rows that are like each other, or counted, or remainders of
// such, are numbered as they lie, as if cut plainly.
FrameCheck::Order FrameCheck::numbering(const Order& rows) {
  const bool lie_plainly =
      rows.kind == Order::Kind::kAny || rows.is_counted() || rows == orders_.tokens_in(0);
  return lie_plainly ? orders_.plain_tokens() : rows;
}

// Of what a sort of B takes.
FrameCheck::Order FrameCheck::sorted_order(NodeId sort) {
  const Arg keys = arg_of(context_, claims_.graph_b().step().nodes[sort], 0);
  return keys.is_node() ? numbering(orders_.of_share(keys.as_node())) : orders_.plain_tokens();
}

// The one order of all operands with rows. Where one of them is taken to be in that of the others,
// theirs.
FrameCheck::Order FrameCheck::common() {
  Order result;
  const Operand* first = nullptr;
  for (const Operand& operand : facts_->operands()) {
    if (!operand.is_tensor) continue;
    const Order order = orders_.of(operand);
    const bool says_more = order.is_counted() ? !result.is_known() : result.kind == Order::Kind::kNoRows;
    if (!order.is_known() && says_more) result = order;
    if (!order.is_known()) continue;
    if (first != nullptr) pair(*first, result, operand, order);
    if (first == nullptr || orders_.is_unknown(result) || result == orders_.tokens_in(0)) {
      first = &operand;
      result = order;
    }
  }
  return result;
}

FrameCheck::Order FrameCheck::made_by(NodeId call, const Order& rows) {
  const std::uint64_t word = names_.of_value(call);
  if (rows.is_known() && !orders_.is_tokens(rows))
    return Order::known(terms_.intern({FrameTerms::kPick, rows.frame, {word}}));
  // Of tokens in other blocks, another order.
  const std::uint64_t blocks = rows.is_known() ? terms_[rows.frame].values[0] : 0;
  return Order::known(terms_.intern({FrameTerms::kSort, {}, {word, blocks}}));
}

// Of 0, 1, .. that lie in blocks: then one token's rows lie behind the other's, in the order of the
// blocks.
bool FrameCheck::brings_tokens_together(const Operand& keys, const Order& rows, const Order& numbered) const {
  return keys.fact == PartFact::kNumbers && numbered.is_counted() && orders_.is_tokens(rows) &&
         sorts_upwards(context_, *node_) && keeps_equal_in_order(context_, *node_);
}

// Sorting the order that a sort gave, upwards, gives what was sorted back.
FrameCheck::Order FrameCheck::sorted(NodeId call) {
  const Operand& keys = facts_->operands().front();
  const Order numbered = orders_.numbered_by(keys);
  if (names_.sort_of(value_in_a(keys)) && sorts_upwards(context_, *node_) &&
      keys.fact == PartFact::kNumbers && numbered.kind != Order::Kind::kNoRows)
    return numbered;
  const Order rows = orders_.of(keys);
  return brings_tokens_together(keys, rows, numbered) ? orders_.plain_tokens() : made_by(call, rows);
}

bool FrameCheck::is_mask(const Operand& positions) const {
  const TensorType* type = claims_.tensor_a(value_in_a(positions));
  return type != nullptr && type->dtype == DType::kBool;
}

bool FrameCheck::is_along(const Operand& operand, std::int64_t dim) {
  const auto at = find_dimension(dim, operand.is_divided.size());
  return operand.is_tensor && at && operand.is_divided[*at];
}

// Positions along several dimensions are of one row each.
void FrameCheck::pair_positions(const Operand& positions, const Order& order) {
  for (const Operand& other : facts_->operands())
    if (&other != &positions && other.is_rows() && facts_->picked_dimension(other))
      pair(positions, order, other, orders_.of(other));
}

// That of numbers which pick or place rows in an order. 0, 1, .. that were moved are a permutation
// of each part's own rows.
FrameCheck::Order FrameCheck::order_among(const Order& rows, const Operand& positions) {
  const Order order = orders_.of(positions);
  if (!rows.is_known()) return order;
  if (order.is_counted()) return rows;
  const bool are_moved =
      orders_.numbered_by(positions).is_counted() && order.is_known() && !orders_.is_unknown(order);
  return are_moved && !orders_.is_tokens(rows)
             ? Order::known(terms_.intern(
                   {FrameTerms::kPick, rows.frame, {names_.of_positions(value_in_a(positions))}}))
             : order;
}

// What is no longer 0, 1, .. numbers rows of tokens that lie one behind another.
FrameCheck::Order FrameCheck::as_numbered(const Operand& positions, const Order& target) {
  return target.is_counted() && orders_.is_tokens(orders_.of(positions)) ? orders_.plain_tokens() : target;
}

FrameCheck::Order FrameCheck::picked(const Operand& positions) {
  const Operand& source = facts_->operands().front();
  const bool is_along_rows =
      is_along(source, static_cast<std::int64_t>(*facts_->picked_dimension(positions)));
  const Order rows = orders_.of(source), target = orders_.numbered_by(positions);
  const Order index = is_along_rows ? order_among(rows, positions) : orders_.of(positions);
  pair_positions(positions, index);
  if (!is_along_rows) return source.is_rows() ? common() : index;
  const NodeId value = value_in_a(positions);
  if (is_mask(positions)) {
    pair(source, rows, positions, index);
    return Order::known(terms_.intern(
        {FrameTerms::kPick, (rows.is_known() ? rows : index).frame, {names_.of_positions(value)}}));
  }
  if (!rows.is_known()) return index.is_counted() ? rows : index;
  if (target.kind != Order::Kind::kNoRows) {
    const Order numbered = as_numbered(positions, target);
    if (numbered.is_known() && !holds(Condition::kNumbersOfTheirRows, false))
      pair(source, rows, positions, numbered);
    return index;
  }
  const FrameTerms::Term& term = terms_[rows.frame];
  if (term.kind == FrameTerms::kPlace && are_undone(term.values, std::array{names_.of_positions(value)}))
    return Order::known(term.base);
  const FrameTerms::Kind kind =
      names_.is_permutation(value, value_in_a(source), *facts_->picked_dimension(positions))
          ? FrameTerms::kPick
          : FrameTerms::kUnknown;
  return Order::known(terms_.intern({kind, rows.frame, {names_.of_positions(value)}}));
}

FrameCheck::Order FrameCheck::put(NodeId origin, const Operand& positions) {
  const auto operands = facts_->operands();
  const Operand& into = operands.front();
  const bool is_along_rows = is_along(into, static_cast<std::int64_t>(*facts_->picked_dimension(positions)));
  if (!is_along_rows) pair_positions(positions, orders_.of(positions));
  if (!is_along_rows && into.is_rows()) return common();
  const Order rows = orders_.of(into), target = orders_.numbered_by(positions);
  // 0, 1, .. along a destination that says nothing puts rows as they are.
  const Order numbers = is_along_rows ? order_among(rows, positions) : orders_.of(positions);
  Order values;
  const Operand* written = nullptr;
  for (const Operand& operand : operands)
    if (&operand != &into && &operand != &positions && operand.is_rows() &&
        !facts_->picked_dimension(operand)) {
      written = &operand;
      values = orders_.of(operand);
    }
  if (is_mask(positions) && is_along_rows) pair(into, rows, positions, numbers);
  if (is_along_rows) pair_positions(positions, numbers);
  const bool are_numbers = target.kind != Order::Kind::kNoRows;
  // What says of each row where it goes is in its order, or was picked with it.
  const bool are_both_tokens = orders_.is_tokens(numbers) && orders_.is_tokens(values);
  if (written != nullptr && (are_numbers || !is_along_rows || are_both_tokens))
    pair(positions, numbers, *written, values);
  if (!is_along_rows) return {};
  if (are_numbers) {
    const Order numbered = as_numbered(positions, target);
    if (rows.is_known() && numbered.is_known()) pair(into, rows, positions, numbered);
    return rows.is_known() ? rows : numbered.is_known() ? numbered : values;
  }
  if (!values.is_known()) return is_mask(positions) ? rows : orders_.unknown(origin);
  const NodeId value = value_in_a(positions);
  const FrameTerms::Term& term = terms_[values.frame];
  if (term.kind == FrameTerms::kPick && (rows.kind == Order::Kind::kAny || rows == Order::known(term.base)) &&
      are_undone(term.values, std::array{names_.of_positions(value)}))
    return Order::known(term.base);
  return leaves_unset(a_.nodes[value_in_a(into)]) &&
                 names_.is_permutation(value, value_in_a(into), *facts_->picked_dimension(positions))
             ? Order::known(terms_.intern({FrameTerms::kPlace, values.frame, {names_.of_positions(value)}}))
             : orders_.unknown(origin);
}

// Along the first dimension. Rows that come from all ranks, and back by the same tables, are those
// that went. Blocks that change places as a whole stay blocks (row_blocks.h).
FrameCheck::Order FrameCheck::exchanged(NodeId origin) {
  const Operand& source = facts_->operands().front();
  Order rows = orders_.of(source);
  // What is like each other on one rank need not be so on another.
  if (rows.kind == Order::Kind::kAny && is_along(source, 0)) rows = orders_.plain_tokens();
  if (rows.is_counted() && is_along(source, 0)) return orders_.own(origin);
  if (!rows.is_known() || !is_along(source, 0)) return reduced();
  if (orders_.is_tokens(rows) && moves_blocks(origin)) return rows;
  bool are_counted = true;
  const auto words = [&](std::span<const Arg> items) {
    std::vector<std::uint64_t> result;
    for (Arg item : items)
      result.push_back(item.is_node() ? names_.of_value(item.as_node()) : terms_.word(item));
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
  if (term.kind == kind && are_undone(term.values, joined(in, out))) return Order::known(term.base);
  if (are_counted && !in.empty()) check_counts(origin, rows);
  const FrameId made = terms_.intern({kind, rows.frame, joined(out, in)});
  counts_.note_exchange(made, origin);
  return Order::known(made);
}

// A part sends its rows to the ranks that the whole sends them to.
void FrameCheck::check_counts(NodeId origin, const Order& rows) {
  const SortedCounts::Finding finding = counts_.check_exchange(origin, rows.frame);
  if (finding.verdict == SortedCounts::Verdict::kOthers) fail_counts(finding, "its split sizes count");
  if (finding.verdict == SortedCounts::Verdict::kUnknown) assumed_.sizes_count(origin);
}

// A product multiplies each group of a part's rows by what it multiplies those of the whole by.
void FrameCheck::check_groups(NodeId origin) {
  const auto operands = facts_->operands();
  const auto ends = std::ranges::find_if(operands, [&](const Operand& operand) {
    return operand.is_tensor && node_->op->params[operand.taken->param].name == "offs";
  });
  const auto cut = std::ranges::find_if(operands, [](const Operand& operand) { return operand.is_rows(); });
  if (ends == operands.end() || cut == operands.end()) return;
  const Order rows = orders_.of(*cut);
  const SortedCounts::Finding finding =
      rows.is_known() ? counts_.check_groups(origin, value_in_a(*ends), rows.frame) : SortedCounts::Finding();
  if (finding.verdict == SortedCounts::Verdict::kOthers) fail_counts(finding, "its groups count");
  if (finding.verdict == SortedCounts::Verdict::kUnknown) assumed_.groups_count();
}

void FrameCheck::fail_counts(const SortedCounts::Finding& finding, std::string_view what) {
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
