// What Fit says: the report of a dry run, warnings, refusals.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/counted.h"
#include "base/memory_text.h"
#include "common/graphs.h"
#include "replay_fit.h"

namespace epweave::cli {
namespace {

std::string format_seconds(double seconds) {
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} minutes", seconds / 60);
  return fmt::format("{:.1f} hours", seconds / 3600);
}

Json describe_lines(const std::vector<std::pair<const char*, double>>& lines) {
  Json json = Json::object();
  for (const auto& [name, bytes] : lines) json[name] = static_cast<std::uint64_t>(bytes);
  return json;
}

}  // namespace

std::string Fit::describe_live(const Graph& graph, const replay::LiveValue& value) const {
  const Node& node = graph.step().nodes[value.node];
  std::string text = fmt::format("%{}", graph.text(node.name));
  if (node.kind == NodeKind::kPlaceholder) {
    std::size_t i = 0;
    for (const NodeId id : graph.step().order) {
      if (id == value.node) break;
      if (graph.step().nodes[id].kind == NodeKind::kPlaceholder) ++i;
    }
    if (i < graph.inputs.size() && graph.inputs[i].fqn)
      text = fmt::format("{} {}", graph.text(graph.inputs[i].role), graph.text(graph.inputs[i].fqn));
  } else {
    text += fmt::format(" = {}", graph.text(node.target));
    if (node.module) text += fmt::format(" in {}", graph.text(node.module));
  }
  return fmt::format("{} {}", memory_text(static_cast<double>(value.bytes)), text);
}

std::string Fit::describe_peak(const GraphNeed& entry) const {
  if (!entry.need.peak) return "no node";
  const Site site = site_of(entry.run->graph, entry.run->graph.step().nodes[entry.need.peak]);
  std::string text = fmt::format("%{} = {}", site.node, site.op);
  if (!site.module.empty()) text += " in " + site.module;
  if (!site.source.empty()) text += " (" + site.source + ")";
  return text;
}

void Fit::refuse(const Memory& memory) const {
  const GraphNeed& most = largest();
  std::vector<std::string> parts, live;
  for (const Line& line : memory.lines)
    if (line.least >= 1) parts.push_back(fmt::format("{} of {}", memory_text(line.least), line.name));
  for (std::size_t i = 0; i < std::min<std::size_t>(most.need.largest.size(), 4); ++i)
    live.push_back(describe_live(most.run->graph, most.need.largest[i]));
  const Site site =
      most.need.peak ? site_of(most.run->graph, most.run->graph.step().nodes[most.need.peak]) : Site{};
  throw PassError(
      "replay.memory",
      fmt::format("{}: {} need{} {} of {}'s memory ({}), {} are {}; each rank needs most at {}; "
                  "the largest values there: {}",
                  display_name(most.run->input), counted(command_.ranks, "rank"),
                  command_.ranks == 1 ? "s" : "", memory_text(memory.least()), memory.name,
                  fmt::join(parts, ", "), memory_text(memory.there.value_or(0)),
                  memory.is_allowed ? "allowed" : "free", describe_peak(most), fmt::join(live, ", ")),
      site, find_remedy(memory));
}

void Fit::require() const {
  for (const Memory& memory : memories_)
    if (!memory.can_fit()) refuse(memory);
}

void Fit::warn(Console& console) const {
  for (const Memory& memory : memories_)
    if (!memory.fits())
      console.warn(
          fmt::format("this may need up to {} of {}'s memory, of which {} are {}: {} for inputs and "
                      "values, the rest at "
                      "most; --dry-run lists it{}",
                      memory_text(memory.sum()), memory.name, memory_text(*memory.there),
                      memory.is_allowed ? "allowed" : "free", memory_text(memory.least()),
                      std::any_of(needs_.begin(), needs_.end(),
                                  [](const GraphNeed& entry) { return entry.run->has_bounds; })
                          ? ", and --bounds none needs less"
                          : ""));
}

