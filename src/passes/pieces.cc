#include "passes/pieces.h"

#include <algorithm>
#include <iterator>

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
  std::size_t index = 0;
};
std::optional<SplitElement> read_element(const Context& context, const Body& body, const Node& node) {
  const auto element = tuple_element(context, body, node);
  if (!element) return std::nullopt;
  const Node& split = body.nodes[element->tuple];
  if (!has_family(split, OpFamily::kSplit) || !split.type) return std::nullopt;
  if (element->index < 0 || element->index >= std::ssize(context.types[split.type].elements))
    return std::nullopt;
  return SplitElement{split, static_cast<std::size_t>(element->index)};
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

std::optional<TakenPiece> PieceFinder::find(const Body& body, const Node& node) {
  if (node.op == nullptr) return std::nullopt;
  if (node.op->family == OpFamily::kElement) return find_element(body, node);
  if (node.op->family == OpFamily::kSlice) return find_slice(context_, body, node);
  return std::nullopt;
}

std::optional<std::int64_t> PieceFinder::count_even(const Body& body, const Node& element) {
  const auto from = read_element(context_, body, element);
  if (!from) return std::nullopt;
  std::int64_t dim = 0;
  const Pieces& pieces = read_split(from->split, dim);
  const std::int64_t count = std::ssize(context_.types[from->split.type].elements);
  return pieces.are_even && std::ssize(pieces.bounds) == count + 1 ? std::optional(count) : std::nullopt;
}

std::optional<std::int64_t> PieceFinder::find_index(const Node& split, const TakenPiece& piece) {
  const Arg whole = arg_of(context_, split, 0);
  if (!whole.is_node() || whole.as_node() != piece.of) return std::nullopt;
  if (!has_family(split, OpFamily::kSplit) || !split.type) return std::nullopt;
  if (context_.types[split.type].elements.empty()) return std::nullopt;
  std::int64_t dim = 0;
  const std::vector<std::int64_t>& bounds = read_split(split, dim).bounds;
  // Of empty pieces at one place, the first; a piece that is not empty stands behind these.
  auto at = piece.size() == 0 ? std::ranges::lower_bound(bounds, piece.start)
                              : std::ranges::upper_bound(bounds, piece.start);
  if (piece.size() != 0 && at != bounds.begin()) --at;
  const bool is_piece = dim == piece.dim && at != bounds.end() && *at == piece.start &&
                        std::next(at) != bounds.end() && *std::next(at) == piece.end;
  return is_piece ? std::optional(at - bounds.begin()) : std::nullopt;
}

std::optional<TakenPiece> PieceFinder::find_element(const Body& body, const Node& node) {
  const auto element = read_element(context_, body, node);
  const Arg whole = element ? arg_of(context_, element->split, 0) : Arg::none();
  if (!whole.is_node()) return std::nullopt;
  TakenPiece piece{whole.as_node()};
  const Pieces& pieces = read_split(element->split, piece.dim);
  if (element->index + 1 >= pieces.bounds.size()) return std::nullopt;
  piece.start = pieces.bounds[element->index];
  piece.end = pieces.bounds[element->index + 1];
  return piece;
}

const PieceFinder::Pieces& PieceFinder::read_split(const Node& split, std::int64_t& dim) {
  const std::vector<TypeId>& parts = context_.types[split.type].elements;
  dim = -1;  // named by no number
  find_extent(context_, tensor_of(context_, parts.front()), split, dim);
  const auto [known, is_new] = pieces_.try_emplace({split.type, dim});
  Pieces& pieces = known->second;
  if (!is_new) return pieces;
  for (TypeId part : parts) {
    std::int64_t own_dim = 0;
    const auto size = find_extent(context_, tensor_of(context_, part), split, own_dim);
    if (!size) break;
    pieces.bounds.push_back(pieces.bounds.back() + *size);
    pieces.are_even = pieces.are_even && *size == pieces.bounds[1];
  }
  return pieces;
}

}  // namespace epweave
