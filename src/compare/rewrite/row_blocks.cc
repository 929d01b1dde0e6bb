#include "compare/rewrite/row_blocks.h"

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

namespace epweave {
namespace {

std::vector<std::int64_t> numbers_of(Facts& facts, const TensorType* type) {
  std::vector<std::int64_t> sizes;
  if (type == nullptr) return sizes;
  for (ExprId extent : type->sizes) {
    auto number = facts.hint(extent);
    if (!number) number = facts.hint(facts.normalize(extent));
    if (!number) return {};
    sizes.push_back(*number);
  }
  return sizes;
}

std::int64_t product_of(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

RowBlocks::RowBlocks(RewriteClaims& claims)
    : claims_(claims),
      context_(*claims.graph_a().context),
      exprs_(claims.graph_a().context->exprs),
      a_(claims.graph_a().step()),
      b_(claims.graph_b().step()),
      facts_a_(claims.facts_a()),
      facts_b_(claims.facts_b()),
      blocks_(claims.graph_b().step().nodes.size(), kUnknown) {
  for (NodeId id : b_.order)
    if (claims_[id].kind == ClaimKind::kPiece) blocks_[id] = blocks_of_piece(id);
}

void RowBlocks::set(NodeId share, std::int64_t rows, std::int64_t numbered, NodeId since) {
  if (since != share && blocks_[share] != rows) before_.at(share).push_back({since, blocks_[share]});
  blocks_[share] = rows;
  numbered_.at(share) = numbered;
}

void RowBlocks::note_extents(NodeId part) {
  if (numbered_[part] > 1) numbered_groups_.at(part) = find_numbered_groups(part);
  if (blocks_[part] > 1) take_groups(part);
  if (blocks_[part] == kCounted) note_period(part);
}

RowBlocks::Sizes RowBlocks::sizes_in_a(NodeId id) {
  return numbers_of(facts_a_, claims_.tensor_a(id));
}
RowBlocks::Sizes RowBlocks::sizes_in_b(NodeId id) {
  return numbers_of(facts_b_, claims_.tensor_b(id));
}

// By the facts and by what B takes for granted, which is printed.
bool RowBlocks::is_known_equal(ExprId x, ExprId y) {
  return facts_b_.equal(x, y) || facts_b_.assumed_value(exprs_.sub(x, y)) == 0;
}

ExprId RowBlocks::groups_of(NodeId share) {
  return groups_[share] ? groups_[share] : exprs_.number(plain_blocks(share));
}

// The groups that a call's operands have in common, or those that they number, unless it makes
// others.
void RowBlocks::take_groups(NodeId id) {
  if (groups_[id]) return;
  ExprId groups, numbered;
  for_each_input(context_, b_.nodes[id], [&](NodeId input) {
    if (!is_share(input)) return;
    if (numbered_[input] == blocks_[id]) numbered = numbered_groups_[input];
    if (blocks_[input] != blocks_[id]) return;
    if (!groups) groups = groups_of(input);
    if (!is_known_equal(groups, groups_of(input))) rest_on_traced(id, blocks_[id]);
  });
  groups_.at(id) = groups ? groups : numbered;
  if (!groups_[id]) rest_on_traced(id, blocks_[id]);
}

// Of the rows that are numbered: those of the numbers that it is made of, or of what was sorted.
ExprId RowBlocks::find_numbered_groups(NodeId id) {
  ExprId groups;
  for_each_input(context_, b_.nodes[id], [&](NodeId input) {
    if (is_share(input) && numbered_[input] == numbered_[id]) groups = numbered_groups_[input];
  });
  NodeId from = first_share(id);
  if (from && claims_.tensor_b(from) == nullptr) from = first_share(from);  // an element of a sort
  return !groups && from && blocks_[from] == numbered_[id] ? groups_of(from) : groups;
}

// `traced`: how many there were when traced.
void RowBlocks::divide_groups(NodeId id, ExprId all, ExprId by, std::int64_t traced) {
  for (const ExprId groups : {exprs_.number(traced), exprs_.floordiv(all, by)})
    if (is_known_equal(exprs_.mul(groups, by), all)) {
      groups_.at(id) = groups;
      return;
    }
  rest_on_traced(id, traced);
}

void RowBlocks::rest_on_traced(NodeId id, std::int64_t blocks) {
  const NodeId origin = claims_[id].origin;
  if (!traced_.insert({origin, blocks}).second) return;
  assumptions_.push_back(fmt::format("a part of {} has rows of {} {}, as when traced", claims_.name_a(origin),
                                     blocks, blocks == 1 ? "block" : "blocks"));
}

// Of the first dimensions.
ExprId RowBlocks::product(const TensorType* type, std::size_t dims) {
  ExprId all = exprs_.number(1);
  for (ExprId extent : std::span(type->sizes).first(dims)) all = exprs_.mul(all, extent);
  return all;
}

ExprId RowBlocks::rows_in_a(NodeId id) {
  return claims_.tensor_a(claims_[id].origin)->sizes.front();
}

bool RowBlocks::is_share(NodeId b) const {
  return claims_[b].kind == ClaimKind::kPart || claims_[b].kind == ClaimKind::kPiece;
}

int RowBlocks::divided_dimension(NodeId b) {
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

NodeId RowBlocks::first_share(NodeId id) const {
  const Arg operand = arg_of(context_, b_.nodes[id], 0);
  const NodeId first = operand.is_node() ? operand.as_node() : NodeId();
  return first && is_share(first) ? first : NodeId();
}

// A piece is cut plainly, or has rows of each block in a dimension of its own until it is viewed as
// rows.
std::int64_t RowBlocks::blocks_of_piece(NodeId id) {
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

NodeId RowBlocks::split_of(NodeId piece) const {
  NodeId id = piece;
  while (id && claims_[id].kind == ClaimKind::kPiece) {
    const Arg from = arg_of(context_, b_.nodes[id], 0);
    id = from.is_node() ? from.as_node() : NodeId();
  }
  return id;
}

std::optional<bool> RowBlocks::are_cut_alike(NodeId p, NodeId q) const {
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

// Of a call that puts rows of its first share elsewhere, in the order of the tokens; kUnknown: it
// is not known.
std::int64_t RowBlocks::regroup(NodeId part) {
  const NodeId from = first_share(part);
  const RowOrder order = row_order(b_.nodes[part].op->family);
  if (order == RowOrder::kJoined) return blocks_of_cat(part);
  if (order == RowOrder::kHandedOn) return blocks_of_slice(part);
  if (!from || blocks_[from] == kUnknown || blocks_[from] == kOwn) return kUnknown;
  switch (order) {
    case RowOrder::kExchanged:
      return blocks_of_exchange(part, from);
    case RowOrder::kRepeated:
      return blocks_of_repeat(part, from);
    case RowOrder::kRegrouped:
      return blocks_of_reshape(part, from);
    case RowOrder::kGathered:
      return blocks_of_gather(part, from);
    case RowOrder::kScattered:
      return blocks_of_scatter(part, from);
    case RowOrder::kSplit:
      return blocks_of_split(part, from);
    default:
      return kUnknown;
  }
}

// Of 0, 1, .. divided by c, or of the remainders by c, c times that of what is divided.
void RowBlocks::note_period(NodeId id) {
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
void RowBlocks::check_remainders(NodeId id) {
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
bool RowBlocks::repeats_within_blocks(NodeId counted, NodeId rows, const Blocks& blocks) {
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

void RowBlocks::check_counted(NodeId id, NodeId counted, NodeId rows) {
  if (repeats_within_blocks(counted, rows, {blocks_[rows], groups_of(rows)})) return;
  claims_.fail(
      id, "rewrite-rows",
      fmt::format("pairs rows of {}, of which a part has some of {} blocks, with {}, which repeats "
                  "itself after {} rows and so begins elsewhere in a block than in the whole",
                  claims_.describe(rows), blocks_[rows], claims_.describe(counted), period_[counted]));
}

void RowBlocks::check_numbered(NodeId id, NodeId counted, std::int64_t blocks) {
  if (repeats_within_blocks(counted, counted, {blocks, exprs_.number(blocks)})) return;
  claims_.fail(
      id, "rewrite-rows",
      fmt::format("picks rows of {} by numbers of {} blocks, and it repeats itself after {} rows and "
                  "so begins elsewhere in a block than in the whole",
                  claims_.describe(counted), blocks, period_[counted]));
}

// Of each repetition a part has its rows of each block; 0, 1, .. that are repeated lie one behind
// another.
std::int64_t RowBlocks::blocks_of_repeat(NodeId id, NodeId from) {
  const int dim = divided_dimension(id);
  const auto repeats = named_items(context_, b_.nodes[id], "repeats");
  if (dim < 0 || static_cast<std::size_t>(dim) >= repeats.size()) return kUnknown;
  const Arg count = repeats[static_cast<std::size_t>(dim)];
  if (!count.is_int() || count.as_int() <= 0) return kUnknown;
  groups_.at(id) = exprs_.mul(groups_of(from), exprs_.number(count.as_int()));
  return plain_blocks(from) * count.as_int();
}

// How many runs of rows of a part there are in all does not change. Each group of rows must have
// as many runs, and no row be made of two. 0, 1, .. that are regrouped, and rows that were like
// each other, lie one behind another.
std::int64_t RowBlocks::blocks_of_reshape(NodeId id, NodeId from) {
  const int before = divided_dimension(from), after = divided_dimension(id);
  if (before < 0 || after < 0) return kUnknown;
  const Sizes source = sizes_in_a(claims_[from].origin), target = sizes_in_a(claims_[id].origin);
  const auto at = static_cast<std::size_t>(before), to = static_cast<std::size_t>(after);
  const std::int64_t outer_before = product_of(std::span(source).first(at)),
                     outer = product_of(std::span(target).first(to)),
                     inner = product_of(std::span(target).subspan(to + 1));
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

// Blocks stay where each rank gets as many of them.
std::int64_t RowBlocks::blocks_of_exchange(NodeId id, NodeId from) {
  const Node& whole = a_.nodes[claims_[id].origin];
  if (!has_family(whole, OpFamily::kAllToAll) || divided_dimension(from) != 0) return kUnknown;
  const auto all = count_equal_shares(facts_a_, claims_.graph_a(), whole),
             own = count_equal_shares(facts_b_, claims_.graph_b(), b_.nodes[id]);
  if (!all || all != own || blocks_[from] <= 0 || blocks_[from] % *all != 0) return kUnknown;
  const ExprId groups = groups_of(from), ranks = exprs_.number(*all);
  if (!is_known_equal(exprs_.mul(exprs_.floordiv(groups, ranks), ranks), groups))
    rest_on_traced(id, blocks_[from]);
  groups_.at(id) = groups;
  return blocks_[from];
}

std::int64_t RowBlocks::blocks_of_gather(NodeId id, NodeId from) {
  const Sizes mine = sizes_in_a(claims_[from].origin), all = sizes_in_a(claims_[id].origin);
  if (divided_dimension(from) != 0 || mine.empty() || all.empty() || mine[0] == 0) return kUnknown;
  const std::int64_t ranks = all[0] / mine[0], blocks = plain_blocks(from) * ranks;
  divide_groups(id, exprs_.mul(groups_of(from), rows_in_a(id)), rows_in_a(from), blocks);
  return blocks;
}

std::int64_t RowBlocks::blocks_of_scatter(NodeId id, NodeId from) {
  const Sizes all = sizes_in_a(claims_[from].origin), mine = sizes_in_a(claims_[id].origin);
  if (divided_dimension(from) != 0 || mine.empty() || all.empty() || mine[0] == 0) return kUnknown;
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

std::int64_t RowBlocks::blocks_of_cat(NodeId id) {
  const Arg list = arg_of(context_, b_.nodes[id], 0);
  if (divided_dimension(id) < 0 || !list.is_list()) return kUnknown;
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
    const std::int64_t found = !is_known                             ? kUnknown
                               : blocks_[item.as_node()] == kCounted ? 1
                                                                     : blocks_[item.as_node()];
    const TensorType* type = is_known ? claims_.tensor_b(item.as_node()) : nullptr;
    if (found == kUnknown || found == kOwn || type == nullptr) return kUnknown;
    if (first != nullptr && !is_as_first(*type)) return kUnknown;
    first = type;
    if (found == kAny) continue;
    if (counted && found != blocks) return kUnknown;
    blocks = found;
    counted = item.as_node();
  }
  if (items.empty()) return kUnknown;
  if (!counted) blocks = 1;
  const auto count = static_cast<std::int64_t>(items.size());
  groups_.at(id) = exprs_.mul(counted ? groups_of(counted) : exprs_.number(1), exprs_.number(count));
  return blocks * count;
}

std::int64_t RowBlocks::blocks_of_split(NodeId id, NodeId from) {
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

// One of equal runs of the rows is whole blocks, or becomes such among zeros.
std::int64_t RowBlocks::blocks_of_slice(NodeId id) {
  const Node& node = b_.nodes[id];
  const auto run = sliced_run(claims_.graph_b(), node, facts_b_);
  const NodeId from = first_share(id);
  if (!run || !from) return kUnknown;
  const bool numbers_rows = numbered_[from] != kUnknown && numbered_[from] != kAny;
  const bool is_one_cut = divided_dimension(from) == static_cast<int>(run->dim) && !numbers_rows;
  const std::int64_t blocks = is_one_cut ? blocks_[from] : kUnknown;
  if (!has_family(node, OpFamily::kSlice) && (blocks == kAny || blocks > 0)) {
    groups_.at(id) = exprs_.mul(groups_of(from), exprs_.number(run->count));
    return plain_blocks(from) * run->count;
  }
  if (blocks > 0 && blocks % run->count == 0) {
    divide_groups(id, groups_of(from), exprs_.number(run->count), blocks / run->count);
    return blocks / run->count;
  }
  claims_.fail(
      id, "rewrite-rows",
      fmt::format("takes run {} of {} of the rows of {}, which are no blocks of which a part has some",
                  run->index, run->count, claims_.describe(from)));
  return kUnknown;
}

std::int64_t RowBlocks::blocks_at(NodeId id, NodeId share) {
  const std::vector<Before>& changes = before_[share];
  if (!changes.empty() && place_.size() == 0) {
    place_ = IdVector<NodeId, std::size_t>(b_.nodes.size(), 0);
    for (std::size_t i = 0; i < b_.order.size(); ++i) place_[b_.order[i]] = i;
  }
  for (const auto& [call, blocks] : changes)
    if (call && place_[id] < place_[call]) return blocks;
  return blocks_[share];
}

void RowBlocks::assume_joined(NodeId id, NodeId origin) {
  assumptions_.push_back(fmt::format("rows of {} are joined in the order of the whole, at {}",
                                     claims_.name_a(origin), claims_.name_b(id)));
}

void RowBlocks::check_join(NodeId id) {
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

void RowBlocks::check_taken(NodeId id, NodeId part) {
  check_in_order(id, part, "takes", {1, exprs_.number(1)});
}

// False: they are not, which is reported, or it is not known, which is assumed. An empty value has
// no rows.
bool RowBlocks::check_in_order(NodeId id, NodeId part, std::string_view verb, const Blocks& whole) {
  const Sizes sizes = sizes_in_b(part);
  if (std::ranges::find(sizes, 0) != sizes.end() && sizes == sizes_in_a(claims_[part].origin)) return true;
  const std::int64_t blocks = blocks_at(id, part);
  if (!holds(Condition::kJoinsKnownOrders, blocks != kOwn)) {
    claims_.fail(id, "rewrite-join",
                 fmt::format("{} rows of {}, which are in an order of their part's own", verb,
                             claims_.describe(part)));
    return false;
  }
  if (blocks == kUnknown) {
    assume_joined(id, claims_[part].origin);
    return false;
  }
  const ExprId groups = groups_[part] ? groups_[part] : exprs_.number(std::max<std::int64_t>(blocks, 1));
  if (blocks == whole.count && !is_known_equal(groups, whole.groups)) rest_on_traced(part, whole.count);
  if (blocks == kOwn || blocks == kAny || blocks == whole.count) return true;
  if (blocks == kCounted && repeats_within_blocks(part, part, whole)) return true;
  claims_.fail(id, "rewrite-join",
               fmt::format("{} rows of {} blocks, of which {} has some, as those of {}", verb,
                           std::max<std::int64_t>(blocks, 1), claims_.describe(part), whole.count));
  return false;
}

}  // namespace epweave
