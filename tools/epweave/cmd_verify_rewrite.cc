#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "analysis/seeds.h"
#include "assumption_kinds.h"
#include "commands.h"
#include "common/graphs.h"
#include "common/kept_context.h"
#include "common/report.h"
#include "compare/rewrite/verify_halves.h"
#include "compare/rewrite/verify_rewrite.h"
#include "rewrite_check.h"

namespace epweave::cli {
namespace {

// What is broken, and where: a node of the step or of nested graphs. Of what is at no node, what it
// says stands for the node.
struct FaultKey {
  std::string invariant, at;
  bool is_nested = false;

  friend auto operator<=>(const FaultKey&, const FaultKey&) = default;
};
using Faults = std::map<FaultKey, std::size_t>;  // how often

FaultKey key_of(const Violation& violation, std::string_view node) {
  return {violation.invariant, std::string(node.empty() ? violation.message : node), violation.body.valid()};
}

Faults count_faults(const std::vector<Violation>& violations) {
  Faults faults;
  for (const Violation& violation : violations) ++faults[key_of(violation, violation.site.node)];
  return faults;
}

// The nodes of the first graph that a node stands for, all or in part: what it breaks may be broken
// there. What a pass made beside these stands for none. `before`: the first graph's node of that
// name, or none.
std::set<std::string_view> list_stood_for(const Graph& b, const Node& node, const Node* before) {
  std::set<std::string_view> names;
  const Provenance *maker = find_maker(node), *known = before != nullptr ? find_maker(*before) : nullptr;
  if (maker == nullptr || maker->role == ProvenanceRole::kBody)
    for (StringId origin : origins_of(node)) names.insert(b.text(origin));
  const bool was_made_before = maker != nullptr && known != nullptr && before->target == node.target &&
                               known->pass == maker->pass && known->role == maker->role &&
                               known->origins == maker->origins;
  if (was_made_before) names.insert(b.text(node.name));
  return names;
}

// What B breaks on its own, but for what A breaks as often at the same node, or at those that the
// node comes from. Nothing where no pass made B: then that is the answer, and what another tool
// leaves in its graphs would bury it.
void add_own_violations(const Graph& a, const Graph& b, std::vector<Violation>& out) {
  if (b.origins.empty() && std::ranges::find(out, "rewrite-derived", &Violation::invariant) != out.end())
    return;
  std::vector<Violation> own = verify_graph(b);
  // The proof compares host reads with those of A (rewrite-host-read).
  std::erase_if(own, [](const Violation& v) { return v.invariant == "host-reads"; });
  if (own.empty()) return;
  const Faults of_a = count_faults(verify_graph(a)), of_b = count_faults(own);
  std::map<std::string_view, const Node*> nodes_a, nodes;
  for (NodeId id : a.step().order) nodes_a[a.text(a.step().nodes[id].name)] = &a.step().nodes[id];
  for (NodeId id : b.step().order) nodes[b.text(b.step().nodes[id].name)] = &b.step().nodes[id];
  std::erase_if(own, [&](const Violation& v) {
    const auto node = nodes.find(v.site.node), before = nodes_a.find(v.site.node);
    std::set<std::string_view> names = {v.site.node};
    if (node != nodes.end() && !v.body)
      names = list_stood_for(b, *node->second, before == nodes_a.end() ? nullptr : before->second);
    std::size_t known = 0;
    for (std::string_view name : names)
      if (const auto found = of_a.find(key_of(v, name)); found != of_a.end()) known += found->second;
    return known >= of_b.at(key_of(v, v.site.node));
  });
  // What the proof ran into is in the list already.
  std::erase_if(own, [&](const Violation& v) {
    return std::ranges::any_of(out, [&](const Violation& other) {
      return other.site.node == v.site.node && key_of(other, v.site.node) == key_of(v, v.site.node) &&
             other.message == v.message;
    });
  });
  out.insert(out.end(), own.begin(), own.end());
}

bool is_proved(const VerifyOptions& options, const RewriteReport& report) {
  return report.violations.empty() && (report.assumptions.empty() || !options.assume_none);
}

Json proof_report(const Graph& b, bool is_proved, const RewriteReport& report) {
  Json violations = Json::array();
  for (const Violation& violation : report.violations) {
    Json& row =
        violations.emplace_back(Json{{"invariant", violation.invariant}, {"message", violation.message}});
    add_site(row, violation.site);
    row["graph"] = b.text(violation.body);
  }
  Json outputs = Json::array();
  for (const RewriteOutput& output : report.outputs)
    outputs.push_back(
        {{"output", output.what}, {"node", output.node}, {"numerics", name_of(output.numerics)}});
  return {{"ok", is_proved},
          {"violations", std::move(violations)},
          {"outputs", std::move(outputs)},
          {"assumptions", report.assumptions},
          {"whole", report.whole},
          {"divided", report.divided},
          {"joins", report.joins},
          {"splits", report.splits}};
}

Json rewrite_report(const Graph& b, const VerifyOptions& options, const RewriteReport& report) {
  Json document = {{"a", file_report(options.input.path)}, {"b", file_report(options.rewritten.path)}};
  document.update(proof_report(b, is_proved(options, report), report));
  return document;
}

// One of each kind, as many as one takes in at once.
std::string assumptions_text(const std::vector<AssumptionKind>& kinds, std::size_t left) {
  constexpr std::size_t kMostKinds = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(kinds.size(), kMostKinds); ++i) {
    text += fmt::format("assuming    {}", kinds[i].first);
    if (kinds[i].count > 1) text += fmt::format("; {} more like it, listed by -v", kinds[i].count - 1);
    text += "\n";
    if (!kinds[i].why.empty()) text += fmt::format("            why: {}\n", kinds[i].why);
    if (!kinds[i].spelling.empty())
      text += fmt::format("            spelling that is proved: {}\n", kinds[i].spelling);
    left -= kinds[i].count;
  }
  if (left > 0) text += fmt::format("assuming    {} more, listed by -v\n", left);
  return text;
}

// Told apart for people alone: in JSON, and beside violations, none is named by its kind.
std::vector<AssumptionKind> kinds_in_text(const RewriteReport& report, const Console& console) {
  const bool are_named = !console.json() && report.violations.empty();
  return are_named ? group_assumptions(report.assumptions) : std::vector<AssumptionKind>();
}

std::string rewrite_text(const Graph& b, const RewriteReport& report,
                         const std::vector<AssumptionKind>& kinds, bool verbose) {
  std::string text;
  for (const Violation& violation : report.violations) text += print_violation(b, violation) + "\n";
  if (!report.violations.empty()) return text;
  text += fmt::format("{} nodes kept, {} divided, {} splits, {} joins\n", report.whole, report.divided,
                      report.splits, report.joins);
  std::map<Numerics, std::size_t> counts;
  for (const RewriteOutput& output : report.outputs) ++counts[output.numerics];
  for (const auto& [numerics, n] : counts)
    text += fmt::format("{:<12}{:>6} {}\n", name_of(numerics), n, n == 1 ? "output" : "outputs");
  if (verbose)
    for (const std::string& line : report.assumptions) text += fmt::format("assuming    {}\n", line);
  else
    text += assumptions_text(kinds, report.assumptions.size());
  if (verbose)
    for (const RewriteOutput& output : report.outputs)
      text += fmt::format("  {:<12}{}  %{}\n", name_of(output.numerics), output.what, output.node);
  return text;
}

// "OUT: proved to compute what IN computes, under 2 assumptions"; of halves `what` names both.
std::string verdict_line(std::string_view what, const InputOptions& original, std::size_t kinds,
                         std::size_t assumptions) {
  return fmt::format("{}: proved to compute what {} computes, {}", what, display_name(original),
                     count_assumptions(kinds, assumptions));
}

bool takes_saved(const Graph& half) {
  return std::ranges::any_of(
      half.inputs, [&](const InputRole& input) { return input.role && half.text(input.role) == "saved"; });
}

// Whether passes that are not epweave's ran behind A: the Python package logs them by this name.
bool ran_others(const Graph& a, const Graph& b) {
  constexpr std::string_view kOthers = "outside";
  const auto skipped = static_cast<std::ptrdiff_t>(std::min(a.passes.size(), b.passes.size()));
  return std::any_of(b.passes.begin() + skipped, b.passes.end(),
                     [&](const PassRun& run) { return run.name == kOthers; });
}

}  // namespace

