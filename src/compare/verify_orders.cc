#include "compare/verify_orders.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "ir/bind.h"
#include "ir/op.h"

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

std::int64_t product(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

bool is_one_of(const Node& node, std::initializer_list<std::string_view> targets) {
  return node.op != nullptr && std::ranges::find(targets, node.op->target) != targets.end();
}

// Rows of the result are rows of the operands with the same number.
bool pairs_rows(const OpInfo& op) {
  const std::string_view name = op.target;
  for (const std::string_view moves : {"index", "gather", "scatter", "embedding", "repeat", "sort", "topk",
                                       "searchsorted", "bucketize", "all_to_all", "stack"})
    if (name.find(moves) != name.npos) return false;
  return op.cost == CostClass::kMemory || op.cost == CostClass::kMatmul;
}

}  // namespace

OrderCheck::OrderCheck(RewriteClaims& claims)
    : claims_(claims),
      context_(*claims.graph_a().context),
      a_(claims.graph_a().step()),
      b_(claims.graph_b().step()),
      facts_a_(claims.graph_a()),
      facts_b_(claims.graph_b()),
      blocks_(claims.graph_b().step().nodes.size(), kUnknown) {}

void OrderCheck::visit(NodeId id) {
  const ClaimKind kind = claims_[id].kind;
  if (kind == ClaimKind::kPiece) blocks_[id] = order_of_piece(id);
  if (kind == ClaimKind::kPart && b_.nodes[id].op != nullptr) blocks_[id] = order_of(id);
  if (kind == ClaimKind::kJoin) check_join(id);
}

OrderCheck::Sizes OrderCheck::sizes_in_a(NodeId id) {
  return numbers_of(facts_a_, claims_.tensor_a(id));
}
OrderCheck::Sizes OrderCheck::sizes_in_b(NodeId id) {
  return numbers_of(facts_b_, claims_.tensor_b(id));
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
  const auto args = context_.args[b_.nodes[id].args];
  const NodeId first = !args.empty() && args[0].is_node() ? args[0].as_node() : NodeId();
  return first && is_share(first) ? first : NodeId();
}

// A piece is cut plainly, or has rows of each block in a dimension of its own until it is viewed as rows.
std::int64_t OrderCheck::order_of_piece(NodeId id) {
  const int dim = divided_dimension(id);
  if (dim < 0) return kUnknown;
  const NodeId from = first_share(id);
  if (!from) return 1;
  const Sizes sizes = sizes_in_b(from);
  if (!is_reshape(b_.nodes[id])) return blocks_[from];
  return sizes.size() == sizes_in_b(id).size() + 1 ? sizes[static_cast<std::size_t>(dim)] : blocks_[from];
}

std::int64_t OrderCheck::order_of(NodeId id) {
  const Node& node = b_.nodes[id];
  if (is_one_of(node, {"aten.index.Tensor", "aten.embedding.default"})) return order_of_index(id);
  if (is_one_of(node, {"aten.cat.default"})) return order_of_cat(id);
  const NodeId from = first_share(id);
  if (from && is_reshape(node)) return order_of_reshape(id, from);
  if (from && is_one_of(node, {"_c10d_functional.all_gather_into_tensor.default"}))
    return order_of_gather(id, from);
  if (from && is_one_of(node, {"_c10d_functional.reduce_scatter_tensor.default"}))
    return order_of_scatter(id, from);
  if (from && is_one_of(node, {"aten.split.Tensor", "aten.split_with_sizes.default"}))
    return order_of_split(id, from);
  return order_by_operands(id);
}

std::int64_t OrderCheck::order_by_operands(NodeId id) {
  const Node& node = b_.nodes[id];
  NodeId known;
  bool agree = true;
  for_each_input(context_, node, [&](NodeId input) {
    if (!is_share(input) || blocks_[input] == kUnknown) return;
    if (known && blocks_[known] != blocks_[input]) {
      if (agree && pairs_rows(*node.op))
        claims_.fail(
            id, "rewrite-rows",
            fmt::format("pairs rows of {} and {}, of which a part has some of {} blocks and of {}",
                        claims_.describe(known), claims_.describe(input), blocks_[known], blocks_[input]));
      agree = false;
    }
    if (!known) known = input;
  });
  const bool hands_on = pairs_rows(*node.op) || node.op->cost == CostClass::kFree ||
                        node.op->cost == CostClass::kReduction || node.op->cost == CostClass::kWait ||
                        node.op->cost == CostClass::kAttention || node.op->cost == CostClass::kCollective;
  return known && agree && hands_on ? blocks_[known] : kUnknown;
}

// Rows of a table that all parts share are in the order of the numbers that pick them.
std::int64_t OrderCheck::order_of_index(NodeId id) {
  std::int64_t blocks = kUnknown;
  std::size_t shares = 0;
  for_each_input(context_, b_.nodes[id], [&](NodeId input) {
    if (!is_share(input)) return;
    ++shares;
    blocks = blocks_[input];
  });
  return shares == 1 && !first_share(id) ? blocks : kUnknown;
}

