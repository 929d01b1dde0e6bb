#include "analysis/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/nearest_name.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/traffic.h"

namespace epweave {
namespace {

// ones_like, or full_like of 1. Another number scales the loss: it is backward's own.
bool makes_ones(const Context& context, const Node& node) {
  if (node.op->makes_zeros || node.op->is_random || leaves_unset(*node.op)) return false;
  const auto value = node.op->find_param("fill_value");
  if (!value) return true;
  const Arg given = arg_of(context, node, *value);
  return given == Arg::integer(1) || given == Arg::real(1.0);
}

// A gradient of 1: as large as a number that forward computed, read by backward alone.
bool is_one_for_loss(const Graph& graph, const NodeLists& inputs, const NodeLists& users, NodeId id) {
  const Node& node = graph.step().nodes[id];
  if (!has_family(node, OpFamily::kLike) || !makes_ones(*graph.context, node)) return false;
  const TensorType* type = tensor_of(*graph.context, node.type);
  if (type == nullptr || !is_floating(type->dtype) || type->rank() != 0 || users[id].empty()) return false;
  const auto reads_backward = [&](NodeId other) { return graph.step().nodes[other].is_backward(); };
  return std::ranges::all_of(users[id], reads_backward) && std::ranges::none_of(inputs[id], reads_backward);
}

// By the name of its node, else by what the file calls it (`which`, `fqn`).
std::optional<std::size_t> find_input(const Graph& graph, const std::vector<std::string_view>& nodes,
                                      std::string_view name) {
  if (const auto at = std::ranges::find(nodes, name); at != nodes.end())
    return static_cast<std::size_t>(at - nodes.begin());
  const auto is_called = [&](const InputRole& input) {
    return graph.text(input.which) == name || graph.text(input.fqn) == name;
  };
  const auto at = name.empty() ? graph.inputs.end() : std::ranges::find_if(graph.inputs, is_called);
  if (at == graph.inputs.end()) return std::nullopt;
  return static_cast<std::size_t>(at - graph.inputs.begin());
}

}  // namespace

void mark_tangents(Graph& graph, std::span<const std::string> names) {
  std::vector<StringId> inputs;
  std::vector<std::string_view> known, calls;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind == NodeKind::kCall) calls.push_back(graph.text(node.name));
    if (node.kind != NodeKind::kPlaceholder) continue;
    inputs.push_back(node.name);
    known.push_back(graph.text(node.name));
  }
  for (std::size_t i = graph.inputs.size(); i < inputs.size() && !names.empty(); ++i)
    graph.inputs.push_back({.name = inputs[i], .role = graph.intern("user")});
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(names.begin(), name, *name) != name)
      throw UsageError(fmt::format("--tangents: '{}' is given twice\n  expected each input once", *name));
    const auto at = find_input(graph, known, *name);
    if (!at && std::ranges::find(calls, *name) != calls.end())
      throw UsageError(fmt::format(
          "--tangents: '{}' is a call, and a tangent is an input of the graph\n  expected names of "
          "inputs; make what the call computes an input of the step, and trace again",
          *name));
    if (!at) {
      for (const InputRole& input : graph.inputs)
        for (StringId other : {input.which, input.fqn})
          if (other) known.push_back(graph.text(other));
      const std::string_view near = nearest_name(*name, known);
      throw UsageError(fmt::format("--tangents: the graph has no input '{}'{}\n  expected names of inputs",
                                   *name, near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
    }
    graph.inputs[*at].role = graph.intern("tangent");
  }
}

std::vector<NodeId> find_seeds(const Graph& graph, const NodeLists& inputs, const NodeLists& users) {
  IdSet<StringId> tangents;
  for (const InputRole& input : graph.inputs)
    if (graph.text(input.role) == "tangent") tangents.insert(input.name);
  std::vector<NodeId> seeds;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    const bool is_tangent =
        node.kind == NodeKind::kPlaceholder &&
        (tangents.contains(node.name) || graph.text(node.name).find("tangents") != std::string_view::npos);
    if (is_tangent || is_one_for_loss(graph, inputs, users, id)) seeds.push_back(id);
  }
  return seeds;
}

}  // namespace epweave
