#include "passes/chunk_sizes.h"

#include <fmt/format.h>

#include <algorithm>

namespace epweave {

PartSizes::PartSizes(const Graph& chunked, const ChunkPlan& plan, ChunkWriter& writer)
    : out_(chunked), plan_(plan), writer_(writer), tokens_(chunked, writer.facts()) {}

std::optional<NodeId> PartSizes::of_extent(ExprId extent) {
  const auto known = tokens_.multiple(extent);
  if (!known || !tokens_.source(known->symbol).node) return std::nullopt;
  return multiple(*known);
}

// The node of the extent `factor * u/N`.
NodeId PartSizes::multiple(TokenMultiple multiple) {
  const auto key = std::pair(multiple.symbol.index(), multiple.factor);
  if (auto found = multiples_.find(key); found != multiples_.end()) return found->second;
  NodeId result;
  const TokenExtents::Source& source = tokens_.source(multiple.symbol);
  if (multiple.factor != 1) {
    const NodeId one = this->multiple({multiple.symbol, 1});
    result = add({.name = fmt::format("{}_x{}", writer_.name(one), multiple.factor),
                  .target = "operator.mul",
                  .args = {Arg::node(one), Arg::integer(multiple.factor)},
                  .role = ProvenanceRole::kSize,
                  .origin = source.node});
  } else {
    const NodeId size = add({.name = fmt::format("{}_tokens", out_.text(multiple.symbol)),
                             .target = "aten.sym_size.int",
                             .args = {Arg::node(source.node), Arg::integer(source.dim)},
                             .role = ProvenanceRole::kSize,
                             .origin = source.node});
    result = add({.name = fmt::format("{}_part", out_.text(multiple.symbol)),
                  .target = "operator.floordiv",
                  .args = {Arg::node(size), Arg::integer(plan_.parts)},
                  .role = ProvenanceRole::kSize,
                  .origin = source.node});
  }
  multiples_.emplace(key, result);
  return result;
}

NodeId PartSizes::of_number(NodeId whole, Place place) {
  return writer_.append(writer_.make({.name = fmt::format("{}_part", writer_.name(whole)),
                                      .target = "operator.floordiv",
                                      .args = {Arg::node(whole), Arg::integer(plan_.parts)},
                                      .chunk_role = "chunk_input",
                                      .role = ProvenanceRole::kSize,
                                      .origin = place.origin,
                                      .region = place.region}));
}

NodeId PartSizes::of_dimension(NodeId tensor, int dim, Place place) {
  const NodeId size =
      writer_.append(writer_.make({.name = fmt::format("{}_size{}", writer_.name(tensor), dim),
                                   .target = "aten.sym_size.int",
                                   .args = {Arg::node(tensor), Arg::integer(dim)},
                                   .chunk_role = "split_boundary",
                                   .role = ProvenanceRole::kSize,
                                   .origin = place.origin,
                                   .region = place.region}));
  return of_number(size, place);
}

NodeId PartSizes::add(const NewCall& call) {
  behind_inputs_.push_back(writer_.add(writer_.make(call)));
  return behind_inputs_.back();
}

void PartSizes::place_behind_inputs() {
  std::vector<NodeId>& order = writer_.order();
  const auto first_call = std::find_if(order.begin(), order.end(), [&](NodeId id) {
    return out_.step().nodes[id].kind != NodeKind::kPlaceholder;
  });
  order.insert(first_call, behind_inputs_.begin(), behind_inputs_.end());
}

}  // namespace epweave
