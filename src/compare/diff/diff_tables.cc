#include "compare/diff/diff_tables.h"

#include <map>
#include <sstream>

#include "ir/text/text_printer.h"

namespace epweave {
namespace {

using TableRows = std::vector<std::pair<std::string, std::string>>;  // key, text

// Rows with the same key are compared, others are added or removed.
void compare_rows(const std::string& table, const TableRows& a, const TableRows& b,
                  std::vector<TableDiff>& out) {
  std::map<std::string_view, std::string_view> after(b.begin(), b.end()), before(a.begin(), a.end());
  for (const auto& [key, text] : a) {
    const auto found = after.find(key);
    if (found == after.end()) {
      out.push_back({table, text, ""});
    } else if (found->second != text) {
      out.push_back({table, text, std::string(found->second)});
    }
  }
  for (const auto& [key, text] : b)
    if (!before.contains(key)) out.push_back({table, "", text});
}

class TablePrinter {
 public:
  explicit TablePrinter(const Graph& graph) : graph_(graph), printer_(graph, StringId()) {}

  TableRows symbols() {
    TableRows rows;
    for (const Symbol& symbol : graph_.symbols)
      rows.emplace_back(graph_.text(symbol.name), line([&] { printer_.symbol(symbol); }));
    return rows;
  }
  TableRows groups() {
    TableRows rows;
    for (const ProcessGroup& group : graph_.groups)
      rows.emplace_back(graph_.text(group.name), line([&] { printer_.group(group); }));
    return rows;
  }
  TableRows inputs(bool with_names) {
    TableRows rows;
    for (InputRole input : graph_.inputs) {
      if (!with_names) input.name = StringId();
      rows.emplace_back(std::to_string(rows.size()), line([&] { printer_.input(input); }));
    }
    return rows;
  }
  TableRows outputs() {
    TableRows rows;
    for (const OutputRole& output : graph_.outputs)
      rows.emplace_back(std::to_string(rows.size()), line([&] { printer_.output(output); }));
    return rows;
  }
  TableRows info() {
    std::istringstream lines(line([&] { printer_.graph_info(graph_.info); }));
    TableRows rows;
    for (std::string text; std::getline(lines, text);)
      rows.emplace_back(text.substr(0, text.find(" = ")), text);
    return rows;
  }
  TableRows passes() {
    TableRows rows;
    for (const PassRun& run : graph_.passes)
      rows.emplace_back(std::to_string(rows.size()), line([&] { printer_.pass_run(run); }));
    return rows;
  }

 private:
  template <class Print>
  std::string line(const Print& print) {
    print();
    std::string text = printer_.take();
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }

  const Graph& graph_;
  text::Printer printer_;
};

}  // namespace

std::vector<TableDiff> diff_tables(const Graph& a, const Graph& b, const DiffOptions& options) {
  std::vector<TableDiff> out;
  TablePrinter before(a), after(b);
  compare_rows("group", before.groups(), after.groups(), out);
  compare_rows("symbol", before.symbols(), after.symbols(), out);
  compare_rows("input", before.inputs(options.names), after.inputs(options.names), out);
  compare_rows("output", before.outputs(), after.outputs(), out);
  if (options.metadata) compare_rows("info", before.info(), after.info(), out);
  if (options.provenance) compare_rows("pass", before.passes(), after.passes(), out);
  return out;
}

}  // namespace epweave
