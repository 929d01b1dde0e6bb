#include "compare/rewrite/verify_frames.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/rewrite/conditions.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

bool is_uninitialised(const Node& node) {
  return node.op != nullptr && node.op->target.find("empty") != std::string_view::npos;
}

Arg only_item(const Context& context, Arg list) {
  const auto items = list.is_list() ? context.args.children(list) : std::span<const Arg>();
  return items.size() == 1 ? items[0] : Arg::none();
}

bool makes_rows_alike(OpFamily family) {
  return family == OpFamily::kFactory || family == OpFamily::kLike || family == OpFamily::kNew ||
         family == OpFamily::kIota;
}

// Whether rows with one number need be those of one token.
bool pairs_rows(OpFamily family) {
  return family != OpFamily::kJoin;
}

}  // namespace

FrameCheck::FrameCheck(RewriteClaims& claims, const Effects& effects_a)
    : claims_(claims),
      effects_(effects_a),
      context_(*claims.graph_a().context),
      a_(claims.graph_a().step()),
      facts_a_(claims.graph_a()),
      numbers_(claims.graph_a(), effects_a),
      terms_(claims.graph_a(), numbers_),
      writes_(effects_a) {
  token_order_ = known(terms_.intern({FrameTerms::kTokenOrder, FrameId(), {}}));
  for (NodeId id : a_.order)
    for (const StorageAccess& access : effects_.accesses_of(id))
      if (access.writes) written_.insert(access.storage);
  // What fills all of an uninitialised value names each row once, or A would read what nobody wrote.
  for (const auto [id, node] : walk(a_)) {
    if (node.op == nullptr || node.op->family != OpFamily::kIndexPut || !node.op->writes) continue;
    const Arg into = arg_of(context_, node, 0), index = only_item(context_, arg_of(context_, node, 1));
    if (into.is_node() && is_uninitialised(a_.nodes[into.as_node()]) && index.is_node() &&
        !is_written(index.as_node()))
      permutations_.insert(numbers_[index.as_node()]);
  }
}

void FrameCheck::count_writes_of(NodeId a) {
  writes_.count_writes_of(a);
  if (!claims_.parts(a).empty()) written_before_.at(a) = writes_[a];
}

void FrameCheck::add(NodeId origin, NodeId part, const PartFacts& facts) {
  facts_ = &facts;
  node_ = &a_.nodes[origin];
  part_ = part;
  if (node_->op == nullptr) return;
  Entry entry = visit(origin);
  const TypeId type = node_->type;
  const bool is_tensor = claims_.tensor_a(origin) != nullptr;
  if (!type) return;
  if (is_tensor) {
    const std::vector<bool> is_divided = facts.divided_dimensions(origin, part);
    if (std::ranges::find(is_divided, true) == is_divided.end()) entry = {};
  }
  if (entry.rows.kind != Order::Kind::kNoRows) entries_.at(origin) = entry;
}

FrameCheck::Order FrameCheck::order_of(const Operand& operand) const {
  if (!operand.is_rows()) return {};
  const Claim& claim = claims_[operand.taken->value.as_node()];
  if (claim.kind != ClaimKind::kPart) return token_order_;
  const Order& order = entries_[claim.origin].rows;
  const bool is_as_made = writes_[claim.origin] == written_before_[claim.origin];
  return is_as_made || order == token_order_ ? order : lost();
}

FrameCheck::Order FrameCheck::numbered_by(const Operand& operand) const {
  const Claim& claim = claims_[operand.taken->value.as_node()];
  return claim.kind == ClaimKind::kPart ? entries_[claim.origin].numbered : Order();
}

const FrameCheck::Operand* FrameCheck::find_operand(std::string_view param) const {
  const auto position = node_->op->find_param(param);
  for (const Operand& operand : facts_->operands())
    if (position && operand.taken->param == *position && operand.is_tensor) return &operand;
  return nullptr;
}

Arg FrameCheck::find_value(std::string_view param) const {
  const auto position = node_->op->find_param(param);
  return position ? arg_of(context_, *node_, *position) : Arg::none();
}

NodeId FrameCheck::value_in_a(const Operand& operand) const {
  return claims_[operand.taken->value.as_node()].origin;
}

