#include "compare/rewrite/verify_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/rewrite/conditions.h"
#include "ops/mapping.h"
#include "ops/op.h"

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

// Calls whose parts have rules of their own, or that read no element.
bool has_own_rules(OpFamily family) {
  return family == OpFamily::kAttention || family == OpFamily::kFlexAttention || family == OpFamily::kSort ||
         family == OpFamily::kSize || family == OpFamily::kElement || family == OpFamily::kCheck ||
         family == OpFamily::kHostRead || family == OpFamily::kMesh;
}

}  // namespace

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

void RowCheck::check(NodeId part) {
  const Node& node = claims_.graph_b().step().nodes[part];
  if (node.op != nullptr && (passes_all(node.op->family) || has_own_rules(node.op->family))) return;
  if (!has_divided_operand(part)) return;
  const auto before =
      node.op == nullptr
          ? std::nullopt
          : mapped_node(claims_.graph_a(), claims_.graph_a().step().nodes[claims_[part].origin], facts_);
  const CallMapping mapping = before ? map_dimensions(before->call) : CallMapping();
  if (!mapping.is_known())
    return claims_.fail(part, "rewrite-rows",
                        "takes a part of a tensor, and nothing is known of what the op makes of parts");
  const auto after = mapped_node(claims_.graph_b(), node, facts_);
  for (std::size_t i = 0; i < before->operands.size() && i < after->operands.size(); ++i) {
    const TensorType *whole = claims_.tensor_a(before->operands[i]),
                     *piece = claims_.tensor_b(after->operands[i]);
    for (std::size_t d = 0; d < whole->sizes.size() && d < piece->sizes.size(); ++d)
      if (is_divided(whole->sizes[d], piece->sizes[d]) &&
          !holds(Condition::kMixesNoRows, may_divide(mapping, mapping.operand(i, d))))
        return fail(part, after->operands[i], d);
  }
}

}  // namespace epweave
