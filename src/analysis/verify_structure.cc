#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "analysis/verify_report.h"
#include "analysis/world.h"
#include "ir/walk.h"

namespace epweave {
namespace {

// The structure of one body.
class BodyCheck {
 public:
  // `names`: room for those of the nodes, empty before and after; bodies share it, for it may be as
  // large as the table of strings.
  BodyCheck(const Graph& graph, const Body& body, IdSet<StringId>& names, std::vector<Violation>& out)
      : graph_(graph), body_(body), names_(names), out_(out), states_(body.nodes.size(), State::kAbsent) {}

  // Returns false where the order itself is broken.
  bool check_order() {
    bool is_sound = true;
    for (NodeId id : body_.order) {
      if (!body_.nodes.contains(id)) {
        add("order", fmt::format("lists node {}, the table has {}", id.index(), body_.nodes.size()));
        is_sound = false;
      } else if (states_[id] != State::kAbsent) {
        add_at(id, "order", "executes twice");
        is_sound = false;
      } else {
        states_[id] = State::kLater;
      }
    }
    return is_sound;
  }

  void check_nodes() {
    bool is_past_inputs = false;
    std::size_t outputs = 0;
    for (const auto [id, node] : walk(*graph_.context, body_)) {
      if (!node.name) {
        add_at(id, "unique-names", "has no name");
      } else if (!names_.insert(node.name)) {
        add_at(id, "unique-names", "another node has the same name");
      }
      if (node.kind != NodeKind::kPlaceholder) {
        is_past_inputs = true;
      } else if (is_past_inputs) {
        add_at(id, "placeholders", "comes after a node that is not a placeholder");
      }
      check_args(id, node.args);
      check_args(id, node.kwargs);
      if (node.kwargs.count > 2) check_keywords(id, node);
      if (node.kind == NodeKind::kGetAttr) check_arg(id, node.attr);
      outputs += node.kind == NodeKind::kOutput;
      states_[id] = node.kind == NodeKind::kOutput ? State::kOutput : State::kValue;
    }
    for (NodeId id : body_.order)
      if (body_.nodes[id].name) names_.erase(body_.nodes[id].name);
    check_output(outputs);
  }

 private:
  // Of a node of the table, as the walk has come to it.
  enum class State : std::uint8_t { kAbsent, kLater, kValue, kOutput };

  void check_args(NodeId id, ArgRange range) {
    for (const Arg arg : graph_.context->args[range]) {
      const bool is_value =
          arg.is_node() && body_.nodes.contains(arg.as_node()) && states_[arg.as_node()] == State::kValue;
      if (!is_value) check_arg(id, arg);  // nearly all are: that is inlined
    }
  }

  void check_arg(NodeId id, Arg arg) {
    switch (arg.kind()) {
      case ArgKind::kNode:
        check_reference(id, arg.as_node());
        break;
      case ArgKind::kUnresolved:
        add_at(id, "resolved-refs",
               fmt::format("refers to {}, which no node is named", graph_.text(arg.as_name())));
        break;
      case ArgKind::kGraph:
        if (graph_.find_body(arg.as_name()) == nullptr)
          add_at(id, "nested-graphs", fmt::format("there is no graph {}", graph_.text(arg.as_name())));
        break;
      default:
        if (arg.is_tree()) check_args(id, arg.children());
    }
  }

  void check_reference(NodeId id, NodeId to) {
    const bool is_node = body_.nodes.contains(to);
    const State state = is_node ? states_[to] : State::kAbsent;
    if (state == State::kValue) return;
    if (state == State::kAbsent) {
      add_at(id, "resolved-refs",
             fmt::format("refers to {}, which does not execute",
                         is_node ? graph_.text(body_.nodes[to].name) : "no node"));
      return;
    }
    const Node& source = body_.nodes[to];
    if (source.kind == NodeKind::kOutput)
      add_at(id, "one-output", fmt::format("refers to the output node {}", graph_.text(source.name)));
    if (state == State::kLater)
      add_at(id, "defined-first",
             fmt::format("executes before {}, which it refers to", graph_.text(source.name)));
  }

  void check_keywords(NodeId id, const Node& node) {
    const auto kwargs = graph_.context->args[node.kwargs];
    for (std::size_t i = 0; i + 1 < kwargs.size(); i += 2)
      for (std::size_t j = i + 2; j + 1 < kwargs.size(); j += 2)
        if (kwargs[i] == kwargs[j])
          add_at(id, "kwargs", fmt::format("'{}' is given twice", graph_.text(kwargs[i].as_name())));
  }

