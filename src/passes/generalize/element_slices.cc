#include "passes/generalize/element_slices.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/walk.h"
#include "ops/bind.h"
#include "passes/rank_elements.h"

namespace epweave {

std::optional<PieceChoice> find_piece_choice(PieceFinder& finder, const Graph& first,
                                             const std::vector<TakenPiece>& pieces, NodeId taken) {
  const Context& context = *first.context;
  const Body& body = first.step();
  const TakenPiece& piece = pieces[0];
  const TensorType* whole = tensor_of(context, body.nodes[piece.of].type);
  const std::int64_t size = piece.size();
  if (whole == nullptr || size == 0) return std::nullopt;
  const auto extent = context.exprs.constant(whole->sizes[static_cast<std::size_t>(piece.dim)]);
  if (!extent || *extent % size != 0) return std::nullopt;
  PieceChoice choice{{}, *extent / size};
  if (tuple_element(context, body, body.nodes[taken])) {
    const auto count = finder.count_even(body, body.nodes[taken]);
    if (!count) return std::nullopt;
    choice.count = *count;
  }
  for (const TakenPiece& other : pieces) {
    if (other.dim != piece.dim || other.size() != size || other.start % size != 0) return std::nullopt;
    choice.indices.push_back(other.start / size);
  }
  return choice;
}

NodeId ElementSlices::slice(NodeId element, const TakenPiece& piece, std::pair<NodeId, NodeId> bounds) {
  const auto key = std::tuple(element, bounds.first, bounds.second);
  if (const auto known = slices_.find(key); known != slices_.end()) return known->second;
  Node node = made_.step().nodes[element];
  node.target = made_.intern("aten.slice.Tensor");
  const Arg args[] = {Arg::node(piece.of), Arg::integer(piece.dim), Arg::node(bounds.first),
                      Arg::node(bounds.second)};
  node.args = made_.context->args.add(args);
  node.kwargs = {};
  node.provenance = {};
  if (const Node* call = find_call(element, piece)) node.extra = describe_element(made_, node.extra, *call);
  const std::string name(made_.text(node.name));
  const NodeId id = writer_.add(node, fmt::format("{}_of_rank", name));
  made_.step().nodes[id].type = type_of(node, piece, bounds.first);
  slices_[key] = id;
  inserted_.emplace_back(element, id);
  return id;
}

// A piece of the element's sizes and strides; where it begins is a function of the coordinates.
TypeId ElementSlices::type_of(const Node& element, const TakenPiece& piece, NodeId start) const {
  Context& context = *made_.context;
  const TensorType* whole = tensor_of(context, made_.step().nodes[piece.of].type);
  if (whole == nullptr) return element.type;
  Type type = context.types[element.type];
  const ExprId begin = context.types[made_.step().nodes[start].type].expr;
  ExprId offset = context.exprs.mul(begin, whole->strides[static_cast<std::size_t>(piece.dim)]);
  if (whole->offset) offset = context.exprs.add(whole->offset, offset);
  type.tensor.offset = offset;
  return context.types.intern(std::move(type));
}

// The call with which ranks take such pieces: the split, or the slice that takes the last, whose
// end tracers spell otherwise: the first behind the element, else the nearest before it.
const Node* ElementSlices::find_call(NodeId element, const TakenPiece& piece) {
  const Context& context = *first_.context;
  const Body& body = first_.step();
  if (const auto tuple = tuple_element(context, body, body.nodes[element])) return &body.nodes[tuple->tuple];
  const TensorType* whole = tensor_of(context, body.nodes[piece.of].type);
  const auto extent = context.exprs.constant(whole->sizes[static_cast<std::size_t>(piece.dim)]);
  if (!extent) return nullptr;
  const TakenPiece last{piece.of, piece.dim, *extent - piece.size(), *extent};
  if (last_pieces_.empty()) list_last_pieces();
  const auto found = last_pieces_.find(last);
  if (found == last_pieces_.end()) return nullptr;
  const auto behind = std::ranges::lower_bound(found->second, position_[element], {},
                                               [&](NodeId id) { return position_[id]; });
  return &body.nodes[behind != found->second.end() ? *behind : found->second.back()];
}

// Each piece that reaches to the end of what it is taken of.
void ElementSlices::list_last_pieces() {
  const Context& context = *first_.context;
  const Body& body = first_.step();
  PieceFinder finder(context);
  std::uint32_t count = 0;
  for (const auto [id, node] : walk(context, body)) {
    position_.at(id) = count++;
    const auto piece = finder.find(body, node);
    const TensorType* whole = piece ? tensor_of(context, body.nodes[piece->of].type) : nullptr;
    if (whole != nullptr &&
        context.exprs.constant(whole->sizes[static_cast<std::size_t>(piece->dim)]) == piece->end)
      last_pieces_[*piece].push_back(id);
  }
}

void ElementSlices::place() {
  if (inserted_.empty()) return;
  std::map<NodeId, std::vector<NodeId>> behind;
  for (const auto& [element, slice] : inserted_) behind[element].push_back(slice);
  std::vector<NodeId> order;
  for (NodeId id : made_.step().order) {
    order.push_back(id);
    if (const auto found = behind.find(id); found != behind.end())
      order.insert(order.end(), found->second.begin(), found->second.end());
  }
  made_.step().order = std::move(order);
}

}  // namespace epweave
