// What a rewrite did, on one page.
#include <fmt/format.h>

#include <deque>

#include "commands.h"
#include "common/graphs.h"
#include "io/file.h"
#include "rewrite_report.h"

namespace epweave::cli {
namespace {

std::string page_for(const std::string& path, const Json& page) {
  if (path.ends_with(".html")) return page_html(page);
  if (path.ends_with(".md")) return page_markdown(page);
  if (path.ends_with(".json")) return report_text(page);
  throw UsageError(fmt::format("{}: a report is .html, .md or .json", path));
}

}  // namespace

int report(const ReportCommand& command, Console& console) {
  for (const std::string& path : command.outputs)
    page_for(path, Json());  // a wrong name is said before work starts
  PagePrices prices{.cluster = parse_cluster(command.cluster, read_bytes), .costs_path = command.costs};
  if (!command.costs.empty()) prices.costs = MeasuredCosts::parse(read_bytes(command.costs), command.costs);
  const Graph a = read_sound_input(command.a, nullptr, Soundness::kStructure);
  const Graph b = read_sound_input(command.b, a.context, Soundness::kStructure);
  const Json page = rewrite_page({a, b, command.a.path, command.b.path}, prices);
  std::deque<OutputFile> files;
  for (const std::string& path : command.outputs) files.emplace_back(path).write(page_for(path, page));
  for (OutputFile& file : files) file.commit();
  if (console.json()) {
    console.print(report_text(page));
  } else if (command.outputs.empty()) {
    console.print(page_markdown(page));
  }
  return page["verdict"]["proved"].get<bool>() ? kFine : kDifferent;
}

}  // namespace epweave::cli
