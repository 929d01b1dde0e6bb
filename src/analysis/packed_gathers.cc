#include "analysis/packed_gathers.h"

#include <algorithm>

#include "analysis/collectives.h"
#include "ops/bind.h"
#include "ops/bucket_dtypes.h"
#include "ops/family.h"
#include "ops/named_arg.h"
#include "ops/op.h"
#include "ops/traffic.h"

namespace epweave {

std::optional<PackedGathers::Piece> PackedGathers::visit(NodeId id) {
  const Node& node = body_.nodes[id];
  if (node.op == nullptr) return std::nullopt;
  if (node.op->find_param("split_sizes")) return split(id, node), std::nullopt;
  const Arg from = arg_of(context_, node, 0);
  const OpFamily family = node.op->family;
  if (family == OpFamily::kJoin || family == OpFamily::kOpaque) return pack(id, node), std::nullopt;
  // What of a buffer of all ranks is this rank's.
  if (family == OpFamily::kSlice) return pass_packed(id, from), std::nullopt;
  // Copied into it.
  if (family == OpFamily::kElementwise) return pass_packed(id, named(node, "src")), std::nullopt;
  if (family == OpFamily::kAllGather) return gather(id, node), std::nullopt;
  if (family == OpFamily::kElement) {
    const Arg index = arg_of(context_, node, 1);
    const auto columns = from.is_node() ? columns_.find(from.as_node()) : columns_.end();
    if (columns == columns_.end() || !index.is_int() || index.as_int() < 0 ||
        index.as_int() >= static_cast<std::int64_t>(columns->second.size()))
      return std::nullopt;
    pieces_.emplace(id, columns->second[static_cast<std::size_t>(index.as_int())]);
    return std::nullopt;
  }
  return keeps_sequence(family) ? pass(id, node) : std::nullopt;
}

Arg PackedGathers::named(const Node& node, std::string_view param) const {
  return named_arg(context_, node, param);
}

std::optional<std::int64_t> PackedGathers::count(NodeId id) const {
  const TensorType* tensor = tensor_of(context_, body_.nodes[id].type);
  if (tensor == nullptr) return std::nullopt;
  std::int64_t elements = 1;
  for (ExprId size : tensor->sizes) {
    const auto extent = context_.exprs.constant(size);
    if (!extent || *extent < 1) return std::nullopt;
    elements *= *extent;
  }
  return elements;
}

std::optional<std::int64_t> PackedGathers::bytes_of_element(NodeId id) const {
  const TensorType* tensor = tensor_of(context_, body_.nodes[id].type);
  return tensor == nullptr ? std::nullopt : std::optional<std::int64_t>(info(tensor->dtype).bytes);
}

NodeId PackedGathers::source_of(NodeId id) const {
  const Node& node = body_.nodes[id];
  const bool is_flat = node.op != nullptr && keeps_sequence(node.op->family) && !is_wait(node);
  const Arg from = is_flat ? arg_of(context_, node, 0) : Arg::none();
  return from.is_node() ? source_of(from.as_node()) : id;
}

void PackedGathers::pack(NodeId id, const Node& node) {
  const bool is_slot = traffic_of(*node.op) == Traffic::kSlot;
  const Arg tensors = is_slot ? named(node, "ag_ins") : named(node, "tensors");
  const Arg dtypes = is_slot ? named(node, "out_dtype_ints") : Arg::none();
  if (!tensors.is_list() || (is_slot && !dtypes.is_list())) return;
  const auto items = context_.args.children(tensors);
  Packed packed;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_node()) return;
    const auto elements = count(items[i].as_node());
    auto bytes = bytes_of_element(items[i].as_node());
    if (is_slot) {
      const auto positions = context_.args.children(dtypes);
      const auto dtype = i < positions.size() && positions[i].is_int()
                             ? dtype_at_position(positions[i].as_int())
                             : std::nullopt;
      bytes = dtype ? std::optional<std::int64_t>(info(*dtype).bytes) : std::nullopt;
    }
    if (!elements || !bytes) return;
    packed.push_back({source_of(items[i].as_node()), *elements * *bytes});
  }
  packed_.emplace(id, std::move(packed));
}

void PackedGathers::pass_packed(NodeId id, Arg from) {
  const auto found = from.is_node() ? packed_.find(from.as_node()) : packed_.end();
  if (found != packed_.end()) packed_.emplace(id, Packed(found->second));
}

void PackedGathers::gather(NodeId id, const Node& node) {
  const Arg own = arg_of(context_, node, 0);
  const auto found = own.is_node() ? packed_.find(own.as_node()) : packed_.end();
  if (found != packed_.end()) gathered_.emplace(id, Gathered{&found->second, id});
}

// Columns of [ranks, elements of each]: as wide as the tensors one by one.
void PackedGathers::split(NodeId id, const Node& node) {
  const Arg from = arg_of(context_, node, 0), sizes = named(node, "split_sizes"), dim = named(node, "dim");
  const auto gathered = from.is_node() ? gathered_.find(from.as_node()) : gathered_.end();
  if (gathered == gathered_.end() || !sizes.is_list() || !dim.is_int() || dim.as_int() != 1) return;
  const Packed& packed = *gathered->second.packed;
  const auto widths = context_.args.children(sizes);
  const auto bytes = bytes_of_element(from.as_node());
  if (widths.size() != packed.size() || !bytes) return;
  std::vector<Piece> columns;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (!widths[i].is_int() || widths[i].as_int() * *bytes != packed[i].bytes) return;
    columns.push_back({packed[i].tensor, gathered->second.launch});
  }
  const Arg out = named(node, "out");
  if (!out.is_list()) {
    columns_.emplace(id, std::move(columns));
    return;
  }
  const auto targets = context_.args.children(out);
  for (std::size_t i = 0; i < targets.size() && i < columns.size(); ++i)
    if (targets[i].is_node()) pieces_.emplace(source_of(targets[i].as_node()), columns[i]);
}

std::optional<PackedGathers::Piece> PackedGathers::pass(NodeId id, const Node& node) {
  const Arg from = arg_of(context_, node, 0);
  if (!from.is_node()) return std::nullopt;
  if (const auto gathered = gathered_.find(from.as_node()); gathered != gathered_.end())
    gathered_.emplace(id, Gathered(gathered->second));
  const auto piece = pieces_.find(from.as_node());
  if (piece == pieces_.end()) return std::nullopt;
  pieces_.emplace(id, Piece(piece->second));
  return as_gather(id, piece->second);
}

// The tensor's own sizes, along the first dimension those of all ranks.
std::optional<PackedGathers::Piece> PackedGathers::as_gather(NodeId id, Piece piece) const {
  const TensorType *whole = tensor_of(context_, body_.nodes[id].type),
                   *own = tensor_of(context_, body_.nodes[piece.tensor].type);
  const Arg ranks = named(body_.nodes[piece.launch], "group_size");
  if (whole == nullptr || own == nullptr || whole->rank() != own->rank() || own->rank() == 0 ||
      !ranks.is_int())
    return std::nullopt;
  for (std::size_t d = 0; d < own->rank(); ++d) {
    const auto of_all = context_.exprs.constant(whole->sizes[d]),
               of_own = context_.exprs.constant(own->sizes[d]);
    if (!of_all || !of_own || *of_all != (d == 0 ? ranks.as_int() : 1) * *of_own) return std::nullopt;
  }
  return piece;
}

}  // namespace epweave
