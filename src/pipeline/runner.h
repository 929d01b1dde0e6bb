// Runs a pipeline over a graph: timing, verification, the log, and provenance of untouched nodes.
//
// The runner prints nothing and opens no file; callers watch it through `RunnerHooks`.
//
//   log         one PassRun per pass is appended to Graph::passes: resolved options, tool, node
//               counts of the step before and after, the pass's notes. Only the first pass of a run
//               records the hash of its input (the caller knows it); the input of each other pass
//               is the result of the one before.
//   provenance  Graph::origins, if empty, is filled with the step's nodes in order before the first
//               pass. Chained runs compose: origins stay those of the first run's input. After each
//               pass, a node that has no record and is an origin gets {pass, kept, itself}; one
//               that is not an origin is a bug of the pass. Nodes of nested graphs have no origins
//               and need no records.
//   verify      after each pass or at the end. What the input already broke is not held against a
//               pass: the same invariant at the same node, or at a node that it stands for. Where
//               the input does not verify and a pass fails, or breaks what is computed from nodes
//               that the input breaks, the graph is declined and those nodes are named.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/verify.h"
#include "pipeline/pipeline.h"

namespace epweave {

enum class VerifyPolicy : std::uint8_t { kOff, kEnd, kEach };

// A pass that ran. References are valid during the call.
struct PassReport {
  std::size_t position = 0;  // of the pass in the pipeline, from 0 ...
  std::size_t count = 0;     // ... of how many
  const PassCall& call;
  const Graph& before;
  const Graph& after;
  const std::vector<std::string>& notes;
  bool changed = false;       // whether the two are other code (same_code)
  double seconds = 0;         // of the pass itself
  double verify_seconds = 0;  // of checking its result; 0 if it was not checked
};

// A pass that threw. `input` and `remaining` reproduce it.
struct FailureReport {
  std::size_t position = 0;
  const PassCall& call;
  const Graph& input;     // what the pass was given
  std::string remaining;  // pipeline text from this pass on
  std::string what;
};

struct RunnerHooks {
  std::function<void(const PassCall&)> before_pass;
  std::function<void(const PassReport&)> after_pass;
  std::function<void(const FailureReport&)> on_failure;  // the exception goes on after it
};

struct RunnerOptions {
  std::string tool;          // name and version, for the log
  std::string input_sha256;  // of the canonical bytes of the graph given; empty: not recorded
  VerifyPolicy verify = VerifyPolicy::kEach;
  // What verify_graph finds in the graph given, whose structure is sound; none: that was not asked.
  std::optional<std::vector<Violation>> input_violations;
  RunnerHooks hooks;
};

// Throws InputError for a graph whose structure is broken, PassError where a pass declines, and
// pipeline.broken-graph where a pass comes to grief on a graph that does not verify; CheckError
// where a pass's result breaks an invariant that its input kept. A graph that is handed over
// is let go as soon as the first pass has run, if it verifies and no pass asks for its peak memory.
Graph run_pipeline(Graph graph, const Pipeline& pipeline, const RunnerOptions& options = {});

// Whether two graphs that share a context are the same code: bodies, orders, and every field of the
// nodes but provenance. For --print-changed, and for tests that a pass leaves normal graphs alone.
bool same_code(const Graph& a, const Graph& b);

}  // namespace epweave
