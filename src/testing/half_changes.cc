#include "testing/half_changes.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "analysis/returned_values.h"

namespace epweave {
namespace {

std::vector<NodeId> list_inputs_of(const Graph& half) {
  std::vector<NodeId> inputs;
  for (NodeId id : half.step().order)
    if (half.step().nodes[id].kind == NodeKind::kPlaceholder) inputs.push_back(id);
  return inputs;
}

std::string name_of_node(const Graph& half, NodeId id) {
  return fmt::format("%{}", half.text(half.step().nodes[id].name));
}

std::optional<RecordChange> change_input_role(const Graph& half, Dice& dice) {
  const std::vector<NodeId> inputs = list_inputs_of(half);
  if (inputs.size() < 2 || inputs.size() != half.inputs.size()) return {};
  const std::size_t i = dice.below(inputs.size()), j = dice.below(inputs.size());
  const Body& step = half.step();
  if (i == j || step.nodes[inputs[i]].type != step.nodes[inputs[j]].type) return {};
  RecordChange change{half, "role of an input", name_of_node(half, inputs[i])};
  std::vector<InputRole>& roles = change.graph.inputs;
  if (dice.one_in(2))
    std::swap(roles[i], roles[j]);
  else
    roles[i] = roles[j];
  return change;
}

std::optional<RecordChange> change_output_role(const Graph& half, Dice& dice) {
  const std::vector<NodeId> outputs = list_outputs(half);
  if (outputs.size() < 2 || outputs.size() != half.outputs.size()) return {};
  const std::size_t i = dice.below(outputs.size()), j = dice.below(outputs.size());
  if (!outputs[i] || !outputs[j] || outputs[i] == outputs[j]) return {};
  if (half.step().nodes[outputs[i]].type != half.step().nodes[outputs[j]].type) return {};
  const OutputRole &role = half.outputs[i], &other = half.outputs[j];
  if (role.role == other.role && role.fqn == other.fqn) return {};
  RecordChange change{half, "role of an output", name_of_node(half, outputs[i])};
  std::swap(change.graph.outputs[i], change.graph.outputs[j]);
  return change;
}

std::optional<RecordChange> change_returned(const Graph& half, Dice& dice) {
  const std::vector<NodeId> outputs = list_outputs(half);
  if (outputs.empty()) return {};
  const NodeId returned = dice.pick(outputs), other = dice.pick(half.step().order);
  const Body& step = half.step();
  if (!returned || returned == other || step.nodes[returned].type != step.nodes[other].type) return {};
  RecordChange change{half, "another value returned", name_of_node(half, returned)};
  Node& output = change.graph.step().nodes[step.order.back()];
  map_arguments(*half.context, output,
                [&](Arg arg) { return arg == Arg::node(returned) ? Arg::node(other) : arg; });
  return change;
}

}  // namespace

std::optional<RecordChange> change_interface(const Graph& half, Dice& dice) {
  switch (dice.below(3)) {
    case 0:
      return change_input_role(half, dice);
    case 1:
      return change_output_role(half, dice);
    default:
      return change_returned(half, dice);
  }
}

}  // namespace epweave
