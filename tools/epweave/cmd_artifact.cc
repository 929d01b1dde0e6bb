#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "analysis/rank_literals.h"
#include "analysis/rank_view.h"
#include "analysis/uneven_shard.h"
#include "commands.h"
#include "common/graphs.h"
#include "common/kept_context.h"
#include "common/report.h"
#include "compare/ranks/fingerprint.h"
#include "compare/ranks/one_rank_calls.h"
#include "output_names.h"
#include "rank_numbers.h"

namespace epweave::cli {
namespace {

Fingerprint read_config(const std::vector<std::string>& items) {
  Fingerprint config;
  for (const std::string& item : items) {
    const std::size_t at = item.find('=');
    const std::string key = item.substr(0, at);
    if (at == std::string::npos || key.empty())
      throw UsageError(fmt::format("--config '{}': expected KEY=VALUE", item));
    if (key.find('/') != std::string::npos || key.find("..") != std::string::npos)
      throw UsageError(fmt::format("--config '{}': a key is a name, without '/' and '..'", item));
    if (!config.emplace("config." + key, item.substr(at + 1)).second)
      throw UsageError(fmt::format("--config {} is given twice", key));
  }
  return config;
}

Json fingerprint_json(const Fingerprint& fingerprint) {
  Json made = Json::object();
  for (const auto& [field, value] : fingerprint) made[field] = value;
  return made;
}

Json field_or_null(const std::optional<std::string>& text) {
  return text ? Json(*text) : Json(nullptr);
}

// What nobody can judge, and what NCCL may survive.
bool is_certain(const RankViolation& violation) {
  return violation.invariant != "ranks-unknown" && violation.invariant != "ranks-interleaving";
}

// A graph that all ranks run has no number of one rank, and no call that is right on one alone; and
// its ranks agree, as verify --ranks says.
void require_for_all_ranks(const Graph& graph, Console& console) {
  const Rank rank = read_world(graph).file_rank;
  const RankLiterals literals = find_rank_literals(graph, rank);
  for (const RankLiteral& literal : literals.proved)
    if (literal.value.is_int())
      throw PassError("artifact.baked",
                      fmt::format("{} is rank {}'s alone; it must be {}", literal.value.as_int(), rank,
                                  print_expression(graph, literal)),
                      site_of(graph, graph.step().nodes[literal.node]),
                      literal.axes.size() > 1
                          ? "a trace of another rank shows which: epweave generalize R0 R1 .. -o OUT"
                          : "replace such numbers first: epweave generalize G --repair -o OUT");
  const SharedProgram shared = read_shared_program(graph, literals);
  for (const RankViolation& wrong : shared.wrong)
    throw PassError(wrong.invariant == "ranks-axis" ? "artifact.axis" : "artifact.baked",
                    print_wrong_number(wrong), {}, "epweave verify --ranks G lists such facts");
  for (const OneRankCall& call : find_one_rank_calls(graph))
    throw PassError("artifact.one-rank", fmt::format("{} is rank {}'s alone: {}", call.value, rank, call.why),
                    site_of(graph, graph.step().nodes[call.node]),
                    "trace such a model on each rank: no one graph is right for all");
  for (const RankViolation& violation : verify_ranks(shared.ranks).violations) {
    if (is_certain(violation))
      throw PassError("artifact.ranks", print_wrong_number(violation), {},
                      "epweave verify --ranks G lists what ranks disagree about");
    console.warn(print_wrong_number(violation));
  }
}

int make(const ArtifactCommand& command, Console& console) {
  if (!command.against.path.empty() || !command.allow.empty() || command.rank)
    throw UsageError("--against, --allow and --rank are for artifact check");
  require_plain_name(command.output.path);
  if (console.json() && command.output.path == "-")
    throw UsageError("--json and the graph cannot both go to standard output: give -o FILE");
  check_output(command.output);
  Fingerprint config = read_config(command.config);
  Graph graph = read_sound_input(command.input, nullptr, Soundness::kStructure);
  if (is_rank_agnostic(graph)) {
    require_for_all_ranks(graph, console);
    if (const std::string uneven = describe(graph, find_uneven_shards(graph)); !uneven.empty())
      console.warn(fmt::format("{}: {}", display_name(command.input), uneven));
  }
  Fingerprint fingerprint = take_fingerprint(graph, sha256_of_pieces);
  fingerprint.merge(config);
  write_fingerprint(graph, fingerprint);
  write_output(graph, command.output);
  if (console.json())
    console.print(report_text({{"input", file_report(command.input.path)},
                               {"output", file_report(command.output.path)},
                               {"fingerprint", fingerprint_json(fingerprint)}}));
  return kFine;
}

class Check {
 public:
  Check(const ArtifactCommand& command, Console& console) : command_(command), console_(console) {}

