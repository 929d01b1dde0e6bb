#include "compare/rewrite/verify_joins.h"

#include <fmt/format.h>

#include "analysis/shown_rows.h"
#include "compare/rewrite/conditions.h"
#include "ir/types/dimension.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {

JoinCheck::JoinCheck(RewriteClaims& claims, Numbers& numbers)
    : claims_(claims),
      numbers_(numbers),
      context_(*claims.graph_a().context),
      a_(claims.graph_a().step()),
      b_(claims.graph_b().step()) {}

void JoinCheck::learn_divisions() {
  for (NodeId id : b_.order) {
    const Claim& claim = claims_[id];
    const bool is_cut = claim.kind == ClaimKind::kSplit;
    if (!is_cut && !(claim.kind == ClaimKind::kJoin && claim.complete)) continue;
    const auto args = context_.args[b_.nodes[id].args];
    const TensorType* type = claims_.tensor_a(claim.origin);
    const std::size_t list = is_cut ? 1 : 0;
    if (type == nullptr || args.size() <= list || !args[list].is_list()) continue;
    const bool is_block_cut = is_cut && args[0].is_node() && is_in_blocks(args[0].as_node());
    const std::int64_t dim =
        dim_of(b_.nodes[id], type->sizes.size() + (is_block_cut ? 1 : 0)) - (is_block_cut ? 1 : 0);
    if (dim < 0) continue;
    std::vector<ExprId> parts;
    for (const Arg& item : context_.args.children(args[list])) {
      ExprId part = is_cut ? extent_of_size(item) : extent_of_part(item, dim);
      if (part && is_block_cut)
        part = numbers_.multiply(part,
                                 claims_.tensor_b(args[0].as_node())->sizes[static_cast<std::size_t>(dim)]);
      if (part) parts.push_back(part);
    }
    if (parts.size() == context_.args.children(args[list]).size())
      numbers_.learn_division(type->sizes[static_cast<std::size_t>(dim)], parts);
  }
}

void JoinCheck::learn_sums() {
  SideTable<StringId, NodeId> binder;  // of A; none where B has the symbol
  for (NodeId id : a_.order)
    if (const NodeExtra* extra = a_.nodes[id].extra; extra != nullptr)
      for (const Binding& binding : extra->bindings) binder.at(binding.symbol) = id;
  for (NodeId id : b_.order)
    if (const NodeExtra* extra = b_.nodes[id].extra; extra != nullptr)
      for (const Binding& binding : extra->bindings) binder.at(binding.symbol) = NodeId();
  for (NodeId id : b_.order) {
    const NodeId origin = claims_[id].origin;
    if (claims_[id].kind != ClaimKind::kJoin) continue;
    const TypeId type = a_.nodes[origin].type;
    if (!type || context_.types[type].kind != TypeKind::kScalar) continue;
    const ExprId whole = context_.types[type].expr;
    const std::vector<ExprId> parts = part_numbers(origin);
    for (StringId symbol : std::vector<StringId>(context_.exprs.symbols(whole)))
      if (binder[symbol] && claims_.part_count(binder[symbol]) > 0 && !parts.empty())
        numbers_.learn_sum(symbol, whole, parts);
  }
}

// None where a part has no number.
std::vector<ExprId> JoinCheck::part_numbers(NodeId origin) const {
  std::vector<ExprId> numbers;
  for (std::uint32_t k = 0; k < claims_.part_count(origin); ++k) {
    const NodeId part = claims_.part_of(origin, k);
    const Arg number = part ? claims_.scalar_b(part) : Arg();
    if (!number.is(ArgKind::kSymbolic)) return {};
    numbers.push_back(number.as_expr());
  }
  return numbers;
}

// What is recorded of a node that nothing checks says nothing.
ExprId JoinCheck::extent_of_size(Arg size) const {
  if (size.is_node() && claims_[size.as_node()].kind == ClaimKind::kNone) return {};
  const Arg value = size.is_node() ? claims_.scalar_b(size.as_node()) : size;
  if (value.is_int()) return context_.exprs.number(value.as_int());
  return value.is(ArgKind::kSymbolic) ? value.as_expr() : ExprId();
}

