#include "ir/graph.h"

#include <algorithm>
#include <array>

#include "ir/walk.h"

namespace epweave {

std::string_view name_of(ProvenanceRole role) {
  static constexpr std::array<std::string_view, 10> kNames = {"kept",       "moved",       "body", "split",
                                                              "part-input", "materialize", "size", "added",
                                                              "merged",     "specialized"};
  return kNames[static_cast<std::size_t>(role)];
}

namespace {

// Of all that `==` compares.
std::size_t hash_of(const NodeExtra& extra) {
  std::size_t hash = std::hash<std::string>()(extra.unknown_fields);
  const auto mix = [&](std::size_t value) { hash = mix_hash(hash, value); };
  for (ArgRange range : {extra.custom, extra.meta}) mix(range.begin), mix(range.count);
  mix(extra.py_type.index()), mix(extra.example_type.index());
  for (const auto& [symbol, hint] : extra.chunk_hints)
    mix(symbol.index()), mix(static_cast<std::size_t>(hint));
  for (const auto& [symbol, path] : extra.bindings) mix(symbol.index()), mix(path.begin), mix(path.count);
  return hash;
}

}  // namespace

const NodeExtra* Context::own(NodeExtra extra) {
  extra.custom = args.intern(args[extra.custom]);
  extra.meta = args.intern(args[extra.meta]);
  for (Binding& binding : extra.bindings) binding.path = args.intern(args[binding.path]);
  const std::size_t hash = hash_of(extra);
  const std::uint32_t known = extra_ids_.find(hash, [&](std::uint32_t i) { return extras_[i] == extra; });
  if (known != HashIndex::kNone) return &extras_[known];
  extras_.push_back(std::move(extra));
  extra_ids_.insert(hash, static_cast<std::uint32_t>(extras_.size() - 1));
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

const ProcessGroup* Graph::find_group(StringId name) const {
  for (const ProcessGroup& group : groups)
    if (name && group.name == name) return &group;
  return nullptr;
}

namespace {

void collect_named(const ArgPool& args, Arg arg, std::vector<StringId>& names) {
  if (arg.is(ArgKind::kGraph)) names.push_back(arg.as_name());
  if (arg.is_tree())
    for (Arg child : args.children(arg)) collect_named(args, child, names);
}

}  // namespace

void drop_unnamed_bodies(Graph& graph) {
  if (graph.bodies.size() == 1) return;  // the step
  SideTable<StringId, const Body*> bodies(graph.context->strings.size(), nullptr);
  for (const Body& body : graph.bodies)
    if (body.name) bodies.at(body.name) = &body;
  const ArgPool& args = graph.context->args;
  IdSet<StringId> named;
  std::vector<const Body*> pending = {&graph.step()};
  std::vector<StringId> names;
  while (!pending.empty()) {
    const Body& body = *pending.back();
    pending.pop_back();
    names.clear();
    for (const auto [id, node] : walk(*graph.context, body)) {
      collect_named(args, node.attr, names);
      for (Arg arg : args[node.args]) collect_named(args, arg, names);
      for (Arg arg : args[node.kwargs]) collect_named(args, arg, names);
    }
    for (StringId name : names)
      if (bodies[name] && named.insert(name)) pending.push_back(bodies[name]);
  }
  std::erase_if(graph.bodies, [&](const Body& body) { return body.name && !named.contains(body.name); });
}

StringId recorded_group(const Context& context, const Body& body, Arg group) {
  if (group.is_node()) {
    const TypeId type = body.nodes[group.as_node()].type;
    if (!type || context.types[type].kind != TypeKind::kValue) return {};
    group = context.types[type].value;
  }
  return group.is(ArgKind::kProcessGroup) || group.is(ArgKind::kText) ? group.as_name() : StringId();
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

const Provenance* find_copy_record(const Node& node) {
  const auto found = std::find_if(node.provenance.rbegin(), node.provenance.rend(), is_copy_record);
  return found == node.provenance.rend() ? nullptr : &*found;
}

const Provenance* find_maker(const Node& node) {
  const auto found = std::find_if(node.provenance.rbegin(), node.provenance.rend(),
                                  [](const Provenance& record) { return makes_nodes(record.role); });
  return found == node.provenance.rend() ? nullptr : &*found;
}

NameList origins_of(const Node& node) {
  return node.provenance.empty() ? NameList(node.name) : node.provenance.back().origins;
}

}  // namespace epweave