RewriteReport check_rewrite(const Graph& a, const Graph& b) {
  RewriteReport report = epweave::verify_rewrite(a, b);
  add_own_violations(a, b, report.violations);
  if (!a.origins.empty() && b.origins.empty())
    for (Violation& violation : report.violations)
      if (violation.invariant == "rewrite-derived")
        violation.message += "; the first has provenance and the second has none: did you swap the files?";
  return report;
}

RewriteReport check_halves(const Graph& joint, const Graph& forward, const Graph& backward) {
  RewriteReport report = epweave::verify_halves(joint, forward, backward);
  add_own_violations(joint, forward, report.violations);
  add_own_violations(joint, backward, report.violations);
  return report;
}

int verify_rewrite(const VerifyOptions& options, Console& console) {
  const Graph a = read_sound_input(options.input, kept_context(), Soundness::kStructure);
  const Graph b = read_sound_input(options.rewritten, a.context, Soundness::kStructure);
  const RewriteReport report = check_rewrite(a, b);
  const std::vector<AssumptionKind> kinds = kinds_in_text(report, console);
  const std::size_t n = report.violations.size();
  console.print(console.json() ? report_text(rewrite_report(b, options, report))
                               : rewrite_text(b, report, kinds, console.verbose() || options.assume_none));
  const std::size_t assumed = options.assume_none ? report.assumptions.size() : 0;
  if (n == 0 && assumed > 0)
    console.info(fmt::format("{}: rests on {} {}, which --assume-none refuses",
                             display_name(options.rewritten), assumed,
                             assumed == 1 ? "assumption" : "assumptions"));
  if (n != 0)
    console.info(fmt::format("{}: {} {}; it is not shown to compute what {} computes{}",
                             display_name(options.rewritten), n, n == 1 ? "violation" : "violations",
                             display_name(options.input),
                             ran_others(a, b) ? "; a pass that is not epweave's ran in between ('outside' in "
                                                "its log), and what such a pass does is not proved"
                                              : ""));
  if (n == 0 && assumed == 0 && !console.json())
    console.info(verdict_line(display_name(options.rewritten), options.input, kinds.size(),
                              report.assumptions.size()));
  return n == 0 && assumed == 0 ? kFine : kDifferent;
}

