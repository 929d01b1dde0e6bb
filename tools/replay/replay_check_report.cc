#include "replay_check_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "replay_setup.h"

namespace epweave::cli {
namespace {

// --- JSON ---

Json describe_difference(const replay::TensorDifference& difference) {
  if (!difference.problem.empty()) return {{"problem", difference.problem}};
  return {{"differing", difference.differing},
          {"index", difference.index},
          {"bits", {difference.bits_a, difference.bits_b}},
          {"ulp", difference.ulp ? Json(*difference.ulp) : Json()},
          {"relative_error", number_or_text(difference.relative_error)}};
}

Json describe_bounds(replay::Bounds made) {
  if (made == replay::Bounds::kNone) return nullptr;
  return made == replay::Bounds::kCpu ? "cpu" : "device";
}

Json describe_rank(const replay::RankCheck& rank) {
  Json nodes = Json::object();
  for (std::size_t i = 0; i < replay::kVerdicts; ++i)
    nodes[std::string(replay::name_of(static_cast<replay::Verdict>(i)))] = rank.nodes[i];
  return {{"nodes", std::move(nodes)}, {"unverified", rank.unverified}, {"skipped", rank.skipped}};
}

Json describe_changes(const replay::CheckReport& report, const Graph& b) {
  Json changes = Json::array();
  for (const replay::KernelChange& change : report.kernel_changes)
    changes.push_back({{"rank", change.rank}, {"origin", change.origin}, {"a", change.a}, {"b", change.b}});
  Json result = {{"changes", std::move(changes)}, {"first", nullptr}};
  if (report.first_change) {
    Json first = {{"rank", report.first_change->rank}, {"origin", report.first_change->origin}};
    if (report.first_change->difference)
      first["difference"] = describe_difference(*report.first_change->difference);
    add_site(first, site_of(b, b.step().nodes[report.first_change->node]));
    result["first"] = std::move(first);
  }
  return result;
}

// --- for people ---

std::string list_verdicts(const std::array<std::uint64_t, replay::kVerdicts>& counts) {
  std::string line;
  for (std::size_t i = 0; i < replay::kVerdicts; ++i) {
    const auto verdict = static_cast<replay::Verdict>(i);
    if (verdict == replay::Verdict::kLibraryKernel && counts[i] == 0) continue;  // of native math
    line += fmt::format("{}{} {}", i == 0 ? "" : ", ", counts[i], replay::name_of(verdict));
  }
  return line;
}

std::string list_reasons(std::string_view what, const std::map<std::string, std::uint64_t>& reasons) {
  std::string text;
  for (const auto& [reason, count] : reasons) text += fmt::format("    {} {}: {}\n", count, what, reason);
  return text;
}

// The ranks' nodes: one entry for ranks with the same counts.
std::string summarise_nodes(const std::vector<replay::RankCheck>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    const replay::RankCheck& rank = ranks[first];
    std::size_t next = first + 1;
    while (next < ranks.size() && ranks[next].nodes == rank.nodes && ranks[next].skipped == rank.skipped &&
           ranks[next].unverified == rank.unverified)
      ++next;
    std::uint64_t skipped = 0;
    for (const auto& [reason, count] : rank.skipped) skipped += count;
    text += fmt::format("nodes of rank {}: {}; {} skipped\n",
                        next == first + 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, next - 1),
                        list_verdicts(rank.nodes), skipped);
    text += list_reasons("unverified", rank.unverified) + list_reasons("skipped", rank.skipped);
    first = next;
  }
  return text;
}

std::string describe_first(const replay::NodeCheck& first, const Graph& b) {
  const Site site = site_of(b, b.step().nodes[first.node]);
  std::string text =
      fmt::format("first node that differs: rank {}: %{} = {} for %{}{}{}: {}\n", first.rank, site.node,
                  site.op, first.origin, site.module.empty() ? "" : " in " + site.module,
                  site.source.empty() ? "" : " (" + site.source + ")", first.reason);
  if (first.difference) text += fmt::format("  {}\n", replay::describe(*first.difference));
  return text;
}