ExprId JoinCheck::extent_of_part(Arg part, std::int64_t dim) const {
  const TensorType* type = part.is_node() ? claims_.tensor_b(part.as_node()) : nullptr;
  const bool has_dim = type != nullptr && dim < std::ssize(type->sizes);
  return has_dim ? type->sizes[static_cast<std::size_t>(dim)] : ExprId();
}

std::int64_t JoinCheck::dim_of(const Node& node, std::size_t rank) const {
  const auto dim = find_dim(context_, node, rank);
  return dim ? static_cast<std::int64_t>(*dim) : -1;
}

bool JoinCheck::has_part_sizes(NodeId part, NodeId origin, std::int64_t dim) {
  const TensorType* whole = claims_.tensor_a(origin);
  const TensorType* piece = claims_.tensor_b(part);
  if (whole == nullptr || piece == nullptr || whole->sizes.size() != piece->sizes.size()) return false;
  for (std::size_t i = 0; i < whole->sizes.size(); ++i) {
    const bool is_cut = static_cast<std::int64_t>(i) == dim;
    if (!numbers_.is_share(whole->sizes[i], piece->sizes[i], is_cut ? claims_.share_of(part) : Share{}))
      return false;
  }
  return true;
}

void JoinCheck::check_split(NodeId id) {
  const Node& node = b_.nodes[id];
  const NodeId origin = claims_[id].origin;
  const auto args = context_.args[node.args];
  const TensorType* type = claims_.tensor_a(origin);
  if (type == nullptr || args.size() < 2 || !args[0].is_node() || !args[1].is_list())
    return claims_.fail(id, "rewrite-split", "is not a split of a tensor");
  NodeId source = args[0].as_node();
  std::int64_t dim = dim_of(node, type->sizes.size() + (is_in_blocks(source) ? 1 : 0));
  ExprId blocks;
  if (is_in_blocks(source)) {
    const NodeId whole = first_input(source);
    blocks = whole ? blocks_of(source, whole, dim - 1) : ExprId();
    if (!blocks)
      return claims_.fail(id, "rewrite-split", fmt::format("splits no blocks of {}", claims_.name_a(origin)));
    source = whole;
    --dim;
  }
  if (!holds(Condition::kSplitsTheWhole,
             claims_.same_class(claims_[source].origin, origin) && claims_.is_whole(source)))
    return claims_.fail(
        id, "rewrite-split",
        fmt::format("splits {}, not all of {}", claims_.describe(source), claims_.name_a(origin)));
  if (dim < 0) return claims_.fail(id, "rewrite-split", "has a dimension that its operand lacks");
  const auto sizes = context_.args.children(args[1]);
  const auto n = static_cast<std::uint32_t>(sizes.size());
  for (std::uint32_t k = 0; k < n; ++k) {
    ExprId size = extent_of_size(sizes[k]);
    if (size && blocks) size = numbers_.multiply(size, blocks);
    const bool is_share =
        size && numbers_.match(type->sizes[static_cast<std::size_t>(dim)], size, {k, n}) == Fraction::kPart;
    if (!holds(Condition::kSplitsInShares, is_share))
      return claims_.fail(
          id, "rewrite-split",
          fmt::format("part {} is not that of dimension {} of {}", k, dim, claims_.name_a(origin)));
  }
}

std::size_t JoinCheck::count_pieces(NodeId split) const {
  const auto args = context_.args[b_.nodes[split].args];
  return args.size() > 1 && args[1].is_list() ? context_.args.children(args[1]).size() : 0;
}

bool JoinCheck::is_in_blocks(NodeId b) const {
  return claims_[b].kind == ClaimKind::kBlocks && is_reshape(b_.nodes[b]);
}

NodeId JoinCheck::first_input(NodeId b) const {
  const auto args = context_.args[b_.nodes[b].args];
  return !args.empty() && args[0].is_node() ? args[0].as_node() : NodeId();
}