// How many runs of rows of a part there are in all does not change.
std::int64_t OrderCheck::order_of_reshape(NodeId id, NodeId from) {
  const int before = divided_dimension(from), after = divided_dimension(id);
  if (before < 0 || after < 0 || blocks_[from] == kUnknown) return kUnknown;
  const Sizes source = sizes_in_a(claims_[from].origin), target = sizes_in_a(claims_[id].origin);
  const std::int64_t runs =
      blocks_[from] * product(std::span(source).first(static_cast<std::size_t>(before)));
  const std::int64_t outer = product(std::span(target).first(static_cast<std::size_t>(after)));
  return outer > 0 && runs % outer == 0 ? runs / outer : kUnknown;
}

std::int64_t OrderCheck::order_of_gather(NodeId id, NodeId from) {
  const Sizes mine = sizes_in_a(claims_[from].origin), all = sizes_in_a(claims_[id].origin);
  if (divided_dimension(from) != 0 || mine.empty() || all.empty() || mine[0] == 0) return blocks_[from];
  return blocks_[from] * (all[0] / mine[0]);
}

std::int64_t OrderCheck::order_of_scatter(NodeId id, NodeId from) {
  const Sizes all = sizes_in_a(claims_[from].origin), mine = sizes_in_a(claims_[id].origin);
  if (blocks_[from] == kUnknown || divided_dimension(from) != 0 || mine.empty() || all.empty() ||
      mine[0] == 0)
    return blocks_[from];
  const std::int64_t ranks = all[0] / mine[0];
  if (blocks_[from] % ranks == 0) return blocks_[from] / ranks;
  claims_.fail(id, "rewrite-rows",
               fmt::format("gives each of {} ranks rows of {}, of which a part has some of {} blocks", ranks,
                           claims_.describe(from), blocks_[from]));
  return kUnknown;
}

std::int64_t OrderCheck::order_of_cat(NodeId id) {
  const int dim = divided_dimension(id);
  const Arg list = arg_of(context_, b_.nodes[id], 0), along = arg_of(context_, b_.nodes[id], 1);
  const auto rank = static_cast<std::int64_t>(sizes_in_b(id).size());
  if (dim < 0 || !list.is_list()) return kUnknown;
  const std::int64_t cat_dim = along.is_int() ? along.as_int() : 0;
  if ((cat_dim < 0 ? cat_dim + rank : cat_dim) != dim) return order_by_operands(id);
  const auto items = context_.args.children(list);
  std::int64_t blocks = kUnknown;
  Sizes first;
  for (const Arg& item : items) {
    const bool is_known = item.is_node() && is_share(item.as_node());
    const std::int64_t found = is_known ? blocks_[item.as_node()] : kUnknown;
    const Sizes sizes = is_known ? sizes_in_b(item.as_node()) : Sizes();
    if (found == kUnknown || (blocks != kUnknown && (found != blocks || sizes != first))) return kUnknown;
    blocks = found;
    first = sizes;
  }
  return blocks * static_cast<std::int64_t>(items.size());
}

std::int64_t OrderCheck::order_of_split(NodeId id, NodeId from) {
  const Arg along = arg_of(context_, b_.nodes[id], 2);
  const int dim = divided_dimension(from);
  const auto rank = static_cast<std::int64_t>(sizes_in_b(from).size());
  const std::int64_t split_dim = along.is_int() ? along.as_int() : 0;
  const bool is_along = (split_dim < 0 ? split_dim + rank : split_dim) == dim;
  if (!is_along || blocks_[from] == kUnknown) return blocks_[from];
  const TypeId type = b_.nodes[id].type;
  const auto pieces = static_cast<std::int64_t>(type ? context_.types[type].elements.size() : 0);
  if (pieces > 0 && blocks_[from] % pieces == 0) return blocks_[from] / pieces;
  claims_.fail(id, "rewrite-rows",
               fmt::format("splits the rows of {}, of which a part has some of {} blocks, in {}",
                           claims_.describe(from), blocks_[from], pieces));
  return kUnknown;
}

void OrderCheck::check_join(NodeId id) {
  static const OpInfo* const cat = find_op("aten.cat.default");
  static const OpInfo* const permute = find_op("aten.permute.default");  // of a cat of permuted parts
  const NodeId origin = claims_[id].origin;
  std::int64_t joined = 1;
  if (is_reshape(b_.nodes[id])) {
    const auto args = context_.args[b_.nodes[id].args];
    const Sizes rows = sizes_in_b(id),
                blocks = !args.empty() && args[0].is_node() ? sizes_in_b(args[0].as_node()) : Sizes();
    std::size_t at = 0;
    while (at < rows.size() && at < blocks.size() && rows[at] == blocks[at]) ++at;
    if (blocks.size() != rows.size() + 1 || at == rows.size()) return;
    joined = blocks[at];
  } else if (b_.nodes[id].op != cat && b_.nodes[id].op != permute) {
    return;
  }
  for (NodeId part : claims_.parts(origin)) {
    if (blocks_[part] == kUnknown || blocks_[part] == joined) continue;
    return claims_.fail(id, "rewrite-join",
                        fmt::format("joins rows of {} blocks, of which {} has some, as those of {}",
                                    blocks_[part], claims_.describe(part), joined));
  }
}

}  // namespace epweave
