#include "analysis/verify.h"

#include <fmt/format.h>

#include "analysis/missing_types.h"
#include "analysis/verify_changes.h"
#include "analysis/verify_report.h"

namespace epweave {

void report(const Graph& graph, const Body& body, const Node& node, std::string_view invariant,
            std::string message, std::vector<Violation>& out) {
  out.push_back({std::string(invariant), std::move(message), site_of(graph, node), body.name});
}

namespace {

// before: null, or as verify_changes says.
std::vector<Violation> verify_all(const Graph& graph, const Graph* before) {
  std::vector<Violation> found;
  verify_structure(graph, found);
  if (!found.empty()) return found;
  Facts facts(graph);
  if (before == nullptr) {
    verify_types(graph, facts, found);
  } else {
    verify_types(graph, facts, UnchangedCalls(graph, *before), found);
  }
  const std::optional<Graph> completed = write_missing_types(graph);
  const Graph& typed = completed ? *completed : graph;
  verify_communication(typed, facts, found);
  verify_chunking(graph, found);
  verify_regional(graph, found);
  verify_host_reads(typed, found);
  verify_storage(typed, facts, found);
  verify_provenance(graph, found);
  return found;
}

}  // namespace

std::vector<Violation> verify_graph(const Graph& graph) {
  return verify_all(graph, nullptr);
}

std::vector<Violation> verify_changes(const Graph& graph, const Graph& before) {
  return verify_all(graph, &before);
}

std::string print_violation(const Graph& graph, const Violation& violation) {
  std::string where;
  if (!violation.site.node.empty()) {
    where = violation.site.node;
    std::string details = violation.site.op;
    if (!violation.site.module.empty()) details += (details.empty() ? "" : ", ") + violation.site.module;
    if (violation.body)
      details += fmt::format("{}in {}", details.empty() ? "" : ", ", graph.text(violation.body));
    if (!details.empty()) where += fmt::format(" ({})", details);
    where += ": ";
  } else if (violation.body) {
    where = fmt::format("graph {}: ", graph.text(violation.body));
  }
  // One line each, whatever the names hold.
  std::string line = fmt::format("{}: {}{}", violation.invariant, where, violation.message);
  for (std::size_t i = 0; (i = line.find('\n', i)) != line.npos; i += 2) line.replace(i, 1, "\\n");
  return line;
}

}  // namespace epweave
