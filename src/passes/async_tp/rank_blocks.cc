#include "passes/async_tp/rank_blocks.h"

#include <algorithm>
#include <utility>

#include "analysis/effects.h"
#include "analysis/element_call.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {

std::optional<RankBlocks::BlockDims> RankBlocks::find(NodeId join, NodeId value, std::int64_t ranks) const {
  const TensorType *whole = tensor(value), *joined = tensor(join);
  const Arg list = arg_of(context_, node(join), 0);
  if (whole == nullptr || joined == nullptr || !list.is_tree()) return std::nullopt;
  const auto items = context_.args.children(list);
  if (items.size() != static_cast<std::size_t>(ranks)) return std::nullopt;
  const auto to = dimension(join, "dim", joined->rank());
  std::optional<std::size_t> from;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_node()) return std::nullopt;
    const auto at = find_cut(items[i].as_node(), value, i, ranks);
    if (!at || (from && *from != *at)) return std::nullopt;
    from = at;
  }
  if (!to || !from) return std::nullopt;
  return BlockDims{*from, *to};
}

std::optional<std::size_t> RankBlocks::find_cut(NodeId id, NodeId value, std::size_t index,
                                                std::int64_t ranks) const {
  const TensorType *block = tensor(id), *whole = tensor(value);
  if (block == nullptr || block->rank() != whole->rank()) return std::nullopt;
  NodeId cut = id;
  if (is_of(id, OpFamily::kElement)) {
    const auto element = tuple_element(context_, body_, node(id));
    if (!element || element->index != static_cast<std::int64_t>(index)) return std::nullopt;
    cut = element->tuple;
    if (!is_of(cut, OpFamily::kSplit)) return std::nullopt;
  } else if (!is_of(id, OpFamily::kSlice) || !node(id).op->is_view) {
    return std::nullopt;
  }
  if (arg_of(context_, node(cut), 0) != Arg::node(value)) return std::nullopt;
  const auto dim = dimension(cut, "dim", whole->rank());
  if (!dim) return std::nullopt;
  const auto rows = context_.exprs.constant(whole->sizes[*dim]),
             own = context_.exprs.constant(block->sizes[*dim]);
  if (!rows || !own || *own * ranks != *rows) return std::nullopt;
  if (cut != id) return has_equal_pieces(cut, *dim, *own, ranks) ? dim : std::nullopt;
  const auto number = [&](std::string_view param, std::int64_t fallback) -> std::optional<std::int64_t> {
    const auto at = node(id).op->find_param(param);
    const Arg arg = at ? arg_of(context_, node(id), *at) : Arg::none();
    if (arg.is_none()) return fallback;
    return arg.is_int() ? std::optional(arg.as_int()) : std::nullopt;
  };
  const bool begins = number("start", 0) == *own * static_cast<std::int64_t>(index);
  return begins && number("step", 1) == 1 ? dim : std::nullopt;
}

bool RankBlocks::has_equal_pieces(NodeId split, std::size_t dim, std::int64_t own, std::int64_t ranks) const {
  const auto& pieces = context_.types[node(split).type].elements;
  return std::cmp_equal(pieces.size(), ranks) && std::ranges::all_of(pieces, [&](TypeId piece) {
           const TensorType* type = tensor_of(context_, piece);
           return type != nullptr && context_.exprs.constant(type->sizes[dim]) == own;
         });
}

std::optional<std::size_t> RankBlocks::dimension(NodeId id, std::string_view param, std::size_t rank) const {
  const auto at = node(id).op->find_param(param);
  if (!at) return std::nullopt;
  const Arg arg = arg_of(context_, node(id), *at);
  std::int64_t dim = arg.is_none() ? 0 : arg.is_int() ? arg.as_int() : INT64_MIN;
  if (dim < 0) dim += static_cast<std::int64_t>(rank);
  if (dim < 0 || dim >= static_cast<std::int64_t>(rank)) return std::nullopt;
  return static_cast<std::size_t>(dim);
}

std::vector<NodeId> RankBlocks::list_nodes(NodeId join) const {
  const auto items = context_.args.children(arg_of(context_, node(join), 0));
  std::vector<NodeId> nodes{tuple_of(context_, node(items[0].as_node()))};
  for (const Arg item : items) nodes.push_back(item.as_node());
  nodes.push_back(join);
  return nodes;
}

}  // namespace epweave