// The first products that took other algorithms, for people.
std::string summarise_changes(const replay::CheckReport& report, const Graph& b) {
  constexpr std::size_t kMost = 5;
  if (report.kernel_changes.empty()) return "";
  std::string text = fmt::format("{} products took another algorithm of the library in B, and differ:\n",
                                 report.kernel_changes.size());
  // Most are the same on all ranks: in the order in which the first rank has them.
  std::vector<std::pair<const replay::KernelChange*, std::size_t>> kinds;
  std::map<std::tuple<std::string, std::vector<std::string>, std::vector<std::string>>, std::size_t> known;
  for (const replay::KernelChange& change : report.kernel_changes) {
    const auto [found, is_new] = known.try_emplace({change.origin, change.a, change.b}, kinds.size());
    if (is_new) kinds.emplace_back(&change, 0);
    ++kinds[found->second].second;
  }
  for (std::size_t i = 0; i < std::min(kMost, kinds.size()); ++i) {
    const auto& [change, ranks] = kinds[i];
    text += fmt::format("  %{} on {} of {} ranks\n", change->origin, ranks, report.ranks.size());
    for (const std::string& one : change->a) text += fmt::format("    A: {}\n", one);
    for (const std::string& one : change->b) text += fmt::format("    B: {}\n", one);
  }
  if (kinds.size() > kMost) text += fmt::format("  and {} more; --json lists them\n", kinds.size() - kMost);
  if (report.first_change && report.first_change->difference) {
    const Site site = site_of(b, b.step().nodes[report.first_change->node]);
    text += fmt::format("  the first, %{} = {}{}{}: {}\n", site.node, site.op,
                        site.module.empty() ? "" : " in " + site.module,
                        site.source.empty() ? "" : " (" + site.source + ")",
                        replay::describe(*report.first_change->difference));
  }
  return text +
         "  what lies behind them is not verified: --pin-rows takes one algorithm for all numbers of rows "
         "where the library allows it, --math portable always\n";
}

// Of the outputs that nothing bounds the one that is furthest from A's; none where there is none.
const replay::OutputCheck* find_worst_unverified(const replay::CheckReport& report) {
  const replay::OutputCheck* worst = nullptr;
  for (const replay::OutputCheck& output : report.outputs)
    if (output.verdict == replay::Verdict::kUnverified && output.difference.problem.empty() &&
        (worst == nullptr || !(output.difference.relative_error <= worst->difference.relative_error)))
      worst = &output;
  return worst;
}

// Of regrouped sums, those of which nothing is known before rounding.
std::vector<const replay::OutputCheck*> list_by_bounds_alone(const replay::CheckReport& report) {
  std::vector<const replay::OutputCheck*> found;
  for (const replay::OutputCheck& output : report.outputs)
    if (output.verdict == replay::Verdict::kSumOrder && output.bound && !output.bound->has_ideals)
      found.push_back(&output);
  return found;
}

// What the comparison of sums does not show.
std::string describe_blind_spots(const replay::CheckReport& report) {
  constexpr std::size_t kMost = 5;
  std::string text;
  if (const auto outputs = list_by_bounds_alone(report); !outputs.empty()) {
    std::set<std::string> names;
    for (const replay::OutputCheck* output : outputs) names.insert(output->name);
    std::vector<std::string> first;
    for (const std::string& name : names)
      if (first.size() < kMost) first.push_back(name);
    text += fmt::format("  {} of them are compared by these bounds alone, not before rounding: {}{}\n",
                        outputs.size(), fmt::join(first, ", "),
                        names.size() > kMost ? fmt::format(" and {} more", names.size() - kMost) : "");
  }
  std::size_t listed = 0;
  for (const std::string& cast : report.added_roundings)
    if (listed++ < kMost) text += fmt::format("  B alone rounds to a coarser type: {}\n", cast);
  if (listed > kMost) text += fmt::format("  and {} more casts; --json lists them\n", listed - kMost);
  return text;
}

// Outputs that are not proved: all that differ, the first of those that nothing bounds.
std::string list_outputs(const std::vector<replay::OutputCheck>& outputs) {
  constexpr std::size_t kMostUnverified = 10;
  std::string text;
  std::size_t unverified = 0;
  for (const replay::OutputCheck& output : outputs) {
    if (output.verdict == replay::Verdict::kEqual || output.verdict == replay::Verdict::kSumOrder) continue;
    if (output.verdict == replay::Verdict::kUnverified && ++unverified > kMostUnverified) continue;
    text += fmt::format("rank {}: {} {}: {}{}\n", output.rank, output.name, replay::name_of(output.verdict),
                        replay::describe(output.difference),
                        output.bound ? "; " + replay::describe(*output.bound) : "");
  }
  if (unverified > kMostUnverified)
    text += fmt::format("and {} more that are unverified; --json lists them\n", unverified - kMostUnverified);
  return text;
}

}  // namespace

