#include "replay/need/step_work.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "analysis/collectives.h"
#include "cost/cost.h"
#include "ops/op.h"
#include "replay/cublas/products.h"

namespace epweave::replay {
namespace {

// Tensors among the arguments as the replay lists them; none where an extent has no number.
std::optional<std::string> describe_operands_of(const Graph& graph, epweave::Extents& extents,
                                                const Node& node) {
  std::string text;
  bool is_known = true;
  for_each_input(*graph.context, node, [&](NodeId input) {
    const TensorType* tensor = tensor_of(*graph.context, graph.step().nodes[input].type);
    if (tensor == nullptr) return;
    std::vector<std::int64_t> sizes;
    for (const ExprId size : tensor->sizes) {
      const Count number = extents.number(size);
      is_known = is_known && number;
      sizes.push_back(number.value_or(0));
    }
    text += fmt::format("{}{}[{}]", text.empty() ? "" : ", ", info(tensor->dtype).short_name,
                        fmt::join(sizes, ", "));
  });
  return is_known ? std::optional(text) : std::nullopt;
}

std::uint32_t members_of(const Graph& graph, Arg group) {
  const StringId name = recorded_group(*graph.context, graph.step(), group);
  const ProcessGroup* found = name ? graph.find_group(name) : nullptr;
  return found == nullptr ? 1 : static_cast<std::uint32_t>(std::max<std::size_t>(found->ranks.size(), 1));
}

// Flops a second of the call.
double rate_of(const Graph& graph, const Node& node, const Rates& rates) {
  const OpFamily family = node.op->family;
  const bool is_product =
      family == OpFamily::kMatmul || family == OpFamily::kAddMatmul || family == OpFamily::kGroupedMatmul;
  const TensorType* operand = nullptr;
  for_each_input(*graph.context, node, [&](NodeId input) {
    if (operand == nullptr) operand = tensor_of(*graph.context, graph.step().nodes[input].type);
  });
  if (operand != nullptr && node.op->cost == CostClass::kAttention && rates.attention > 0 &&
      info(operand->dtype).bytes == 2)
    return rates.attention;
  if (!is_product || operand == nullptr || !cublas::has_products(operand->dtype)) return rates.flops;
  return info(operand->dtype).bytes == 2 ? rates.products : rates.wide_products;
}

}  // namespace

StepWork find_step_work(const Graph& graph, const Rates& rates, const MeasuredCosts* costs) {
  epweave::Extents extents(graph);
  CostModel model(graph, extents);
  const std::vector<Launch> launches = find_launches(*graph.context, graph.step());
  std::size_t next = 0;
  StepWork work;
  for (const NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind != NodeKind::kCall || node.op == nullptr) continue;
    const Cost cost = model.cost_of(id).value_or(Cost{});
    work.flops += cost.flops;
    work.bytes += cost.bytes;
    work.messages += cost.message;
    std::optional<MeasuredCosts::Found> found;
    if (is_launch(node)) {
      const std::uint32_t members = members_of(graph, launches[next++].group);
      if (costs != nullptr) found = costs->find_collective(node.op->target, members, cost.message);
      work.seconds +=
          found ? found->seconds : rates.launch + static_cast<double>(cost.message) / rates.network;
    } else if (is_kernel(node)) {
      ++work.kernels;
      const auto operands = costs == nullptr ? std::nullopt : describe_operands_of(graph, extents, node);
      if (operands) found = costs->find_kernel(node.op->target, *operands);
      work.seconds +=
          found ? found->seconds
                : rates.launch + std::max(static_cast<double>(cost.flops) / rate_of(graph, node, rates),
                                          static_cast<double>(cost.bytes) / rates.bytes);
    }
    if (found) ++work.measured;
  }
  return work;
}

}  // namespace epweave::replay