std::string Fit::text() const {
  std::string text;
  for (const Memory& memory : memories_) {
    text += fmt::format("memory of {:<11} {:>12}", memory.name, memory_text(memory.sum()));
    if (memory.there)
      text += fmt::format(" at most, of {} {}: it {}", memory_text(*memory.there),
                          memory.is_allowed ? "allowed" : "free", memory.fits() ? "fits" : "may not fit");
    else if (memory.is_absent)
      text += " at most; no such device is here: --memory GIB says how much there is";
    else
      text += memory.is_emulated ? " at most, of the host's" : " at most";
    text += '\n';
    for (const Line& line : memory.lines)
      text += fmt::format("  {:<17} {:>12}\n", line.name, memory_text(line.bytes));
  }
  double copied = 0, flops = 0, seconds = 0;
  std::size_t kernels = 0, measured = 0, assumed = 0;
  for (const GraphNeed& entry : needs_) {
    copied += entry.copied, flops += entry.flops, seconds += entry.seconds;
    kernels += entry.kernels, measured += entry.measured;
    assumed = std::max(assumed, entry.need.assumed);  // of a rewrite they are the same symbols
  }
  if (copied > 0) text += fmt::format("copied between host and device {}\n", memory_text(copied));
  text += fmt::format("flops               {:.3g}\n", flops);
  text += fmt::format(
      "time                about {}, {}\n", format_seconds(seconds),
      measured == 0 ? std::string("by assumed rates")
                    : fmt::format("{} of {} kernels and collectives by measured costs", measured, kernels));
  const GraphNeed& most = largest();
  text += fmt::format("a rank needs most at {}\n", describe_peak(most));
  for (const replay::LiveValue& value : most.need.largest)
    text += fmt::format("  {}\n", describe_live(most.run->graph, value));
  if (assumed != 0)
    text +=
        fmt::format("{} symbols without a number: rows that experts get are taken to be balanced\n", assumed);
  return text;
}

Json Fit::json() const {
  Json memory = Json::object(), graphs = Json::array();
  for (const Memory& one : memories_) {
    std::vector<std::pair<const char*, double>> lines;
    for (const Line& line : one.lines) lines.emplace_back(line.name, line.bytes);
    memory[one.of] = {{"bytes", static_cast<std::uint64_t>(one.sum())},
                      {"least", static_cast<std::uint64_t>(one.least())},
                      {"limit", one.there ? Json(static_cast<std::uint64_t>(*one.there)) : Json()},
                      {"is_allowed", one.is_allowed},
                      {"parts", describe_lines(lines)}};
  }
  for (const GraphNeed& entry : needs_) {
    Json largest = Json::array();
    for (const replay::LiveValue& value : entry.need.largest)
      largest.push_back({{"node", entry.run->graph.text(entry.run->graph.step().nodes[value.node].name)},
                         {"bytes", value.bytes}});
    Json peak = Json::object();
    if (entry.need.peak)
      add_site(peak, site_of(entry.run->graph, entry.run->graph.step().nodes[entry.need.peak]));
    graphs.push_back({{"file", entry.run->input.path},
                      {"runs", entry.run->runs},
                      {"runs_with_bounds", entry.bounded_runs},
                      {"rank",
                       {{"inputs", entry.need.inputs},
                        {"outputs", entry.need.outputs},
                        {"values", entry.need.values},
                        {"scratch", entry.need.scratch},
                        {"rounding", entry.need.rounding}}},
                      {"peak", std::move(peak)},
                      {"largest", std::move(largest)},
                      {"copied_bytes", static_cast<std::uint64_t>(entry.copied)},
                      {"flops", entry.flops},
                      {"seconds", entry.seconds},
                      {"measured", entry.measured},
                      {"assumed_symbols", entry.need.assumed}});
  }
  return {
      {"fits", std::all_of(memories_.begin(), memories_.end(), [](const Memory& one) { return one.fits(); })},
      {"ranks", command_.ranks},
      {"processes", command_.processes},
      {"deadline", command_.options.deadline == 0 ? deadline() : command_.options.deadline},
      {"memory", std::move(memory)},
      {"graphs", std::move(graphs)}};
}

}  // namespace epweave::cli
