// What a rewrite did, on one page.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <deque>

#include "commands.h"
#include "common/command_files.h"
#include "common/graphs.h"
#include "io/file.h"
#include "pipeline/pipeline.h"
#include "rewrite_report.h"

namespace epweave::cli {
namespace {

std::string page_for(const std::string& path, const Json& page) {
  if (path.ends_with(".html")) return page_html(page);
  if (path.ends_with(".md") || path == "-") return page_markdown(page);
  if (path.ends_with(".json")) return report_text(page);
  throw UsageError(
      fmt::format("{}: a report is .html, .md or .json, or - for Markdown on standard output", path));
}

constexpr std::string_view kDefaultCluster = "h100";

// The cluster that the last of the passes between A and B which asks for one was given; or empty.
std::string cluster_of_passes(const Graph& a, const Graph& b) {
  std::string cluster;
  for (std::size_t i = a.passes.size(); i < b.passes.size(); ++i) {
    const PassRun& run = b.passes[i];
    try {
      const Pipeline pipeline = parse_pipeline(fmt::format("{}{{{}}}", run.name, run.options));
      const Options& options = pipeline.calls.front().options;
      if (options.has("cluster")) cluster = options.text("cluster");
    } catch (const std::runtime_error&) {
      // Made by a version with other passes or clusters, or with files that are gone.
      constexpr std::string_view kCluster = "cluster=";
      if (const std::size_t at = run.options.find(kCluster); at != std::string::npos)
        cluster = run.options.substr(at + kCluster.size(), run.options.find(',', at) - at - kCluster.size());
    }
  }
  return cluster;
}

// What was asked for, else what the passes chose for, where that can be read here.
void choose_cluster(const ReportCommand& command, const std::string& planned, PagePrices& prices) {
  if (!command.cluster.empty()) {
    if (!planned.empty() && planned != command.cluster) prices.planned_for = planned;
    return;
  }
  if (planned.empty()) return;
  try {
    prices.cluster = parse_cluster(planned, read_bytes);
  } catch (const std::runtime_error&) {  // its file is gone
    prices.planned_for = planned;
  }
}

}  // namespace

int report(const ReportCommand& command, Console& console) {
  for (const std::string& path : command.outputs) {
    page_for(path, Json());  // a wrong name is said before work starts
    if (path == "-" && console.json())
      throw UsageError("--output - shares standard output with --json: give it a file");
  }
  const std::string asked = command.cluster.empty() ? std::string(kDefaultCluster) : command.cluster;
  PagePrices prices{.cluster = parse_cluster(asked, read_cluster_file), .costs_path = command.costs};
  if (!command.costs.empty())
    prices.costs = MeasuredCosts::parse(read_file_of("--costs", command.costs), command.costs);
  const Graph a = read_sound_input(command.a, nullptr, Soundness::kStructure);
  const Graph b = read_sound_input(command.b, a.context, Soundness::kStructure);
  choose_cluster(command, cluster_of_passes(a, b), prices);
  const Json page = rewrite_page({a, b, command.a.path, command.b.path}, prices);
  std::deque<OutputFile> files;
  for (const std::string& path : command.outputs)
    if (path != "-") files.emplace_back(path).write(page_for(path, page));
  const bool prints = command.outputs.empty() || std::ranges::count(command.outputs, "-") > 0;
  if (console.json())
    console.print(report_text(page));
  else if (prints)
    console.print(page_markdown(page));
  for (OutputFile& file : files) file.commit();
  const bool is_proved = page["verdict"]["proved"].get<bool>();
  if (!prints && !console.json())
    console.info(fmt::format("{}; {} {} it", verdict_text(page), fmt::join(command.outputs, ", "),
                             command.outputs.size() == 1 ? "shows" : "show"));
  return is_proved ? kFine : kDifferent;
}

}  // namespace epweave::cli