// The number of blocks, where `view` has dimension `dim` of `rows` as blocks and their rows, and
// all others as they are.
ExprId JoinCheck::blocks_of(NodeId view, NodeId rows, std::int64_t dim) {
  const TensorType *inner = claims_.tensor_b(view), *outer = claims_.tensor_b(rows);
  if (inner == nullptr || outer == nullptr || dim < 0 || dim >= std::ssize(outer->sizes) ||
      inner->sizes.size() != outer->sizes.size() + 1)
    return {};
  const auto at = static_cast<std::size_t>(dim);
  for (std::size_t i = 0; i < outer->sizes.size(); ++i) {
    const ExprId size = i < at    ? inner->sizes[i]
                        : i == at ? numbers_.multiply(inner->sizes[i], inner->sizes[i + 1])
                                  : inner->sizes[i + 1];
    if (!numbers_.is_same(outer->sizes[i], size)) return {};
  }
  return inner->sizes[at];
}

// Part k of `origin` as rows, from a piece of a split of its blocks.
bool JoinCheck::is_piece_of_blocks(NodeId id, const Claim& claim) {
  NodeId piece = first_input(id);
  if (!piece || claims_[piece].kind != ClaimKind::kPiece || claims_[piece].part != claim.part ||
      claims_[piece].parts != claim.parts)
    return false;
  NodeId element = piece;
  while (element && claims_[element].kind == ClaimKind::kPiece) element = first_input(element);
  if (!element || claims_[element].kind != ClaimKind::kSplit || claims_[element].origin != claim.origin)
    return false;
  const NodeId source = first_input(element);
  const TensorType* in_blocks = source ? claims_.tensor_b(source) : nullptr;
  if (in_blocks == nullptr || !is_in_blocks(source)) return false;
  const std::int64_t dim = dim_of(b_.nodes[element], in_blocks->sizes.size());
  const ExprId blocks = blocks_of(piece, id, dim - 1);
  return blocks && numbers_.is_same(blocks, in_blocks->sizes[static_cast<std::size_t>(dim - 1)]);
}

void JoinCheck::check_joined_blocks(NodeId id) {
  const NodeId origin = claims_[id].origin, joined = first_input(id);
  const TensorType *type = claims_.tensor_a(origin), *in_blocks = joined ? claims_.tensor_b(joined) : nullptr;
  const auto args = joined ? context_.args[b_.nodes[joined].args] : std::span<const Arg>();
  if (type == nullptr || in_blocks == nullptr || args.empty() || !args[0].is_list())
    return claims_.fail(id, "rewrite-join", "does not join blocks");
  const std::int64_t dim = dim_of(b_.nodes[joined], in_blocks->sizes.size());
  const ExprId blocks = blocks_of(joined, id, dim - 1);
  const auto items = context_.args.children(args[0]);
  const std::uint32_t n = claims_.part_count(origin);
  if (!blocks || items.size() != n)
    return claims_.fail(id, "rewrite-join",
                        fmt::format("does not join the {} parts of {}", n, claims_.name_a(origin)));
  for (std::uint32_t k = 0; k < n; ++k) {
    const NodeId item = items[k].is_node() ? items[k].as_node() : NodeId();
    const NodeId part = item && is_in_blocks(item) ? first_input(item) : NodeId();
    const ExprId part_blocks = part ? blocks_of(item, part, dim - 1) : ExprId();
    if (!part_blocks || part != claims_.part_of(origin, k) || !numbers_.is_same(blocks, part_blocks) ||
        !has_part_sizes(part, origin, dim - 1))
      return claims_.fail(
          id, "rewrite-join",
          fmt::format("element {} is not part {} of {} in blocks", k, k, claims_.name_a(origin)));
  }
}

