#include "replay/kernels/missing_kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "ops/family.h"
#include "ops/op.h"
#include "ops/traffic.h"
#include "replay/collectives/collective_call.h"
#include "replay/collectives/mesh_ops.h"

namespace epweave::replay {
namespace {

// Kernels move elements of any dtype, and compute with all but these.
bool is_small_float(DType dtype) {
  return is_floating(dtype) && info(dtype).bytes == 1;
}

// Whether the call makes new elements: a cast, arithmetic, a constant.
bool makes_elements(const OpInfo& op) {
  const Elements elements = traits_of(op.family).elements;
  if (elements == Elements::kMade) return !leaves_some_unset(op);
  return elements == Elements::kChanged || elements == Elements::kRetyped;
}

// Also where elements are read as those of another dtype: complex numbers have no kernel for that
// but in single precision.
bool computes(const OpInfo& op) {
  const Elements elements = traits_of(op.family).elements;
  return makes_elements(op) || elements == Elements::kComputed || elements == Elements::kBits;
}

// Of a result or an operand; none where all are computed with.
std::optional<DType> find_uncomputed(const Graph& graph, const Body& body, const Node& node) {
  std::optional<DType> found;
  const auto look_at = [&](TypeId of) {
    const TensorType* type = tensor_of(*graph.context, of);
    if (type == nullptr) return;
    const bool is_uncomputed = type->dtype == DType::kComplex128
                                   ? computes(*node.op)
                                   : is_small_float(type->dtype) && makes_elements(*node.op);
    if (is_uncomputed) found = type->dtype;
  };
  for_each_input(*graph.context, node, [&](NodeId input) { look_at(body.nodes[input].type); });
  look_at(node.type);
  return found;
}

void refuse_uncomputed(const Graph& graph, std::string_view name) {
  for (const Body& body : graph.bodies) {
    for (NodeId id : body.order) {
      const Node& node = body.nodes[id];
      if (node.kind != NodeKind::kCall) continue;
      const std::optional<DType> dtype = find_uncomputed(graph, body, node);
      if (!dtype) continue;
      throw PassError(
          "replay.no-kernel-of-dtype",
          fmt::format("{}{}no kernel computes with {}", name, name.empty() ? "" : ": ", info(*dtype).name),
          site_of(graph, node),
          fmt::format("trace the model without it, in {}; `epweave verify A B` proves a rewrite that "
                      "has it, and executes nothing",
                      *dtype == DType::kComplex128 ? "single precision" : "bfloat16"));
    }
  }
}

std::string_view name_remedy(const std::vector<std::string>& ops) {
  const bool draws = std::ranges::any_of(ops, [](std::string_view name) {
    const OpInfo* op = find_op(name);
    return op != nullptr && op->family == OpFamily::kRandom;
  });
  return draws
             ? "orders and counts are not drawn, nor is anything in nested graphs: give what is drawn as an "
               "input of the step; `epweave verify A B` proves a rewrite that draws, and executes nothing"
             : "write it with other ops in the model, or add its kernel (docs/adding.md); `epweave verify "
               "A B` proves a rewrite that has it, and executes nothing";
}

}  // namespace

MissingKernels::MissingKernels(std::string_view graph, std::vector<std::string> ops)
    : PassError(
          "replay.no-kernel",
          fmt::format("{}{} of the graph's ops cannot be executed: {}",
                      graph.empty() ? "" : fmt::format("{}: ", graph), ops.size(), fmt::join(ops, ", ")),
          Site{}, std::string(name_remedy(ops))),
      ops_(std::move(ops)) {}

bool can_execute(const OpInfo& op, const KernelTable& kernels) {
  if (op.cost == CostClass::kCollective) return find_collective(op).has_value();
  return op.cost == CostClass::kWait || is_mesh_op(op) || kernels.find(op) != nullptr;
}

// Draws are numbered in the order of the step (run/draws.h), of which a nested graph's are no part.
std::vector<std::string> find_missing_kernels(const Graph& graph, const KernelTable& kernels) {
  std::set<std::string> missing;
  for (const Body& body : graph.bodies) {
    for (NodeId id : body.order) {
      const Node& node = body.nodes[id];
      if (node.kind != NodeKind::kCall) continue;
      const bool draws_apart = node.op != nullptr && node.op->is_random && &body != &graph.step();
      if (node.op == nullptr || !can_execute(*node.op, kernels) || draws_apart)
        missing.emplace(graph.text(node.target));
    }
  }
  return {missing.begin(), missing.end()};
}

void require_kernels(const Graph& graph, const KernelTable& kernels, std::string_view name) {
  if (auto missing = find_missing_kernels(graph, kernels); !missing.empty())
    throw MissingKernels(name, std::move(missing));
  refuse_uncomputed(graph, name);
}

}  // namespace epweave::replay
