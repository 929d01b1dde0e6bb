#include "replay/check/output_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "replay/check/device_comparison.h"
#include "replay/values/compare.h"

namespace epweave::replay {

namespace {

std::string name_output(const Graph& graph, std::size_t i) {
  if (i >= graph.outputs.size() || !graph.outputs[i].role) return fmt::format("output {}", i);
  std::string name(graph.text(graph.outputs[i].role));
  if (graph.outputs[i].fqn) name += fmt::format(" {}", graph.text(graph.outputs[i].fqn));
  return name;
}

std::string name_input(const Graph& graph, const InputRole& input) {
  return fmt::format("{} {}", input.role ? graph.text(input.role) : "input",
                     graph.text(input.fqn ? input.fqn : input.name));
}

}  // namespace

RankOutputs list_results(const Graph& graph, const Returned& returned, const std::vector<bool>& written) {
  const auto& [outputs, inputs] = returned;
  RankOutputs results;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    for_each_result(outputs[i], name_output(graph, i),
                    [&](const std::string& name, const Tensor& tensor, ResultKind kind) {
                      results.push_back({name, tensor, kind == ResultKind::kNumber});
                    });
  for (std::size_t i = 0; i < written.size() && i < graph.inputs.size() && i < inputs.size(); ++i)
    if (written[i] && inputs[i].is_tensor())
      results.push_back({name_input(graph, graph.inputs[i]), inputs[i].tensor()});
  return results;
}

std::vector<bool> find_reached_results(const Reached& reached, const RankResult& result,
                                       const std::vector<bool>& written) {
  std::vector<bool> found;
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    const bool is_reached = i < reached.outputs.size() && reached.outputs[i];
    for_each_result(result.outputs[i], {},
                    [&](const std::string&, const Tensor&, ResultKind) { found.push_back(is_reached); });
  }
  for (std::size_t i = 0; i < written.size() && i < reached.inputs.size(); ++i)
    if (written[i] && reached.inputs[i].has_value()) found.push_back(*reached.inputs[i]);
  return found;
}

void require_same_outputs(const Graph& a, const Graph& b) {
  if (a.outputs.size() != b.outputs.size())
    throw InputError(fmt::format("the graphs return {} and {} values: B is no rewrite of A", a.outputs.size(),
                                 b.outputs.size()));
  for (std::size_t i = 0; i < a.outputs.size(); ++i) {
    const std::string in_a = name_output(a, i), in_b = name_output(b, i);
    if (in_a != in_b)
      throw InputError(fmt::format("output {} is {} of A and {} of B: B is no rewrite of A", i, in_a, in_b));
  }
}

bool needs_bound(const OutputCheck& output) {
  return output.verdict == Verdict::kDiffers && output.difference.problem.empty();
}

void BoundedOutputs::start(const std::vector<std::size_t>& outputs) {
  asked_ = {outputs.begin(), outputs.end()};
  of_a_.clear();
}

void BoundedOutputs::see_a(const RankOutputs& outputs, const ErrorBounds& bounds) {
  for (const std::size_t i : asked_) {
    const Tensor& tensor = outputs.at(i).tensor;
    of_a_[i] = {take_bounded(tensor, bounds, Kept::kBeyond), bounds.find(tensor).has_value()};
  }
}

void BoundedOutputs::see_b(const RankOutputs& outputs, const ErrorBounds& bounds) {
  const TensorOps& ops = bounds.ops();
  for (const auto& [i, of_a] : of_a_) {
    const Tensor& tensor = outputs.at(i).tensor;
    if (of_a.has_bound || bounds.find(tensor))
      found_[i] =
          compare_where_they_lie(borrow(of_a.value, ops), {take_bounded(tensor, bounds, Kept::kForRun)}, ops);
  }
}

void BoundedOutputs::judge(std::vector<OutputCheck>& checks) const {
  for (const auto& [i, comparison] : found_) {
    OutputCheck& output = checks.at(i);
    if (!needs_bound(output)) continue;
    output.bound = comparison;
    if (!comparison.is_within) continue;
    output.verdict = comparison.is_bounded ? Verdict::kSumOrder : Verdict::kUnverified;
  }
}

ReferenceCheck compare_reference(const OutputPair& outputs, const RankOutputs& reference, Rank rank) {
  const auto& [a, b] = outputs;
  const RankOutputs& c = reference;
  if (c.size() != a.size())
    throw InputError(
        fmt::format("the reference returns {} tensors, the graphs return {}", c.size(), a.size()));
  ReferenceCheck found;
  for (std::size_t i = 0; i < c.size(); ++i, ++found.outputs) {
    if (c[i].name != a[i].name)
      throw InputError(
          fmt::format("output {} of the reference is {}, of the graphs it is {}", i, c[i].name, a[i].name));
    const TensorDifference to_a = compare_tensors(a[i].tensor, c[i].tensor);
    const TensorDifference to_b = compare_tensors(b[i].tensor, c[i].tensor);
    found.equal_to_a += to_a.is_equal() ? 1U : 0U;
    found.equal_to_b += to_b.is_equal() ? 1U : 0U;
    found.largest_error = std::max(found.largest_error, to_a.relative_error);
    found.largest_error_of_b =
        std::max(found.largest_error_of_b, compare_tensors(a[i].tensor, b[i].tensor).relative_error);
    if (!to_b.is_equal() && found.first_unlike_b.empty())
      found.first_unlike_b = fmt::format("rank {}: {}: {}", rank, c[i].name, describe(to_b));
  }
  return found;
}

}  // namespace epweave::replay
