#include "passes/schedule/chunk_trials.h"

#include <fmt/format.h>

#include "base/memory_text.h"
#include "passes/bypass_joins.h"
#include "passes/dce.h"
#include "passes/isolate_ep_pg.h"

namespace epweave {
namespace {

PassResult divide(const Graph& graph, const ChunkChoice& choice, ChunkOptions options) {
  if (choice.roots.empty()) return isolate_ep_pg(graph, CountGroup::kOwn);
  options.roots = choice.roots;
  options.parts = choice.parts;
  options.dense = choice.dense;
  PassResult divided = chunk(graph, options);
  PassResult bypassed = bypass_joins(divided.graph);
  PassResult isolated = isolate_ep_pg(bypassed.graph, CountGroup::kOwn);
  isolated.graph = dce(isolated.graph);
  isolated.notes.insert(isolated.notes.begin(), bypassed.notes.begin(), bypassed.notes.end());
  isolated.notes.insert(isolated.notes.begin(), divided.notes.begin(), divided.notes.end());
  return isolated;
}

// What to do about a choice that is declined; that of chunk names pipelines with chunk.
std::string remedy_of(const PassError& error) {
  if (error.id() == "chunk.no-token-symbol" && error.remedy().starts_with("run symbolize"))
    return "run symbolize before choose-chunks (-p symbolize,choose-chunks; --preset overlap{symbolize=yes})";
  return error.remedy();
}

}  // namespace

std::string describe(const std::string& name, const Prediction& p) {
  return fmt::format("trial: {}: predicted {:.2f} ms at {}, as given {:.2f} ms{}", name, p.seconds * 1e3,
                     memory_text(p.peak), p.given_seconds * 1e3, p.fits ? "" : ", above the budget");
}

ChunkTrials::BegunTrial ChunkTrials::begin(const ChunkChoice& choice) const {
  BegunTrial begun{.choice = choice};
  try {
    begun.result = divide(graph_, choice, options_.chunk);
    begun.looked = std::async([look = QuickLook(begun.result.graph, schedule_)] {
      Looked looked;
      looked.predicted = look.run(&looked.times);
      return looked;
    });
  } catch (const PassError& error) {
    // The whole is no choice that could be left out, and roots that name no module are a mistake.
    if (choice.roots.empty() || (!options_.roots.empty() && error.id() == "chunk.no-region")) throw;
    begun.declined = error;
  }
  return begun;
}

std::optional<ChunkTrial> ChunkTrials::finish(BegunTrial begun) {
  if (begun.declined) {
    notes_.push_back(decline(begun.choice, *begun.declined));
    return {};
  }
  ChunkTrial trial;
  trial.choice = std::move(begun.choice);
  trial.result = std::move(begun.result);
  Looked looked = begun.looked.get();
  trial.predicted = looked.predicted;
  trial.times = std::move(looked.times);
  if (!schedule_.memory.bytes)
    schedule_.memory = {.bytes = schedule_.memory.above(trial.predicted.given_peak), .growth = 0};
  notes_.push_back(describe(trial.choice.name, trial.predicted));
  return trial;
}

void ChunkTrials::make_each(std::span<const ChunkChoice> choices, const Visit& visit) {
  std::optional<BegunTrial> before;
  const auto visit_before = [&](std::size_t end) {
    if (before) visit(choices[end - 1], finish(std::move(*before)));
  };
  for (std::size_t i = 0; i < choices.size(); ++i) {
    BegunTrial begun = begin(choices[i]);
    visit_before(i);
    before = std::move(begun);
  }
  visit_before(choices.size());
}

double ChunkTrials::find_seconds_with_room(const ChunkTrial& trial) {
  ScheduleOptions roomy = schedule_;
  roomy.memory = {.bytes = trial.predicted.given_peak, .growth = 0};
  const Prediction predicted = predict_schedule(trial.result.graph, roomy);
  notes_.push_back(fmt::format("trial: {}: had it the memory, {}", trial.choice.name, print_time(predicted)));
  return predicted.seconds;
}

std::string ChunkTrials::decline(const ChunkChoice& choice, const PassError& error) {
  ++declined_;
  const std::string remedy = remedy_of(error);
  std::string note = fmt::format("choice: {}: declined: {} [{}]", choice.name, error.problem(), error.id());
  if (remedy.empty()) return note;
  return note + (remedies_.insert(remedy).second ? "; remedy: " + remedy : "; remedy: as above");
}

}  // namespace epweave
