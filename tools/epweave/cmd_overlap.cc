// What runs under each token exchange, as text, as JSON and as a trace.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/ep_regions.h"
#include "base/counted.h"
#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"
#include "cost/overlap.h"
#include "cost/stats.h"
#include "figures.h"
#include "folding.h"
#include "io/file.h"
#include "overlap_report.h"
#include "trace.h"

namespace epweave::cli {
namespace {

std::string_view name_in(const Graph& graph, NodeId id) {
  return graph.text(graph.step().nodes[id].name);
}

std::string_view label_of(const Graph& graph, const OverlappedExchange& exchange) {
  return graph.text(graph.step().nodes[exchange.launch].ep.token_exchange);
}

// A sum to which some kernels add what is not known: "805 Mflop+".
std::string sum_text(std::int64_t sum, std::string_view unit, const Work& work) {
  return metric(sum, unit) + (work.unknown > 0 ? "+" : "");
}

std::string explain_exposure(const Graph& graph, const OverlappedExchange& exchange) {
  const std::string others =
      exchange.witnesses == 1 ? "1 kernel behind its wait does not need it"
                              : fmt::format("{} kernels behind its wait do not need it", exchange.witnesses);
  switch (exchange.exposure) {
    case Exposure::kHidden:
      return "";
    case Exposure::kAllNeedIt:
      return "every kernel behind its wait in the region needs it";
    case Exposure::kOthersHeld:
      return fmt::format("{}, but an exchange that is waited for later; the first is %{}", others,
                         name_in(graph, exchange.witness));
    case Exposure::kCouldRun:
      return fmt::format("{}; %{} needs nothing that is in flight and could run under it", others,
                         name_in(graph, exchange.witness));
  }
  return "";
}

// --------------------------------------------------------------------------- JSON

Json work_report(const Work& work) {
  return {{"kernels", work.kernels}, {"flops", work.flops}, {"bytes", work.bytes}, {"unknown", work.unknown}};
}

Json exchange_report(const Graph& graph, const OverlappedExchange& exchange) {
  Json by_class = Json::object();
  for (std::size_t i = 0; i < kCostClasses; ++i)
    if (exchange.under[i].kernels > 0)
      by_class[std::string(name_of(static_cast<CostClass>(i)))] = work_report(exchange.under[i]);
  Json under = work_report(exchange.total_under());
  under["by_class"] = std::move(by_class);
  return {{"index", exchange.index},
          {"label", label_of(graph, exchange)},
          {"part", exchange.part},
          {"launch", name_in(graph, exchange.launch)},
          {"wait", name_in(graph, exchange.wait)},
          {"bytes", exchange.message ? Json(*exchange.message) : Json()},
          {"under", std::move(under)},
          {"alone", work_report(exchange.alone)},
          {"exposure", name_of(exchange.exposure)},
          {"why", text_or_null(explain_exposure(graph, exchange))}};
}

struct Counts {
  std::size_t exchanges = 0, exposed = 0;
  std::size_t light = 0;  // hidden, but by no matrix product and no attention
};

bool runs(const OverlappedExchange& exchange, CostClass kind) {
  return exchange.under[static_cast<std::size_t>(kind)].kernels > 0;
}

Counts count(const std::vector<OverlappedRegion>& regions) {
  Counts counts;
  for (const OverlappedRegion& region : regions)
    for (const OverlappedExchange& exchange : region.exchanges) {
      ++counts.exchanges;
      if (exchange.exposure != Exposure::kHidden) {
        ++counts.exposed;
      } else if (!runs(exchange, CostClass::kMatmul) && !runs(exchange, CostClass::kAttention)) {
        ++counts.light;
      }
    }
  return counts;
}

// With --max-exposed this is what counts.
std::size_t count_exposed(const Overlaps& overlaps) {
  return count(overlaps.regions).exposed + overlaps.undivided.exposed;
}

Json overlap_report(const Graph& graph, const Overlaps& overlaps) {
  const Counts counts = count(overlaps.regions);
  Json report = {{"exchanges", counts.exchanges},
                 {"exposed", counts.exposed},
                 {"light", counts.light},
                 {"undivided", overlaps.undivided.count},
                 {"undivided_exposed", overlaps.undivided.exposed},
                 {"total_exposed", count_exposed(overlaps)},
                 {"unlabelled", overlaps.unlabelled},
                 {"assumed_symbols", overlaps.assumed}};
  Json& list = report["regions"] = Json::array();
  for (const OverlappedRegion& region : overlaps.regions) {
    Json exchanges = Json::array();
    for (const OverlappedExchange& exchange : region.exchanges)
      exchanges.push_back(exchange_report(graph, exchange));
    list.push_back({{"root", graph.text(region.root)},
                    {"direction", region.backward ? "backward" : "forward"},
                    {"parts", region.parts},
                    {"exchanges", std::move(exchanges)}});
  }
  return report;
}

// --------------------------------------------------------------------------- text

// The exchanges of a region: a line each, and below those that are exposed the reason. `names` are
// of its nodes.
enum class Names : std::uint8_t { kShown, kLeftOut };
std::string exchanges_text(const Graph& graph, const OverlappedRegion& region, Names names) {
  std::string text =
      fmt::format("  {:<16}  {:>10}{:>20}{:>24}{:>14}\n", "", "", "under it", "", "under it alone");
  text += fmt::format("  {:<12}{:>4}  {:>10}{:>10}{:>13}{:>11}{:>10}{:>13}\n", "exchange", "part", "message",
                      "kernels", "flops", "bytes", "kernels", "flops");
  for (const OverlappedExchange& exchange : region.exchanges) {
    const Work under = exchange.total_under();
    text += fmt::format("  {} {:<10}{:>4}  {:>10}{:>10}{:>13}{:>11}{:>10}{:>13}\n", exchange.index,
                        label_of(graph, exchange), exchange.part,
                        exchange.message ? metric(*exchange.message, "B") : "?", under.kernels,
                        sum_text(under.flops, "flop", under), sum_text(under.bytes, "B", under),
                        exchange.alone.kernels, sum_text(exchange.alone.flops, "flop", exchange.alone));
    if (exchange.exposure == Exposure::kHidden) continue;
    text += names == Names::kShown
                ? fmt::format("    exposed: {}\n", explain_exposure(graph, exchange))
                : fmt::format("    exposed: {} {}\n", name_of(exchange.exposure), exchange.witnesses);
  }
  return text;
}

// Regions that say the same, but for names, in one.
std::string regions_text(const Graph& graph, const std::vector<OverlappedRegion>& regions, bool all) {
  std::vector<FoldableRow> rows;
  for (const OverlappedRegion& region : regions)
    rows.push_back(
        {std::string(graph.text(region.root)),
         fmt::format("{} {}{}\n{}", region.backward, region.parts, all ? std::to_string(rows.size()) : "",
                     exchanges_text(graph, region, Names::kLeftOut))});
  std::string text;
  for (const FoldedRows& fold : fold_rows(rows)) {
    const OverlappedRegion& first = regions[fold.members.front()];
    const std::size_t n = fold.members.size();
    const bool has_names = std::ranges::any_of(
        first.exchanges, [](const OverlappedExchange& exchange) { return exchange.witness.valid(); });
    text +=
        fmt::format("{} {}{}, {}{}\n{}\n", fold.path, first.backward ? "backward" : "forward",
                    n == 1 ? "" : fmt::format(" x {}", n), counted(first.parts, "part"),
                    n > 1 && has_names ? fmt::format("; nodes are those of {}", graph.text(first.root)) : "",
                    exchanges_text(graph, first, Names::kShown));
  }
  return text;
}

// "2 of 4 token exchanges are exposed, 1 has neither a matrix product nor attention under it"
std::string divided_text(const Counts& counts) {
  return fmt::format("{} of {} {} exposed, {} neither a matrix product nor attention under {}\n",
                     counts.exposed, counted(counts.exchanges, "token exchange"),
                     counts.exposed == 1 || counts.exchanges == 1 ? "is" : "are",
                     counts.light == 1 ? "1 has" : fmt::format("{} have", counts.light),
                     counts.light == 1 ? "it" : "them");
}

std::string undivided_text(const UndividedExchanges& undivided) {
  if (undivided.count == 0) return "";
  if (undivided.count == 1)
    return fmt::format("1 token exchange of a module that is not divided, {}\n",
                       undivided.exposed == 1 ? "exposed" : "not exposed");
  return fmt::format("{} token exchanges of modules that are not divided, {} of them exposed\n",
                     undivided.count, undivided.exposed);
}

std::string unlabelled_text(std::size_t count) {
  return fmt::format("{} without a label, which {} not counted; `epweave doctor` says what to add",
                     count == 1 ? "1 all-to-all" : fmt::format("{} all-to-alls", count),
                     count == 1 ? "is" : "are");
}

std::string summary_text(const Graph& graph, const Overlaps& overlaps) {
  std::string text;
  if (!overlaps.regions.empty())
    text = divided_text(count(overlaps.regions));
  else if (!count_graph(graph).regions.empty())
    text = "no token exchange in a divided module\n";
  else
    text = "no module is divided\n";
  return text + undivided_text(overlaps.undivided) +
         (overlaps.unlabelled > 0 ? unlabelled_text(overlaps.unlabelled) + "\n" : "");
}

std::string overlap_text(const Graph& graph, const Overlaps& overlaps, bool all) {
  std::string text = regions_text(graph, overlaps.regions, all);
  bool has_unknown = false;
  for (const OverlappedRegion& region : overlaps.regions) {
    for (const OverlappedExchange& exchange : region.exchanges)
      has_unknown |= !exchange.message || exchange.total_under().unknown > 0;
  }
  if (!overlaps.regions.empty()) text += assumed_text(overlaps.assumed);
  if (has_unknown) text += "? and +: what has no size, or is not in the op table, counts as 0\n";
  return text + summary_text(graph, overlaps);
}

}  // namespace

std::string overlap_report_for(const std::string& path, const Graph& graph, const std::string& file) {
  const Overlaps overlaps = find_overlaps(graph);
  Json report = file_report(file);
  report.update(overlap_report(graph, overlaps));
  return path.ends_with(".json") ? report_text(report) : overlap_text(graph, overlaps, false);
}

namespace {

// With --max-exposed, more exposed exchanges are a failure, those of modules that are not divided
// included; so is a graph whose exchanges have no label, of which nothing could be counted.
int exit_code_of(const OverlapOptions& options, const InputOptions& input, const Overlaps& overlaps,
                 Console& console) {
  const std::size_t exposed = count_exposed(overlaps);
  const bool has_counted = !overlaps.regions.empty() || overlaps.undivided.count > 0;
  if (options.max_exposed && !has_counted && overlaps.unlabelled > 0) {
    console.warn(fmt::format("{}: {}", display_name(input), unlabelled_text(overlaps.unlabelled)));
    return kDifferent;
  }
  if (!options.max_exposed || exposed <= *options.max_exposed) return kFine;
  console.warn(
      fmt::format("{}: {} exposed, --max-exposed allows {}", display_name(input),
                  exposed == 1 ? "1 token exchange is" : fmt::format("{} token exchanges are", exposed),
                  *options.max_exposed));
  return kDifferent;
}

// A row for each graph.
int overlap_of_several(const OverlapOptions& options, Console& console) {
  if (!options.before.path.empty() || !options.trace.empty() || options.all)
    throw UsageError("--before, --trace and --all are for one graph; several get one table, a row for each");
  std::vector<InputOptions> inputs = {options.input};
  inputs.insert(inputs.end(), options.more.begin(), options.more.end());
  Json reports = Json::array();
  std::string text = fmt::format("{:>9}  {:>9}  {:>9}  {:>9}  {:>17}  {}\n", "exchanges", "exposed", "light",
                                 "undivided", "undivided_exposed", "graph");
  std::size_t assumed = 0;
  int code = kFine;
  for (const InputOptions& input : inputs) {
    const Graph graph = read_sound_input(input);
    const Overlaps overlaps = find_overlaps(graph);
    const Counts counts = count(overlaps.regions);
    text +=
        fmt::format("{:>9}  {:>9}  {:>9}  {:>9}  {:>17}  {}\n", counts.exchanges, counts.exposed,
                    counts.light, overlaps.undivided.count, overlaps.undivided.exposed, display_name(input));
    assumed = std::max(assumed, overlaps.assumed);
    if (console.json()) {
      Json report = file_report(input.path);
      report.update(overlap_report(graph, overlaps));
      reports.push_back(std::move(report));
    }
    code = std::max(code, exit_code_of(options, input, overlaps, console));
  }
  text +=
      "exchanges: of divided modules; exposed: no kernel runs under them; light: neither a matrix product "
      "nor "
      "attention does\n"
      "undivided: of modules that are not divided; undivided_exposed: those of them that are exposed\n";
  console.print(console.json() ? report_text({{"graphs", std::move(reports)}})
                               : text + assumed_text(assumed));
  return code;
}

}  // namespace

int overlap(const OverlapOptions& options, Console& console) {
  if (!options.more.empty()) return overlap_of_several(options, console);
  if (options.trace == "-")
    throw UsageError("--trace - shares standard output with the table: give it a file");
  const Graph graph = read_sound_input(options.input);
  std::optional<Graph> before;
  if (!options.before.path.empty()) before = read_sound_input(options.before);
  if (!options.trace.empty()) {
    std::vector<TracedGraph> graphs;
    if (before) graphs.push_back({"before: " + display_name(options.before), &*before});
    graphs.push_back({(before ? "after: " : "") + display_name(options.input), &graph});
    write_bytes(options.trace, trace_text(graphs));
  }
  const Overlaps overlaps = find_overlaps(graph);
  if (console.json()) {
    Json report = file_report(options.input.path);
    report.update(overlap_report(graph, overlaps));
    if (before) {
      report["before"] = file_report(options.before.path);
      report["before"].update(overlap_report(*before, find_overlaps(*before)));
    }
    console.print(report_text(report));
    return exit_code_of(options, options.input, overlaps, console);
  }
  console.print((before ? "before: " + summary_text(*before, find_overlaps(*before)) + "\n" : "") +
                overlap_text(graph, overlaps, options.all));
  return exit_code_of(options, options.input, overlaps, console);
}

}  // namespace epweave::cli
