#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "analysis/uneven_shard.h"
#include "analysis/verify.h"
#include "analysis/world.h"
#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"
#include "compare/ranks/one_rank_calls.h"
#include "output_names.h"
#include "passes/generalize/generalize.h"
#include "rank_numbers.h"

namespace epweave::cli {
namespace {

Json optional_rank(const std::optional<Rank>& rank) {
  return rank ? Json(*rank) : Json(nullptr);
}

Json pairs_report(const GeneralizePairs& pairs) {
  Json unseen = Json::array();
  for (const auto& [a, b] : pairs.unseen) unseen.push_back({a, b});
  return {{"unseen", unseen}, {"next", pairs.unseen.empty() ? Json(nullptr) : Json(pairs.next)}};
}

Json uneven_report(const Generalization& made) {
  Json rows = Json::array();
  if (!made.graph) return rows;
  for (const UnevenShard& shard : find_uneven_shards(*made.graph))
    rows.push_back({{"node", made.graph->text(made.graph->step().nodes[shard.value].name)},
                    {"parameter", made.graph->text(shard.fqn)},
                    {"dimension", shard.dim},
                    {"held", shard.local},
                    {"of", shard.global}});
  return rows;
}

Json generalize_report(const Generalization& made) {
  Json axes = Json::array(), explained = Json::array(), unexplained = Json::array();
  for (const GeneralizeAxis& axis : made.axes)
    axes.push_back({{"name", axis.name},
                    {"extent", axis.extent},
                    {"observed", axis.is_observed},
                    {"seen", axis.seen},
                    {"extrapolated", axis.is_extrapolated() ? axis.numbers : 0},
                    {"next", optional_rank(axis.next)}});
  for (const Explained& row : made.explained)
    explained.push_back(
        {{"node", row.node}, {"argument", row.argument}, {"kind", row.kind}, {"expression", row.expression}});
  for (const Unexplained& row : made.unexplained)
    unexplained.push_back({{"node", row.site.node},
                           {"target", row.site.op},
                           {"module", row.site.module},
                           {"source", row.site.source},
                           {"argument", row.argument},
                           {"values", row.values},
                           {"why", row.why},
                           {"next", optional_rank(row.next)}});
  return {{"ok", made.graph.has_value()},
          {"ranks", made.ranks},
          {"axes", std::move(axes)},
          {"pairs", pairs_report(made.pairs)},
          {"explained", std::move(explained)},
          {"unexplained", std::move(unexplained)},
          {"unproved", made.unproved},
          {"structure", made.structure ? Json(*made.structure) : Json(nullptr)},
          {"uneven_shards", uneven_report(made)}};
}

std::string print_unexplained(const Unexplained& row) {
  if (row.values.empty()) return row.why;  // a mesh, a group or a call of the made graph, with its place
  std::string place;
  for (const std::string& part : {row.site.op, row.site.module, row.site.source})
    if (!part.empty()) place += (place.empty() ? "" : ", ") + part;
  std::string text = fmt::format("%{} ({}): {} is {}: {}", row.site.node, place, row.argument,
                                 fmt::join(row.values, " | "), row.why);
  if (row.next) text += fmt::format("; trace rank {} next", *row.next);
  return text;
}

// "axes dp and tp, dp and ep are observed one at a time: trace rank 3 next"
std::string pairs_text(const GeneralizePairs& pairs) {
  if (pairs.unseen.empty()) return "";
  std::vector<std::string> names;
  for (const auto& [a, b] : pairs.unseen) names.push_back(fmt::format("{} and {}", a, b));
  return fmt::format(
      "axes {} are observed one at a time, and what depends on both is taken to be a sum: trace rank {} "
      "next\n",
      fmt::join(names, ", "), pairs.next);
}

std::string generalize_text(const Generalization& made) {
  std::string text;
  for (const std::string_view kind : {"group", "mesh", "device", "coordinate", "element"}) {
    const auto count =
        std::ranges::count_if(made.explained, [&](const Explained& e) { return e.kind == kind; });
    if (count != 0) text += fmt::format("{} explained as {}\n", count, kind);
  }
  for (const GeneralizeAxis& axis : made.axes) {
    if (!axis.is_observed)
      text += fmt::format("axis {} (extent {}) is not observed: trace rank {} next\n", axis.name, axis.extent,
                          axis.next.value_or(0));
    else if (axis.is_extrapolated())
      text += fmt::format(
          "axis {} (extent {}) is observed at {} places, from which {} {} extrapolated to the others: trace "
          "rank {} next\n",
          axis.name, axis.extent, axis.seen, axis.numbers, axis.numbers == 1 ? "number is" : "numbers are",
          axis.next.value_or(0));
  }
  text += pairs_text(made.pairs);
  for (const std::string& line : made.unproved) text += line + ", which is not proved\n";
  if (made.structure) text += fmt::format("structure: {}\n", *made.structure);
  for (const Unexplained& row : made.unexplained) text += print_unexplained(row) + "\n";
  return text;
}

// "axes dp, ep are not observed: what depends on them is not checked"
std::string limit_text(const std::vector<std::string_view>& axes, std::string_view seen) {
  const bool is_one = axes.size() == 1;
  return fmt::format("{} {} {} {}: what depends on {} is not checked", is_one ? "axis" : "axes",
                     fmt::join(axes, ", "), is_one ? "is" : "are", seen, is_one ? "it" : "them");
}

// "g.epw: a graph for all ranks, but axis ep is not observed: what depends on it is not checked"
std::string verdict_text(const Generalization& made, std::string_view output) {
  std::vector<std::string_view> blind, guessed;
  for (const GeneralizeAxis& axis : made.axes) {
    if (!axis.is_observed) blind.push_back(axis.name);
    if (axis.is_observed && axis.is_extrapolated()) guessed.push_back(axis.name);
  }
  std::vector<std::string> limits;
  if (!blind.empty()) limits.push_back(limit_text(blind, "not observed"));
  if (!guessed.empty()) limits.push_back(limit_text(guessed, "observed at some places only"));
  if (std::string uneven = describe(*made.graph, find_uneven_shards(*made.graph)); !uneven.empty())
    limits.push_back(std::move(uneven));
  return fmt::format("{}: a graph for all ranks{}{}", output, limits.empty() ? "" : ", but ",
                     fmt::join(limits, "; "));
}

// What no difference between the given ranks shows, and is wrong on others.
void refuse_one_rank_calls(Generalization& made) {
  if (!made.graph) return;
  for (const OneRankCall& call : find_one_rank_calls(*made.graph))
    made.unexplained.push_back({.site = site_of(*made.graph, made.graph->step().nodes[call.node]),
                                .argument = "call",
                                .why = call.why,
                                .values = std::vector<std::string>(made.ranks.size(), call.value)});
  if (!made.unexplained.empty()) made.graph.reset();
}

// Numbers that the graph computes and that are wrong on some rank, and what is along a wrong axis.
void refuse_wrong_numbers(Generalization& made) {
  if (!made.graph) return;
  const Rank rank = read_world(*made.graph).file_rank;
  for (const RankViolation& wrong : find_wrong_numbers(*made.graph, find_rank_literals(*made.graph, rank))) {
    const bool is_number = wrong.invariant != "ranks-axis";
    made.unexplained.push_back(
        {.site = {.node = wrong.nodes.front()},
         .argument = is_number ? "number" : "axis",
         .why = print_wrong_number(wrong),
         .values = is_number ? std::vector{std::to_string(wrong.value)} : std::vector<std::string>()});
  }
  if (!made.unexplained.empty()) made.graph.reset();
}

// Ranks that hold less than a whole shard cut padding off where others have no call: said where the
// given ranks hold other amounts of a parameter.
void explain_structure(Generalization& made, const std::vector<Graph>& graphs) {
  if (!made.structure) return;
  for (const UnevenShard& first : find_uneven_shards(graphs[0]))
    for (const Graph& graph : graphs)
      for (const UnevenShard& other : find_uneven_shards(graph)) {
        if (other.fqn != first.fqn || other.dim != first.dim || other.local == first.local) continue;
        *made.structure += fmt::format(
            "; {} is cut unevenly, rank {} holds {}: give only ranks that hold "
            "whole shards",
            describe(graphs[0], first), own_rank(graph), other.local);
        return;
      }
}

// What is written is a sound graph, or there is a bug.
void require_sound(const Graph& graph, const std::vector<Graph>& inputs) {
  const std::vector<Violation> before = verify_graph(inputs[0]);
  const std::vector<Violation> violations = verify_graph(graph);
  if (violations.size() > before.size())
    throw CheckError(fmt::format("generalize made a graph that breaks '{}': {}", violations.back().invariant,
                                 print_violation(graph, violations.back())));
}

World read_world_of(const Graph& graph, std::string_view file) {
  try {
    return read_world(graph);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", file, error.what()));
  }
}

// What the library says of ranks, here with the names of the files.
void require_one_job(const std::vector<InputOptions>& inputs, const std::vector<Graph>& graphs) {
  struct File {
    std::string name;
    bool says_rank;
  };
  std::map<Rank, File> files;  // of each rank
  const Rank size = read_world_of(graphs[0], display_name(inputs[0])).size;
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    const std::string file = display_name(inputs[i]);
    const World world = read_world_of(graphs[i], file);
    if (world.size != size)
      throw InputError(fmt::format("{} is of a world of {} ranks, {} of one of {}; give graphs of one job",
                                   display_name(inputs[0]), size, file, world.size));
    const bool says_rank = find_entry(*graphs[i].context, graphs[i].info, "rank") != nullptr;
    const auto [other, is_new] = files.try_emplace(world.file_rank, File{file, says_rank});
    if (!is_new)
      throw InputError(fmt::format(
          "{} and {} are both of rank {}; {}", other->second.name, file, world.file_rank,
          says_rank && other->second.says_rank ? "give each rank once"
                                               : "a graph that does not say its rank (`info rank`) is taken "
                                                 "for rank 0's"));
  }
}

}  // namespace

