#include "compare/rewrite/verify_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "compare/rewrite/conditions.h"
#include "ops/bind.h"
#include "ops/mapping.h"
#include "ops/named_arg.h"
#include "ops/op.h"
#include "ops/random_draws.h"
#include "ops/sliced_run.h"
#include "ops/sorting.h"

namespace epweave {
namespace {

// Whether a part may have less than all of a dimension with these factors. One that is several is
// divided in blocks of one of them; which, the order of the part's rows says.
bool may_divide(const CallMapping& mapping, std::span<const Factor> factors) {
  const auto is_free = [&](Factor factor) {
    switch (mapping.use(factor)) {
      case FactorUse::kPassed:
      case FactorUse::kSummed:
      case FactorUse::kIndexed:
        return true;
      case FactorUse::kReduced:
      case FactorUse::kWhole:
        return false;
    }
    return false;
  };
  return factors.empty() || std::ranges::any_of(factors, is_free);
}

const CallMapping kUnknownMapping;

// Calls whose parts have rules of their own, or that read no element.
bool has_own_rules(OpFamily family) {
  return family == OpFamily::kFlexAttention || family == OpFamily::kSize || family == OpFamily::kElement ||
         family == OpFamily::kCheck || family == OpFamily::kHostRead || family == OpFamily::kMesh;
}

}  // namespace

// Rows that are sorted as wholes are in an order of the part's own, which RowBlocks follows.
bool RowCheck::is_sort_of_whole_rows(const Node& origin) const {
  if (!has_family(origin, OpFamily::kSort)) return false;
  const Context& context = *claims_.graph_a().context;
  const Arg keys = arg_of(context, origin, 0);
  const TensorType* type = keys.is_node() ? claims_.tensor_a(keys.as_node()) : nullptr;
  return type != nullptr && sorts_whole_rows(context, origin, *type);
}

bool RowCheck::is_divided(ExprId whole, ExprId piece) {
  return numbers_.match(whole, piece, {}) != Fraction::kAll;
}

bool RowCheck::has_divided_operand(NodeId part) {
  bool is_found = false;
  for_each_input(*claims_.graph_b().context, claims_.graph_b().step().nodes[part], [&](NodeId input) {
    const Claim& claim = claims_[input];
    const bool is_share = claim.kind == ClaimKind::kPart || claim.kind == ClaimKind::kPiece;
    const TensorType* piece = claims_.tensor_b(input);
    const TensorType* whole = is_share && claim.origin ? claims_.tensor_a(claim.origin) : nullptr;
    if (is_found || piece == nullptr || whole == nullptr) return;
    is_found = whole->sizes.size() != piece->sizes.size();
    for (std::size_t i = 0; i < whole->sizes.size() && !is_found; ++i)
      is_found = is_divided(whole->sizes[i], piece->sizes[i]);
  });
  return is_found;
}

void RowCheck::fail(NodeId part, NodeId operand, std::size_t dim) {
  const Context& context = *claims_.graph_b().context;
  const TensorType* type = claims_.tensor_b(operand);
  const TensorType* whole = claims_.tensor_a(claims_[operand].origin);
  const auto print = [&](ExprId extent) { return context.exprs.print(context.exprs.poly(extent)); };
  claims_.fail(part, "rewrite-rows",
               fmt::format("mixes what lies along dimension {} of {}, of which it has {} of {}", dim,
                           claims_.describe(operand), print(type->sizes[dim]),
                           whole != nullptr && dim < whole->sizes.size() ? print(whole->sizes[dim]) : "all"));
}

const CallMapping& RowCheck::mapping_of(NodeId origin) {
  const CallMapping*& known = mapping_of_.at(origin);
  const Graph& a = claims_.graph_a();
  if (known == nullptr) known = &mappings_.map(mapped_node(a, a.step().nodes[origin], facts_)->call);
  return *known;
}

// Sizes to send and to receive by that are the whole call's.
bool RowCheck::takes_tables_of_whole(NodeId part) {
  const Graph &a = claims_.graph_a(), &b = claims_.graph_b();
  Context& context = *b.context;
  for (const std::string_view name : {"output_split_sizes", "input_split_sizes"}) {
    const auto before = named_items(context, a.step().nodes[claims_[part].origin], name),
               after = named_items(context, b.step().nodes[part], name);
    if (before.size() != after.size()) return false;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const ExprId whole = number_of(context, a.step(), before[i]),
                   own = number_of(context, b.step(), after[i]);
      if (!whole || !own || is_divided(whole, own)) return false;
    }
  }
  return true;
}

