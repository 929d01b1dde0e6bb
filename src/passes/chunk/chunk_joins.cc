#include "passes/chunk/chunk_joins.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

constexpr std::string_view kCat = "aten.cat.default";

}  // namespace

PartJoins::PartJoins(const Graph& graph, const ChunkPlan& plan, ChunkWriter& writer, PartSizes& sizes)
    : graph_(graph), plan_(plan), writer_(writer), sizes_(sizes) {}

std::vector<Arg> PartJoins::cut(const Cut& cut) {
  if (!cut.blocks) return cut_plain(cut);
  const RegionId region = plan_.placements.region[cut.user];
  const std::string name(graph_.text(graph_.step().nodes[cut.origin].name));
  Cut inner = cut;
  inner.whole = writer_.append(
      view_in_blocks(cut.whole, cut.dim, cut.blocks,
                     {name + "_blocks", "split_boundary", ProvenanceRole::kAdded, cut.origin, region}));
  inner.dim = cut.dim + 1;
  inner.blocks = {};
  std::vector<Arg> pieces = cut_plain(inner);
  for (std::size_t k = 0; k < pieces.size(); ++k)
    pieces[k] =
        Arg::node(writer_.append(view_as_rows(pieces[k].as_node(), cut.dim,
                                              {fmt::format("{}_split_{}_rows", name, k), "chunk_input",
                                               ProvenanceRole::kPartInput, cut.origin, region, k})));
  return pieces;
}

// Replaces dimension `dim` by `blocks` and the rest.
Node PartJoins::view_in_blocks(NodeId tensor, int dim, PolyId blocks, const View& view) {
  std::vector<Arg> shape = list_sizes(tensor, {dim, 1}, view);
  shape.insert(shape.begin() + dim, {sizes_.of_inputs(blocks, view.origin), Arg::integer(-1)});
  return make_view(tensor, shape, view);
}

// Merges dimension `dim` and the next one.
Node PartJoins::view_as_rows(NodeId tensor, int dim, const View& view) {
  std::vector<Arg> shape = list_sizes(tensor, {dim, 2}, view);
  shape.insert(shape.begin() + dim, Arg::integer(-1));
  return make_view(tensor, shape, view);
}

// The sizes of the tensor but for those of a range of dimensions.
std::vector<Arg> PartJoins::list_sizes(NodeId tensor, DimRange without, const View& view) {
  const TensorType type = *writer_.tensor(tensor);
  std::vector<Arg> sizes;
  for (int i = 0; i < static_cast<int>(type.rank()); ++i) {
    if (i >= without.begin && i < without.begin + without.count) continue;
    const auto number = writer_.facts().pool().constant(type.sizes[static_cast<std::size_t>(i)]);
    sizes.push_back(number ? Arg::integer(*number)
                           : Arg::node(sizes_.read_size(tensor, i, {view.origin, view.region})));
  }
  return sizes;
}

Node PartJoins::make_view(NodeId tensor, const std::vector<Arg>& shape, const View& view) {
  return writer_.make({.name = view.name,
                       .target = "aten.reshape.default",
                       .args = {Arg::node(tensor), writer_.list(shape)},
                       .chunk_role = view.chunk_role,
                       .role = view.role,
                       .origin = view.origin,
                       .region = view.region,
                       .part = view.part});
}

void PartJoins::refuse_extent(const Cut& cut, ExprId extent) const {
  const std::string_view size = extent ? graph_.context->exprs.text(extent) : "of no size";
  throw PassError("chunk.extent",
                  fmt::format("dimension {} of '{}' is {}, not a multiple of the token count", cut.dim,
                              graph_.text(graph_.step().nodes[cut.origin].name), size),
                  site_of(graph_, graph_.step().nodes[cut.user]),
                  "give the dimension a size that is a multiple of the token count; where the step cuts its "
                  "tokens into micro-batches, say into how many: symbolize{inputs=[tokens:0/2]}");
}

std::vector<Arg> PartJoins::cut_plain(const Cut& cut) {
  const PartSizes::SizeUse place{cut.origin, cut.user};
  const RegionId region = plan_.placements.region[cut.user];
  const std::string name(graph_.text(graph_.step().nodes[cut.origin].name));
  const TensorType* type = writer_.tensor(cut.whole);
  const ExprId extent = type == nullptr ? ExprId() : type->sizes[static_cast<std::size_t>(cut.dim)];
  if (!extent || !sizes_.is_divisible(extent)) refuse_extent(cut, extent);
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
    // Kernels read the parts of an eager chunked run contiguous, and which kernel runs decides
    // bits.
    if (!is_contiguous(piece)) piece = contiguous(piece, place, k);
    result.push_back(Arg::node(piece));
  }
  return result;
}

