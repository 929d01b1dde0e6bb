// diff(1) for graphs. The one command with exit codes of its own: 0 same, 1 different, 2 trouble.
#include <fmt/format.h>

#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"
#include "compare/diff/diff_html.h"
#include "compare/diff/diff_summary.h"
#include "compare/diff/diff_text.h"
#include "node_report.h"
#include "paint.h"

namespace epweave::cli {
namespace {

Json node_diff_report(const DiffSides& sides, const BodyDiff& body, const NodeDiff& diff) {
  Json changes = Json::array();
  for (int i = 0; i < kChangeKinds; ++i)
    if (const auto change = static_cast<Change>(1U << i); diff.changes.has(change))
      changes.push_back(name_of(change));
  const Node& node = diff.a ? body.a->nodes[diff.a] : body.b->nodes[diff.b.front()];
  Json about;
  if (diff.about)
    about =
        diff.a ? sides.b.text(body.b->nodes[diff.about].name) : sides.a.text(body.a->nodes[diff.about].name);
  const Graph& graph = diff.a ? sides.a : sides.b;
  return {{"a", diff.a ? Json(sides.a.text(body.a->nodes[diff.a].name)) : Json()},
          {"b", diff.b.empty() ? Json::array() : names_report(sides.b, *body.b, diff.b)},
          {"target", graph.text(node.target)},
          {"module", text_or_null(graph.text(node.module))},
          {"direction", node.is_backward() ? "backward" : "forward"},
          {"changes", std::move(changes)},
          {"about", std::move(about)},
          {"details", diff.details}};
}

// One document, kept greppable: a line for each node.
std::string json_text(const DiffSides& sides, const GraphDiff& diff) {
  std::string text =
      fmt::format("{{\"schema\": {}, \"a\": {}, \"b\": {}, \"same\": {}, \"paired_by\": {},\n\"tables\": [",
                  kReportSchema, report_line(file_report(sides.name_a)),
                  report_line(file_report(sides.name_b)), diff.is_same(), report_line(name_of(diff.pairing)));
  bool first = true;
  for (const TableDiff& row : diff.tables) {
    text += std::exchange(first, false) ? "\n" : ",\n";
    text += report_line(
        {{"table", row.table}, {"before", text_or_null(row.before)}, {"after", text_or_null(row.after)}});
  }
  text += "],\n\"graphs\": [";
  for (const BodyDiff& body : diff.bodies) {
    text += fmt::format("{}\n{{\"name\": {}, \"same_nodes\": {}, \"nodes\": [",
                        &body == &diff.bodies.front() ? "" : ",", report_line(sides.a.text(body.name)),
                        body.same);
    first = true;
    for (const NodeDiff& node : body.nodes)
      text += (std::exchange(first, false) ? "\n" : ",\n") + report_line(node_diff_report(sides, body, node));
    text += "]}";
  }
  return text + "]}\n";
}

Json rows_report(const std::map<std::string, DiffRow>& rows) {
  Json report = Json::object();
  for (const auto& [name, row] : rows)
    if (row.differs())
      report[name] = {{"before", row.before}, {"after", row.after},     {"divided", row.divided},
                      {"added", row.added},   {"removed", row.removed}, {"changed", row.changed},
                      {"moved", row.moved}};
  return report;
}

Json summary_report(const DiffSides& sides, const GraphDiff& diff) {
  const DiffSummary summary = summarize_diff(sides.a, sides.b, diff);
  Json changes = Json::object(), tables = Json::object();
  for (std::size_t i = 0; i < summary.counts.size(); ++i)
    if (summary.counts[i] != 0)
      changes[std::string(name_of(static_cast<Change>(1U << i)))] = summary.counts[i];
  for (const auto& [table, rows] : summary.tables)
    tables[table] = {{"added", rows.added}, {"removed", rows.removed}, {"changed", rows.changed}};
  return {{"a", file_report(sides.name_a)},  {"b", file_report(sides.name_b)},
          {"same", diff.is_same()},          {"paired_by", name_of(diff.pairing)},
          {"same_nodes", summary.same},      {"changes", std::move(changes)},
          {"parts", summary.parts},          {"merged", summary.merged},
          {"added", Json(summary.added)},    {"tables", std::move(tables)},
          {"ops", rows_report(summary.ops)}, {"modules", rows_report(summary.modules)}};
}

DiffOptions ignore(const std::vector<std::string>& kinds) {
  DiffOptions options;
  for (const std::string& kind : kinds) {
    if (kind == "names") options.names = false;
    if (kind == "order") options.order = false;
    if (kind == "metadata") options.metadata = false;
    if (kind == "types") options.types = false;
    if (kind == "provenance") options.provenance = false;
  }
  return options;
}

}  // namespace

int diff(const DiffCommand& command, Console& console) {
  if (command.summary && command.full)
    throw UsageError("--summary counts and --full lists everything: give one of them");
  if (command.html == "-" && (console.json() || command.summary || command.full))
    throw UsageError("the page and another listing cannot both go to standard output: give --html FILE");
  const Graph a = read_sound_input(command.a, nullptr, Soundness::kStructure);
  const Graph b = read_sound_input(command.b, a.context, Soundness::kStructure);
  const GraphDiff diff = diff_graphs(a, b, ignore(command.ignore));
  const DiffSides sides{a, b, command.a.path, command.b.path};
  if (!command.html.empty()) write_bytes(command.html, print_diff_html(sides, diff));
  if (console.json()) {
    console.print(command.summary ? report_text(summary_report(sides, diff)) : json_text(sides, diff));
  } else if (command.summary) {
    if (!diff.is_same()) console.print(print_diff_summary(sides, diff));
  } else if (command.html.empty() || command.full) {
    const std::string text =
        print_diff(sides, diff, command.full ? Listing::kEverything : Listing::kReadable);
    console.print(text, paint_difference);
  }
  return diff.is_same() ? kFine : kDifferent;
}

}  // namespace epweave::cli
