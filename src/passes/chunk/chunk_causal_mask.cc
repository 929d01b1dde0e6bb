#include "passes/chunk/chunk_causal_mask.h"

#include <fmt/format.h>

#include <limits>

#include "ir/facts.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/rebind.h"

namespace epweave {
namespace {

constexpr int kBatchDim = 0, kHeadDim = 1, kSequenceDim = 2;
// The memory-efficient kernel reads rows of a bias that begin at multiples of so many elements, and
// takes one for each batch and head; others spread one of [1, 1, queries, keys].
constexpr std::string_view kAlignedKernel = "aten._scaled_dot_product_efficient_attention";
constexpr std::int64_t kAlignment = 16;

const TensorType& operand_type(const Graph& graph, const Node& node, std::string_view name) {
  const NodeId value = arg_of(*graph.context, node, node.op->find_param(name).value()).as_node();
  return *tensor_of(*graph.context, graph.step().nodes[value].type);
}

}  // namespace

void PartCausalMask::adapt(NodeId original, std::size_t part, Node& node) {
  Context& context = *out_.context;
  auto operand = [&](std::string_view name) {
    return arg_of(context, node, node.op->find_param(name).value()).as_node();
  };
  const Node& before = in_.step().nodes[original];
  const NodeId whole = arg_of(context, before, before.op->find_param("query").value()).as_node();
  const NodeId query = operand("query");
  const RegionId region = plan_.placements.region[original];
  const TensorType& type = *tensor_of(context, in_.step().nodes[whole].type);
  const Call call{original, query, type, type.sizes[kSequenceDim], region, part};

  const bool is_aligned = before.op->target.starts_with(kAlignedKernel);
  std::vector<ExprId> sizes = {type.sizes[kSequenceDim], call.keys};
  if (is_aligned) sizes.insert(sizes.end(), {type.sizes[kBatchDim], type.sizes[kHeadDim]});
  const Key key{plan_.placements.regions[region.index()].division, part, sizes, type.dtype, type.device};
  NodeId& bias = made_[key];
  if (!bias) bias = make_bias(call);
  rebind(context, node, {.param = node.op->find_param("attn_bias").value(), .value = Arg::node(bias)});
  rebind(context, node, {.param = node.op->find_param("is_causal").value(), .value = Arg::boolean(false)});
  decline_gradient(node);
}

// Nothing reads a gradient of the bias, which the whole call does not have, even if it asks for
// one.
void PartCausalMask::decline_gradient(Node& node) {
  constexpr std::size_t kBiasGradient = 3;
  const auto param = node.op->find_param("grad_input_mask");
  if (!param) return;
  const auto wanted = out_.context->args.children(arg_of(*out_.context, node, *param));
  if (wanted.size() <= kBiasGradient || wanted[kBiasGradient] == Arg::boolean(false)) return;
  std::vector<Arg> without(wanted.begin(), wanted.end());
  without[kBiasGradient] = Arg::boolean(false);
  rebind(*out_.context, node, {.param = *param, .value = writer_.list(without)});
}

NodeId PartCausalMask::make_bias(const Call& call) {
  Context& context = *out_.context;
  const bool is_aligned = in_.step().nodes[call.original].op->target.starts_with(kAlignedKernel);
  const Arg rows = sizes_.of_extent(call.whole.sizes[kSequenceDim], call.region).value()[call.part];
  const Arg keys = sizes_.of_inputs(context.exprs.poly(call.keys), call.original);
  const Arg width = is_aligned ? sizes_.rounded_up(call.keys, kAlignment, call.original) : keys;
  const ArgRange kwargs = context.args.add(std::vector{
      Arg::text(out_.intern("dtype")), Arg::named(ArgKind::kDType, out_.intern(info(call.whole.dtype).name)),
      Arg::text(out_.intern("device")), Arg::named(ArgKind::kDevice, call.whole.device)});
  const Arg full =
      append(call, {"hidden",
                    "aten.full.default",
                    {writer_.list({rows, width}), Arg::real(-std::numeric_limits<double>::infinity())},
                    kwargs});
  Arg bias = append(call, {"behind", "aten.triu.default", {full, first_hidden_key(call)}});
  if (width != keys)
    bias = append(call, {"keys", "aten.slice.Tensor", {bias, Arg::integer(1), Arg::integer(0), keys}});
  const Arg one = Arg::integer(1);
  const Arg batches = is_aligned ? query_size(call, kBatchDim) : one;
  const Arg heads = is_aligned ? query_size(call, kHeadDim) : one;
  return append(call, {"bias", "aten.expand.default", {bias, writer_.list({batches, heads, rows, keys})}})
      .as_node();
}

Arg PartCausalMask::first_hidden_key(const Call& call) {
  if (call.part == 0) return Arg::integer(1);
  const Arg first = sizes_.first_row(call.whole.sizes[kSequenceDim], call.region, call.part).value();
  if (first.is_int()) return Arg::integer(first.as_int() + 1);
  return append(call, {"first_hidden", "operator.add", {first, Arg::integer(1)}, {}, ProvenanceRole::kSize});
}

Arg PartCausalMask::query_size(const Call& call, int dim) {
  const ExprId size = writer_.tensor(call.query)->sizes[static_cast<std::size_t>(dim)];
  if (const auto constant = out_.context->exprs.constant(size)) return Arg::integer(*constant);
  return Arg::node(sizes_.read_size(call.query, dim, {call.original, call.region}));
}

Arg PartCausalMask::append(const Call& call, Step step) {
  return Arg::node(writer_.append(
      writer_.make({.name = fmt::format("{}_{}_chunk{}", writer_.name(call.original), step.name, call.part),
                    .target = step.target,
                    .args = std::move(step.args),
                    .kwargs = step.kwargs,
                    .chunk_role = "chunk_input",
                    .role = step.role,
                    .origin = call.original,
                    .region = call.region,
                    .part = call.part})));
}

std::optional<std::string> describe_causal_masks(const Graph& graph, const ChunkPlan& plan) {
  // As the calls of each part share biases; the batches and heads of an aligned one repeat its
  // rows.
  std::map<std::tuple<std::uint32_t, std::vector<ExprId>, DType, StringId>, std::int64_t> bytes;
  Facts facts(graph);
  for (const auto& [id, cut] : plan.placements.attention) {
    if (!cut.causal) continue;
    const Node& node = graph.step().nodes[id];
    const TensorType& query = operand_type(graph, node, "query");
    const ExprId queries = query.sizes[kSequenceDim];
    const ExprId keys = operand_type(graph, node, "key").sizes[kSequenceDim];
    const bool is_aligned = node.op->target.starts_with(kAlignedKernel);
    std::vector<ExprId> sizes = {queries, keys};
    if (is_aligned) sizes.insert(sizes.end(), {query.sizes[kBatchDim], query.sizes[kHeadDim]});
    const auto rows = facts.hint(queries), columns = facts.hint(keys);
    if (!rows || !columns)
      return "masks of parts: queries times keys, from the first forward to the last backward";
    const std::int64_t width = is_aligned ? (*columns + kAlignment - 1) / kAlignment * kAlignment : *columns;
    const std::uint32_t division = plan.placements.regions[plan.placements.region[id].index()].division;
    bytes[{division, sizes, query.dtype, query.device}] = *rows * width * info(query.dtype).bytes;
  }
  if (bytes.empty()) return std::nullopt;
  std::int64_t total = 0;
  for (const auto& [key, size] : bytes) total += size;
  return fmt::format("masks of parts: {} bytes in all, from the first forward to the last backward", total);
}

}  // namespace epweave