NodeId PartJoins::contiguous(NodeId piece, PartSizes::SizeUse place, std::size_t part) {
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

NodeId PartJoins::concatenate(NodeId original, std::span<const Arg> parts, const Placement& placement) {
  const Node& node = graph_.step().nodes[original];
  const int dim = placement.dim;
  if (placement.blocks && !placement.any_order) {
    const std::string name(graph_.text(node.name));
    const RegionId region = plan_.placements.region[original];
    View view{"", "materialization", ProvenanceRole::kAdded, original, region};
    std::vector<Arg> in_blocks;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      view.name = fmt::format("{}_chunk{}_blocks", name, k);
      view.part = k;
      in_blocks.push_back(
          Arg::node(writer_.append(view_in_blocks(parts[k].as_node(), dim, placement.blocks, view))));
    }
    const NodeId joined =
        writer_.append(writer_.make({.name = name + "_chunk_blocks",
                                     .target = kCat,
                                     .args = {writer_.list(in_blocks), Arg::integer(dim + 1)},
                                     .chunk_role = "materialization",
                                     .origin = original,
                                     .region = region}));
    return writer_.append_whole(view_as_rows(joined, dim,
                                             {name + "_chunk_materialized", "materialization",
                                              ProvenanceRole::kMaterialize, original, region}),
                                original);
  }
  return writer_.append_whole(
      writer_.make({.name = fmt::format("{}_chunk_materialized", graph_.text(node.name)),
                    .target = kCat,
                    .args = {writer_.list({parts.begin(), parts.end()}), Arg::integer(dim)},
                    .chunk_role = "materialization",
                    .role = ProvenanceRole::kMaterialize,
                    .origin = original,
                    .region = plan_.placements.region[original]}),
      original);
}

NodeId PartJoins::concatenate_in_order(NodeId original, std::span<const Arg> parts,
                                       std::vector<std::int64_t> order) {
  const std::string name(graph_.text(graph_.step().nodes[original].name));
  const RegionId region = plan_.placements.region[original];
  const View view{name + "_chunk", "materialization", ProvenanceRole::kAdded, original, region};
  const NodeId joined = join_in_order(parts, {plan_.placements.of(original).dim, order}, view);
  return writer_.append_whole(permute(joined, inverse(order),
                                      {name + "_chunk_materialized", "materialization",
                                       ProvenanceRole::kMaterialize, original, region}),
                              original);
}

NodeId PartJoins::concatenate_prefix(const Prefix& prefix, std::span<const Arg> parts) {
  const std::string_view name = graph_.text(graph_.step().nodes[prefix.origin].name);
  const std::size_t last = parts.size() - 1;
  View view{fmt::format("{}_prefix{}_chunk", name, last),
            "chunk_input",
            ProvenanceRole::kAdded,
            prefix.origin,
            prefix.region,
            last};
  const std::vector<std::int64_t> order = memory_order(*writer_.tensor(parts[0].as_node()));
  if (!std::ranges::is_sorted(order)) {
    const NodeId joined = join_in_order(parts, {prefix.dim, order}, view);
    view.name = fmt::format("{}_prefix_chunk{}", name, last);
    return writer_.append(permute(joined, inverse(order), view));
  }
  return writer_.append(
      writer_.make({.name = fmt::format("{}_prefix_chunk{}", name, last),
                    .target = kCat,
                    .args = {writer_.list({parts.begin(), parts.end()}), Arg::integer(prefix.dim)},
                    .chunk_role = view.chunk_role,
                    .role = view.role,
                    .origin = view.origin,
                    .region = view.region,
                    .part = view.part}));
}

// The dimensions by strides, outermost first; as they are where one is repeated.
std::vector<std::int64_t> PartJoins::memory_order(const TensorType& type) {
  std::vector<std::int64_t> order(type.rank());
  std::iota(order.begin(), order.end(), 0);
  const auto is_repeated = [&](ExprId stride) { return writer_.facts().pool().constant(stride) == 0; };
  if (type.strides.size() != type.rank() || std::ranges::any_of(type.strides, is_repeated)) return order;
  const std::vector<std::size_t> fill = fill_order(writer_.facts(), type.strides, Ties::kLastInside);
  return {fill.rbegin(), fill.rend()};
}