FrameCheck::Entry FrameCheck::visit(NodeId origin) {
  const auto operands = facts_->operands();
  if (makes_rows_alike(node_->op->family)) return {{Order::Kind::kAny, {}}, {Order::Kind::kAny, {}}};
  if (node_->op->family == OpFamily::kElement) return element(origin);
  Entry entry;
  // Numbers that are moved, picked or divided number what they did; the order that a sort gives, what it sorts.
  if (!operands.empty() && operands.front().is_tensor) entry.numbered = numbered_by(operands.front());
  for (const Operand& operand : operands)
    if (operand.fact == PartFact::kPlaces || operand.fact == PartFact::kEntries) entry.numbered = lost();
  const auto positions = std::ranges::find_if(operands, [&](const Operand& operand) {
    return operand.is_rows() && facts_->picked_dimension(operand).has_value();
  });
  switch (node_->op->family) {
    case OpFamily::kSort:
      if (!facts_->sorts_rows()) break;
      entry.rows = sorted(origin);
      if (node_->op->returns.size() == 1) entry.numbered = order_of(operands.front());
      return entry;
    case OpFamily::kRepeatRows:
    case OpFamily::kMaskedRows:
      // By counts of the part's own: which rows they count, nothing here says.
      entry.numbered = common();
      entry.rows = entry.numbered.kind == Order::Kind::kNoRows ? lost() : made_by(origin, entry.numbered);
      return entry;
    case OpFamily::kAllToAll:
      entry.rows = exchanged();
      return entry;
    case OpFamily::kReshape:
      entry.rows = reshaped(origin, part_);
      return entry;
    case OpFamily::kIndex:
    case OpFamily::kGather:
    case OpFamily::kIndexSelect:
    case OpFamily::kEmbedding:
      if (positions == operands.end()) break;
      entry.rows = picked(*positions);
      return entry;
    case OpFamily::kIndexPut:
    case OpFamily::kScatter:
    case OpFamily::kScatterAdd:
    case OpFamily::kRowScatter:
    case OpFamily::kIndexAdd:
    case OpFamily::kIndexCopy:
      if (positions == operands.end()) break;
      entry.rows = put(*positions);
      return entry;
    default:
      break;
  }
  entry.rows = common();
  return entry;
}

// Of a tuple; the order that a sort gives numbers what was sorted.
FrameCheck::Entry FrameCheck::element(NodeId origin) const {
  const auto found = tuple_element(context_, a_, *node_);
  const auto operands = facts_->operands();
  if (!found || operands.empty() || !operands.front().taken->value.is_node()) return {};
  const Claim& claim = claims_[operands.front().taken->value.as_node()];
  if (claim.kind != ClaimKind::kPart) return {};
  Entry entry = entries_[claim.origin];
  if (a_.nodes[claim.origin].op != nullptr && a_.nodes[claim.origin].op->family == OpFamily::kSort &&
      found->index == 1 && (*facts_)[origin] == PartFact::kNumbers) {
    const Arg sorted = arg_of(context_, a_.nodes[claim.origin], 0);
    const NodeId from = sorted.is_node() ? sorted.as_node() : NodeId();
    // What was cut for the parts is in the order of the tokens.
    entry.numbered = from && !claims_.parts(from).empty() ? entries_[from].rows : token_order_;
  }
  return entry;
}

// The one order of all operands with rows.
FrameCheck::Order FrameCheck::common() {
  Order result;
  const Operand* first = nullptr;
  bool any_lost = false;
  for (const Operand& operand : facts_->operands()) {
    if (!operand.is_tensor) continue;
    const Order order = order_of(operand);
    if (order.kind == Order::Kind::kAny && result.kind == Order::Kind::kNoRows) result = order;
    any_lost |= order.is_lost();
    if (!order.is_known()) continue;
    if (first != nullptr && pairs_rows(node_->op->family)) pair(*first, result, operand, order, false);
    first = &operand;
    result = order;
  }
  return any_lost ? lost() : result;
}

FrameCheck::Order FrameCheck::made_by(NodeId call, const Order& rows) {
  const std::uint64_t word = FrameTerms::kNodeWord | numbers_[call].index();
  if (!rows.is_known())
    return rows.is_lost() ? lost() : known(terms_.intern({FrameTerms::kSort, {}, {word}}));
  return rows == token_order_ ? known(terms_.intern({FrameTerms::kSort, FrameId(), {word}}))
                              : known(terms_.intern({FrameTerms::kPick, rows.frame, {word}}));
}

