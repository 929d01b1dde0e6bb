// Runs the graphs of a check (check.h): A, B and the reference, on the same inputs, as often as its
// stages ask.
#pragma once

#include <map>
#include <vector>

#include "replay/check/check.h"
#include "replay/check/output_check.h"
#include "replay/run/pairing.h"

namespace epweave::replay {

struct CheckRun {
  RunResult run;
  std::vector<RankOutputs> outputs;  // by rank; none of those that run elsewhere
};

// Whether some run is in native math.
bool is_native(const CheckSetup& setup);

class CheckRuns {
 public:
  // Both must outlive this. Throws UsageError where ranks are not as the graphs say.
  CheckRuns(const PairedGraphs& graphs, const CheckSetup& setup);

  CheckRun run_a(const RunOptions& options) { return run(graphs_.a, world_a_, options); }
  CheckRun run_b(const RunOptions& options) { return run(graphs_.b, world_b_, options); }
  CheckRun run_reference();
  RunOptions on_device(Device* device, Observer observer, ShowResults shown) const;

  Rank ranks() const { return world_a_.size; }
  RankRange here() const { return here_; }  // the ranks of this process
  template <class F>
  void for_each_rank(const F& f) const {
    for (Rank rank = here_.first; rank < here_.end; ++rank) f(rank);
  }
  // Inputs that A or B writes.
  const std::vector<bool>& written_inputs() const { return written_inputs_; }

  // Adds what all other processes found.
  template <class Found>
  void agree(Found& found) const {
    if (setup_.options.process == nullptr) return;
    for (const std::string& text : setup_.options.process->share(found.encode())) found.add_process(text);
  }

 private:
  CheckRun run(const Graph& graph, const World& world, RunOptions options);

  const PairedGraphs& graphs_;
  const CheckSetup& setup_;
  const World world_a_, world_b_;
  const RankRange here_;
  const std::vector<bool> written_inputs_;
  std::map<const Graph*, int> runs_;
};

}  // namespace epweave::replay