// Ranks exchange rows. A part that has all of them, or some of each, exchanges as the whole call.
bool RowCheck::check_exchange(NodeId part) {
  const Arg operand = arg_of(*claims_.graph_b().context, claims_.graph_b().step().nodes[part], 0);
  const TensorType* piece = operand.is_node() ? claims_.tensor_b(operand.as_node()) : nullptr;
  const Claim* claim = operand.is_node() ? &claims_[operand.as_node()] : nullptr;
  const TensorType* whole = claim != nullptr && claim->origin ? claims_.tensor_a(claim->origin) : nullptr;
  const bool has_own_rows = piece != nullptr && whole != nullptr && piece->rank() > 0 && whole->rank() > 0 &&
                            is_divided(whole->sizes[0], piece->sizes[0]);
  if (has_own_rows || holds(Condition::kOwnTablesCutOwnRows, takes_tables_of_whole(part))) return true;
  claims_.fail(part, "rewrite-rows", "exchanges by sizes of its own what is not rows of its own");
  return false;
}

// A slice that takes the same one of as many equal runs as the whole call: those are blocks of the
// rows, of which the part has some (row_blocks.h).
bool RowCheck::takes_run_of_blocks(const Node& origin, const Node& part) {
  if (origin.op == nullptr || part.op == nullptr) return false;
  const auto whole = sliced_run(claims_.graph_a(), origin, facts_);
  return whole && whole->count > 1 &&
         holds(Condition::kMixesNoRows, whole == sliced_run(claims_.graph_b(), part, claims_.facts_b()));
}

void RowCheck::check(NodeId part) {
  const Node& node = claims_.graph_b().step().nodes[part];
  if (node.op != nullptr && has_own_rules(node.op->family)) return;
  const Node& origin = claims_.graph_a().step().nodes[claims_[part].origin];
  const bool is_exchange = has_family(node, OpFamily::kAllToAll) && has_family(origin, OpFamily::kAllToAll);
  if (is_exchange && !check_exchange(part)) return;
  if (!has_divided_operand(part) || is_sort_of_whole_rows(origin)) return;
  if (has_family(node, OpFamily::kAttention)) return check_attention(part);
  if (takes_run_of_blocks(origin, node)) return;
  const bool are_known = node.op != nullptr && origin.op != nullptr;
  const CallMapping& mapping = are_known ? mapping_of(claims_[part].origin) : kUnknownMapping;
  if (!mapping.is_known()) {
    if (node.op == nullptr || !passes_all(node.op->family))
      claims_.fail(part, "rewrite-rows",
                   "takes a part of a tensor, and nothing is known of what the op makes of parts");
    return;
  }
  const std::vector<NodeId> before = mapped_operands(claims_.graph_a(), origin),
                            after = mapped_operands(claims_.graph_b(), node);
  std::vector<Cut> cuts(mapping.factor_count());
  for (std::size_t i = 0; i < before.size() && i < after.size(); ++i) {
    const TensorType *whole = claims_.tensor_a(before[i]), *piece = claims_.tensor_b(after[i]);
    for (std::size_t d = 0; d < whole->sizes.size() && d < piece->sizes.size(); ++d) {
      const auto factors = mapping.operand(i, d);
      const bool is_cut = is_divided(whole->sizes[d], piece->sizes[d]);
      const bool is_passed = may_divide(mapping, factors) &&
                             is_as_traced(claims_[part].origin, mapping, factors, whole->sizes[d]);
      if (is_cut && !holds(Condition::kMixesNoRows, is_passed)) return fail(part, after[i], d);
      if (factors.size() == 1) cuts[factors[0]].note(after[i], d, is_cut);
    }
  }
  for (const Cut& cut : cuts)
    if (!check_cut(part, cut)) return;
  check_sums(part, mapping, cuts);
}

// A sum along two dimensions, each cut in an operand of its own, is one of pairs, of which a part
// has those of its own rows alone.
void RowCheck::check_sums(NodeId part, const CallMapping& mapping, std::span<const Cut> cuts) {
  const Cut* other = nullptr;
  for (Factor factor = 0; factor < cuts.size(); ++factor) {
    if (mapping.use(factor) != FactorUse::kSummed || !cuts[factor].divided) continue;
    if (other != nullptr && !holds(Condition::kPairsRows, cuts[factor].divided == other->divided))
      return claims_.fail(
          part, "rewrite-rows",
          fmt::format("adds up pairs of rows of {} and of {}, of which a part has its own alone",
                      claims_.describe(other->divided), claims_.describe(cuts[factor].divided)));
    other = &cuts[factor];
  }
}

// The mapping is that of the extents that were traced: what was one dimension of operand and result
// then, or none at all, is so whatever the extent.
bool RowCheck::is_as_traced(NodeId origin, const CallMapping& mapping, std::span<const Factor> factors,
                            ExprId extent) {
  if (factors.empty())
    return facts_.hint(extent) != 1 || claims_.graph_a().context->exprs.constant(extent) == 1;
  const TensorType* result = claims_.tensor_a(origin);
  const auto dim = factors.size() == 1 && result != nullptr && mapping.result_count() > 0
                       ? mapping.result_dim(0, factors[0])
                       : std::nullopt;
  return !dim || *dim >= result->sizes.size() || facts_.equal(result->sizes[*dim], extent);
}

