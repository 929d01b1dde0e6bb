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

ChunkOptions options_for(const DivisionQuestion& question, const std::vector<std::string>& roots) {
  ChunkOptions options{.roots = {}, .dim = question.dim, .dense = question.dense};
  for (const std::string& root : roots) options.roots.push_back({root});
  return options;
}

ChunkAttempt attempt_chunk(const Graph& graph, const ChunkOptions& options) {
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

// All patterns at once; where that is declined, each is tried alone, and what is around it.
DivisionTrial try_patterns(const Graph& graph, const DivisionQuestion& question) {
  if (const ChunkAttempt all = attempt_chunk(graph, options_for(question, question.patterns)); !all.refusal)
    return {question.patterns, all.modules, {}};
  std::set<std::string> roots;
  DivisionTrial trial;
  for (const std::string& pattern : question.patterns) {
    const ChunkOptions options = options_for(question, {pattern});
    const ChunkAttempt attempt = attempt_chunk(graph, options);
    const auto wider = attempt.refusal ? find_enclosing_root(graph, options, 0) : std::nullopt;
    roots.insert(wider.value_or(pattern));
    if (!wider && !trial.refusal) trial.refusal = attempt.refusal;
  }
  trial.roots.assign(roots.begin(), roots.end());
  if (trial.refusal) return trial;
  const ChunkAttempt all = attempt_chunk(graph, options_for(question, trial.roots));
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
