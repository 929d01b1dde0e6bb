#include "node_captions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "analysis/ep_regions.h"
#include "analysis/returned_values.h"
#include "ops/op.h"

namespace epweave::cli {
namespace {

// "mm" of "aten.mm.default".
std::string_view short_op(std::string_view target) {
  const std::size_t last = target.rfind('.');
  if (last == target.npos) return target;
  const std::size_t before = target.rfind('.', last - 1);
  return before == target.npos ? target.substr(last + 1) : target.substr(before + 1, last - before - 1);
}

std::string print_role(const Graph& graph, const InputRole& role) {
  const std::string_view fqn = graph.text(role.fqn), which = graph.text(role.which);
  const std::string_view name = !fqn.empty() ? fqn : !which.empty() ? which : graph.text(role.name);
  return fmt::format("{}{}{}", graph.text(role.role), role.role ? " " : "", name);
}

}  // namespace

NodeCaptions::NodeCaptions(const Graph& graph) : graph_(graph) {
  for (const InputRole& role : graph.inputs) roles_.at(role.name) = &role;
}

const InputRole* NodeCaptions::role_of(NodeId id) const {
  const Node& node = graph_.step().nodes[id];
  return node.kind == NodeKind::kPlaceholder ? roles_[node.name] : nullptr;
}

const InputRole* NodeCaptions::source_input(NodeId id) const {
  constexpr int kReach = 16;
  for (int hops = 0; id && hops < kReach; ++hops) {
    if (const InputRole* role = role_of(id)) return role->fqn ? role : nullptr;
    NodeId next;
    std::size_t inputs = 0;
    for_each_input(*graph_.context, graph_.step().nodes[id], [&](NodeId input) {
      if (inputs++ == 0) next = input;
    });
    if (inputs != 1) return nullptr;
    id = next;
  }
  return nullptr;
}

std::vector<std::string> NodeCaptions::roles(NodeId id) const {
  std::vector<std::string> roles;
  if (const InputRole* role = role_of(id); role != nullptr && role->role)
    roles.push_back(print_role(graph_, *role));
  const std::vector<NodeId> outputs = list_outputs(graph_);
  for (std::size_t i = 0; i < std::min(outputs.size(), graph_.outputs.size()); ++i)
    if (outputs[i] == id && graph_.outputs[i].role)
      roles.push_back(describe_output(graph_, graph_.outputs[i]));
  return roles;
}

std::string NodeCaptions::what(NodeId id) const {
  const Node& node = graph_.step().nodes[id];
  if (const InputRole* role = role_of(id)) return print_role(graph_, *role);
  if (node.kind == NodeKind::kPlaceholder) return fmt::format("input {}", graph_.text(node.name));
  if (node.kind == NodeKind::kOutput) return "what the step returns";
  const std::string_view label = graph_.text(node.ep.token_exchange);
  std::string text(label.empty() ? short_op(graph_.text(node.target)) : label);
  if (label.empty())
    if (const InputRole* input = source_input(id)) text += fmt::format(" of {}", graph_.text(input->fqn));
  if (node.chunk.part) text += fmt::format(", part {}", *node.chunk.part);
  return text;
}

std::string NodeCaptions::where(NodeId id) const {
  const Node& node = graph_.step().nodes[id];
  const std::string_view module = graph_.text(node.module ? node.module : node.chunk.region);
  if (module.empty()) return node.is_backward() ? "backward" : "";
  return fmt::format("{}{}", module, is_in_backward_region(node) ? " backward" : "");
}

std::string NodeCaptions::source(NodeId id) const {
  std::string text = site_of(graph_, graph_.step().nodes[id]).source;
  if (text.empty()) return text;
  std::string line;
  if (text.starts_with("File \"")) {  // File "/a/model.py", line 12, in forward
    const std::size_t quote = text.find('"', 6), number = text.find("line ", quote);
    if (quote == text.npos || number == text.npos) return text;
    line = text.substr(number + 5, text.find_first_not_of("0123456789", number + 5) - number - 5);
    text = text.substr(6, quote - 6);
  } else if (const std::size_t in = text.find(" in "); in != text.npos) {  // /a/model.py:12 in forward: x @ w
    text.resize(in);
  }
  text.erase(0, text.rfind('/') + 1);  // npos + 1 is 0
  return line.empty() ? text : text + ":" + line;
}

std::string NodeCaptions::with_input_names(std::string_view text) const {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    if (text[i] == '%')
      while (end < text.size() &&
             (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_'))
        ++end;
    const InputRole* role = end > i + 1 ? roles_[graph_.intern(text.substr(i + 1, end - i - 1))] : nullptr;
    out += role != nullptr ? print_role(graph_, *role) : std::string(text.substr(i, end - i));
    i = end;
  }
  return out;
}

}  // namespace epweave::cli
