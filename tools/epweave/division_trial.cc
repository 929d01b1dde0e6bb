#include "division_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "passes/chunk/chunk.h"
#include "passes/chunk/enclosing_roots.h"
#include "pipeline/pipeline.h"

namespace epweave::cli {
namespace {

struct ChunkAttempt {
  std::size_t modules = 0;  // that are divided
  std::optional<PassError> refusal = {};
};

ChunkAttempt attempt_chunk(const Graph& graph, const DivisionQuestion& question,
                           const std::vector<std::string>& roots) {
  ChunkOptions options{.roots = {}, .dim = question.dim, .dense = question.dense};
  for (const std::string& root : roots) options.roots.push_back({root});
  try {
    const Graph divided = chunk(graph, options).graph;
    IdSet<StringId> regions;
    ChunkAttempt attempt;
    for (NodeId id : divided.step().order) {
      const StringId region = divided.step().nodes[id].chunk.region;
      if (region && regions.insert(region)) ++attempt.modules;
    }
    return attempt;
  } catch (const PassError& error) {
    return {.refusal = error};
  }
}

DivisionTrial try_patterns(const Graph& graph, const DivisionQuestion& question) {
  std::set<std::string> roots;
  DivisionTrial trial;
  for (const std::string& pattern : question.patterns) {
    const ChunkAttempt attempt = attempt_chunk(graph, question, {pattern});
    const std::vector<std::string> around =
        attempt.refusal ? list_enclosing_roots(pattern) : std::vector<std::string>();
    const auto wider = std::ranges::find_if(around, [&](const std::string& candidate) {
      return !attempt_chunk(graph, question, {candidate}).refusal;
    });
    roots.insert(wider == around.end() ? pattern : *wider);
    if (wider == around.end() && !trial.refusal) trial.refusal = attempt.refusal;
  }
  trial.roots.assign(roots.begin(), roots.end());
  if (trial.refusal) return trial;
  const ChunkAttempt all = attempt_chunk(graph, question, trial.roots);
  trial.modules = all.modules;
  trial.refusal = all.refusal;
  return trial;
}

}  // namespace

DivisionTrial try_division(const Graph& graph, const DivisionQuestion& question) {
  if (!question.symbols) return try_patterns(graph, question);
  try {
    return try_patterns(symbolize(graph, *question.symbols).graph, question);
  } catch (const PassError& error) {
    return {.roots = question.patterns, .refusal = error};
  }
}

std::string print_division(const DivisionQuestion& question, const DivisionTrial& trial) {
  return fmt::format("chunk{{roots={}{}{}}}", print_value(trial.roots),
                     question.dim == GridDim::kSequence ? ",dim=seq" : "",
                     question.dense ? ",dense=true" : "");
}

}  // namespace epweave::cli
