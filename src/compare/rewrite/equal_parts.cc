#include "compare/rewrite/equal_parts.h"

#include <algorithm>
#include <optional>
#include <set>

#include "ops/bind.h"

namespace epweave {
EqualParts::EqualParts(const RewriteClaims& claims, const ValueNumbers& of_a, const Effects& effects,
                       const RowBlocks& blocks)
    : claims_(claims),
      of_a_(of_a),
      blocks_(blocks),
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

EqualParts::Verdict EqualParts::compare_numbers(ExprId x, ExprId y) const {
  Facts& facts = claims_.facts_b();
  if (facts.equal(x, y)) return Verdict::kEqual;
  return facts.differ(x, y) ? Verdict::kOther : Verdict::kUnknown;
}

EqualParts::Verdict EqualParts::compare_sizes(NodeId p, NodeId q) const {
  const TensorType *x = claims_.tensor_b(p), *y = claims_.tensor_b(q);
  if (x == nullptr || y == nullptr || x->rank() != y->rank()) return Verdict::kOther;
  Verdict result = Verdict::kEqual;
  for (std::size_t i = 0; i < x->rank(); ++i)
    result = std::max(result, compare_numbers(x->sizes[i], y->sizes[i]));
  return result;
}

// Of which one is a piece. That the other is computed to be the same is not known.
EqualParts::Verdict EqualParts::compare_pieces(NodeId p, NodeId q) const {
  const std::optional<bool> are_cut_alike = blocks_.are_cut_alike(p, q);
  if (are_cut_alike == false) return Verdict::kOther;
  return std::max(compare_sizes(p, q), Verdict::kUnknown);
}

ExprId EqualParts::number_of(Arg arg) const {
  const Graph& b = claims_.graph_b();
  return epweave::number_of(*b.context, b.step(), arg.is_node() ? claims_.scalar_b(arg.as_node()) : arg);
}

EqualParts::Verdict EqualParts::pair_up(Arg x, Arg y, NodePairs& pairs) const {
  const ArgPool& args = claims_.graph_b().context->args;
  if (x.is_node() && y.is_node()) {
    pairs.emplace_back(x.as_node(), y.as_node());
    return Verdict::kEqual;
  }
  if (x.is_tree() && x.kind() == y.kind()) return pair_up(args.children(x), args.children(y), pairs);
  if (x == y) return Verdict::kEqual;
  const ExprId of_x = number_of(x), of_y = number_of(y);
  return of_x && of_y ? compare_numbers(of_x, of_y) : Verdict::kOther;
}

EqualParts::Verdict EqualParts::pair_up(std::span<const Arg> x, std::span<const Arg> y,
                                        NodePairs& pairs) const {
  if (x.size() != y.size()) return Verdict::kOther;
  Verdict result = Verdict::kEqual;
  for (std::size_t i = 0; i < x.size(); ++i) result = std::max(result, pair_up(x[i], y[i], pairs));
  return result;
}

EqualParts::Verdict EqualParts::compare_calls(const Node& x, const Node& y, NodePairs& pairs) const {
  const ArgPool& args = claims_.graph_b().context->args;
  if (x.target != y.target) return Verdict::kOther;
  return std::max(pair_up(args[x.args], args[y.args], pairs), pair_up(args[x.kwargs], args[y.kwargs], pairs));
}

EqualParts::Verdict EqualParts::compare(NodeId p, NodeId q) const {
  const Graph& b = claims_.graph_b();
  Verdict result = Verdict::kEqual;
  NodePairs open = {{p, q}};
  std::set<std::pair<NodeId, NodeId>> seen;
  while (!open.empty()) {
    const auto [x, y] = open.back();
    open.pop_back();
    if (numbers_[x] == numbers_[y] || !seen.insert({x, y}).second) continue;
    const bool is_whole = claims_.is_whole(x);
    // The same code makes both in A. A part that is as large as all of a value may have all of it.
    if (is_whole || claims_.is_whole(y)) {
      const bool are_wholes = is_whole && claims_.is_whole(y);
      if (!are_wholes && compare_sizes(x, y) != Verdict::kEqual) return Verdict::kOther;
      result = Verdict::kUnknown;
      continue;
    }
    const Share of_x = claims_.share_of(x), of_y = claims_.share_of(y);
    if (of_x.part != of_y.part || of_x.parts != of_y.parts) return Verdict::kOther;
    const Node &first = b.step().nodes[x], &second = b.step().nodes[y];
    if (is_piece(x) || is_piece(y)) {
      result = std::max(result, compare_pieces(x, y));
      if (result == Verdict::kOther) return result;
      continue;
    }
    NodePairs pairs;
    const Verdict alike = compare_calls(first, second, pairs);
    if (alike == Verdict::kOther) return Verdict::kOther;
    result = std::max(result, alike);
    const auto are_equal = [&](const auto& pair) { return numbers_[pair.first] == numbers_[pair.second]; };
    if (std::ranges::all_of(pairs, are_equal)) {
      // One value in A: something else was written into what they take.
      const bool is_one = of_a_[claims_[x].origin] == of_a_[claims_[y].origin];
      if (is_one && alike == Verdict::kEqual) return Verdict::kOther;
      result = Verdict::kUnknown;
    }
    open.insert(open.end(), pairs.begin(), pairs.end());
  }
  return result;
}

}  // namespace epweave
