// Runs the steps of a graph for one rank, or for all ranks as threads of one process.
//
// Values are checked as they are made (recorded_values.h). A tensor that a collective writes may
// not be read before its wait.
//
// A symbol's value is what the node that binds it made (`bind`), else the extent of the first value
// recorded with just that symbol as extent.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "replay/bounds/error_bounds.h"
#include "replay/collectives/groups.h"
#include "replay/collectives/transport.h"
#include "replay/kernels/kernel.h"
#include "replay/run/progress.h"
#include "replay/run/rank_device.h"
#include "replay/run/shown_results.h"
#include "replay/steps/steps.h"
#include "replay/steps/stretches.h"

namespace epweave::replay {

// A rank's execution failed at a node. The message names rank, node, op, module and source line.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Whether a device takes work after a call that failed. A GPU whose kernel crashed refuses every
// later call.
enum class Aftermath : std::uint8_t { kGoesOn, kLost };

// A call to the device failed: out of memory, no driver, a kernel that crashed.
class DeviceError : public RunError {
 public:
  explicit DeviceError(const std::string& problem, Aftermath aftermath = Aftermath::kGoesOn)
      : RunError(problem), aftermath_(aftermath) {}
  Aftermath aftermath() const { return aftermath_; }

 private:
  Aftermath aftermath_;
};

// Sees every value as it is made, on the rank's own thread, where it lies: on `device`, or in host
// memory (null).
using Observer = std::function<void(Rank rank, NodeId node, const Value& value, RankDevice* device)>;

// At the end of a run shows each tensor that it returned, in order, and what it left in `inputs`
// (by input), on the rank's own thread. None of them is in RankResult::outputs or RankInputs then:
// what is wanted is fetched while it is shown.
struct ShowResults {
  std::vector<bool> inputs;
  std::function<void(Rank rank, std::size_t number, const ShownResult& result)> observer;
};

// Recorded types that a value contradicts: the run stops there, or goes on and counts them. What a
// graph computes does not depend on its recorded types.
enum class RecordedTypes : std::uint8_t { kMustHold, kReport };

// Inputs of one rank, one per placeholder of the step, in order. Tensors are written where the
// graph does; a run on a device copies its buffers back.
using RankInputs = std::vector<Value>;

// Sees the values of `nodes`, whose bounds are made on the way, as they are made; and what the rank
// returned and left in its inputs, at its end. They lie where they were computed.
struct BoundedNodes {
  IdSet<NodeId> sums;   // whose bounds start here: a sum's order is not the other graph's
  IdSet<NodeId> nodes;  // these, and all that is computed from them
  // Values that both graphs were seen to have: nothing that is computed from them is in doubt.
  IdSet<NodeId> same;
  std::function<void(Rank rank, NodeId node, const Value& value, const ErrorBounds& bounds)> observer;
  std::function<void(Rank rank, const std::vector<Value>& outputs, const RankInputs& inputs,
                     const ErrorBounds& bounds)>
      at_end;
};

// This process is one of several that run the graph together, a rank each.
struct Process {
  Rank rank = 0;
  Transport* transport = nullptr;
  Exchange* exchange = nullptr;
  // That the exchange moves bytes between, also where the rank computes on the CPU.
  Device* device = nullptr;
  // Between runs: gives a text to all ranks, and returns those of all, by rank, once all have given
  // one.
  std::function<std::vector<std::string>(const std::string&)> share;
};

// How often the steps are run, and what is kept of it. Each run starts from the same inputs.
enum class Spans : std::uint8_t { kNone, kOfNodes };
struct Measuring {
  std::uint32_t warm_up = 0, repeat = 1;
  Spans spans = Spans::kOfNodes;
  // Of virtual ranks: spans are of this rank alone, one node at a time. The ranks compute by turns,
  // so a step's time is not measured.
  std::optional<Rank> alone;
};

struct RunOptions {
  WaitLimit deadline;
  HostMemory::Fill fill = HostMemory::Fill::kNone;
  // Seed of random delays before steps, and of the order of the steps (issue_order.h); what is
  // computed does not change.
  std::optional<std::uint64_t> jitter;
  RecordedTypes types = RecordedTypes::kMustHold;
  Device* device = nullptr;               // null: the CPU
  const Process* process = nullptr;       // null: all ranks are here
  const Measuring* measuring = nullptr;   // null: one run, not measured
  bool names_ranges = false;              // of a device, for profilers: "layers.3.moe %mm_4"
  Graphs graphs = Graphs::kNone;          // of a device; neither observed nor with spans of nodes
  Observer observer;                      // may be empty
  std::optional<ShowResults> shown;       // else all results are brought to the host
  Progress progress;                      // may be empty
  std::string run_name;                   // for progress
  const BoundedNodes* bounded = nullptr;  // error_bounds.h
};

struct OpTime {
  // On the CPU of computing: waiting, for others or for a core, does not count. On a device of the
  // host's calls, with what they wait for.
  double seconds = 0;
  std::uint64_t calls = 0;
};

// What a measured node worked on.
struct MeasuredNode {
  std::string operands;     // "f32[1024, 256], f32[256, 64]"
  std::uint64_t bytes = 0;  // of a collective: of this rank's operand
  std::size_t members = 0;  // of a collective
};

struct RankResult {
  std::vector<Value> outputs;                // flat, as many as Graph::outputs; host memory, or none
  std::map<std::string, OpTime> times;       // by target
  std::set<std::string> without_bound;       // ErrorBounds', where RunOptions::bounded was given
  std::vector<std::vector<StepSpan>> spans;  // of each measured run; where measuring
  // On the host's steady clock, in seconds: when the last measured run's spans began, and how far
  // off that may be.
  double began = 0, began_within = 0;
  std::map<NodeId, MeasuredNode> measured;  // of the nodes of the spans
  // Of each measured run: from inputs in place to work done; none by turns.
  std::vector<double> step_seconds;
  std::optional<GraphUse> graphs;        // of all runs, where graphs were asked for
  std::vector<LibraryProduct> products;  // of the last run, in native math
  std::vector<std::uint64_t> log;        // of what an observer logged on the device (rank_device.h)
  std::uint64_t contradictions = 0;      // values that are not what is recorded
  std::string first_contradiction;       // message of the first
};

struct RunResult {
  std::shared_ptr<Memory> memory;  // of its values
  Steps steps;
  std::vector<Stretch> stretches;  // where graphs were asked for
  std::vector<RankResult> ranks;
  double seconds = 0;
  std::size_t peak_bytes = 0;
};

// Runs all ranks, or that of the process: the others' results are empty then, and their inputs are
// not used. Throws MissingKernels, RunError (of a device: DeviceError) or CollectiveError if a rank
// fails.
RunResult run_ranks(const Graph& graph, const World& world, const KernelTable& kernels,
                    const std::vector<RankInputs>& inputs, const RunOptions& options = {});

// A nested graph as a function of broadcast arguments (value.h). Graph and table must outlive it.
Function make_function(const Graph& graph, const Body& body, const KernelTable& kernels, Memory& memory);

}  // namespace epweave::replay