bool RowCheck::check_cut(NodeId part, const Cut& cut) {
  const bool is_one_cut = !cut.divided || !cut.whole;
  if (holds(Condition::kPairsRows, is_one_cut)) return true;
  claims_.fail(
      part, "rewrite-rows",
      fmt::format("takes all of dimension {} of {}, which lies beside dimension {} of {}", cut.whole_dim,
                  claims_.describe(cut.whole), cut.divided_dim, claims_.describe(cut.divided)));
  return false;
}

// [batch, heads, queries, head dimension]; a mask, aligned at the last dimension, is of [batch,
// heads, queries, keys]. Its own part for each part of a causal call is checked with that call
// (verify_causal_mask.h).
void RowCheck::check_attention(NodeId part) {
  const Context& context = *claims_.graph_b().context;
  const Node& after = claims_.graph_b().step().nodes[part];
  const Node& before = claims_.graph_a().step().nodes[claims_[part].origin];
  if (has_dropout(context, after))
    return claims_.fail(
        part, "rewrite-rows",
        "draws which elements it drops by their places, and those of a part are counted from 0");
  enum Axis : std::uint8_t { kBatch, kHeads, kQueries, kKeys, kAxes };
  std::array<Cut, kAxes> cuts;
  std::vector<NodeId> keys;  // of which the part has some heads
  for (std::size_t p = 0; p < after.op->params.size(); ++p) {
    const std::string_view name = after.op->params[p].name;
    const Arg x = arg_of(context, before, p), y = arg_of(context, after, p);
    const TensorType* whole = x.is_node() ? claims_.tensor_a(x.as_node()) : nullptr;
    const TensorType* piece = y.is_node() ? claims_.tensor_b(y.as_node()) : nullptr;
    if (whole == nullptr || piece == nullptr || whole->rank() != piece->rank()) continue;
    const bool is_mask = name == "attn_bias" || name == "attn_mask";
    const bool is_keys = name == "key" || name == "value";
    // Statistics may be padded: those of a part may be as many as the whole's.
    const bool is_own_statistic = name == "logsumexp" && claims_.share_of(y.as_node()).parts > 1;
    if (!is_mask && whole->rank() < 3) continue;
    const std::size_t skipped = is_mask ? kAxes - std::min<std::size_t>(whole->rank(), kAxes) : 0;
    for (std::size_t d = 0; d < whole->rank(); ++d) {
      std::size_t axis = d + skipped;
      const bool is_cut = is_divided(whole->sizes[d], piece->sizes[d]);
      // A score is a sum over all of the head dimension.
      if (axis >= kKeys && !is_mask && is_cut) return fail(part, y.as_node(), d);
      if (axis >= kAxes || (axis == kKeys && !is_mask)) continue;
      if (is_keys && axis == kQueries) axis = kKeys;
      if (context.exprs.constant(whole->sizes[d]) == 1) continue;
      if (is_own_statistic && axis == kQueries) continue;
      cuts[axis].note(y.as_node(), d, is_cut);
      if (is_keys && axis == kHeads && is_cut) keys.push_back(y.as_node());
    }
  }
  for (const Cut& cut : cuts)
    if (!check_cut(part, cut)) return;
  for (const NodeId key : keys)
    if (!has_heads_of_whole(part, key))
      return claims_.fail(
          part, "rewrite-rows",
          fmt::format("has other heads of {} for each head of its queries than the whole call",
                      claims_.describe(key)));
}

// Several heads of queries may share one of keys: as many as in the whole call.
bool RowCheck::has_heads_of_whole(NodeId part, NodeId key) {
  constexpr std::size_t kHeads = 1;
  const Context& context = *claims_.graph_b().context;
  const Node& node = claims_.graph_b().step().nodes[part];
  const auto position = node.op->find_param("query");
  const Arg query = position ? arg_of(context, node, *position) : Arg::none();
  if (!query.is_node()) return false;
  const auto heads = [&](const TensorType* type) {
    return type != nullptr && type->rank() > kHeads ? type->sizes[kHeads] : ExprId();
  };
  const ExprId queries = heads(claims_.tensor_b(query.as_node())), keys = heads(claims_.tensor_b(key)),
               all_queries = heads(claims_.tensor_a(claims_[query.as_node()].origin)),
               all_keys = heads(claims_.tensor_a(claims_[key].origin));
  if (!queries || !keys || !all_queries || !all_keys) return false;
  ExprPool& exprs = claims_.graph_b().context->exprs;
  return numbers_.is_same(exprs.mul(queries, all_keys), exprs.mul(all_queries, keys));
}

}  // namespace epweave
