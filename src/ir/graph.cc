#include "ir/graph.h"

#include <array>

#include "ir/op.h"

namespace epweave {

std::string_view name_of(ProvenanceRole role) {
  static constexpr std::array<std::string_view, 10> kNames = {"kept",       "moved",       "body", "split",
                                                              "part-input", "materialize", "size", "added",
                                                              "merged",     "specialized"};
  return kNames[static_cast<std::size_t>(role)];
}

const NodeExtra* Context::own(NodeExtra extra) {
  extras_.push_back(std::move(extra));
  return &extras_.back();
}

ProvenanceList Context::own(std::vector<Provenance> records) {
  provenance_.push_back(std::move(records));
  return ProvenanceList(provenance_.back());
}

void append_provenance(Context& context, Node& node, Provenance record) {
  std::vector<Provenance> records(node.provenance.begin(), node.provenance.end());
  records.push_back(std::move(record));
  node.provenance = context.own(std::move(records));
}

void replace_last_provenance(Context& context, Node& node, Provenance record) {
  std::vector<Provenance> records(node.provenance.begin(), node.provenance.end() - 1);
  records.push_back(std::move(record));
  node.provenance = context.own(std::move(records));
}

const Body* Graph::find_body(StringId name) const {
  for (const Body& body : bodies)
    if (body.name == name) return &body;
  return nullptr;
}

void resolve_op(const Context& context, Node& node) {
  node.op = node.kind == NodeKind::kCall ? find_op(context.text(node.target)) : nullptr;
}

const Arg* find_kwarg(const Context& context, const Node& node, std::string_view name) {
  const auto kwargs = context.args[node.kwargs];
  for (std::size_t i = 0; i + 1 < kwargs.size(); i += 2)
    if (context.text(kwargs[i].as_name()) == name) return &kwargs[i + 1];
  return nullptr;
}

const Arg* find_arg(const Context& context, const Node& node, std::size_t position, std::string_view name) {
  const auto args = context.args[node.args];
  return position < args.size() ? &args[position] : find_kwarg(context, node, name);
}

Site site_of(const Graph& graph, const Node& node) {
  // A live trace keeps the whole stack; the last line names the frame.
  std::string source(graph.text(node.source));
  while (!source.empty() && source.back() == '\n') source.pop_back();
  if (auto frame = source.rfind("  File \""); frame != std::string::npos) source = source.substr(frame + 2);
  for (char& c : source)
    if (c == '\n') c = ' ';
  return {std::string(graph.text(node.name)), std::string(graph.text(node.target)),
          std::string(graph.text(node.module)), source};
}

std::vector<StringId> origins_of(const Node& node) {
  return node.provenance.empty() ? std::vector{node.name} : node.provenance.back().origins;
}

}  // namespace epweave