  void check_output(std::size_t outputs) {
    if (outputs != 1) {
      add("one-output", fmt::format("{} output nodes, not 1", outputs));
    } else if (body_.nodes[body_.order.back()].kind != NodeKind::kOutput) {
      add("one-output", "the output node is not the last");
    }
  }

  void add(std::string_view invariant, std::string message) {
    out_.push_back({std::string(invariant), std::move(message), {}, body_.name});
  }
  void add_at(NodeId id, std::string_view invariant, std::string message) {
    report(graph_, body_, body_.nodes[id], invariant, std::move(message), out_);
  }

  const Graph& graph_;
  const Body& body_;
  IdSet<StringId>& names_;
  std::vector<Violation>& out_;
  IdVector<NodeId, State> states_;
};

void check_inputs(const Graph& graph, std::vector<Violation>& out) {
  const Body& step = graph.step();
  std::size_t at = 0;
  for (NodeId id : step.order) {
    const Node& node = step.nodes[id];
    if (node.kind != NodeKind::kPlaceholder) continue;
    if (at < graph.inputs.size() && graph.inputs[at].name != node.name)
      report(graph, step, node, "placeholders",
             fmt::format("input role {} is for {}", at, graph.text(graph.inputs[at].name)), out);
    ++at;
  }
  if (at != graph.inputs.size())
    out.push_back(
        {"placeholders", fmt::format("{} placeholders, {} input roles", at, graph.inputs.size()), {}, {}});
}

void check_outputs(const Graph& graph, std::vector<Violation>& out) {
  const Body& step = graph.step();
  if (step.order.empty() || step.nodes[step.order.back()].kind != NodeKind::kOutput) return;
  const Node& node = step.nodes[step.order.back()];
  const auto args = graph.context->args[node.args];
  if (args.size() != 1) return report(graph, step, node, "outputs", "does not return one value or list", out);
  const std::size_t count = args[0].is_list() ? args[0].children().count : 1;
  if (count != graph.outputs.size())
    report(graph, step, node, "outputs",
           fmt::format("returns {} values, {} have a role", count, graph.outputs.size()), out);
}

void check_names(const Graph& graph, std::vector<Violation>& out) {
  std::unordered_set<StringId> bodies;
  IdSet<StringId> symbols;
  for (const Body& body : graph.bodies)
    if (!bodies.insert(body.name).second)
      out.push_back({"nested-graphs", "another graph has the same name", {}, body.name});
  for (const Symbol& symbol : graph.symbols)
    if (symbol.name && !symbols.insert(symbol.name))
      out.push_back({"symbols", fmt::format("{} is in the table twice", graph.text(symbol.name)), {}, {}});
}

// A number that the graph records; what is none, or too small, does not pass for one that is not
// recorded.
std::optional<std::int64_t> read_number(const Graph& graph, std::string_view key, std::int64_t least,
                                        std::vector<Violation>& out) {
  const Arg* value = find_entry(*graph.context, graph.info, key);
  if (value == nullptr) return std::nullopt;
  if (value->is_int() && value->as_int() >= least) return value->as_int();
  out.push_back({"world", fmt::format("info {} is no whole number from {}", key, least), {}, {}});
  return std::nullopt;
}

void check_world(const Graph& graph, std::vector<Violation>& out) {
  const auto rank = read_number(graph, "rank", 0, out), size = read_number(graph, "world_size", 1, out);
  if (rank && size && *rank >= *size)
    out.push_back(
        {"world", fmt::format("the graph is of rank {}, the world has {} ranks", *rank, *size), {}, {}});
}

}  // namespace

void verify_structure(const Graph& graph, std::vector<Violation>& out) {
  if (graph.bodies.empty() || graph.bodies.front().name) {
    out.push_back({"step-present", "the first graph is not the step", {}, {}});
    return;
  }
  check_names(graph, out);
  check_world(graph, out);
  IdSet<StringId> names;
  for (const Body& body : graph.bodies) {
    BodyCheck check(graph, body, names, out);
    if (check.check_order()) check.check_nodes();
  }
  if (!out.empty()) return;
  check_inputs(graph, out);
  check_outputs(graph, out);
}

}  // namespace epweave