Json describe_check(const replay::CheckReport& report, const Graph& b) {
  Json outputs = Json::array(), ranks = Json::array();
  const replay::OutputCheck* worst = find_worst_unverified(report);
  for (const replay::OutputCheck& output : report.outputs) {
    if (output.verdict == replay::Verdict::kEqual) continue;
    Json entry = describe_difference(output.difference);
    entry["rank"] = output.rank;
    entry["name"] = output.name;
    entry["verdict"] = replay::name_of(output.verdict);
    if (output.bound) {
      entry["share_of_bound"] = number_or_text(output.bound->largest_share);
      entry["share_before_rounding"] =
          output.bound->has_ideals ? number_or_text(output.bound->largest_unrounded) : Json();
    }
    outputs.push_back(std::move(entry));
  }
  for (const replay::RankCheck& rank : report.ranks) ranks.push_back(describe_rank(rank));
  Json result = {{"verdict", name_of(report.conclusion())},
                 {"same", report.is_same()},
                 {"baseline_is_deterministic", report.baseline_is_deterministic},
                 {"rewrite_is_deterministic", report.rewrite_is_deterministic},
                 {"bounds", describe_bounds(report.bounds)},
                 {"devices_agree", report.devices_agree},
                 {"step_is_finite", report.step_is_finite},
                 {"outputs_not_finite", report.outputs_not_finite},
                 {"outputs", report.outputs.size()},
                 {"outputs_not_equal", std::move(outputs)},
                 {"largest_share_of_bound", number_or_text(report.largest_share)},
                 {"largest_unverified_error",
                  worst == nullptr ? Json() : number_or_text(worst->difference.relative_error)},
                 {"by_bounds_alone", list_by_bounds_alone(report).size()},
                 {"added_roundings", report.added_roundings},
                 {"ops_without_bound", report.ops_without_bound},
                 {"ranks", std::move(ranks)},
                 {"first_divergence", nullptr},
                 {"library_kernels", describe_changes(report, b)},
                 {"seconds", {report.run_a.seconds, report.run_b.seconds}}};
  if (report.reference) {
    const replay::ReferenceCheck& found = *report.reference;
    result["reference"] = {{"outputs", found.outputs},
                           {"equal_to_a", found.equal_to_a},
                           {"equal_to_b", found.equal_to_b},
                           {"largest_relative_error", number_or_text(found.largest_error)},
                           {"largest_relative_error_of_b", number_or_text(found.largest_error_of_b)},
                           {"first_unlike_b", text_or_null(found.first_unlike_b)}};
  }
  if (report.first) {
    Json first = {
        {"rank", report.first->rank}, {"origin", report.first->origin}, {"reason", report.first->reason}};
    if (report.first->difference) first["difference"] = describe_difference(*report.first->difference);
    add_site(first, site_of(b, b.step().nodes[report.first->node]));
    result["first_divergence"] = std::move(first);
  }
  return result;
}

std::string summarise_check(const replay::CheckReport& report, const Graph& b) {
  std::string text = list_outputs(report.outputs);
  std::array<std::uint64_t, replay::kVerdicts> counts{};
  for (const replay::OutputCheck& output : report.outputs) ++counts[static_cast<std::size_t>(output.verdict)];
  if (report.first) text += describe_first(*report.first, b);
  text += summarise_changes(report, b);
  if (!report.baseline_is_deterministic)
    text += "A is not deterministic: it gave other bits the second time\n";
  if (!report.rewrite_is_deterministic)
    text += "B is not deterministic: it gave other bits when it ran again, with bounds\n";
  if (!report.devices_agree) text += "the device gives other bits than the CPU, where bounds are made\n";
  if (!report.step_is_finite)
    text +=
        "A's loss or gradients are not finite, or another result has NaN: equal NaNs show nothing; give "
        "other inputs (--recipe, --seed)\n";
  text += fmt::format("outputs: {}{}\n", list_verdicts(counts),
                      report.outputs_not_finite == 0
                          ? ""
                          : fmt::format("; {} with NaN or infinity", report.outputs_not_finite));
  if (counts[static_cast<std::size_t>(replay::Verdict::kSumOrder)] != 0)
    text += fmt::format("sum-order outputs: at most {:.3g} of what their summands allow\n",
                        report.largest_share) +
            describe_blind_spots(report);
  if (const replay::OutputCheck* worst = find_worst_unverified(report))
    text += fmt::format("unverified outputs: a relative error of at most {:.3g} (rank {}, {})\n",
                        worst->difference.relative_error, worst->rank, worst->name);
  if (!report.ops_without_bound.empty())
    text += fmt::format("ops without a bound for regrouped sums: {}\n",
                        fmt::join(report.ops_without_bound, ", "));
  text += summarise_nodes(report.ranks);
  if (report.reference) {
    const replay::ReferenceCheck& found = *report.reference;
    text += fmt::format(
        "reference: {} of {} outputs equal to A's, {} to B's; largest relative error to A: its {:.3g}, B's "
        "{:.3g}\n",
        found.equal_to_a, found.outputs, found.equal_to_b, found.largest_error, found.largest_error_of_b);
    if (!found.first_unlike_b.empty()) text += fmt::format("  unlike B: {}\n", found.first_unlike_b);
  }
  const std::size_t casts = report.added_roundings.size();
  return text + fmt::format("{}{}\n", name_of(report.conclusion()),
                            casts == 0 ? ""
                                       : fmt::format(", but B alone rounds {} {} to a coarser type", casts,
                                                     casts == 1 ? "value" : "values"));
}

}  // namespace epweave::cli
