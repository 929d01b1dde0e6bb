#include <fmt/format.h>
#include <regex.h>

#include <algorithm>
#include <memory>

#include "analysis/module_names.h"
#include "analysis/module_path.h"
#include "commands.h"
#include "common/graphs.h"
#include "ir/text/text.h"
#include "node_report.h"
#include "paint.h"

namespace epweave::cli {
namespace {

struct FreeRegex {
  void operator()(regex_t* regex) const {
    ::regfree(regex);
    delete regex;
  }
};

// Which nodes to show.
class Filter {
 public:
  explicit Filter(const PrintOptions& options) : options_(options) {
    if (options.grep.empty()) return;
    auto regex = std::make_unique<regex_t>();
    const int status = ::regcomp(regex.get(), options.grep.c_str(), REG_EXTENDED | REG_NOSUB);
    if (status != 0) {
      char reason[256];
      ::regerror(status, regex.get(), reason, sizeof reason);
      throw UsageError(fmt::format("--grep '{}': {}", options.grep, reason));
    }
    regex_.reset(regex.release());
  }

  bool shows_all() const { return !regex_ && options_.module.empty() && !options_.part; }
  bool shows(const Graph& graph, const Body& body, NodeId id) const {
    return is_in_module(graph, body, id) && is_of_part(graph, body, id) && matches(graph, body, id);
  }

  // Why no node is shown: the first condition that none meets, else that none meets all.
  std::string explain_nothing(const Graph& graph) const {
    if (!has_any(graph, &Filter::is_in_module))
      return fmt::format("--module: {}", describe_no_module(options_.module, list_module_paths(graph)));
    if (!has_any(graph, &Filter::is_of_part))
      return fmt::format("no node is of part {} (--part)", *options_.part);
    if (!has_any(graph, &Filter::matches))
      return fmt::format("no node's line matches '{}' (--grep)", options_.grep);
    std::vector<std::string> conditions;
    if (!options_.module.empty()) conditions.push_back("--module " + options_.module);
    if (options_.part) conditions.push_back(fmt::format("--part {}", *options_.part));
    if (regex_) conditions.push_back(fmt::format("--grep '{}'", options_.grep));
    return fmt::format("some nodes meet each of {}, but none meets all", fmt::join(conditions, ", "));
  }

 private:
  // A condition that was not given is met.
  using Condition = bool (Filter::*)(const Graph& graph, const Body& body, NodeId id) const;

  bool is_in_module(const Graph& graph, const Body& body, NodeId id) const {
    return options_.module.empty() ||
           !match_module(options_.module, graph.text(body.nodes[id].module)).empty();
  }
  bool is_of_part(const Graph&, const Body& body, NodeId id) const {
    return !options_.part || body.nodes[id].chunk.part == options_.part;
  }
  bool matches(const Graph& graph, const Body& body, NodeId id) const {
    if (!regex_) return true;
    const std::string line = print_node(graph, body, id, TextMode::kShort);
    return ::regexec(regex_.get(), line.c_str(), 0, nullptr, 0) == 0;
  }

  bool has_any(const Graph& graph, Condition condition) const {
    return std::ranges::any_of(graph.bodies, [&](const Body& body) {
      return std::ranges::any_of(body.order, [&](NodeId id) { return (this->*condition)(graph, body, id); });
    });
  }

  const PrintOptions& options_;
  std::unique_ptr<regex_t, FreeRegex> regex_;
};

// Of each body, in execution order.
using ShownNodes = std::vector<std::vector<NodeId>>;

ShownNodes list_shown(const Graph& graph, const Filter& filter) {
  ShownNodes shown(graph.bodies.size());
  for (std::size_t i = 0; i < graph.bodies.size(); ++i)
    for (NodeId id : graph.bodies[i].order)
      if (filter.shows(graph, graph.bodies[i], id)) shown[i].push_back(id);
  return shown;
}

// One document, kept greppable: a line for each node. Nested graphs without a node to show are left
// out.
class JsonText {
 public:
  JsonText(const std::string& file, const Graph& graph) : file_(file), graph_(graph), parts_(graph) {}

  std::string print(const ShownNodes& shown) const {
    std::string text =
        fmt::format("{{\"schema\": {}, \"file\": {}, \"nodes\": ", kReportSchema, report_line(file_)) +
        nodes(graph_.step(), shown[0]);
    std::string graphs;
    for (std::size_t i = 1; i < graph_.bodies.size(); ++i) {
      if (shown[i].empty()) continue;
      const Body& body = graph_.bodies[i];
      graphs += fmt::format("{}{}: {}", graphs.empty() ? "" : ",\n", report_line(graph_.text(body.name)),
                            nodes(body, shown[i]));
    }
    if (!graphs.empty()) text += fmt::format(",\n\"graphs\": {{\n{}}}", graphs);
    return text + "}\n";
  }

 private:
  std::string nodes(const Body& body, const std::vector<NodeId>& shown) const {
    std::string text;
    for (NodeId id : shown)
      text += (text.empty() ? "\n" : ",\n") + report_line(node_report(graph_, body, body.nodes[id], parts_));
    return "[" + text + "]";
  }

  const std::string& file_;
  const Graph& graph_;
  const RegionParts parts_;
};

std::string filtered_text(const Graph& graph, TextMode mode, const ShownNodes& shown) {
  std::string text;
  for (std::size_t i = 0; i < graph.bodies.size(); ++i)
    for (NodeId id : shown[i]) text += print_node(graph, graph.bodies[i], id, mode) + "\n";
  return text;
}

}  // namespace

int print(const PrintOptions& options, Console& console) {
  const Filter filter(options);
  const Graph graph = read_sound_input(options.input);
  const TextMode mode = options.full ? TextMode::kFull : TextMode::kShort;
  if (filter.shows_all() && !console.json()) {
    console.print(print_text(graph, mode), paint_nodes);
    return kFine;
  }
  const ShownNodes shown = list_shown(graph, filter);
  if (console.json()) {
    console.print(JsonText(options.input.path, graph).print(shown));
  } else {
    console.print(filtered_text(graph, mode, shown), paint_nodes);
  }
  if (!filter.shows_all() && std::ranges::all_of(shown, &std::vector<NodeId>::empty))
    console.warn(fmt::format("{}: {}", display_name(options.input), filter.explain_nothing(graph)));
  return kFine;
}

}  // namespace epweave::cli
