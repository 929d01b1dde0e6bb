// Rows that ranks gather, scatter and reduce, and that are joined and reshaped.
#include "compare/rewrite/verify_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/named_arg.h"
#include "ops/op.h"
#include "ops/sliced_run.h"

namespace epweave {
std::uint64_t FrameCheck::group_of_call() const {
  return terms_.word(named_arg(context_, *node_, "group_name"));
}

// Of several tensors, each in an order of its own.
bool FrameCheck::takes_one_tensor() const {
  return std::ranges::count_if(facts_->operands(),
                               [](const Operand& o) { return o.is_tensor && o.taken->param == 0; }) == 1;
}

// Rows that lie in the order of the tokens, and come to lie otherwise; in all parts alike.
FrameCheck::Order FrameCheck::regrouped(NodeId origin) {
  std::optional<std::int64_t> blocks;
  for (NodeId part : claims_.parts(origin)) {
    const std::int64_t of_part = blocks_.regroup(part);
    blocks = blocks.value_or(of_part) == of_part ? of_part : RowBlocks::kUnknown;
  }
  return blocks.value_or(RowBlocks::kUnknown) > 0 ? orders_.tokens_in(*blocks) : orders_.unknown(origin);
}

// Whether ranks exchange as many whole blocks, each with each.
bool FrameCheck::moves_blocks(NodeId origin) {
  return std::ranges::all_of(claims_.parts(origin), [&](NodeId part) { return blocks_.regroup(part) > 0; });
}

// Of each repetition a part has its rows of each block.
FrameCheck::Order FrameCheck::repeated(NodeId origin) {
  const auto operands = facts_->operands();
  const bool is_of_rows = !operands.empty() && operands.front().is_rows();
  const Order rows = common();
  if (!is_of_rows || rows.kind == Order::Kind::kNoRows || rows.kind == Order::Kind::kAny) return rows;
  const bool are_as_many = has_as_many_rows(operands.front(), origin);
  if (rows.is_counted() && are_as_many) return rows;
  if (rows.is_counted() || orders_.is_tokens(rows)) return regrouped(origin);
  return are_as_many ? rows : orders_.unknown(origin, rows.frame);
}

// Of what is in an order of the part's own, what is taken of the pieces says which rows these are.
FrameCheck::Order FrameCheck::split(NodeId origin) {
  const auto operands = facts_->operands();
  const Order rows = common();
  if (operands.empty() || rows.kind == Order::Kind::kNoRows || rows.kind == Order::Kind::kAny) return rows;
  const Arg given = named_arg(context_, *node_, "dim");
  if (!is_along(operands.front(), given.is_int() ? given.as_int() : 0)) return rows;
  if (rows.is_counted()) return orders_.own(origin);
  return orders_.is_tokens(rows) ? regrouped(origin) : rows;
}

// One of equal runs along the rows (ops/sliced_run.h).
bool FrameCheck::takes_run_of_rows() {
  const auto operands = facts_->operands();
  const auto run = sliced_run(claims_.graph_a(), *node_, facts_a_);
  return run && run->count > 1 && !operands.empty() &&
         is_along(operands.front(), static_cast<std::int64_t>(run->dim));
}

// Blocks of the tokens' rows; a gradient is put back among zeros.
FrameCheck::Order FrameCheck::sliced(NodeId origin) {
  const Order rows = orders_.of(facts_->operands().front());
  const bool are_some = node_->op->family == OpFamily::kSlice && rows.kind == Order::Kind::kAny;
  return are_some ? rows : regrouped(origin);
}

// Along the first dimension. What all ranks had a share of is whole again.
FrameCheck::Order FrameCheck::gathered(NodeId origin) {
  const Operand& source = facts_->operands().front();
  const Order rows = orders_.of(source);
  if (!takes_one_tensor()) return orders_.unknown(origin);
  if (!source.is_rows() || !is_along(source, 0)) return reduced();
  if (rows.is_counted()) return orders_.own(origin);
  // What is like each other on one rank need not be so on another.
  if (!rows.is_known() || orders_.is_tokens(rows)) return regrouped(origin);
  const FrameTerms::Term& term = terms_[rows.frame];
  if (term.kind == FrameTerms::kScatter && term.values[0] == group_of_call()) return Order::known(term.base);
  return Order::known(terms_.intern({FrameTerms::kGather, rows.frame, {group_of_call()}}));
}

// Back: each rank has its own rows of what all ranks made of them.
FrameCheck::Order FrameCheck::scattered(NodeId origin) {
  const Operand& source = facts_->operands().front();
  if (!takes_one_tensor()) return dealt(orders_.unknown(origin));
  const Order rows = reduced();
  if (!is_along(source, 0) || rows.kind == Order::Kind::kNoRows || rows.kind == Order::Kind::kAny)
    return rows;
  if (rows.is_counted()) return orders_.own(origin);
  if (orders_.is_tokens(rows)) {
    const Order made = regrouped(origin);
    return orders_.is_tokens(made) ? made : dealt(made);
  }
  const FrameTerms::Term& term = terms_[rows.frame];
  if (term.kind == FrameTerms::kGather && term.values[0] == group_of_call()) return Order::known(term.base);
  return dealt(rows);
}

FrameCheck::Order FrameCheck::dealt(const Order& rows) {
  return Order::known(terms_.intern({FrameTerms::kScatter, rows.frame, {group_of_call()}}));
}

// Rows meet those of other ranks that lie in the same places: they are added up, or lie side by
// side where ranks exchange along another dimension. What is written is taken, too, but for `out`.
FrameCheck::Order FrameCheck::reduced() {
  for (const Operand& operand : facts_->operands())
    if (operand.is_tensor && (operand.taken->param == 0 || !operand.taken->is_written))
      assume_one_order_on_ranks(operand);
  return common();
}

// One behind another. Of rows in the order of the tokens, the blocks are followed (row_blocks.h).
FrameCheck::Order FrameCheck::joined(NodeId origin) {
  const auto operands = facts_->operands();
  const Arg given = named_arg(context_, *node_, "dim");
  const std::int64_t dim = given.is_int() ? given.as_int() : 0;
  if (std::ranges::none_of(operands, [&](const Operand& o) { return is_along(o, dim); })) return common();
  const auto tensors = std::ranges::count_if(operands, [](const Operand& o) { return o.is_tensor; });
  if (tensors == 1) return orders_.of(operands.front());
  std::vector<std::uint64_t> words;
  bool are_tokens = true, are_one = true, any_counted = false;
  for (const Operand& operand : operands) {
    if (!operand.is_tensor) continue;
    const Order order = orders_.of(operand);
    are_tokens &= orders_.is_tokens(order) || order.kind == Order::Kind::kAny;
    are_one &= order.kind == Order::Kind::kAny && operand.taken->value == operands.front().taken->value;
    any_counted |= order.is_counted();
    words.push_back(order.is_known() ? order.frame.index() : FrameTerms::kNoFrame);
    const ExprId extent =
        operand.is_rows() ? divided_extent(value_in_a(operand), operand.is_divided) : ExprId();
    words.push_back(extent ? facts_a_.normalize(extent).index() : FrameTerms::kNoFrame);
  }
  if (any_counted) return orders_.own(origin);
  if (are_one) return {Order::Kind::kAny, {}};
  return are_tokens && !joins_unequal_blocks()
             ? regrouped(origin)
             : Order::known(terms_.intern({FrameTerms::kJoin, {}, std::move(words)}));
}

// Whether rows of tokens in blocks of one length stand beside others, of another: the parts of such
// have no order in which a join could show the whole's. By the traced numbers.
bool FrameCheck::joins_unequal_blocks() {
  std::optional<std::int64_t> length;
  for (const Operand& operand : facts_->operands()) {
    const Order order = orders_.of(operand);
    if (!operand.is_tensor || !orders_.is_tokens(order)) continue;
    const auto blocks = static_cast<std::int64_t>(terms_[order.frame].values[0]);
    const ExprId extent = divided_extent(value_in_a(operand), operand.is_divided);
    const auto rows = extent ? facts_a_.hint(extent) : std::nullopt;
    if (blocks <= 0 || !rows || *rows == 0 || *rows % blocks != 0) return false;
    if (length && *length != *rows / blocks) return true;
    length = *rows / blocks;
  }
  return false;
}

ExprId FrameCheck::divided_extent(NodeId a, const std::vector<bool>& is_divided) const {
  const TensorType* type = claims_.tensor_a(a);
  const auto at = static_cast<std::size_t>(std::ranges::find(is_divided, true) - is_divided.begin());
  return type != nullptr && at < is_divided.size() && at < type->rank() ? type->sizes[at] : ExprId();
}

// How often the dimensions in front of the rows repeat them.
PolyId FrameCheck::outer_extents(NodeId value, const std::vector<bool>& is_divided) {
  ExprPool& pool = facts_a_.pool();
  PolyId product = pool.poly_number(1);
  const TensorType* type = claims_.tensor_a(value);
  for (std::size_t i = 0; i < is_divided.size() && !is_divided[i]; ++i)
    product = pool.mul(product, facts_a_.normalize(type->sizes[i]));
  return product;
}

// Whether rows that were one behind another are in several groups: of those a part has others.
bool FrameCheck::splits_rows(NodeId origin, NodeId part) {
  const Operand& source = facts_->operands().front();
  const ExprPool& pool = facts_a_.pool();
  const auto before = pool.constant(outer_extents(value_in_a(source), source.is_divided)),
             after = pool.constant(outer_extents(origin, facts_->divided_dimensions(origin, part)));
  return before && after && *after > 0 && *before % *after != 0;
}

// A type may round what a part has: six elements are no rows of four.
void FrameCheck::check_elements(NodeId origin, NodeId part) {
  const Node& node = claims_.graph_b().step().nodes[part];
  const Arg source = arg_of(context_, node, 0);
  const TensorType* taken = source.is_node() ? claims_.tensor_b(source.as_node()) : nullptr;
  const TensorType* made = claims_.tensor_b(part);
  if (!has_family(node, OpFamily::kReshape) || taken == nullptr || made == nullptr) return;
  Facts& facts = claims_.facts_b();
  const ExprId before = product(facts, taken->sizes), after = product(facts, made->sizes);
  if (facts.equal(before, after) || facts.assumed_value(facts.pool().sub(before, after)) == 0) return;
  const auto traced = facts.hint(before), regrouped = facts.hint(after);
  if (!traced || !regrouped || *traced == *regrouped) return assumed_.all_elements(origin, before, after);
  claims_.fail(part, "rewrite-rows",
               fmt::format("regroups {} elements of {} as {}", *traced, claims_.describe(source.as_node()),
                           *regrouped));
}

FrameCheck::Order FrameCheck::fail_regrouped(NodeId origin, NodeId part) {
  const Operand& source = facts_->operands().front();
  claims_.fail(part, "rewrite-rows",
               fmt::format("regroups rows of {}, of which a part has others side by side than the whole",
                           claims_.describe(source.taken->value.as_node())));
  return orders_.unknown(origin, orders_.of(source).frame);
}

// As many rows, c of each, or one of c that were each's. Others have other neighbours in a part.
FrameCheck::Order FrameCheck::reshaped(NodeId origin, NodeId part) {
  for (NodeId each : claims_.parts(origin)) check_elements(origin, each);
  const Operand& source = facts_->operands().front();
  const Order rows = orders_.of(source);
  if (rows.kind == Order::Kind::kNoRows) return rows;
  const std::vector<bool> is_divided = facts_->divided_dimensions(origin, part);
  const ExprId before = divided_extent(value_in_a(source), source.is_divided),
               after = divided_extent(origin, is_divided);
  const bool has_same_outer =
      facts_a_.equal(outer_extents(value_in_a(source), source.is_divided), outer_extents(origin, is_divided));
  const bool is_kept = before && after && has_same_outer && facts_a_.equal(before, after);
  // What is no longer 0, 1, .. numbers rows from place to place, as they lie; so do rows that were
  // like each other.
  if (orders_.is_tokens(rows) || !rows.is_known()) return is_kept ? rows : regrouped(origin);
  if (!is_kept && orders_.joins_tokens(rows)) return orders_.unknown(origin, rows.frame);
  if (node_->op->family != OpFamily::kReshape) return is_kept ? rows : orders_.unknown(origin, rows.frame);
  if (splits_rows(origin, part)) return fail_regrouped(origin, part);
  if (!before || !after || !has_same_outer) return orders_.unknown(origin, rows.frame);
  if (is_kept) return rows;
  ExprPool& pool = facts_a_.pool();
  const PolyId few = facts_a_.normalize(before), many = facts_a_.normalize(after);
  const auto is_count = [&](const std::optional<PolyId>& ratio) {
    return ratio && pool.constant(*ratio).has_value();
  };
  if (const auto pieces = pool.divide_exactly(many, few); is_count(pieces))
    return Order::known(terms_.intern({FrameTerms::kEach, rows.frame, {pieces->index()}}));
  const auto pieces = pool.divide_exactly(few, many);
  const FrameTerms::Term& term = terms_[rows.frame];
  if (is_count(pieces) && term.kind == FrameTerms::kEach && term.values[0] == pieces->index())
    return Order::known(term.base);
  return fail_regrouped(origin, part);
}

}  // namespace epweave
