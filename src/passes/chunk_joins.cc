#include "passes/chunk_joins.h"

#include <fmt/format.h>

namespace epweave {

PartJoins::PartJoins(const Graph& graph, const ChunkPlan& plan, ChunkWriter& writer, PartSizes& sizes)
    : graph_(graph), plan_(plan), writer_(writer), sizes_(sizes) {}

std::vector<Arg> PartJoins::cut(const Cut& cut) {
  const PartSizes::Place place{cut.origin, cut.user};
  const RegionId region = plan_.placements.region[cut.user];
  const std::string name(graph_.text(graph_.step().nodes[cut.origin].name));
  const TensorType* type = writer_.tensor(cut.whole);
  const ExprId extent = type == nullptr ? ExprId() : type->sizes[static_cast<std::size_t>(cut.dim)];
  if (!extent || !sizes_.is_divisible(extent))
    throw PassError("chunk.extent",
                    fmt::format("dimension {} of '{}' is not a multiple of the token count", cut.dim, name),
                    site_of(graph_, graph_.step().nodes[cut.user]),
                    "give the dimension a size that is a multiple of the token count");
  const auto known = sizes_.of_extent(extent, region);
  const PartSizes::Shares sizes = known ? *known : sizes_.of_dimension(cut.whole, cut.dim, place);
  const NodeId split =
      writer_.append(writer_.make({.name = name + "_split",
                                   .target = "aten.split_with_sizes.default",
                                   .args = {Arg::node(cut.whole), writer_.list(sizes), Arg::integer(cut.dim)},
                                   .chunk_role = "split_boundary",
                                   .role = ProvenanceRole::kSplit,
                                   .origin = place.origin,
                                   .region = region}));
  std::vector<Arg> result;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    NodeId piece =
        writer_.append(writer_.make({.name = fmt::format("{}_split_{}", name, k),
                                     .target = "operator.getitem",
                                     .args = {Arg::node(split), Arg::integer(static_cast<std::int64_t>(k))},
                                     .chunk_role = "split_boundary",
                                     .role = ProvenanceRole::kSplit,
                                     .origin = place.origin,
                                     .region = region,
                                     .part = k}));
    // Kernels read the parts of an eager chunked run contiguous, and which kernel runs decides bits.
    if (!is_contiguous(piece)) piece = contiguous(piece, place, k);
    result.push_back(Arg::node(piece));
  }
  return result;
}

NodeId PartJoins::contiguous(NodeId piece, PartSizes::Place place, std::size_t part) {
  return writer_.append(writer_.make({.name = fmt::format("{}_contiguous", writer_.name(piece)),
                                      .target = "aten.clone.default",
                                      .args = {Arg::node(piece)},
                                      .kwargs = writer_.memory_format("torch.contiguous_format"),
                                      .chunk_role = "chunk_input",
                                      .role = ProvenanceRole::kPartInput,
                                      .origin = place.origin,
                                      .region = plan_.placements.region[place.user],
                                      .part = part}));
}

bool PartJoins::is_contiguous(NodeId id) {
  const TensorType* type = writer_.tensor(id);
  if (type == nullptr || type->strides.size() != type->sizes.size()) return true;
  ExprPool& pool = writer_.facts().pool();
  PolyId expected = pool.poly_number(1);
  for (std::size_t i = type->sizes.size(); i-- > 0;) {
    if (pool.constant(type->sizes[i]) == 1) continue;
    if (!writer_.facts().equal(pool.poly(type->strides[i]), expected)) return false;
    expected = pool.mul(expected, pool.poly(type->sizes[i]));
  }
  return true;
}

NodeId PartJoins::concatenate(NodeId original, std::span<const Arg> parts, int dim) {
  const Node& node = graph_.step().nodes[original];
  return writer_.append_whole(
      writer_.make({.name = fmt::format("{}_chunk_materialized", graph_.text(node.name)),
                    .target = "aten.cat.default",
                    .args = {writer_.list({parts.begin(), parts.end()}), Arg::integer(dim)},
                    .chunk_role = "materialization",
                    .role = ProvenanceRole::kMaterialize,
                    .origin = original,
                    .region = plan_.placements.region[original]}),
      original);
}

NodeId PartJoins::add(NodeId original, std::span<const Arg> parts) {
  const Node& node = graph_.step().nodes[original];
  const std::string_view name = graph_.text(node.name);
  const bool is_scalar = tensor_of(*graph_.context, node.type) == nullptr;
  const RegionId region = plan_.placements.region[original];
  std::string_view proof;
  if (is_scalar) {
    proof = "symbolic_size";
  } else if (plan_.placements.regions[region.index()].backward) {
    proof = "backward_partial_sum";
  }
  NodeId total = parts[0].as_node();
  for (std::size_t k = 1; k < parts.size(); ++k) {
    const bool is_last = k + 1 == parts.size();
    Node sum = writer_.make({.name = is_last ? fmt::format("{}_chunk_materialized", name)
                                             : fmt::format("{}_chunk_sum{}", name, k),
                             .target = is_scalar ? "operator.add" : "aten.add.Tensor",
                             .args = {Arg::node(total), parts[k]},
                             .chunk_role = "materialization",
                             .chunk_proof = proof,
                             .role = ProvenanceRole::kMaterialize,
                             .origin = original,
                             .region = region});
    total = is_last ? writer_.append_whole(std::move(sum), original) : writer_.append(std::move(sum));
  }
  return total;
}

}  // namespace epweave
