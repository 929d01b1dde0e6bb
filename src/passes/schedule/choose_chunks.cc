#include "passes/schedule/choose_chunks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "analysis/module_path.h"
#include "analysis/users.h"
#include "passes/bucket/bucket.h"
#include "passes/schedule/region_choices.h"
#include "passes/schedule/whole_shards.h"

namespace epweave {
namespace {

bool has_parts(const Graph& graph) {
  const Body& body = graph.step();
  return std::ranges::any_of(body.order, [&](NodeId id) { return body.nodes[id].chunk.part.has_value(); });
}

// What all modules have alike: the best, and what would be better within more memory.
struct UniformSearch {
  ChunkTrial whole;
  std::optional<ChunkTrial> best;  // none: the whole
  std::vector<std::pair<ChunkChoice, double>> seconds;
  std::optional<ChunkChoice> too_large;
};

UniformSearch search_uniform(ChunkTrials& trials, const ChunkChoice& whole) {
  UniformSearch found;
  found.whole = *trials.make(whole);
  double least = found.whole.predicted.seconds;  // of what does not fit
  found.seconds.emplace_back(whole, least);
  const auto best = [&]() -> const ChunkTrial& { return found.best ? *found.best : found.whole; };
  trials.make_each(
      list_uniform_choices(trials), [&](const ChunkChoice& choice, std::optional<ChunkTrial> trial) {
        if (!trial) return;
        const double seconds =
            trial->predicted.fits ? trial->predicted.seconds : trials.find_seconds_with_room(*trial);
        found.seconds.emplace_back(choice, seconds);
        if (!trial->predicted.fits && seconds < least) {
          least = seconds;
          found.too_large = choice;
        }
        if (trial->is_better_than(best())) found.best = std::move(trial);
      });
  if (!best().predicted.fits || best().predicted.seconds <= least) found.too_large.reset();
  return found;
}

Comparison compare_scheduled(ChunkTrial& trial, ChunkTrial& other, const ScheduleOptions& options) {
  return epweave::compare_scheduled({trial.result.graph, trial.scheduled},
                                    {other.result.graph, other.scheduled}, options);
}

// Modules that are better divided otherwise than the rest: at a quick look, and, where the schedule
// that follows is known, by that too.
void choose_by_region(ChunkTrials& trials, UniformSearch& uniform) {
  ChunkTrial& best = uniform.best ? *uniform.best : uniform.whole;
  std::optional<ChunkTrial> mixed =
      choose_regions(trials, {uniform.whole, best, uniform.seconds, uniform.too_large});
  if (!mixed) return;
  if (trials.options().then) {
    const Comparison scheduled = compare_scheduled(best, *mixed, *trials.options().then);
    trials.notes().push_back(fmt::format("trial: {}: scheduled, {}; {}, {}", mixed->choice.name,
                                         print_time(scheduled.other), best.choice.name,
                                         print_time(scheduled.graph)));
    if (!scheduled.pays) return;
  }
  uniform.best = std::move(mixed);
}

// Modules outside of the blocks that take, in forward, what divided ones give, joined.
std::vector<std::string> list_modules_behind(const ChunkTrials& trials, const Graph& divided) {
  const Body& body = divided.step();
  const NodeLists users = list_users(*divided.context, body);
  std::vector<std::string> modules;
  for (NodeId id : body.order) {
    const ChunkInfo& chunk = body.nodes[id].chunk;
    const bool is_join = divided.text(chunk.role) == "materialization" && chunk.backward == false;
    if (!is_join) continue;
    for (NodeId user : users[id]) {
      const Node& node = body.nodes[user];
      if (node.chunk.region || node.is_backward() || !node.module) continue;
      const std::string module(divided.text(node.module));
      if (!match_module(trials.blocks().pattern, module).empty()) continue;
      if (std::ranges::find(modules, module) == modules.end()) modules.push_back(module);
    }
  }
  return modules;
}

// What follows the last divided module, divided with it, if that is better: rows that are cut from
// its result then come from one part each (bypass_joins.h). Roots that the user gives stay as they
// are.
void choose_behind(ChunkTrials& trials, UniformSearch& uniform) {
  if (!uniform.best || !trials.options().roots.empty()) return;
  const std::vector<std::string> behind = list_modules_behind(trials, uniform.best->result.graph);
  if (behind.empty()) return;
  ChunkChoice choice = uniform.best->choice;
  choice.dense = true;
  for (const std::string& module : behind) choice.roots.push_back({module});
  choice.name += fmt::format(", and {}", fmt::join(behind, ", "));
  std::optional<ChunkTrial> trial = trials.make(choice);
  if (trial && trial->is_better_than(*uniform.best)) uniform.best = std::move(trial);
}

// The choice with its collectives merged, if that is shorter. `name` is the merged choice's.
std::optional<ChunkTrial> merge_collectives(ChunkTrials& trials, ChunkTrial& apart, const std::string& name,
                                            PassResult result) {
  ChunkTrial merged;
  merged.choice = apart.choice;
  merged.choice.name = name;
  merged.result = std::move(result);
  merged.predicted = predict_schedule(merged.result.graph, trials.schedule());
  std::vector<std::string>& notes = trials.notes();
  notes.push_back(describe(name, merged.predicted));
  if (!merged.predicted.fits || merged.predicted.seconds >= apart.predicted.seconds) return {};
  if (trials.options().then) {
    const Comparison scheduled = compare_scheduled(apart, merged, *trials.options().then);
    notes.push_back(fmt::format("trial: {}: {}", name, describe(scheduled)));
    if (!scheduled.pays) return {};
  }
  std::vector<std::string>& merged_notes = merged.result.notes;
  merged_notes.insert(merged_notes.begin(), apart.result.notes.begin(), apart.result.notes.end());
  return merged;
}

// By the clock, and block by block as torchtitan does: the better of the two.
void choose_buckets(ChunkTrials& trials, ChunkTrial& best) {
  const auto merge = [&](const char* how, const BucketOptions& options) -> std::optional<ChunkTrial> {
    PassResult merged = bucket(best.result.graph, options);
    const bool merges = merged.graph.step().order != best.result.graph.step().order;
    const std::string name = fmt::format("{}, {}", best.choice.name, how);
    if (merges) return merge_collectives(trials, best, name, std::move(merged));
    if (options.overlap) trials.notes().push_back(fmt::format("trial: {}: no collective that pays", name));
    return {};
  };
  std::optional<ChunkTrial> by_clock = merge("merged", {trials.schedule().prices(), {}}), by_blocks;
  try {
    by_blocks = merge("merged by blocks", {});
  } catch (const PassError& error) {
    trials.notes().push_back(fmt::format("choice: {}, merged by blocks: declined: {} [{}]", best.choice.name,
                                         error.problem(), error.id()));
  }
  if (by_clock) best = std::move(*by_clock);
  if (!by_blocks) return;
  const auto& then = trials.options().then;
  const bool pays = then ? compare_scheduled(best, *by_blocks, *then).pays : by_blocks->is_better_than(best);
  if (pays) best = std::move(*by_blocks);
}

}  // namespace

PassResult choose_chunks(const Graph& graph, const ChooseChunksOptions& options) {
  if (const auto problem = find_whole_shards(graph).merge_problem)
    return {
        graph,
        {fmt::format("choice: {}, so other ranks have other prices: nothing is divided or merged by "
                     "predicted time; chunk{{parts=N}} and bucket{{plan=blocks}} do the same on all ranks",
                     *problem)}};
  ChunkTrials trials(graph, options);
  const bool is_divided = has_parts(graph);
  UniformSearch uniform =
      search_uniform(trials, {.name = is_divided ? "no further division" : "not divided"});
  std::vector<std::string>& notes = trials.notes();
  if (trials.declined() + 1 == notes.size())
    notes.push_back(is_divided ? "choice: the graph has parts already, and each further division is declined"
                               : "choice: warning: nothing is divided, for each division is declined");
  else
    choose_by_region(trials, uniform);
  choose_behind(trials, uniform);
  ChunkTrial best = uniform.best ? std::move(*uniform.best) : std::move(uniform.whole);
  choose_buckets(trials, best);
  notes.push_back(fmt::format("choice: taken: {}", best.choice.name));
  notes.insert(notes.end(), best.result.notes.begin(), best.result.notes.end());
  return {std::move(best.result.graph), std::move(notes)};
}

}  // namespace epweave
