#include "passes/pieces.h"

#include <algorithm>

#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

// An integer argument; none if it is a node or something else.
std::optional<std::int64_t> integer_at(const Context& context, const Node& node, std::string_view param,
                                       std::optional<std::int64_t> left_out) {
  const auto position = node.op->find_param(param);
  const Arg arg = position ? arg_of(context, node, *position) : Arg::none();
  if (arg.is_int()) return arg.as_int();
  return arg.is_none() ? left_out : std::nullopt;
}

// How far `tensor` reaches along `dim`, which is counted from the front from here on.
std::optional<std::int64_t> find_extent(const Context& context, const TensorType* tensor, std::int64_t& dim) {
  if (tensor == nullptr) return std::nullopt;
  const auto rank = static_cast<std::int64_t>(tensor->rank());
  if (dim < 0) dim += rank;
  if (dim < 0 || dim >= rank) return std::nullopt;
  return context.exprs.constant(tensor->sizes[static_cast<std::size_t>(dim)]);
}

std::optional<TakenPiece> find_element(const Context& context, const Body& body, const Node& node) {
  const auto element = tuple_element(context, body, node);
  if (!element) return std::nullopt;
  const Node& split = body.nodes[element->tuple];
  if (split.op == nullptr || split.op->family != OpFamily::kSplit || !split.type) return std::nullopt;
  const Arg whole = arg_of(context, split, 0);
  const auto dim = integer_at(context, split, "dim", 0);
  const std::vector<TypeId>& parts = context.types[split.type].elements;
  if (!whole.is_node() || !dim || element->index < 0 ||
      element->index >= static_cast<std::int64_t>(parts.size()))
    return std::nullopt;
  TakenPiece piece{whole.as_node(), *dim};
  for (std::int64_t i = 0; i <= element->index; ++i) {
    const TensorType* part = tensor_of(context, parts[static_cast<std::size_t>(i)]);
    const auto size = find_extent(context, part, piece.dim);
    if (!size) return std::nullopt;
    piece.start = piece.end;
    piece.end += *size;
  }
  return piece;
}

std::optional<TakenPiece> find_slice(const Context& context, const Body& body, const Node& node) {
  const Arg whole = arg_of(context, node, 0);
  if (!node.op->is_view || !whole.is_node() || !node.op->find_param("end")) return std::nullopt;
  const auto dim = integer_at(context, node, "dim", 0);
  if (!dim || integer_at(context, node, "step", 1) != 1) return std::nullopt;
  TakenPiece piece{whole.as_node(), *dim};
  const auto extent = find_extent(context, tensor_of(context, body.nodes[piece.of].type), piece.dim);
  if (!extent) return std::nullopt;
  const auto start = integer_at(context, node, "start", 0), end = integer_at(context, node, "end", *extent);
  if (!start || !end) return std::nullopt;
  const auto within = [&](std::int64_t bound) {
    return std::clamp<std::int64_t>(bound < 0 ? bound + *extent : bound, 0, *extent);
  };
  piece.start = within(*start);
  piece.end = std::max(piece.start, within(*end));
  return piece;
}

}  // namespace

std::optional<std::int64_t> count_even_pieces(const Context& context, const Body& body, const Node& element) {
  const auto from = tuple_element(context, body, element);
  const Node* split = from ? &body.nodes[from->tuple] : nullptr;
  if (split == nullptr || split->op == nullptr || !split->type) return std::nullopt;
  const auto dim = integer_at(context, *split, "dim", 0);
  const std::vector<TypeId>& parts = context.types[split->type].elements;
  std::optional<std::int64_t> size;
  for (TypeId part : parts) {
    std::int64_t along = dim.value_or(0);
    const auto own = find_extent(context, tensor_of(context, part), along);
    if (!own || size.value_or(*own) != *own) return std::nullopt;
    size = own;
  }
  return static_cast<std::int64_t>(parts.size());
}

std::optional<TakenPiece> find_piece(const Context& context, const Body& body, const Node& node) {
  if (node.op == nullptr) return std::nullopt;
  if (node.op->family == OpFamily::kElement) return find_element(context, body, node);
  if (node.op->family == OpFamily::kSlice) return find_slice(context, body, node);
  return std::nullopt;
}

}  // namespace epweave