  int run() {
    if (command_.output.path != OutputOptions().path || !command_.output.to.empty() || command_.output.force)
      throw UsageError("-o, --to and --force are for artifact make: a check writes no graph");
    const Graph graph = read_sound_input(command_.input, kept_context(), Soundness::kStructure);
    const auto recorded = read_fingerprint(graph);
    if (!recorded)
      throw InputError(fmt::format("{}: no artifact: it has no fingerprint; epweave artifact make writes one",
                                   display_name(command_.input)));
    require_rank(graph);
    if (command_.against.path.empty()) return compare(*recorded, graph);
    const Graph other = read_sound_input(command_.against, nullptr, Soundness::kStructure);
    require_rank_of_other(graph, other);
    return compare(*recorded, other);
  }

 private:
  // `here`: what this run has, the artifact's own content or another graph's.
  int compare(const Fingerprint& recorded, const Graph& here) {
    Fingerprint made = take_fingerprint(here, sha256_of_pieces), config = read_config(command_.config);
    made.merge(config);
    const std::vector<FingerprintMismatch> found = compare_fingerprints(recorded, made);
    for (const std::string& field : command_.allow)
      if (!recorded.contains(field) &&
          std::ranges::none_of(found, [&](const auto& m) { return m.field == field; }))
        throw UsageError(fmt::format("--allow {}: the fingerprint has no such field", field));
    explain_unrecorded(recorded, found);
    report(recorded, found);
    const bool is_refused = std::ranges::any_of(found, [&](const auto& m) { return !is_allowed(m.field); });
    return is_refused ? kDifferent : kFine;
  }

  void require_rank(const Graph& graph) const {
    const World world = read_world(graph);
    const Rank own = world.file_rank;
    if (command_.rank && *command_.rank >= world.size)
      throw UsageError(
          fmt::format("--rank {}: there is no such rank in a world of {}", *command_.rank, world.size));
    if (!command_.rank || is_rank_agnostic(graph) || own == *command_.rank) return;
    throw InputError(
        fmt::format("{}: the graph is rank {}'s alone, not rank {}'s; make the artifact of a graph for "
                    "all ranks (epweave generalize)",
                    display_name(command_.input), own, *command_.rank));
  }

  // A graph of one rank alone is what that rank runs.
  void require_rank_of_other(const Graph& graph, const Graph& other) const {
    if (is_rank_agnostic(graph) || is_rank_agnostic(other)) return;  // field `ranks`, and --rank, say so
    const Rank own = read_world(graph).file_rank, theirs = read_world(other).file_rank;
    if (own != theirs)
      throw InputError(
          fmt::format("{} holds for rank {} alone, {} for rank {}; compare graphs of one rank, or make "
                      "the artifact of a graph for all ranks (epweave generalize)",
                      display_name(command_.input), own, display_name(command_.against), theirs));
  }

  // Fields that are recorded on neither side are equal, and say nothing.
  void explain_unrecorded(const Fingerprint& recorded, const std::vector<FingerprintMismatch>& found) {
    for (const auto& row : recorded)
      if (row.second == kNotRecorded && !recorded.contains("config." + row.first) &&
          std::ranges::none_of(found, [&](const auto& m) { return m.field == row.first; }))
        unrecorded_.push_back(row.first);
    if (!unrecorded_.empty())
      console_.info(
          fmt::format("recorded on neither side, and so not compared: {}; artifact make and check "
                      "take them as --config KEY=VALUE",
                      fmt::join(unrecorded_, ", ")));
  }

  bool is_allowed(const std::string& field) const {
    return std::ranges::find(command_.allow, field) != command_.allow.end();
  }

  void report(const Fingerprint& recorded, const std::vector<FingerprintMismatch>& found) {
    Json mismatches = Json::array(), allowed = Json::array();
    std::string text;
    for (const FingerprintMismatch& m : found) {
      const std::string line = fmt::format("{}: the artifact has {}, here it is {}", m.field,
                                           m.artifact.value_or("none"), m.here.value_or("none"));
      Json row = {
          {"field", m.field}, {"artifact", field_or_null(m.artifact)}, {"here", field_or_null(m.here)}};
      if (is_allowed(m.field)) {
        console_.warn(line + " (allowed)");
        allowed.push_back(std::move(row));
      } else {
        text += line + "\n";
        mismatches.push_back(std::move(row));
      }
    }
    if (!console_.json()) return console_.print(text);
    console_.print(report_text({{"file", command_.input.path},
                                {"ok", mismatches.empty()},
                                {"fingerprint", fingerprint_json(recorded)},
                                {"mismatches", std::move(mismatches)},
                                {"unrecorded", unrecorded_},
                                {"allowed", std::move(allowed)}}));
  }

  const ArtifactCommand& command_;
  Console& console_;
  std::vector<std::string> unrecorded_;
};

}  // namespace

int artifact(const ArtifactCommand& command, Console& console) {
  return command.action == "make" ? make(command, console) : Check(command, console).run();
}

}  // namespace epweave::cli