int verify_halves(const VerifyHalvesOptions& options, Console& console) {
  Graph joint = read_sound_input(options.input, kept_context(), Soundness::kStructure);
  mark_tangents(joint, options.tangents);
  const Graph forward = read_sound_input(options.forward, joint.context, Soundness::kStructure);
  const Graph backward = read_sound_input(options.backward, joint.context, Soundness::kStructure);
  const RewriteReport report = check_halves(joint, forward, backward);
  const std::vector<AssumptionKind> kinds = kinds_in_text(report, console);
  const std::size_t n = report.violations.size();
  if (console.json()) {
    Json json = {{"file", options.input.path},
                 {"forward", file_report(options.forward.path)},
                 {"backward", file_report(options.backward.path)}};
    json.update(proof_report(backward, is_proved({}, report), report));
    console.print(report_text(std::move(json)));
  } else {
    console.print(rewrite_text(backward, report, kinds, console.verbose()));
  }
  if (n != 0)
    console.info(fmt::format("{}, {}: {} {}; they are not shown to compute what {} computes{}",
                             display_name(options.forward), display_name(options.backward), n,
                             n == 1 ? "violation" : "violations", display_name(options.input),
                             takes_saved(forward) && !takes_saved(backward)
                                 ? "; --fwd takes saved values and --bwd does not: did you swap the files?"
                                 : ""));
  else if (!console.json())
    console.info(
        verdict_line(fmt::format("{}, {}", display_name(options.forward), display_name(options.backward)),
                     options.input, kinds.size(), report.assumptions.size()));
  return n == 0 ? kFine : kDifferent;
}

}  // namespace epweave::cli