// Sorting the order that a sort gave, upwards, gives what was sorted back.
FrameCheck::Order FrameCheck::sorted(NodeId call) {
  const Operand& keys = facts_->operands().front();
  const Order rows = order_of(keys);
  const Arg descending = find_value("descending");
  const bool is_upwards = descending.is_none() || descending == Arg::boolean(false);
  if (sort_of(value_in_a(keys)) && is_upwards && keys.fact == PartFact::kNumbers &&
      !numbered_by(keys).is_lost())
    return numbered_by(keys);
  return made_by(call, rows);
}

// The sort whose order a value is.
NodeId FrameCheck::sort_of(NodeId order) const {
  if (!order || is_written(order)) return {};
  const auto element = tuple_element(context_, a_, a_.nodes[order]);
  if (!element) {
    const Node& node = a_.nodes[order];
    const bool is_argsort =
        node.op != nullptr && node.op->family == OpFamily::kSort && node.op->returns.size() == 1;
    return is_argsort ? numbers_[order] : NodeId();
  }
  const OpInfo* op = a_.nodes[element->tuple].op;
  return element->index == 1 && op != nullptr && op->family == OpFamily::kSort ? numbers_[element->tuple]
                                                                               : NodeId();
}

std::uint64_t FrameCheck::word_of(NodeId positions) const {
  const NodeId sort = sort_of(positions);
  return FrameTerms::kNodeWord | (sort ? sort : numbers_[positions]).index();
}

bool FrameCheck::is_permutation(NodeId positions) const {
  return sort_of(positions) || (!is_written(positions) && permutations_.contains(numbers_[positions]));
}

FrameCheck::Order FrameCheck::picked(const Operand& positions) {
  const Operand& source = facts_->operands().front();
  const std::size_t dim = *facts_->picked_dimension(positions);
  const bool is_along = source.is_tensor && dim < source.is_divided.size() && source.is_divided[dim];
  const Order index = order_of(positions);
  if (!is_along) return source.is_rows() ? common() : index;
  const Order rows = order_of(source), target = numbered_by(positions);
  if (rows.kind == Order::Kind::kAny) return index;
  if (!rows.is_known()) return lost();
  if (target.is_known() || target.kind == Order::Kind::kAny) {
    if (target.is_known() && !holds(Condition::kNumbersOfTheirRows, false))
      pair(source, rows, positions, target, false);
    return index.kind == Order::Kind::kAny ? rows : index;
  }
  const NodeId value = value_in_a(positions);
  const FrameTerms::Term& term = terms_[rows.frame];
  if (term.kind == FrameTerms::kPlace && term.values[0] == word_of(value)) return known(term.base);
  if (!is_permutation(value)) return lost();
  return known(terms_.intern({FrameTerms::kPick, rows.frame, {word_of(value)}}));
}

FrameCheck::Order FrameCheck::put(const Operand& positions) {
  const auto operands = facts_->operands();
  const Operand& into = operands.front();
  const std::size_t dim = *facts_->picked_dimension(positions);
  const bool is_along = into.is_tensor && dim < into.is_divided.size() && into.is_divided[dim];
  if (!is_along && into.is_rows()) return common();
  const Order rows = order_of(into), target = numbered_by(positions);
  Order numbers = order_of(positions), values;
  const Operand* written = nullptr;
  for (const Operand& operand : operands)
    if (&operand != &into && &operand != &positions && operand.is_rows() &&
        !facts_->picked_dimension(operand)) {
      written = &operand;
      values = order_of(operand);
    }
  // 0, 1, .. along a destination that says nothing puts rows as they are.
  if (numbers.kind == Order::Kind::kAny && rows.is_known() && is_along) numbers = rows;
  const bool are_numbers = target.is_known() || target.kind == Order::Kind::kAny;
  if (written != nullptr && (are_numbers || !is_along)) pair(positions, numbers, *written, values, true);
  if (!is_along) return {};
  if (are_numbers) {
    if (rows.is_known() && target.is_known()) pair(into, rows, positions, target, true);
    return rows.is_known() ? rows : target.is_known() ? target : values;
  }
  if (!values.is_known()) return rows == token_order_ ? rows : lost();
  const NodeId value = value_in_a(positions);
  const FrameTerms::Term& term = terms_[values.frame];
  if (term.kind == FrameTerms::kPick && term.values[0] == word_of(value) &&
      (rows.kind == Order::Kind::kAny || rows == known(term.base)))
    return known(term.base);
  return is_uninitialised(a_.nodes[value_in_a(into)]) && is_permutation(value)
             ? known(terms_.intern({FrameTerms::kPlace, values.frame, {word_of(value)}}))
             : lost();
}

