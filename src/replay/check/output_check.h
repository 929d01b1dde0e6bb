// Outputs, and what is left in buffers and written inputs, of one rank: of A, of B, and of a
// reference (check.h).
#pragma once

#include <string>
#include <vector>

#include "replay/bounds/error_bounds.h"
#include "replay/check/check_report.h"
#include "replay/check/library_kernels.h"
#include "replay/run/executor.h"

namespace epweave::replay {

// One rank after a run: what the graph returned and what it left in its buffers. Tensors have no
// memory where the run did not leave it (ShowResults).
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
using RankOutputs = std::vector<NamedTensor>;
// Each tensor and number that the step returned, in lists and dicts, too ("output 1[0]"), and what
// it left in the inputs that are `written` (written_inputs.h).
RankOutputs list_results(const Graph& graph, const RankResult& result, const RankInputs& inputs,
                         const std::vector<bool>& written);
// Which of the results come from what is `reached`, in the same order.
std::vector<bool> find_reached_results(const Reached& reached, const RankResult& result,
                                       const std::vector<bool>& written);

// Throws InputError where the graphs return other things by their roles, so that running them would
// be in vain.
void require_same_outputs(const Graph& a, const Graph& b);

// What both graphs gave.
struct OutputPair {
  const RankOutputs& a;
  const RankOutputs& b;
};

// Those that differ but come from regrouped sums: within their bounds?
struct BoundsPair {
  ErrorBounds& a;
  ErrorBounds& b;
};
void judge_by_bounds(const OutputPair& outputs, const BoundsPair& bounds, std::vector<OutputCheck>& checks);

// Throws InputError where the reference returns something else.
ReferenceCheck compare_reference(const OutputPair& outputs, const RankOutputs& reference, Rank rank);

}  // namespace epweave::replay
