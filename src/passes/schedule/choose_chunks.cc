#include "passes/schedule/choose_chunks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "passes/bucket/bucket.h"
#include "passes/dce.h"
#include "passes/isolate_ep_pg.h"

namespace epweave {
namespace {

struct Choice {
  std::vector<std::string> roots;  // none: as it is
  std::int64_t parts = 1;
  bool dense = false;
  bool has_parts = false;  // the graph, already

  std::string name() const {
    if (roots.empty()) return has_parts ? "no further division" : "not divided";
    return fmt::format("{} in {} parts", fmt::join(roots, ", "), parts);
  }
};

bool has_parts(const Graph& graph) {
  const Body& body = graph.step();
  return std::ranges::any_of(body.order, [&](NodeId id) { return body.nodes[id].chunk.part.has_value(); });
}

std::vector<Choice> list_choices(const Graph& graph, const ChooseChunksOptions& options) {
  std::vector<Choice> choices = {{.has_parts = has_parts(graph)}};
  const std::vector<std::int64_t> counts =
      options.parts ? std::vector<std::int64_t>{*options.parts} : std::vector<std::int64_t>{2, 4};
  for (const std::int64_t parts : counts) {
    if (!options.roots.empty()) {
      choices.push_back({options.roots, parts, options.chunk.dense});
      continue;
    }
    choices.push_back({{"layers.*.moe"}, parts, options.chunk.dense});
    choices.push_back({{"layers.*"}, parts, true});
  }
  return choices;
}

PassResult make_choice(const Graph& graph, const Choice& choice, const ChooseChunksOptions& options) {
  if (choice.roots.empty()) return isolate_ep_pg(graph, CountGroup::kOwn);
  ChunkOptions chunk_options = options.chunk;
  chunk_options.roots.clear();
  for (const std::string& root : choice.roots) chunk_options.roots.push_back(parse_chunk_root(root));
  chunk_options.parts = choice.parts;
  chunk_options.dense = choice.dense;
  PassResult divided = chunk(graph, chunk_options);
  PassResult isolated = isolate_ep_pg(divided.graph, CountGroup::kOwn);
  isolated.graph = dce(isolated.graph);
  isolated.notes.insert(isolated.notes.begin(), divided.notes.begin(), divided.notes.end());
  return isolated;
}

std::string describe(const std::string& name, const Prediction& p) {
  return fmt::format("choice: {}: predicted {:.2f} ms at {:.3f} GiB, as given {:.2f} ms{}", name,
                     p.seconds * 1e3, static_cast<double>(p.peak) / (1 << 30), p.given_seconds * 1e3,
                     p.fits ? "" : ", above the budget");
}

// A choice that was made, and what its schedule is predicted to take.
struct Made {
  PassResult result;
  std::string name;
  double seconds = 0;
};

// What to do about a choice that is declined; that of chunk names pipelines with chunk.
std::string remedy_of(const PassError& error) {
  if (error.id() == "chunk.no-token-symbol")
    return "run symbolize before choose-chunks (-p symbolize,choose-chunks; --preset overlap{symbolize=yes})";
  return error.remedy();
}

// The notes of the choices that are declined. A remedy is written out where it comes first.
class Declined {
 public:
  std::string note(const Choice& choice, const PassError& error) {
    ++count_;
    const std::string remedy = remedy_of(error);
    std::string note =
        fmt::format("choice: {}: declined: {} [{}]", choice.name(), error.problem(), error.id());
    if (remedy.empty()) return note;
    return note + (known_.insert(remedy).second ? "; remedy: " + remedy : "; remedy: as above");
  }
  std::size_t count() const { return count_; }

 private:
  std::size_t count_ = 0;
  std::set<std::string> known_;
};

// The choice with its collectives merged, where that is predicted to take less.
void choose_buckets(Made& best, const ScheduleOptions& options, const std::optional<ScheduleOptions>& then,
                    std::vector<std::string>& notes) {
  PassResult merged = bucket(best.result.graph, {options.prices(), {}});
  if (merged.graph.step().order == best.result.graph.step().order) {
    notes.push_back(fmt::format("choice: {}, merged: no collective that pays", best.name));
    return;
  }
  const Prediction predicted = predict_schedule(merged.graph, options);
  const std::string name = best.name + ", merged";
  notes.push_back(describe(name, predicted));
  if (!predicted.fits || predicted.seconds >= best.seconds) return;
  if (then) {
    const Comparison scheduled = compare_scheduled(best.result.graph, merged.graph, *then);
    notes.push_back(fmt::format("choice: {}: {}", name, describe(scheduled)));
    if (!scheduled.pays) return;
  }
  merged.notes.insert(merged.notes.begin(), best.result.notes.begin(), best.result.notes.end());
  best = {std::move(merged), name, predicted.seconds};
}

}  // namespace

PassResult choose_chunks(const Graph& graph, const ChooseChunksOptions& options) {
  ScheduleOptions schedule_options = options.schedule;
  std::optional<Made> best;
  std::vector<std::string> notes;
  Declined declined;
  const std::vector<Choice> choices = list_choices(graph, options);
  for (const Choice& choice : choices) {
    try {
      PassResult made = make_choice(graph, choice, options);
      const Prediction predicted = predict_schedule(made.graph, schedule_options);
      // A share is of what the step needs as it was, whatever is done to it.
      if (!schedule_options.memory.bytes)
        schedule_options.memory = {
            .bytes = static_cast<std::int64_t>(static_cast<double>(predicted.given_peak) *
                                               (1 + schedule_options.memory.growth)),
            .growth = 0};
      notes.push_back(describe(choice.name(), predicted));
      if (best && (!predicted.fits || predicted.seconds >= best->seconds)) continue;
      best = Made{std::move(made), choice.name(), predicted.seconds};
    } catch (const PassError& error) {
      // The whole is no choice that could be left out, and roots that name no module are a mistake.
      if (choice.roots.empty() || (!options.roots.empty() && error.id() == "chunk.no-region")) throw;
      notes.push_back(declined.note(choice, error));
    }
  }
  if (declined.count() + 1 == choices.size())
    notes.push_back(
        choices.front().has_parts
            ? "choice: the graph has parts already, and each further division is declined"
            : "choice: warning: nothing is divided, for each division is declined: follow a remedy above");
  choose_buckets(*best, schedule_options, options.then, notes);
  notes.push_back(fmt::format("choice: taken: {}", best->name));
  notes.insert(notes.end(), best->result.notes.begin(), best->result.notes.end());
  return {std::move(best->result.graph), std::move(notes)};
}

}  // namespace epweave
