#include "compare/rewrite/verify_orders.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "analysis/collectives.h"
#include "compare/rewrite/conditions.h"
#include "ops/bind.h"
#include "ops/collective_arguments.h"
#include "ops/family.h"
#include "ops/named_arg.h"
#include "ops/number_ops.h"
#include "ops/op.h"
#include "ops/sliced_run.h"
#include "ops/sorting.h"

namespace epweave {
namespace {

std::vector<std::int64_t> numbers_of(Facts& facts, const TensorType* type) {
  std::vector<std::int64_t> sizes;
  if (type == nullptr) return sizes;
  for (ExprId extent : type->sizes) {
    const auto number = facts.hint(extent);
    if (!number) return {};
    sizes.push_back(*number);
  }
  return sizes;
}

std::int64_t product_of(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

OrderCheck::OrderCheck(RewriteClaims& claims, const Effects& effects)
    : claims_(claims),
      context_(*claims.graph_a().context),
      exprs_(claims.graph_a().context->exprs),
      a_(claims.graph_a().step()),
      b_(claims.graph_b().step()),
      facts_a_(claims.facts_a()),
      facts_b_(claims.facts_b()),
      effects_(effects),
      blocks_(claims.graph_b().step().nodes.size(), kUnknown) {}

void OrderCheck::visit(NodeId id) {
  for (const StorageAccess& access : effects_.accesses_of(id))
    if (access.writes) last_writer_.at(access.storage) = id;
  const ClaimKind kind = claims_[id].kind;
  if (kind == ClaimKind::kPiece) blocks_[id] = order_of_piece(id);
  if (kind == ClaimKind::kPart && b_.nodes[id].op != nullptr) {
    blocks_[id] = order_of(id);
    check_remainders(id);
    if (const std::int64_t numbered = numbered_order(id); numbered != kUnknown) numbered_.at(id) = numbered;
    if (blocks_[id] == kCounted) note_period(id);
  }
  if (blocks_[id] == kAny) alike_.at(effects_.storage_of(id)).push_back(id);
  if (kind == ClaimKind::kPart) {
    if (blocks_[id] > 1) take_groups(id);
    note_written(id);
  }
  if (kind == ClaimKind::kJoin) check_join(id);
}

// What shows memory in which rows were alike has those that were written there. Where it has other
// rows than what was written, as the whole of a piece has, nothing says in which order.
void OrderCheck::note_written(NodeId id) {
  if (is_wait(b_.nodes[id]) || blocks_[id] == kAny) return;
  const ExprId written = divided_extent(id);
  for (const StorageAccess& access : effects_.accesses_of(id))
    if (access.writes)
      for (NodeId share : std::exchange(alike_.at(access.storage), {})) {
        const ExprId rows = divided_extent(share);
        const bool has_those = rows ? written && facts_a_.equal(written, rows)
                                    : sizes_in_a(claims_[share].origin) == sizes_in_b(share);
        blocks_[share] = has_those ? blocks_[id] : kOwn;
      }
}

// Of the whole: along the dimension of which the part has less than all.
ExprId OrderCheck::divided_extent(NodeId share) {
  const int dim = divided_dimension(share);
  return dim < 0 ? ExprId() : claims_.tensor_a(claims_[share].origin)->sizes[static_cast<std::size_t>(dim)];
}

OrderCheck::Sizes OrderCheck::sizes_in_a(NodeId id) {
  return numbers_of(facts_a_, claims_.tensor_a(id));
}
OrderCheck::Sizes OrderCheck::sizes_in_b(NodeId id) {
  return numbers_of(facts_b_, claims_.tensor_b(id));
}

// By the facts and by what B takes for granted, which is printed.
bool OrderCheck::is_known_equal(ExprId x, ExprId y) {
  return facts_b_.equal(x, y) || facts_b_.assumed_value(exprs_.sub(x, y)) == 0;
}

ExprId OrderCheck::groups_of(NodeId share) {
  return groups_[share] ? groups_[share] : exprs_.number(plain_blocks(share));
}

// The groups that a call's operands have in common, unless it makes others.
void OrderCheck::take_groups(NodeId id) {
  if (groups_[id]) return;
  ExprId groups;
  for_each_input(context_, b_.nodes[id], [&](NodeId input) {
    if (!is_share(input) || blocks_[input] != blocks_[id]) return;
    if (!groups) groups = groups_of(input);
    if (!is_known_equal(groups, groups_of(input))) rest_on_traced(id, blocks_[id]);
  });
  groups_.at(id) = groups;
}

// `traced`: how many there were when traced.
void OrderCheck::divide_groups(NodeId id, ExprId all, ExprId by, std::int64_t traced) {
  for (const ExprId groups : {exprs_.number(traced), exprs_.floordiv(all, by)})
    if (is_known_equal(exprs_.mul(groups, by), all)) {
      groups_.at(id) = groups;
      return;
    }
  rest_on_traced(id, traced);
}

void OrderCheck::rest_on_traced(NodeId id, std::int64_t blocks) {
  const NodeId origin = claims_[id].origin;
  if (!traced_.insert({origin, blocks}).second) return;
  assumptions_.push_back(fmt::format("a part of {} has rows of {} {}, as when traced", claims_.name_a(origin),
                                     blocks, blocks == 1 ? "block" : "blocks"));
}

// Of the first dimensions.
ExprId OrderCheck::product(const TensorType* type, std::size_t dims) {
  ExprId all = exprs_.number(1);
  for (ExprId extent : std::span(type->sizes).first(dims)) all = exprs_.mul(all, extent);
  return all;
}

ExprId OrderCheck::rows_in_a(NodeId id) {
  return claims_.tensor_a(claims_[id].origin)->sizes.front();
}

bool OrderCheck::is_share(NodeId b) const {
  return claims_[b].kind == ClaimKind::kPart || claims_[b].kind == ClaimKind::kPiece;
}

int OrderCheck::divided_dimension(NodeId b) {
  const Sizes whole = sizes_in_a(claims_[b].origin), part = sizes_in_b(b);
  if (whole.size() != part.size()) return -1;
  int found = -1;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] == part[i]) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

NodeId OrderCheck::first_share(NodeId id) const {
  const Arg operand = arg_of(context_, b_.nodes[id], 0);
  const NodeId first = operand.is_node() ? operand.as_node() : NodeId();
  return first && is_share(first) ? first : NodeId();
}

// A piece is cut plainly, or has rows of each block in a dimension of its own until it is viewed as
// rows.
std::int64_t OrderCheck::order_of_piece(NodeId id) {
  const NodeId from = first_share(id);
  if (!from) return 1;
  const int dim = divided_dimension(id);
  if (dim < 0) return kUnknown;
  const Sizes sizes = sizes_in_b(from);
  const bool is_viewed = is_reshape(b_.nodes[id]) && sizes.size() == sizes_in_b(id).size() + 1;
  const auto at = static_cast<std::size_t>(dim);
  groups_.at(id) = is_viewed ? claims_.tensor_b(from)->sizes[at] : groups_[from];
  return is_viewed ? sizes[at] : blocks_[from];
}

NodeId OrderCheck::split_of(NodeId piece) const {
  NodeId id = piece;
  while (id && claims_[id].kind == ClaimKind::kPiece) {
    const Arg from = arg_of(context_, b_.nodes[id], 0);
    id = from.is_node() ? from.as_node() : NodeId();
  }
  return id;
}

std::optional<bool> OrderCheck::are_cut_alike(NodeId p, NodeId q) const {
  const bool is_piece_p = claims_[p].kind == ClaimKind::kPiece,
             is_piece_q = claims_[q].kind == ClaimKind::kPiece;
  if (!is_piece_p && !is_piece_q) return true;
  if (blocks_[p] == kAny || blocks_[q] == kAny) return true;
  if (blocks_[p] != kUnknown && blocks_[q] != kUnknown) return blocks_[p] == blocks_[q];
  // Extents without a number: pieces of one split, or of two into the same pieces.
  const NodeId of_p = split_of(p), of_q = split_of(q);
  const bool is_one_cut = is_piece_p && is_piece_q && of_p && of_q &&
                          (of_p == of_q || b_.nodes[of_p].type == b_.nodes[of_q].type);
  return is_one_cut ? std::optional(true) : std::nullopt;
}

// Rows in an order of a part's own are none once a part has all that the whole has: sums, counts.
std::int64_t OrderCheck::order_of(NodeId id) {
  const std::int64_t order = order_by_family(id);
  return order == kOwn || order == kCounted ? own_order(id, order) : order;
}

std::int64_t OrderCheck::own_order(NodeId id, std::int64_t order) {
  const TensorType* type = claims_.tensor_a(claims_[id].origin);
  if (type != nullptr && type->sizes.empty()) return kUnknown;
  const Sizes whole = sizes_in_a(claims_[id].origin);
  return !whole.empty() && whole == sizes_in_b(id) ? kUnknown : order;
}

std::int64_t OrderCheck::order_by_family(NodeId id) {
  const NodeId from = first_share(id);
  switch (row_order(b_.nodes[id].op->family)) {
    case RowOrder::kPaired:
      return order_by_operands(id, true);
    case RowOrder::kHandedOn:
      if (const auto blocks = order_of_slice(id)) return *blocks;
      return order_by_operands(id, false);
    case RowOrder::kReduced:
    case RowOrder::kExpanded:
      return order_by_operands(id, false);
    case RowOrder::kOfFirst:
      return order_of_first(id);
    case RowOrder::kByPositions:
      return order_of_index(id);
    case RowOrder::kSorted:
      return order_of_sort(id);
    case RowOrder::kCounted:
      return kCounted;
    case RowOrder::kExchanged:
      return from ? order_of_exchange(id, from) : kOwn;
    case RowOrder::kOwn:
      return kOwn;
    case RowOrder::kRepeated:
      return from ? order_of_repeat(id, from) : order_by_operands(id, false);
    case RowOrder::kRegrouped:
      return from ? order_of_reshape(id, from) : kUnknown;
    case RowOrder::kGathered:
      return from ? order_of_gather(id, from) : kUnknown;
    case RowOrder::kScattered:
      return from ? order_of_scatter(id, from) : kUnknown;
    case RowOrder::kJoined:
      return order_of_cat(id);
    case RowOrder::kSplit:
      return from ? order_of_split(id, from) : kUnknown;
    case RowOrder::kAlike:
      return kAny;
    case RowOrder::kUnknown:
      return kUnknown;
  }
  return kUnknown;
}

// What says nothing is in the order of the rows that the positions number.
std::int64_t OrderCheck::order_of_first(NodeId id) {
  const NodeId first = first_share(id);
  if (!first) return kUnknown;
  if (const std::int64_t before = order_before(id, undone(id)); before != kUnknown) return before;
  const std::int64_t order = blocks_[first];
  if (order != kUnknown && order != kAny && order != kCounted) {
    check_written(id, first);
    return order;
  }
  std::int64_t numbered = kUnknown;
  for_each_input(context_, b_.nodes[id], [&](NodeId input) {
    if (input == first || !is_share(input) || numbered_[input] == kUnknown || blocks_[input] == kCounted)
      return;
    numbered = numbered_[input] == kCounted ? 1 : numbered_[input];
  });
  return numbered != kUnknown ? numbered : order_by_operands(id, false);
}

// 0, 1, .. put the rows that are written where those with the same number lie.
void OrderCheck::check_written(NodeId id, NodeId into) {
  bool any_counted = false;
  NodeId other;
  for_each_input(context_, b_.nodes[id], [&](NodeId input) {
    if (input == into || !is_share(input)) return;
    any_counted |= blocks_[input] == kCounted;
    if (blocks_[input] > 0 && blocks_[into] > 0 && blocks_[input] != blocks_[into]) other = input;
  });
  if (any_counted && other) fail_pair(id, into, other);
}

// The order that a sort gives numbers what it sorted, and what chooses rows those; numbers that are
// moved or divided number the same, and 0, 1, .. picked by numbers are these.
std::int64_t OrderCheck::numbered_order(NodeId id) const {
  const OpInfo& op = *b_.nodes[id].op;
  if (op.family == OpFamily::kIota) return kCounted;
  const NodeId first = first_share(id);
  if (!first) return kUnknown;
  const NodeId sort = sort_of_order(context_, b_, id), sorted = sort ? first_share(sort) : NodeId();
  if (sort) return sorted ? plain_blocks(sorted) : kUnknown;
  if (numbers_chosen_rows(op)) return plain_blocks(first);
  if (const NodeId order = undone(id)) return is_share(order) ? blocks_[order] : kUnknown;
  if (numbered_[first] != kCounted) return numbered_[first];
  if (op.family == OpFamily::kElementwise && number_rule(op) != NumberRule::kQuotient) return kUnknown;
  if (row_order(op.family) != RowOrder::kByPositions || blocks_[first] != kCounted) return kCounted;
  std::int64_t numbered = kUnknown;
  bool is_first_seen = false;
  for_each_input(context_, b_.nodes[id], [&](NodeId input) {
    if (input == first && !std::exchange(is_first_seen, true)) return;
    if (is_share(input)) numbered = numbered_[input];
  });
  return numbered;
}

// Of 0, 1, .. divided by c, or of the remainders by c, c times that of what is divided.
void OrderCheck::note_period(NodeId id) {
  std::int64_t period = 1;
  for_each_input(context_, b_.nodes[id], [&](NodeId input) {
    if (is_share(input) && blocks_[input] == kCounted)
      period = std::lcm(period, std::max<std::int64_t>(period_[input], 1));
  });
  const Arg divisor = named_arg(context_, b_.nodes[id], "other");
  if (number_rule(*b_.nodes[id].op) != NumberRule::kNone && divisor.is_int() && divisor.as_int() > 0)
    period *= divisor.as_int();
  period_.at(id) = period;
}

// Data that repeat themselves pair with rows in blocks, whatever the call; and numbers of rows in
// blocks pick from them.
void OrderCheck::check_remainders(NodeId id) {
  const NodeId first = first_share(id);
  std::vector<NodeId> repeated;
  NodeId rows;
  for_each_input(context_, b_.nodes[id], [&](NodeId input) {
    if (!is_share(input)) return;
    if (is_remainder(input)) repeated.push_back(input);
    if (blocks_[input] > (rows ? blocks_[rows] : 1)) rows = input;
  });
  for (NodeId one : repeated) {
    if (rows) check_counted(id, one, rows);
    if (one != first) continue;
    for_each_input(context_, b_.nodes[id], [&](NodeId input) {
      if (is_share(input) && numbered_[input] > 1) check_numbered(id, one, numbered_[input]);
    });
  }
}

// Whether each block of rows begins where the numbers begin again.
bool OrderCheck::repeats_within_blocks(NodeId counted, NodeId rows, const Blocks& blocks) {
  const int dim = divided_dimension(rows);
  const auto at = static_cast<std::size_t>(std::max(dim, 0));
  const std::int64_t period = std::max<std::int64_t>(period_[counted], 1);
  const std::int64_t count = dim < 0 ? 0 : sizes_in_b(rows)[at];
  if (blocks.count <= 1) return true;
  if (count % (blocks.count * period) != 0) return false;
  const ExprId each = exprs_.mul(blocks.groups, exprs_.number(period));
  const ExprId extent = dim < 0 ? exprs_.number(0) : claims_.tensor_b(rows)->sizes[at];
  if (!is_known_equal(exprs_.mul(each, exprs_.floordiv(extent, each)), extent))
    rest_on_traced(rows, blocks.count);
  return true;
}

void OrderCheck::check_counted(NodeId id, NodeId counted, NodeId rows) {
  if (repeats_within_blocks(counted, rows, {blocks_[rows], groups_of(rows)})) return;
  claims_.fail(
      id, "rewrite-rows",
      fmt::format("pairs rows of {}, of which a part has some of {} blocks, with {}, which repeats "
                  "itself after {} rows and so begins elsewhere in a block than in the whole",
                  claims_.describe(rows), blocks_[rows], claims_.describe(counted), period_[counted]));
}

void OrderCheck::check_numbered(NodeId id, NodeId counted, std::int64_t blocks) {
  if (repeats_within_blocks(counted, counted, {blocks, exprs_.number(blocks)})) return;
  claims_.fail(
      id, "rewrite-rows",
      fmt::format("picks rows of {} by numbers of {} blocks, and it repeats itself after {} rows and "
                  "so begins elsewhere in a block than in the whole",
                  claims_.describe(counted), blocks, period_[counted]));
}

// The order that a value undoes: row i says where row i of what was sorted first went, and is in
// that one's order. None once what it is made of, or it itself, is written otherwise.
NodeId OrderCheck::undone(NodeId value) const {
  const auto inverse = inverse_order(context_, facts_b_, b_, value);
  if (!inverse || is_written(inverse->order)) return {};
  if (inverse->rows && is_written(inverse->rows)) return {};
  const NodeId writer = last_writer_[effects_.storage_of(value)];
  return !writer || writer == value ? inverse->order : NodeId();
}

// In how many blocks are the rows that an order of them numbers; 0: not known.
std::int64_t OrderCheck::order_before(NodeId id, NodeId order) {
  if (!order || !is_share(order) || numbered_[order] <= 0) return kUnknown;
  if (numbered_[order] > 1) rest_on_traced(id, numbered_[order]);
  return numbered_[order];
}

// Rows that are sorted within themselves stay where they are.
std::int64_t OrderCheck::order_of_sort(NodeId id) {
  const NodeId from = first_share(id);
  if (!from) return kUnknown;
  const int dim = divided_dimension(from);
  const auto rank = sizes_in_b(from).size();
  const bool undoes = rank == 1 && sort_of_order(context_, b_, from) &&
                      sorts_upwards(context_, b_.nodes[id]) && !is_written(from);
  if (const std::int64_t before = undoes ? order_before(id, from) : kUnknown; before != kUnknown)
    return before;
  const bool is_along = rank == 0 || dim < 0 || sorted_dimension(context_, b_.nodes[id], rank) == dim;
  return is_along ? kOwn : blocks_[from];
}

// Of a share that has less than all of the rows, as far as their numbers are known.
bool OrderCheck::has_unknown_order(NodeId share) {
  if (blocks_[share] != kUnknown) return false;
  const Sizes whole = sizes_in_a(claims_[share].origin), part = sizes_in_b(share);
  return !whole.empty() && !part.empty() && whole != part;
}

void OrderCheck::fail_pair(NodeId id, NodeId x, NodeId y) {
  reported_.insert(id);
  claims_.fail(id, "rewrite-rows",
               fmt::format("pairs rows of {} and {}, of which a part has some of {} blocks and of {}",
                           claims_.describe(x), claims_.describe(y), blocks_[x], blocks_[y]));
}

// `pairs`: rows with the same number are paired.
std::int64_t OrderCheck::order_by_operands(NodeId id, bool pairs) {
  const Node& node = b_.nodes[id];
  NodeId known, unknown;
  bool any_counted = false;
  bool agree = true, any_own = false, any_alike = false, any_share = false;
  for_each_input(context_, node, [&](NodeId input) {
    if (!is_share(input)) return;
    any_share |= claims_.tensor_b(input) != nullptr;
    if (has_unknown_order(input)) unknown = input;
    any_own |= blocks_[input] == kOwn;
    any_alike |= blocks_[input] == kAny;
    any_counted |= blocks_[input] == kCounted;
    if (blocks_[input] <= kUnknown) return;
    if (known && blocks_[known] != blocks_[input]) {
      if (agree && pairs) fail_pair(id, known, input);
      agree = false;
    }
    if (!known) known = input;
  });
  if (any_own) return kOwn;
  if (known && unknown && pairs && paired_.insert(claims_[id].origin))
    assumptions_.push_back(fmt::format("rows of {} and {} are those of the same tokens in each part, at {}",
                                       claims_.name_a(claims_[known].origin),
                                       claims_.name_a(claims_[unknown].origin), claims_.name_b(id)));
  if (known) return agree ? blocks_[known] : kUnknown;
  if (any_counted) return unknown ? kUnknown : kCounted;
  const bool repeats_whole = !any_share && node.op->family == OpFamily::kExpand;
  return repeats_whole || (any_alike && !unknown) ? kAny : kUnknown;
}

// Not elements within the rows, along another dimension than the one that is divided.
bool OrderCheck::picks_rows(NodeId id, NodeId source) {
  const Node& node = b_.nodes[id];
  if (!node.op->find_param("dim")) return true;
  const Arg given = named_arg(context_, node, "dim");
  const auto rank = static_cast<std::int64_t>(sizes_in_b(source).size());
  const std::int64_t dim = given.is_int() ? given.as_int() : 0;
  return (dim < 0 ? dim + rank : dim) == divided_dimension(source);
}

// Of numbers that pick rows of a share, or of a table that all parts share.
std::int64_t OrderCheck::order_of_positions(NodeId id, NodeId source, NodeId positions) {
  const std::int64_t picked = source ? blocks_[source] : kUnknown, order = blocks_[positions];
  if (order == kCounted && source) return picked;
  const bool are_moved = order > kUnknown && numbered_[positions] == kCounted;
  // What is no longer 0, 1, .. numbers rows that lie one behind another.
  const std::int64_t numbered = are_moved ? 1 : numbered_[positions];
  if (picked > 0 && numbered > 0 && picked != numbered && (are_moved || order == kOwn)) {
    reported_.insert(id);
    claims_.fail(id, "rewrite-rows",
                 fmt::format("picks rows of {}, of which a part has some of {} blocks, by numbers of {}",
                             claims_.describe(source), picked, numbered));
  }
  return are_moved && picked == kOwn ? kOwn : order;
}

// Whether rows of a part's own order are picked by where a sort put them. That it is the sort whose
// order they are in, FrameCheck sees.
bool OrderCheck::puts_back(NodeId source, NodeId positions) const {
  return source && blocks_[source] == kOwn && numbered_[positions] == kOwn && undone(positions);
}

// Of rows that are picked by two numbers each.
std::int64_t OrderCheck::order_of_both(std::int64_t x, std::int64_t y) {
  if (x == kOwn || y == kOwn) return kOwn;
  if (x == kUnknown || y == kUnknown) return kUnknown;
  if (x > 0 || y > 0) return std::max(x, y);
  return x == kCounted || y == kCounted ? kCounted : kAny;
}

// Rows of a table that all parts share are in the order of the numbers that pick them.
std::int64_t OrderCheck::order_of_index(NodeId id) {
  const NodeId source = first_share(id);
  if (source && !picks_rows(id, source)) return order_by_operands(id, false);
  NodeId first;
  std::int64_t blocks = kUnknown;
  std::size_t shares = 0;
  bool is_source_seen = false;
  bool are_counted = !source;  // what picks the rows, or tells their order
  for_each_input(context_, b_.nodes[id], [&](NodeId input) {
    if (!is_share(input) || (input == source && !std::exchange(is_source_seen, true))) return;
    const std::int64_t order = order_of_positions(id, source, input);
    are_counted |= numbered_[input] == kCounted || puts_back(source, input);
    if (blocks > 0 && order > 0 && blocks != order) fail_pair(id, first, input);
    if (++shares == 1 || order > 0) first = blocks_[input] == kCounted && source ? source : input;
    blocks = shares == 1 ? order : order_of_both(blocks, order);
  });
  if (blocks == kOwn) return kOwn;
  if (source && blocks_[source] == kUnknown) return kUnknown;
  return are_counted ? blocks : kUnknown;
}

// Of each repetition a part has its rows of each block; 0, 1, .. that are repeated lie one behind
// another.
std::int64_t OrderCheck::order_of_repeat(NodeId id, NodeId from) {
  if (blocks_[from] <= kUnknown && blocks_[from] != kCounted) return blocks_[from];
  const int dim = divided_dimension(id);
  const auto repeats = named_items(context_, b_.nodes[id], "repeats");
  if (dim < 0 || static_cast<std::size_t>(dim) >= repeats.size()) return kUnknown;
  const Arg count = repeats[static_cast<std::size_t>(dim)];
  if (!count.is_int() || count.as_int() <= 0) return kUnknown;
  if (blocks_[from] == kCounted && count.as_int() == 1) return kCounted;
  groups_.at(id) = exprs_.mul(groups_of(from), exprs_.number(count.as_int()));
  return plain_blocks(from) * count.as_int();
}

// How many runs of rows of a part there are in all does not change. Each group of rows must have
// as many runs, and no row be made of two. 0, 1, .. that are regrouped, and rows that were like
// each other, lie one behind another.
std::int64_t OrderCheck::order_of_reshape(NodeId id, NodeId from) {
  if (blocks_[from] == kOwn) return kOwn;
  const int before = divided_dimension(from), after = divided_dimension(id);
  if (before < 0 || after < 0 || blocks_[from] == kUnknown) return kUnknown;
  const Sizes source = sizes_in_a(claims_[from].origin), target = sizes_in_a(claims_[id].origin);
  const auto at = static_cast<std::size_t>(before), to = static_cast<std::size_t>(after);
  const std::int64_t outer_before = product_of(std::span(source).first(at)),
                     outer = product_of(std::span(target).first(to)),
                     inner = product_of(std::span(target).subspan(to + 1));
  if (lies_plainly(from) && source[at] == target[to] && outer_before == outer) return blocks_[from];
  const std::int64_t runs = plain_blocks(from) * outer_before;
  const Sizes part = sizes_in_b(id);
  if (runs == 0 || outer == 0 || inner == 0) return kUnknown;
  if (runs % outer == 0 && product_of(part) % (runs * inner) == 0) {
    const ExprId all = exprs_.mul(groups_of(from), product(claims_.tensor_a(claims_[from].origin), at));
    divide_groups(id, all, product(claims_.tensor_a(claims_[id].origin), to), runs / outer);
    const ExprId extent = claims_.tensor_b(id)->sizes[to], groups = groups_[id];
    if (groups && !is_known_equal(exprs_.mul(groups, exprs_.floordiv(extent, groups)), extent))
      rest_on_traced(id, runs / outer);
    return runs / outer;
  }
  claims_.fail(id, "rewrite-rows",
               fmt::format("regroups rows of {}, of which a part has others side by side than the whole",
                           claims_.describe(from)));
  return kUnknown;
}

// Ranks exchange along dimension 0: what is divided along another stays where it is, and so do
// blocks where each rank gets as many of them.
std::int64_t OrderCheck::order_of_exchange(NodeId id, NodeId from) {
  const int dim = divided_dimension(from);
  if (dim > 0) return blocks_[from];
  const Node& whole = a_.nodes[claims_[id].origin];
  if (!has_family(whole, OpFamily::kAllToAll)) return kOwn;  // reported as another op
  const auto all = count_equal_shares(facts_a_, claims_.graph_a(), whole),
             own = count_equal_shares(facts_b_, claims_.graph_b(), b_.nodes[id]);
  const bool moves_blocks = dim == 0 && all && all == own && blocks_[from] > 0 && blocks_[from] % *all == 0;
  if (!moves_blocks) return kOwn;
  const ExprId groups = groups_of(from), ranks = exprs_.number(*all);
  if (!is_known_equal(exprs_.mul(exprs_.floordiv(groups, ranks), ranks), groups))
    rest_on_traced(id, blocks_[from]);
  groups_.at(id) = groups;
  return blocks_[from];
}

// What is like each other on one rank need not be so on another.
std::int64_t OrderCheck::order_of_gather(NodeId id, NodeId from) {
  if (is_number(from) || blocks_[from] == kOwn) return kOwn;
  const int dim = divided_dimension(from);
  if (dim < 0 && blocks_[from] == kAny) return kUnknown;
  const Sizes mine = sizes_in_a(claims_[from].origin), all = sizes_in_a(claims_[id].origin);
  if (dim != 0 || mine.empty() || all.empty() || mine[0] == 0) return blocks_[from];
  const std::int64_t ranks = all[0] / mine[0], blocks = plain_blocks(from) * ranks;
  divide_groups(id, exprs_.mul(groups_of(from), rows_in_a(id)), rows_in_a(from), blocks);
  return blocks;
}

std::int64_t OrderCheck::order_of_scatter(NodeId id, NodeId from) {
  if (is_number(from)) return kOwn;
  if (blocks_[from] == kOwn || blocks_[from] == kAny) return blocks_[from];
  const Sizes all = sizes_in_a(claims_[from].origin), mine = sizes_in_a(claims_[id].origin);
  if (blocks_[from] == kUnknown || divided_dimension(from) != 0 || mine.empty() || all.empty() ||
      mine[0] == 0)
    return blocks_[from];
  const std::int64_t ranks = all[0] / mine[0], blocks = plain_blocks(from);
  if (blocks % ranks == 0) {
    divide_groups(id, exprs_.mul(groups_of(from), rows_in_a(id)), rows_in_a(from), blocks / ranks);
    return blocks / ranks;
  }
  claims_.fail(id, "rewrite-rows",
               fmt::format("gives each of {} ranks rows of {}, of which a part has some of {} blocks", ranks,
                           claims_.describe(from), blocks));
  return kUnknown;
}

std::int64_t OrderCheck::order_of_cat(NodeId id) {
  const int dim = divided_dimension(id);
  const Arg list = arg_of(context_, b_.nodes[id], 0), along = arg_of(context_, b_.nodes[id], 1);
  const auto rank = static_cast<std::int64_t>(sizes_in_b(id).size());
  if (dim < 0 || !list.is_list()) return kUnknown;
  const std::int64_t cat_dim = along.is_int() ? along.as_int() : 0;
  if ((cat_dim < 0 ? cat_dim + rank : cat_dim) != dim) return order_by_operands(id, true);
  const auto items = context_.args.children(list);
  // Items whose rows are like each other are of as many blocks as the others have.
  std::int64_t blocks = kAny;
  NodeId counted;  // an item of so many
  const TensorType* first = nullptr;
  // By what is known of extents, not by what they were when traced.
  const auto is_as_first = [&](const TensorType& type) {
    return std::ranges::equal(type.sizes, first->sizes,
                              [&](ExprId x, ExprId y) { return facts_b_.equal(x, y); });
  };
  for (const Arg& item : items) {
    const bool is_known = item.is_node() && is_share(item.as_node());
    const std::int64_t found = !is_known                      ? kUnknown
                               : is_remainder(item.as_node()) ? plain_blocks(item.as_node())
                                                              : blocks_[item.as_node()];
    const TensorType* type = is_known ? claims_.tensor_b(item.as_node()) : nullptr;
    if (found == kCounted || found == kOwn) return kOwn;
    if (found == kUnknown || type == nullptr) return kUnknown;
    if (first != nullptr && !is_as_first(*type)) return kUnknown;
    first = type;
    if (found == kAny) continue;
    if (counted && found != blocks) return kUnknown;
    blocks = found;
    counted = item.as_node();
  }
  if (items.empty()) return kUnknown;
  const bool is_one = std::ranges::all_of(items, [&](Arg item) { return item == items.front(); });
  if (!counted && is_one) return kAny;
  if (!counted) blocks = 1;
  const auto count = static_cast<std::int64_t>(items.size());
  groups_.at(id) = exprs_.mul(counted ? groups_of(counted) : exprs_.number(1), exprs_.number(count));
  return blocks * count;
}

std::int64_t OrderCheck::order_of_split(NodeId id, NodeId from) {
  const Arg along = arg_of(context_, b_.nodes[id], 2);
  const int dim = divided_dimension(from);
  const auto rank = static_cast<std::int64_t>(sizes_in_b(from).size());
  const std::int64_t split_dim = along.is_int() ? along.as_int() : 0;
  const bool is_along = (split_dim < 0 ? split_dim + rank : split_dim) == dim;
  if (is_along && is_number(from)) return kOwn;
  if (!is_along || (blocks_[from] <= kUnknown && !is_remainder(from))) return blocks_[from];
  const TypeId type = b_.nodes[id].type;
  const auto pieces = static_cast<std::int64_t>(type ? context_.types[type].elements.size() : 0);
  const std::int64_t blocks = plain_blocks(from);
  if (pieces > 0 && blocks % pieces == 0) {
    divide_groups(id, groups_of(from), exprs_.number(pieces), blocks / pieces);
    return blocks / pieces;
  }
  claims_.fail(id, "rewrite-rows",
               fmt::format("splits the rows of {}, of which a part has some of {} blocks, in {}",
                           claims_.describe(from), blocks, pieces));
  return kUnknown;
}

// One of equal runs of the rows along which they are divided: it is whole blocks, or becomes such
// among zeros. None of other calls.
std::optional<std::int64_t> OrderCheck::order_of_slice(NodeId id) {
  const Node& node = b_.nodes[id];
  const auto run = sliced_run(claims_.graph_b(), node, facts_b_);
  const NodeId from = first_share(id);
  if (!run || run->count == 1 || !from) return std::nullopt;
  const TensorType *whole = claims_.tensor_a(claims_[from].origin), *part = claims_.tensor_b(from);
  if (whole != nullptr && part != nullptr && whole->rank() == part->rank() &&
      facts_b_.equal(whole->sizes[run->dim], part->sizes[run->dim]))
    return std::nullopt;  // sliced along another dimension
  const bool is_slice = has_family(node, OpFamily::kSlice);
  const bool is_one_cut =
      divided_dimension(from) == static_cast<int>(run->dim) && numbered_[from] == kUnknown;
  const std::int64_t blocks = is_one_cut ? blocks_[from] : kUnknown;
  if (is_slice && blocks == kAny && !is_written(from)) return kAny;
  if (is_slice && blocks > 0 && blocks % run->count == 0) {
    divide_groups(id, groups_of(from), exprs_.number(run->count), blocks / run->count);
    return blocks / run->count;
  }
  if (!is_slice && (blocks == kAny || blocks > 0)) {
    groups_.at(id) = exprs_.mul(groups_of(from), exprs_.number(run->count));
    return plain_blocks(from) * run->count;
  }
  claims_.fail(
      id, "rewrite-rows",
      fmt::format("takes run {} of {} of the rows of {}, which are no blocks of which a part has some",
                  run->index, run->count, claims_.describe(from)));
  return kUnknown;
}

void OrderCheck::assume_joined(NodeId id, NodeId origin) {
  assumptions_.push_back(fmt::format("rows of {} are joined in the order of the whole, at {}",
                                     claims_.name_a(origin), claims_.name_b(id)));
}

void OrderCheck::check_join(NodeId id) {
  static const OpInfo* const cat = find_op("aten.cat.default");
  static const OpInfo* const permute = find_op("aten.permute.default");  // of a cat of permuted parts
  const NodeId origin = claims_[id].origin;
  Blocks joined{1, exprs_.number(1)};
  if (is_reshape(b_.nodes[id])) {
    const auto args = context_.args[b_.nodes[id].args];
    const Sizes rows = sizes_in_b(id),
                blocks = !args.empty() && args[0].is_node() ? sizes_in_b(args[0].as_node()) : Sizes();
    std::size_t at = 0;
    while (at < rows.size() && at < blocks.size() && rows[at] == blocks[at]) ++at;
    if (blocks.size() != rows.size() + 1 || at == rows.size()) return;
    joined.count = blocks[at];
    joined.groups = claims_.tensor_b(args[0].as_node())->sizes[at];
  } else if (b_.nodes[id].op != cat && b_.nodes[id].op != permute) {
    return;
  }
  for (NodeId part : claims_.parts(origin))
    if (!check_in_order(id, part, "joins", joined)) return;
}

void OrderCheck::check_taken(NodeId id, NodeId part) {
  check_in_order(id, part, "takes", {1, exprs_.number(1)});
}

// False: they are not, which is reported, or it is not known, which is assumed.
bool OrderCheck::check_in_order(NodeId id, NodeId part, std::string_view verb, const Blocks& whole) {
  if (!holds(Condition::kJoinsKnownOrders, blocks_[part] != kOwn)) {
    claims_.fail(id, "rewrite-join",
                 fmt::format("{} rows of {}, which are in an order of their part's own", verb,
                             claims_.describe(part)));
    return false;
  }
  if (blocks_[part] == kUnknown) {
    assume_joined(id, claims_[part].origin);
    return false;
  }
  if (blocks_[part] == whole.count && !is_known_equal(groups_of(part), whole.groups))
    rest_on_traced(part, whole.count);
  if (blocks_[part] == kOwn || blocks_[part] == kAny || blocks_[part] == whole.count) return true;
  if (blocks_[part] == kCounted && repeats_within_blocks(part, part, whole)) return true;
  claims_.fail(id, "rewrite-join",
               fmt::format("{} rows of {} blocks, of which {} has some, as those of {}", verb, blocks_[part],
                           claims_.describe(part), whole.count));
  return false;
}

}  // namespace epweave
