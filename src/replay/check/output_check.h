// Outputs and updated buffers of one rank: of A, of B, and of a reference (check.h).
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "replay/bounds/error_bounds.h"
#include "replay/check/check_report.h"
#include "replay/run/executor.h"

namespace epweave::replay {

// One rank after a run: what the graph returned and what it left in its buffers.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
using RankOutputs = std::vector<NamedTensor>;
// Names of inputs that a step writes: parameters, for one that is an optimizer's, too.
using InputNames = std::set<std::string, std::less<>>;
void add_written_inputs(const Graph& graph, InputNames& names);
// Each tensor and number that the step returned, in lists and dicts, too ("output 1[0]"), and what
// it left in buffers and in the inputs of these names.
RankOutputs list_results(const Graph& graph, const RankResult& result, const RankInputs& inputs,
                         const InputNames& written);

// Throws InputError where the graphs return other things by their roles, so that running them would
// be in vain.
void require_same_outputs(const Graph& a, const Graph& b);

// What both graphs gave.
struct OutputPair {
  const RankOutputs& a;
  const RankOutputs& b;
};

bool have_same_bits(const OutputPair& outputs);
// Throws InputError if they are not as many.
std::vector<OutputCheck> compare_outputs(const OutputPair& outputs, Rank rank);

// Those that differ but come from regrouped sums: within their bounds?
struct BoundsPair {
  ErrorBounds& a;
  ErrorBounds& b;
};
void judge_by_bounds(const OutputPair& outputs, const BoundsPair& bounds, std::vector<OutputCheck>& checks);

// Throws InputError where the reference returns something else.
ReferenceCheck compare_reference(const OutputPair& outputs, const RankOutputs& reference, Rank rank);

}  // namespace epweave::replay
