// Outputs, and what is left in buffers and written inputs, of one rank: of A, of B, and of a
// reference (check.h).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "replay/bounds/error_bounds.h"
#include "replay/check/bound_comparison.h"
#include "replay/check/check_report.h"
#include "replay/check/library_kernels.h"
#include "replay/run/executor.h"

namespace epweave::replay {

// One rank after a run: what the graph returned and what it left in its buffers. Tensors have no
// memory where the run did not leave it (ShowResults).
struct NamedTensor {
  std::string name;
  Tensor tensor;
  bool is_number = false;  // that the host computed
};
using RankOutputs = std::vector<NamedTensor>;
// Each tensor and number that the step returned, in lists and dicts, too ("output 1[0]"), and what
// it left in the inputs that are `written` (written_inputs.h).
struct Returned {
  const std::vector<Value>& outputs;
  const RankInputs& inputs;
};
RankOutputs list_results(const Graph& graph, const Returned& returned, const std::vector<bool>& written);
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

// One rank's results with bounds: those of A that are asked for are kept until B's are made.
class BoundedOutputs {
 public:
  // Compares these from now on, by their place in the list; what was found of others is kept.
  void start(const std::vector<std::size_t>& outputs);
  void see_a(const RankOutputs& outputs, const ErrorBounds& bounds);
  void see_b(const RankOutputs& outputs, const ErrorBounds& bounds);
  // Those that differ but come from regrouped sums: within their bounds?
  void judge(std::vector<OutputCheck>& checks) const;

 private:
  struct OfA {
    BoundedValue value;
    bool has_bound = false;
  };
  std::set<std::size_t> asked_;
  std::map<std::size_t, OfA> of_a_;
  std::map<std::size_t, BoundComparison> found_;  // where A's or B's has a bound
};
// Whether bounds may tell that the outputs are the same.
bool needs_bound(const OutputCheck& output);

// Throws InputError where the reference returns something else.
ReferenceCheck compare_reference(const OutputPair& outputs, const RankOutputs& reference, Rank rank);

}  // namespace epweave::replay
