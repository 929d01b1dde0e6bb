#include <fmt/format.h>

#include "analysis/verify.h"
#include "commands.h"
#include "common/graphs.h"
#include "common/kept_context.h"
#include "common/report.h"

namespace epweave::cli {
namespace {

Json violation_report(const Graph& graph, const Violation& violation) {
  Json report = {{"invariant", violation.invariant}, {"message", violation.message}};
  add_site(report, violation.site);
  report["graph"] = graph.text(violation.body);  // "" is the step
  return report;
}

}  // namespace

int verify(const InputOptions& options, Console& console) {
  const Graph graph = read_input(options, kept_context());
  const std::vector<Violation> violations = verify_graph(graph);
  if (console.json()) {
    Json list = Json::array();
    for (const Violation& violation : violations) list.push_back(violation_report(graph, violation));
    console.print(
        report_text({{"file", options.path}, {"ok", violations.empty()}, {"violations", std::move(list)}}));
  } else {
    std::string lines;
    for (const Violation& violation : violations) lines += print_violation(graph, violation) + "\n";
    console.print(lines);
  }
  if (violations.empty())
    console.detail(fmt::format("{}: no violations", display_name(options)));
  else
    console.info(fmt::format("{}: {} {}", display_name(options), violations.size(),
                             violations.size() == 1 ? "violation" : "violations"));
  return violations.empty() ? kFine : kDifferent;
}

}  // namespace epweave::cli
