#include "placement/scaling/scaling.h"

#include <fmt/format.h>

#include <algorithm>

#include "placement/scaling/scaling_rules.h"
#include "placement/scaling/scaling_solver.h"

namespace epweave {
namespace {

// Parameters and buffers have the same extents whatever the token count is; so have the other
// dimensions of the inputs that bring it.
void mark_inputs(const Graph& graph, const std::vector<TokenInput>& inputs, const ExtentTable& extents,
                 ScalingOptions options, ScalingSolver& solver) {
  auto counts_tokens = [&](NodeId node, std::size_t dim) {
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const TokenInput& input) { return input.node == node && input.dim == dim; });
  };
  for (const TokenInput& input : inputs) {
    const auto of_input = extents.of(input.node);
    for (std::size_t dim = 0; dim < of_input.size(); ++dim) {
      const std::string reason = fmt::format("dimension {} of input '{}'", dim, input.name);
      if (dim == input.dim) {
        solver.mark(of_input[dim], input.factor, input.node, reason);
      } else if (options.fixed_parameters && !counts_tokens(input.node, dim)) {
        solver.fix(of_input[dim], input.node, reason);
      }
    }
  }
  std::size_t position = 0;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind != NodeKind::kPlaceholder || position >= graph.inputs.size()) break;
    const InputRole& role = graph.inputs[position++];
    const std::string_view kind = graph.text(role.role);
    const bool is_state = kind == "parameter" || kind == "buffer";
    if (is_state != options.fixed_parameters) continue;
    const auto of_input = extents.of(id);
    for (std::size_t dim = 0; dim < of_input.size(); ++dim)
      solver.fix(
          of_input[dim], id,
          fmt::format("dimension {} of {} '{}'", dim, kind, graph.text(role.fqn ? role.fqn : node.name)));
  }
}

}  // namespace

ScalingFactors infer_scaling(const Graph& graph, Facts& facts, const std::vector<TokenInput>& inputs,
                             ScalingOptions options) {
  ScalingSolver solver(graph, options.micro_batches);
  ExtentTable extents(graph, facts, solver);
  std::vector<SizeLiteral> literals;
  const Body& step = graph.step();
  for (NodeId id : step.order) {
    const Node& node = step.nodes[id];
    if (node.op == nullptr) continue;
    ScalingCall call(graph, id, extents, solver, literals, options.equal_pieces);
    if (const ScalingRule rule = find_scaling_rule(*node.op)) rule(call);
  }
  mark_inputs(graph, inputs, extents, options, solver);
  solver.solve();

  ScalingFactors result;
  if (!inputs.empty()) result.tokens = solver.number(extents.of(inputs[0].node)[inputs[0].dim]);
  for (NodeId id : step.order) {
    ScalingFactors::Dimensions dimensions;
    bool any = false;
    for (std::size_t e = 0; e < extents.tensor_count(id); ++e) {
      auto& tensor = dimensions.tensors.emplace_back();
      for (ExtentId extent : extents.of(id, e)) {
        tensor.push_back(solver.factor(extent));
        any |= tensor.back().has_value();
      }
    }
    if (any) result.of.at(id) = std::move(dimensions);
  }
  for (const SizeLiteral& literal : literals)
    if (const auto factor = solver.factor(literal.extent))
      result.arguments.push_back({literal.node, literal.param, literal.item, *factor});
  for (const auto& [poly, extent] : extents.sums())
    if (const auto factor = solver.factor(extent)) result.sums.emplace_back(poly, *factor);
  return result;
}

}  // namespace epweave