// The dimensions of a permute's operand in the order that it gives them; empty: it is no permute.
std::vector<std::int64_t> JoinCheck::order_of(NodeId id) const {
  static const OpInfo* const permute = find_op("aten.permute.default");
  const TensorType* type = id ? claims_.tensor_b(id) : nullptr;
  const auto args = id ? context_.args[b_.nodes[id].args] : std::span<const Arg>();
  if (type == nullptr || b_.nodes[id].op != permute || args.size() != 2 || !args[1].is_list()) return {};
  std::vector<std::int64_t> order;
  for (const Arg& dim : context_.args.children(args[1])) {
    const auto at = dim.is_int() ? find_dimension(dim.as_int(), type->rank()) : std::nullopt;
    if (!at) return {};
    order.push_back(static_cast<std::int64_t>(*at));
  }
  return order;
}

void JoinCheck::check_joined_in_order(NodeId id) {
  static const OpInfo* const cat = find_op("aten.cat.default");
  const NodeId origin = claims_[id].origin, joined = first_input(id);
  const auto fail = [&](std::string message) { claims_.fail(id, "rewrite-join", std::move(message)); };
  const TensorType *type = claims_.tensor_a(origin), *inner = joined ? claims_.tensor_b(joined) : nullptr;
  const std::vector<std::int64_t> back = order_of(id);
  const auto args = joined ? context_.args[b_.nodes[joined].args] : std::span<const Arg>();
  if (type == nullptr || inner == nullptr || back.empty() || claims_[joined].kind != ClaimKind::kBlocks ||
      b_.nodes[joined].op != cat || args.empty() || !args[0].is_list())
    return fail("does not join permuted parts");
  const auto items = context_.args.children(args[0]);
  const std::uint32_t n = claims_.part_count(origin);
  const std::int64_t dim = dim_of(b_.nodes[joined], inner->sizes.size());
  if (items.size() != n || n < 2 || dim < 0)
    return fail(fmt::format("does not join the {} parts of {}", n, claims_.name_a(origin)));
  for (std::uint32_t k = 0; k < n; ++k) {
    const NodeId item = items[k].is_node() ? items[k].as_node() : NodeId();
    const std::vector<std::int64_t> order = order_of(item);
    const NodeId part = order.empty() ? NodeId() : first_input(item);
    bool is_sound = order.size() == back.size() && part && claims_[item].kind == ClaimKind::kBlocks &&
                    claims_.is_share_of(part, origin, {k, n}) &&
                    has_part_sizes(part, origin, order[static_cast<std::size_t>(dim)]);
    for (std::size_t i = 0; is_sound && i < back.size(); ++i)
      is_sound = order[static_cast<std::size_t>(back[i])] == static_cast<std::int64_t>(i);
    if (!is_sound)
      return fail(fmt::format("element {} is not part {} of {}, permuted as the join is permuted back", k, k,
                              claims_.name_a(origin)));
  }
}

void JoinCheck::check_piece(NodeId id) {
  static const OpInfo* const clone = find_op("aten.clone.default");
  const Node& node = b_.nodes[id];
  const Claim& claim = claims_[id];
  const auto args = context_.args[node.args];
  if (args.empty() || !args[0].is_node())
    return claims_.fail(id, "rewrite-split", "is not a piece of a split");
  const Claim& from = claims_[args[0].as_node()];
  const bool is_element =
      has_family(node, OpFamily::kElement) && from.kind == ClaimKind::kSplit && args.size() == 2 &&
      args[1].is_int() &&
      holds(Condition::kPieceIsItsElement,
            args[1].as_int() == claim.part && count_pieces(args[0].as_node()) == claim.parts);
  const bool is_copy_of_piece = node.op == clone && from.kind == ClaimKind::kPiece &&
                                from.part == claim.part && from.parts == claim.parts;
  const bool is_view = is_reshape(node) && is_piece_of_blocks(id, claim);
  if ((!is_element && !is_copy_of_piece && !is_view) || from.origin != claim.origin)
    claims_.fail(id, "rewrite-split",
                 fmt::format("is not piece {} of {}", claim.part, claims_.name_a(claim.origin)));
}

