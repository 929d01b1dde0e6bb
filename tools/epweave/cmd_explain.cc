// What a node is, where it comes from, and what it has to do with the nodes around it.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/collectives.h"
#include "analysis/users.h"
#include "base/nearest_name.h"
#include "chunk_facts.h"
#include "commands.h"
#include "common/graphs.h"
#include "ir/text/text.h"
#include "node_captions.h"
#include "node_report.h"
#include "ops/op.h"

namespace epweave::cli {
namespace {

// The nodes that run between a launch and the first wait for it.
struct Exchange {
  NodeId launch, wait;
  std::vector<NodeId> hidden;  // with a kernel of their own
};

Exchange find_exchange(const Graph& graph, const Body& body, NodeId id, const NodeLists& users) {
  Exchange exchange;
  exchange.launch = is_launch(body.nodes[id]) ? id : find_waited_launch(*graph.context, body, id);
  if (!exchange.launch) return exchange;
  for (NodeId user : users[exchange.launch])
    if (!exchange.wait && is_wait(body.nodes[user])) exchange.wait = user;
  if (!exchange.wait) return exchange;
  const auto position = find_positions(body, body.order);
  for (std::uint32_t i = position[exchange.launch] + 1; i < position[exchange.wait]; ++i) {
    const Node& node = body.nodes[body.order[i]];
    const bool is_compute =
        node.op != nullptr && node.op->cost != CostClass::kFree && !is_launch(node) && !is_wait(node);
    if (is_compute) exchange.hidden.push_back(body.order[i]);
  }
  return exchange;
}

std::string print_record(const Graph& graph, const Provenance& record) {
  std::string text = fmt::format("{} {}", graph.text(record.pass), name_of(record.role));
  if (record.parts != 0) text += fmt::format(" (part {} of {})", record.part, record.parts);
  for (StringId origin : record.origins) text += fmt::format(" %{}", graph.text(origin));
  if (record.region) text += fmt::format(" in {}", graph.text(record.region));
  if (record.backward) text += *record.backward ? " backward" : " forward";
  if (record.reason) text += fmt::format(": {}", graph.text(record.reason));
  return text;
}

struct ExplainedNode {
  const std::string& file;
  const Graph& graph;
  const Body& body;
  NodeId id;
  NodeLists inputs, users;
  Exchange exchange;
  std::optional<ChunkFacts> chunk;
  std::size_t position;
};

// Of nested graphs none.
std::vector<std::string> roles_of(const ExplainedNode& e) {
  return &e.body == &e.graph.step() ? NodeCaptions(e.graph).roles(e.id) : std::vector<std::string>();
}

Json explain_report(const ExplainedNode& e) {
  const Node& node = e.body.nodes[e.id];
  Json report = file_report(e.file);
  report.update(node_report(e.graph, e.body, node, RegionParts(e.graph)));
  report["graph"] = e.graph.text(e.body.name);
  report["position"] = e.position;
  report["roles"] = roles_of(e);
  report["users"] = names_report(e.graph, e.body, e.users[e.id]);
  report["source"] = text_or_null(site_of(e.graph, node).source);
  Json& records = report["provenance"] = Json::array();
  for (const Provenance& record : node.provenance) records.push_back(print_record(e.graph, record));
  if (e.chunk) report["divided"] = chunk_facts_report(e.graph, e.body, *e.chunk);
  if (e.exchange.wait)
    report["exchange"] = {{"launch", e.graph.text(e.body.nodes[e.exchange.launch].name)},
                          {"wait", e.graph.text(e.body.nodes[e.exchange.wait].name)},
                          {"runs_meanwhile", names_report(e.graph, e.body, e.exchange.hidden)}};
  return report;
}

void list_lines(std::string& text, std::string_view title, const ExplainedNode& e,
                std::span<const NodeId> nodes) {
  constexpr std::size_t kShown = 12;
  if (nodes.empty()) return;
  text += fmt::format("\n{}\n", title);
  for (std::size_t i = 0; i < std::min(kShown, nodes.size()); ++i)
    text += fmt::format("  {}\n", print_node(e.graph, e.body, nodes[i], TextMode::kShort));
  if (nodes.size() > kShown) text += fmt::format("  and {} more\n", nodes.size() - kShown);
}

std::string explain_text(const ExplainedNode& e) {
  const Node& node = e.body.nodes[e.id];
  std::string text = print_node(e.graph, e.body, e.id, TextMode::kShort) + "\n";
  text += fmt::format("node {} of {}{}\n", e.position + 1, e.body.order.size(),
                      e.body.name ? fmt::format(" of graph {}", e.graph.text(e.body.name)) : "");
  for (const std::string& role : roles_of(e)) text += role + "\n";
  if (const std::string source = site_of(e.graph, node).source; !source.empty())
    text += fmt::format("from {}\n", source);
  if (node.chunk.region)
    text += fmt::format(
        "in region {}, {}{}\n", e.graph.text(node.chunk.region), e.graph.text(node.chunk.role),
        node.chunk.part ? fmt::format(", part {} of {}", *node.chunk.part, RegionParts(e.graph)[node]) : "");
  if (find_copy_record(node) != nullptr)
    text += fmt::format("computed again: %{} of the input graph is what it computes\n",
                        e.graph.text(origins_of(node).front()));
  if (e.chunk)
    for (const std::string& line : print_chunk_facts(e.graph, e.body, *e.chunk)) text += line + "\n";
  if (!node.provenance.empty()) text += "\nwhat passes did, oldest first\n";
  for (const Provenance& record : node.provenance)
    text += fmt::format("  {}\n", print_record(e.graph, record));
  list_lines(text, "takes", e, e.inputs[e.id]);
  list_lines(text, "is taken by", e, e.users[e.id]);
  if (e.exchange.wait)
    list_lines(text,
               fmt::format("runs between %{} and %{} ({} kernels)",
                           e.graph.text(e.body.nodes[e.exchange.launch].name),
                           e.graph.text(e.body.nodes[e.exchange.wait].name), e.exchange.hidden.size()),
               e, e.exchange.hidden);
  return text;
}

// A name of the graph before: what the node became.
int explain_origin(const Graph& graph, const std::string& file, const std::string& name, Console& console) {
  for (const Body& body : graph.bodies) {
    const auto facts = find_chunk_facts(graph, body, name, list_users(*graph.context, body));
    if (!facts) continue;
    if (console.json()) {
      console.print(report_text(
          {{"file", file}, {"name", name}, {"divided", chunk_facts_report(graph, body, *facts)}}));
      return kFine;
    }
    std::string text;
    for (const std::string& line : print_chunk_facts(graph, body, *facts)) text += line + "\n";
    text += "\nits parts\n";
    for (NodeId id : facts->parts)
      text += fmt::format("  {}\n", print_node(graph, body, id, TextMode::kShort));
    if (facts->whole)
      text += fmt::format("\nits whole\n  {}\n", print_node(graph, body, facts->whole, TextMode::kShort));
    console.print(text);
    return kFine;
  }
  return kUsage;
}

std::string did_you_mean(const Graph& graph, const std::string& name) {
  std::vector<std::string_view> names;
  for (const Body& body : graph.bodies)
    for (NodeId id : body.order) names.push_back(graph.text(body.nodes[id].name));
  const std::string_view near = nearest_name(name, names);
  return near.empty() ? ";" : fmt::format("; did you mean '{}'?", near);
}

}  // namespace

int explain(const ExplainOptions& options, Console& console) {
  const Graph graph = read_sound_input(options.input);
  std::string name = options.node;
  if (name.starts_with('%')) name.erase(0, 1);
  for (const Body& body : graph.bodies) {
    const auto at =
        std::ranges::find_if(body.order, [&](NodeId id) { return graph.text(body.nodes[id].name) == name; });
    if (at == body.order.end()) continue;
    NodeLists inputs = list_inputs(*graph.context, body);
    NodeLists users = invert(inputs, body.order);
    Exchange exchange = find_exchange(graph, body, *at, users);
    std::optional<ChunkFacts> chunk;
    if (const auto origin = divided_origin(graph, body.nodes[*at]))
      chunk = find_chunk_facts(graph, body, *origin, users);
    const ExplainedNode explained{options.input.path,
                                  graph,
                                  body,
                                  *at,
                                  std::move(inputs),
                                  std::move(users),
                                  std::move(exchange),
                                  std::move(chunk),
                                  static_cast<std::size_t>(at - body.order.begin())};
    console.print(console.json() ? report_text(explain_report(explained)) : explain_text(explained));
    return kFine;
  }
  if (explain_origin(graph, options.input.path, name, console) == kFine) return kFine;
  throw UsageError(fmt::format("{} has no node '{}'{} `epweave print G --grep REGEX` finds names",
                               display_name(options.input), name, did_you_mean(graph, name)));
}

}  // namespace epweave::cli