FrameCheck::Order FrameCheck::exchanged() {
  const auto operands = facts_->operands();
  const Order rows = operands.empty() ? Order() : order_of(operands.front());
  if (!rows.is_known() || rows == token_order_) return rows.is_known() ? lost() : rows;
  const auto words = [&](Arg list) {
    std::vector<std::uint64_t> result;
    if (list.is_list())
      for (Arg item : context_.args.children(list)) result.push_back(terms_.word(item));
    return result;
  };
  const std::uint64_t group = terms_.word(find_value("group_name"));
  const std::vector<std::uint64_t> out = words(find_value("output_split_sizes")),
                                   in = words(find_value("input_split_sizes"));
  const auto joined = [&](const std::vector<std::uint64_t>& first, const std::vector<std::uint64_t>& second) {
    std::vector<std::uint64_t> all = {group};
    all.insert(all.end(), first.begin(), first.end());
    all.insert(all.end(), second.begin(), second.end());
    return all;
  };
  const FrameTerms::Term& term = terms_[rows.frame];
  if (term.kind == FrameTerms::kExchange && term.values == joined(in, out)) return known(term.base);
  return known(terms_.intern({FrameTerms::kExchange, rows.frame, joined(out, in)}));
}

ExprId FrameCheck::divided_extent(NodeId a, const std::vector<bool>& is_divided) const {
  const TensorType* type = claims_.tensor_a(a);
  const auto at = static_cast<std::size_t>(std::ranges::find(is_divided, true) - is_divided.begin());
  return type != nullptr && at < is_divided.size() && at < type->rank() ? type->sizes[at] : ExprId();
}

// As many rows, c of each, or one of c that were each's. Others have other neighbours in a part.
FrameCheck::Order FrameCheck::reshaped(NodeId origin, NodeId part) {
  const Operand& source = facts_->operands().front();
  const Order rows = order_of(source);
  if (!rows.is_known() || rows == token_order_) return rows;
  const ExprId before = divided_extent(value_in_a(source), source.is_divided),
               after = divided_extent(origin, facts_->divided_dimensions(origin, part));
  if (!before || !after) return lost();
  if (facts_a_.equal(before, after)) return rows;
  ExprPool& pool = facts_a_.pool();
  const PolyId few = facts_a_.normalize(before), many = facts_a_.normalize(after);
  const auto is_count = [&](const std::optional<PolyId>& ratio) {
    return ratio && pool.constant(*ratio).has_value();
  };
  if (const auto pieces = pool.divide_exactly(many, few); is_count(pieces))
    return known(terms_.intern({FrameTerms::kEach, rows.frame, {pieces->index()}}));
  const auto pieces = pool.divide_exactly(few, many);
  const FrameTerms::Term& term = terms_[rows.frame];
  if (is_count(pieces) && term.kind == FrameTerms::kEach && term.values[0] == pieces->index())
    return known(term.base);
  claims_.fail(part, "rewrite-rows",
               fmt::format("regroups rows of {}, of which a part has others side by side than the whole",
                           claims_.describe(source.taken->value.as_node())));
  return lost();
}

void FrameCheck::pair(const Operand& x, const Order& a, const Operand& y, const Order& b, bool must_know) {
  if (a.is_lost() || b.is_lost()) {
    if (must_know) assume(x, y);
    return;
  }
  if (!a.is_known() || !b.is_known() || a == b) return;
  if (terms_.may_be_same(a.frame, b.frame)) return assume(x, y);
  if (holds(Condition::kOrdersPair, false)) return;
  claims_.fail(
      part_, "rewrite-rows",
      fmt::format("takes rows of {} and of {} together, which a part has in different orders of its own",
                  name_of(x), name_of(y)));
}

std::string FrameCheck::name_of(const Operand& operand) const {
  return claims_.name_a(value_in_a(operand));
}

void FrameCheck::assume(const Operand& x, const Operand& y) {
  assumptions_.push_back(fmt::format("rows of {} and {} are those of the same tokens in each part, at {}",
                                     name_of(x), name_of(y), claims_.name_b(part_)));
}

}  // namespace epweave
