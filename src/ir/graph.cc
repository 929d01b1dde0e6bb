#include "ir/graph.h"

#include <array>

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

ProvenanceList Context::own(std::span<const Provenance> records) {
  return ProvenanceList(arena_.store(records));
}

NameList Context::own(std::span<const StringId> names) {
  return names.size() == 1 ? NameList(names.front()) : NameList(arena_.store(names));
}

namespace {

// The first `kept` records of the node, and one more.
void set_last_provenance(Context& context, Node& node, std::size_t kept, const Provenance& record) {
  std::array<Provenance, 4> few;
  std::vector<Provenance> many(kept + 1 > few.size() ? kept + 1 : 0);
  const std::span<Provenance> records(many.empty() ? few.data() : many.data(), kept + 1);
  std::copy_n(node.provenance.begin(), kept, records.begin());
  records.back() = record;
  node.provenance = context.own(records);
}

}  // namespace

void append_provenance(Context& context, Node& node, const Provenance& record) {
  set_last_provenance(context, node, node.provenance.size(), record);
}

void replace_last_provenance(Context& context, Node& node, const Provenance& record) {
  set_last_provenance(context, node, node.provenance.size() - 1, record);
}

const Body* Graph::find_body(StringId name) const {
  for (const Body& body : bodies)
    if (body.name == name) return &body;
  return nullptr;
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

bool makes_nodes(ProvenanceRole role) {
  switch (role) {
    case ProvenanceRole::kBody:
    case ProvenanceRole::kSplit:
    case ProvenanceRole::kPartInput:
    case ProvenanceRole::kMaterialize:
    case ProvenanceRole::kSize:
    case ProvenanceRole::kAdded:
      return true;
    case ProvenanceRole::kKept:
    case ProvenanceRole::kMoved:
    case ProvenanceRole::kMerged:
    case ProvenanceRole::kSpecialized:
      return false;
  }
  return false;
}

bool is_copy_record(const Provenance& record) {
  return record.role == ProvenanceRole::kBody && record.parts == 1;
}

NameList origins_of(const Node& node) {
  return node.provenance.empty() ? NameList(node.name) : node.provenance.back().origins;
}

}  // namespace epweave