// The parts permuted into the order and joined.
NodeId PartJoins::join_in_order(std::span<const Arg> parts, const InOrder& joined, View view) {
  const std::string name = view.name;
  const std::optional<std::size_t> part = view.part;
  const auto dim = std::ranges::find(joined.order, joined.dim) - joined.order.begin();
  std::vector<Arg> in_order;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    view.name = fmt::format("{}{}_in_order", name, k);
    view.part = k;
    in_order.push_back(Arg::node(writer_.append(permute(parts[k].as_node(), joined.order, view))));
  }
  return writer_.append(writer_.make({.name = name + "_in_order",
                                      .target = kCat,
                                      .args = {writer_.list(in_order), Arg::integer(dim)},
                                      .chunk_role = view.chunk_role,
                                      .origin = view.origin,
                                      .region = view.region,
                                      .part = part}));
}

std::vector<std::int64_t> PartJoins::inverse(const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return back;
}

Node PartJoins::permute(NodeId tensor, const std::vector<std::int64_t>& order, const View& view) {
  std::vector<Arg> dims;
  for (std::int64_t dim : order) dims.push_back(Arg::integer(dim));
  return writer_.make({.name = view.name,
                       .target = "aten.permute.default",
                       .args = {Arg::node(tensor), writer_.list(dims)},
                       .chunk_role = view.chunk_role,
                       .role = view.role,
                       .origin = view.origin,
                       .region = view.region,
                       .part = view.part});
}

NodeId PartJoins::add(NodeId original, std::span<const Arg> parts) {
  const Node& node = graph_.step().nodes[original];
  const std::string_view name = graph_.text(node.name);
  const bool is_scalar = tensor_of(*graph_.context, node.type) == nullptr;
  const RegionId region = plan_.placements.region[original];
  const bool is_gradient = !is_scalar && plan_.placements.regions[region.index()].backward;
  std::string_view proof;
  if (is_scalar) {
    proof = "symbolic_size";
  } else if (is_gradient) {
    proof = "backward_partial_sum";
  }
  std::vector<Arg> terms(parts.begin(), parts.end());
  if (is_gradient && plan_.grad_accumulation == GradAccumulation::kEager) std::ranges::reverse(terms);
  NodeId total = terms[0].as_node();
  for (std::size_t k = 1; k < terms.size(); ++k) {
    const bool is_last = k + 1 == terms.size();
    Node sum = writer_.make({.name = is_last ? fmt::format("{}_chunk_materialized", name)
                                             : fmt::format("{}_chunk_sum{}", name, k),
                             .target = is_scalar ? "operator.add" : "aten.add.Tensor",
                             .args = {Arg::node(total), terms[k]},
                             .chunk_role = "materialization",
                             .chunk_proof = proof,
                             .role = ProvenanceRole::kMaterialize,
                             .origin = original,
                             .region = region});
    total = is_last ? writer_.append_whole(std::move(sum), original) : writer_.append(std::move(sum));
  }
  return total;
}

std::optional<std::int64_t> find_joined_dim(const Context& context, const Body& chunked, NodeId join) {
  static const OpInfo* const cat = find_op(kCat);
  static const OpInfo* const permute = find_op("aten.permute.default");
  static const OpInfo* const reshape = find_op("aten.reshape.default");
  const Node& node = chunked.nodes[join];
  const Arg from = node.op == nullptr ? Arg() : arg_of(context, node, 0);
  if (node.op == cat) {
    const Arg dim = arg_of(context, node, 1);
    return dim.is_int() ? dim.as_int() : 0;
  }
  if ((node.op != permute && node.op != reshape) || !from.is_node() ||
      chunked.nodes[from.as_node()].op != cat)
    return std::nullopt;
  const std::int64_t inner = *find_joined_dim(context, chunked, from.as_node());
  if (node.op == reshape) return inner - 1;  // the blocks come before
  const auto dims = context.args.children(arg_of(context, node, 1));
  const auto at = std::ranges::find(dims, Arg::integer(inner));
  return at == dims.end() ? std::nullopt : std::optional<std::int64_t>(at - dims.begin());
}

}  // namespace epweave
