// For tests of passes: graphs from text, and their code as text.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "ir/text/text.h"

namespace epweave {

// The graph of a text without its first line: roles, symbols, then "graph" and its nodes.
inline Graph parse_test_graph(std::string_view text) {
  return parse_text(fmt::format("epweave text 1\n{}", text), "test");
}

// Names, targets and arguments of all nodes, in order; nested graphs behind a line with their name.
inline std::string print_code(Graph graph) {
  std::string text;
  for (Body& body : graph.bodies) {
    if (body.name) text += fmt::format("graph {}\n", graph.text(body.name));
    for (NodeId id : body.order) {
      Node bare;
      const Node& node = body.nodes[id];
      bare.name = node.name;
      bare.target = node.target;
      bare.op = node.op;
      bare.kind = node.kind;
      bare.args = node.args;
      bare.kwargs = node.kwargs;
      bare.attr = node.attr;
      body.nodes[id] = bare;
      std::string line = print_node(graph, body, id, TextMode::kFull);
      line.erase(0, line.find_first_not_of(" \n"));
      while (!line.empty() && line.back() == '\n') line.pop_back();
      text += fmt::format("{}\n", line);
    }
  }
  return text;
}

// The records of a node: "canonicalize merged x view", one per line.
inline std::string print_records(const Graph& graph, std::string_view name) {
  std::string text;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (graph.text(node.name) != name) continue;
    for (const Provenance& record : node.provenance) {
      text += fmt::format("{} {}", graph.text(record.pass), name_of(record.role));
      for (StringId origin : record.origins) text += fmt::format(" {}", graph.text(origin));
      text += "\n";
    }
  }
  return text;
}

}  // namespace epweave
