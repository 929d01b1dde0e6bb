#include "compare/rewrite/equal_parts.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace epweave {
namespace {

using NodePairs = std::vector<std::pair<NodeId, NodeId>>;

// Notes the pairs of nodes. False: the arguments differ otherwise than in these and in numbers.
bool pair_up(const ArgPool& args, std::span<const Arg> x, std::span<const Arg> y, NodePairs& pairs) {
  if (x.size() != y.size()) return false;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i].kind() != y[i].kind()) return false;
    if (x[i].is_node()) {
      pairs.emplace_back(x[i].as_node(), y[i].as_node());
    } else if (x[i].is_tree()) {
      if (!pair_up(args, args.children(x[i]), args.children(y[i]), pairs)) return false;
    } else if (x[i] != y[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

EqualParts::EqualParts(const RewriteClaims& claims, const ValueNumbers& of_a, const Effects& effects,
                       const OrderCheck& orders)
    : claims_(claims),
      of_a_(of_a),
      orders_(orders),
      numbers_(claims.graph_b(), effects, find_known(claims, of_a)) {}

KnownValues EqualParts::find_known(const RewriteClaims& claims, const ValueNumbers& of_a) {
  constexpr std::uint64_t kWhole = std::uint64_t{1} << 62, kSize = std::uint64_t{1} << 63;
  const Body& b = claims.graph_b().step();
  KnownValues known;
  for (NodeId id : b.order) {
    const Claim& claim = claims[id];
    if (!claim.origin) continue;
    const bool is_whole = claims.is_whole(id);
    const std::uint64_t number = of_a[claim.origin].index();
    if (is_whole) known.value.at(id) = kWhole | number;
    if (claim.kind == ClaimKind::kSize) {
      if (const Arg size = claims.scalar_b(id); !size.is_none())
        known.value.at(id) = kSize | claims.facts_b().normalize(size.as_expr()).index();
    }
    if (b.nodes[id].kind != NodeKind::kCall) continue;
    if (is_whole) known.call.at(id) = kWhole | number;
    if (!is_whole && claim.kind == ClaimKind::kPart)
      known.call.at(id) = (std::uint64_t{claim.part} + 1) << 32 | number;
  }
  return known;
}

EqualParts::Verdict EqualParts::compare_parts(NodeId x, NodeId y) const {
  Verdict result = Verdict::kEqual;
  const std::uint32_t parts = claims_.part_count(x);
  if (parts != claims_.part_count(y)) return Verdict::kOther;
  for (std::uint32_t k = 0; k < parts; ++k) {
    const NodeId p = claims_.part_of(x, k), q = claims_.part_of(y, k);
    if (p != q) result = std::max(result, p && q ? compare(p, q) : Verdict::kOther);
  }
  return result;
}

bool EqualParts::has_sizes_of(NodeId p, NodeId q) const {
  const TensorType *x = claims_.tensor_b(p), *y = claims_.tensor_b(q);
  return x != nullptr && y != nullptr && std::ranges::equal(x->sizes, y->sizes, [&](ExprId a, ExprId b) {
           return claims_.facts_b().equal(a, b);
         });
}

EqualParts::Verdict EqualParts::compare(NodeId p, NodeId q) const {
  const Graph& b = claims_.graph_b();
  const Context& context = *b.context;
  Verdict result = Verdict::kEqual;
  NodePairs open = {{p, q}};
  std::set<std::pair<NodeId, NodeId>> seen;
  while (!open.empty()) {
    const auto [x, y] = open.back();
    open.pop_back();
    if (numbers_[x] == numbers_[y] || !seen.insert({x, y}).second) continue;
    const bool is_whole = claims_.is_whole(x);
    if (is_whole != claims_.is_whole(y)) return Verdict::kOther;
    if (is_whole) {  // the same code makes both in A
      result = Verdict::kUnknown;
      continue;
    }
    const Share of_x = claims_.share_of(x), of_y = claims_.share_of(y);
    if (of_x.part != of_y.part || of_x.parts != of_y.parts) return Verdict::kOther;
    const Node &first = b.step().nodes[x], &second = b.step().nodes[y];
    if (is_piece(x) || is_piece(y)) {
      if (!has_sizes_of(x, y) || !orders_.is_cut_alike(x, y)) return Verdict::kOther;
      result = Verdict::kUnknown;
      continue;
    }
    NodePairs pairs;
    const bool are_alike =
        first.target == second.target &&
        pair_up(context.args, context.args[first.args], context.args[second.args], pairs) &&
        pair_up(context.args, context.args[first.kwargs], context.args[second.kwargs], pairs);
    const auto are_equal = [&](const auto& pair) { return numbers_[pair.first] == numbers_[pair.second]; };
    if (!are_alike) return Verdict::kOther;
    if (std::ranges::all_of(pairs, are_equal)) {
      // One value in A: something else was written into what they take.
      if (of_a_[claims_[x].origin] == of_a_[claims_[y].origin]) return Verdict::kOther;
      result = Verdict::kUnknown;
    }
    open.insert(open.end(), pairs.begin(), pairs.end());
  }
  return result;
}

}  // namespace epweave