void JoinCheck::check_join(NodeId id) {
  static const OpInfo* const cat = find_op("aten.cat.default");
  if (is_reshape(b_.nodes[id])) return check_joined_blocks(id);
  if (!order_of(id).empty()) return check_joined_in_order(id);
  b_.nodes[id].op == cat ? check_cat(id) : check_sum(id);
}

void JoinCheck::check_cat(NodeId id) {
  const Node& node = b_.nodes[id];
  const NodeId origin = claims_[id].origin;
  const auto args = context_.args[node.args];
  const TensorType* type = claims_.tensor_a(origin);
  if (type == nullptr || args.empty() || !args[0].is_list())
    return claims_.fail(id, "rewrite-join", "does not join tensors");
  const auto items = context_.args.children(args[0]);
  // Where only pieces of it are joined, it has no parts.
  const std::uint32_t divided = claims_.part_count(origin);
  const auto n = divided == 0 ? static_cast<std::uint32_t>(items.size()) : divided;
  if (items.size() != n || n < 2)
    return claims_.fail(
        id, "rewrite-join",
        fmt::format("joins {} of the {} parts of {}", items.size(), n, claims_.name_a(origin)));
  const std::int64_t dim = dim_of(node, type->sizes.size());
  for (std::uint32_t k = 0; k < n; ++k) {
    const NodeId item = items[k].is_node() ? items[k].as_node() : NodeId();
    const bool is_share =
        item &&
        (claims_.is_share_of(item, origin, {k, n}) ||
         (holds(Condition::kPartsInOrder, false) && claims_.same_class(claims_[item].origin, origin)));
    if (!is_share)
      return claims_.fail(
          id, "rewrite-join",
          fmt::format("element {} is {}, not part {} of {}", k, item ? claims_.describe(item) : "a constant",
                      k, claims_.name_a(origin)));
    if (dim < 0 || !holds(Condition::kJoinsShares, has_part_sizes(item, origin, dim)))
      return claims_.fail(id, "rewrite-join",
                          fmt::format("{} has not its share of {} along dimension {}", claims_.describe(item),
                                      claims_.name_a(origin), dim));
  }
}

// ((p0 + p1) + p2) + ..., or from the last part to the first.
void JoinCheck::check_sum(NodeId id) {
  static const OpInfo* const add = find_op("aten.add.Tensor");
  static const OpInfo* const scalar_add = find_op("operator.add");
  const Node& node = b_.nodes[id];
  const Claim claim = claims_[id];
  const auto args = context_.args[node.args];
  const bool is_tensor = claims_.tensor_a(claim.origin) != nullptr;
  if (node.op != (is_tensor ? add : scalar_add) || args.size() != 2 || !node.kwargs.empty() ||
      !args[0].is_node() || !args[1].is_node())
    return claims_.fail(id, "rewrite-join", "is neither a cat nor a sum of two");
  const NodeId left = args[0].as_node(), right = args[1].as_node();
  const std::uint32_t n = claims_.part_count(claim.origin), k = claims_[right].part;
  const Claim& before = claims_[left];
  const bool is_sum = before.kind == ClaimKind::kJoin && claims_.same_class(before.origin, claim.origin) &&
                      before.first_part != before.part;
  const std::uint32_t first = is_sum ? before.first_part : before.part;
  const auto is_part = [&](NodeId value, std::uint32_t part) {
    return claims_[value].kind == ClaimKind::kPart && claims_.is_share_of(value, claim.origin, {part, n});
  };
  const bool is_start = is_sum || ((first == 0 || first + 1 == n) && is_part(left, first));
  const bool is_next = is_part(right, k) && (first == 0 ? k == before.part + 1 : k + 1 == before.part);
  if (!is_start || !holds(Condition::kEachPartOnce, is_next))
    return claims_.fail(
        id, "rewrite-join",
        fmt::format("adds {} and {}, not the parts of {} from the first to the last, nor from the last to "
                    "the first",
                    claims_.describe(left), claims_.describe(right), claims_.name_a(claim.origin)));
  claims_.set_sum(id, first, is_next ? k : n - 1);
}

}  // namespace epweave
