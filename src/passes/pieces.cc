#include "passes/pieces.h"

#include <algorithm>
#include <span>

#include "analysis/shown_rows.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

// An integer argument; none if it is a node or something else.
std::optional<std::int64_t> integer_at(const Context& context, const Node& node, std::string_view param,
                                       std::int64_t left_out) {
  const auto position = node.op->find_param(param);
  const Arg arg = position ? arg_of(context, node, *position) : Arg::none();
  if (arg.is_int()) return arg.as_int();
  return arg.is_none() ? std::optional(left_out) : std::nullopt;
}

// How far the tensor reaches along the dimension that the call names. None: it is no number.
std::optional<std::int64_t> find_extent(const Context& context, const TensorType* tensor, const Node& call,
                                        std::int64_t& dim) {
  const auto named = tensor != nullptr ? find_dim(context, call, tensor->rank()) : std::nullopt;
  if (!named) return std::nullopt;
  dim = static_cast<std::int64_t>(*named);
  return context.exprs.constant(tensor->sizes[*named]);
}

// An element of a split.
struct SplitElement {
  const Node& split;
  std::span<const TypeId> parts;
  std::size_t index = 0;
};
std::optional<SplitElement> read_element(const Context& context, const Body& body, const Node& node) {
  const auto element = tuple_element(context, body, node);
  if (!element) return std::nullopt;
  const Node& split = body.nodes[element->tuple];
  if (!has_family(split, OpFamily::kSplit) || !split.type) return std::nullopt;
  const std::vector<TypeId>& parts = context.types[split.type].elements;
  if (element->index < 0 || element->index >= static_cast<std::int64_t>(parts.size())) return std::nullopt;
  return SplitElement{split, parts, static_cast<std::size_t>(element->index)};
}

std::optional<TakenPiece> find_element(const Context& context, const Body& body, const Node& node) {
  const auto element = read_element(context, body, node);
  const Arg whole = element ? arg_of(context, element->split, 0) : Arg::none();
  if (!whole.is_node()) return std::nullopt;
  TakenPiece piece{whole.as_node()};
  for (TypeId part : element->parts.first(element->index + 1)) {
    const auto size = find_extent(context, tensor_of(context, part), element->split, piece.dim);
    if (!size) return std::nullopt;
    piece.start = piece.end;
    piece.end += *size;
  }
  return piece;
}

std::optional<TakenPiece> find_slice(const Context& context, const Body& body, const Node& node) {
  const Arg whole = arg_of(context, node, 0);
  if (!node.op->is_view || !whole.is_node() || !node.op->find_param("end")) return std::nullopt;
  if (integer_at(context, node, "step", 1) != 1) return std::nullopt;
  TakenPiece piece{whole.as_node()};
  const auto extent = find_extent(context, tensor_of(context, body.nodes[piece.of].type), node, piece.dim);
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
  const auto from = read_element(context, body, element);
  if (!from) return std::nullopt;
  std::optional<std::int64_t> size;
  for (TypeId part : from->parts) {
    std::int64_t dim = 0;
    const auto own = find_extent(context, tensor_of(context, part), from->split, dim);
    if (!own || size.value_or(*own) != *own) return std::nullopt;
    size = own;
  }
  return static_cast<std::int64_t>(from->parts.size());
}

std::optional<TakenPiece> find_piece(const Context& context, const Body& body, const Node& node) {
  if (node.op == nullptr) return std::nullopt;
  if (node.op->family == OpFamily::kElement) return find_element(context, body, node);
  if (node.op->family == OpFamily::kSlice) return find_slice(context, body, node);
  return std::nullopt;
}

}  // namespace epweave