int generalize(const GeneralizeCommand& command, Console& console) {
  require_plain_name(command.output.path);
  if (console.json() && command.output.path == "-")
    throw UsageError("--json and the graph cannot both go to standard output: give -o FILE");
  check_output(command.output);
  std::vector<Graph> graphs;
  for (const InputOptions& input : command.inputs) {
    console.progress(fmt::format("reading {}", display_name(input)));
    graphs.push_back(
        read_sound_input(input, graphs.empty() ? nullptr : graphs[0].context, Soundness::kStructure));
  }
  require_one_job(command.inputs, graphs);
  Generalization made = epweave::generalize(graphs, command.repair ? Repair::kYes : Repair::kNo);
  explain_structure(made, graphs);
  refuse_one_rank_calls(made);
  refuse_wrong_numbers(made);
  if (made.graph) {
    require_sound(*made.graph, graphs);
    write_output(*made.graph, command.output);
  }
  if (console.json()) {
    Json document = {{"inputs", Json::array()}, {"output", file_report(command.output.path)}};
    for (const InputOptions& input : command.inputs) document["inputs"].push_back(file_report(input.path));
    document.update(generalize_report(made));
    console.print(report_text(std::move(document)));
  } else {
    if (const std::string text = generalize_text(made); !text.empty()) console.info(text);
    if (made.graph) console.info(verdict_text(made, command.output.path));
  }
  return made.graph ? kFine : kDifferent;
}

}  // namespace epweave::cli
