#include "compare/ranks/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/collectives.h"
#include "analysis/rank_view.h"
#include "analysis/world.h"
#include "ir/walk.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

// A group by what it is on every rank: "mesh_fsdp stride 2 extent 4".
std::string describe_group(const Graph& graph, const ProcessGroup& group, std::uint32_t world_size) {
  std::string text(graph.text(group.description));
  if (group.axes)
    for (StringId axis : *group.axes) text += fmt::format(" {}", graph.text(axis));
  if (const auto rule = find_group_rule(group.ranks, world_size))
    text += fmt::format(" stride {} extent {}", rule->stride, rule->extent);
  else
    text += fmt::format(" of {}", group.ranks.size());
  for (StringId more : {group.priority, group.backend})
    if (more) text += fmt::format(" {}", graph.text(more));
  return text;
}

// Everything that decides what the graph computes, as text, with nodes by position and groups by what they are.
class ContentWriter {
 public:
  ContentWriter(const Graph& graph, std::uint32_t world_size) : graph_(graph), context_(*graph.context) {
    for (const ProcessGroup& group : graph.groups)
      groups_.emplace(group.name, describe_group(graph, group, world_size));
  }

  std::string write() {
    for (const Body& body : graph_.bodies) write_body(body);
    for (const InputRole& input : graph_.inputs)
      text_ += fmt::format("in {} {} {}\n", graph_.text(input.role), graph_.text(input.fqn),
                           graph_.text(input.which));
    for (const OutputRole& output : graph_.outputs)
      text_ += fmt::format("out {} {}\n", graph_.text(output.role), graph_.text(output.fqn));
    for (const Symbol& symbol : graph_.symbols) text_ += fmt::format("symbol {}\n", graph_.text(symbol.name));
    return std::move(text_);
  }
  const std::set<std::string>& used_groups() const { return used_; }

 private:
  void write_body(const Body& body) {
    positions_ = SideTable<NodeId, std::uint32_t>();
    text_ += fmt::format("body {}\n", graph_.text(body.name));
    for (const auto [id, node] : walk(context_, body)) {
      positions_.at(id) = count_++;
      text_ += fmt::format("{} {}", static_cast<int>(node.kind),
                           node.kind == NodeKind::kCall ? graph_.text(node.target) : "");
      position_ = node.op != nullptr ? node.op->find_param("group_name") : std::nullopt;
      write_range(node.args, true);
      write_range(node.kwargs, false);
      if (!node.attr.is_none()) write(node.attr);
      if (node.type) write_type(node.type);
      text_ += '\n';
    }
  }

  void write_range(ArgRange range, bool is_positional) {
    text_ += '(';
    for (std::uint32_t i = 0; i < range.count; ++i) {
      const Arg arg = context_.args[range][i];
      const bool is_keyword_group =
          !is_positional && i % 2 == 1 && is_text(context_.args[range][i - 1], "group_name");
      const bool is_group = (is_positional && position_ && *position_ == i) || is_keyword_group;
      if (is_group && arg.is(ArgKind::kText))
        write_group(arg.as_name());
      else
        write(arg);
      text_ += ',';
    }
    text_ += ')';
  }
  bool is_text(Arg arg, std::string_view text) const {
    return arg.is(ArgKind::kText) && context_.text(arg.as_name()) == text;
  }

  void write_group(StringId name) {
    const auto found = groups_.find(name);
    const std::string text = found == groups_.end() ? std::string(graph_.text(name)) : found->second;
    used_.insert(text);
    text_ += fmt::format("group<{}>", text);
  }

  // Through any rank, it is the same one.
  void write_mesh(Arg arg) {
    const auto mesh = read_mesh(context_, arg);
    if (!mesh) return;
    text_ += "mesh<";
    for (std::size_t d = 0; d < mesh->axes.size(); ++d)
      text_ += fmt::format("{} {},", graph_.text(mesh->axes[d]), mesh->shape[d]);
    if (const auto strides = strides_of(*mesh))
      for (std::uint32_t stride : *strides) text_ += fmt::format("/{}", stride);
    text_ += '>';
  }

  void write_type(TypeId type) {
    if (context_.types[type].kind == TypeKind::kValue) return write(context_.types[type].value);
    text_ += ':';
    text_ += print_type(context_, type);
  }

  void write(Arg arg) {
    text_ += fmt::format("{}", static_cast<int>(arg.kind()));
    switch (arg.kind()) {
      case ArgKind::kNode:
        text_ += fmt::format("%{}", positions_[arg.as_node()]);
        return;
      case ArgKind::kProcessGroup:
        return write_group(arg.as_name());
      case ArgKind::kMesh:
        return write_mesh(arg);
      case ArgKind::kSymbolic:
        text_ += context_.exprs.text(arg.as_expr());
        return;
      case ArgKind::kTypeRef:
        return write_type(arg.as_type());
      case ArgKind::kUnresolved:
      case ArgKind::kText:
      case ArgKind::kDType:
      case ArgKind::kDevice:
      case ArgKind::kLayout:
      case ArgKind::kMemoryFormat:
      case ArgKind::kGraph:
      case ArgKind::kOperator:
        text_ += fmt::format("'{}'", context_.text(arg.as_name()));
        return;
      case ArgKind::kNone:
      case ArgKind::kEllipsis:
        return;
      case ArgKind::kBool:
      case ArgKind::kInt:
      case ArgKind::kReal:
        text_ += fmt::format(" {}", arg.bits());
        return;
      default:
        for (std::uint32_t i = 0; i < arg.children().count; ++i)
          write(context_.args.children(arg)[i]), text_ += ';';
    }
  }

  const Graph& graph_;
  const Context& context_;
  std::string text_;
  std::uint32_t count_ = 0;
  SideTable<NodeId, std::uint32_t> positions_;
  std::optional<std::size_t> position_;  // of the argument that names the group
  std::map<StringId, std::string> groups_;
  std::set<std::string> used_;
};

// Plain data as text.
std::string print_data(const Context& context, Arg arg) {
  if (arg.is(ArgKind::kText)) return std::string(context.text(arg.as_name()));
  if (arg.is_int()) return std::to_string(arg.as_int());
  if (arg.is(ArgKind::kReal)) return fmt::format("{}", arg.as_real());
  if (arg.is(ArgKind::kBool)) return arg.as_bool() ? "True" : "False";
  if (!arg.is_tree()) return "None";
  std::string text;
  const bool is_dict = arg.is(ArgKind::kDict);
  for (std::uint32_t i = 0; i < arg.children().count; ++i)
    text += fmt::format("{}{}",
                        i == 0                  ? ""
                        : is_dict && i % 2 == 1 ? ": "
                                                : ", ",
                        print_data(context, context.args.children(arg)[i]));
  return fmt::format("{}{}{}", is_dict ? '{' : '[', text, is_dict ? '}' : ']');
}

std::string device_kind(const Graph& graph) {
  std::set<std::string> kinds;
  for (const auto [id, node] : walk(graph.step())) {
    if (node.kind != NodeKind::kPlaceholder) break;
    if (const TensorType* tensor = tensor_of(*graph.context, node.type); tensor != nullptr) {
      const std::string_view device = graph.text(tensor->device);
      kinds.emplace(device.substr(0, device.find(':')));
    }
  }
  kinds.erase("cpu");
  return kinds.empty() ? "cpu" : *kinds.begin();
}

}  // namespace

Fingerprint take_fingerprint(const Graph& graph, HashBytes hash) {
  const Context& context = *graph.context;
  const std::uint32_t world_size = read_world(graph).size;
  Fingerprint made;
  ContentWriter content(graph, world_size);
  made["graph"] = hash(content.write());
  std::string& groups = made["groups"];
  for (const std::string& group : content.used_groups()) groups += (groups.empty() ? "" : "; ") + group;
  std::string& passes = made["passes"];
  std::set<std::string> tools;
  for (const PassRun& pass : graph.passes) {
    if (pass.name == "specialize") continue;  // which rank's it is
    passes += fmt::format("{}{}{{{}}}", passes.empty() ? "" : ",", pass.name, pass.options);
    tools.insert(pass.tool);
  }
  std::string& tool = made["tool"];
  for (const std::string& one : tools) tool += (tool.empty() ? "" : ", ") + one;
  made["world_size"] = std::to_string(world_size);
  made["device"] = device_kind(graph);
  made["producer"] = graph.version.producer;
  static constexpr std::pair<const char*, const char*> kRecorded[] = {
      {"meshes", "global_meshes"},  {"model", "model"},
      {"configuration", "config"},  {"options", "options"},
      {"torch", "torch"},           {"stage", "stage"},
      {"torchtitan", "torchtitan"}, {"deterministic", "deterministic"}};
  for (const auto& [field, key] : kRecorded) {
    const Arg* value = find_entry(context, graph.info, key);
    made[field] = value != nullptr ? print_data(context, *value) : "not recorded";
  }
  return made;
}

std::optional<Fingerprint> read_fingerprint(const Graph& graph) {
  const Context& context = *graph.context;
  const Arg* all = find_entry(context, graph.info, kFingerprintKey);
  if (all == nullptr || !all->is(ArgKind::kDict) || all->children().count == 0) return std::nullopt;
  Fingerprint read;
  const auto items = context.args.children(*all);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2)
    if (items[i].is(ArgKind::kText))
      read[std::string(context.text(items[i].as_name()))] = print_data(context, items[i + 1]);
  return read;
}

void write_fingerprint(Graph& graph, const Fingerprint& fingerprint) {
  std::vector<Arg> items;
  for (const auto& [field, value] : fingerprint) {
    items.push_back(Arg::text(graph.intern(field)));
    items.push_back(Arg::text(graph.intern(value)));
  }
  set_info(graph, kFingerprintKey, graph.context->args.add_tree(ArgKind::kDict, items));
}

std::vector<FingerprintMismatch> compare_fingerprints(const Fingerprint& artifact, const Fingerprint& here) {
  std::vector<FingerprintMismatch> found;
  const auto find = [](const Fingerprint& in, const std::string& field) -> std::optional<std::string> {
    const auto at = in.find(field);
    return at == in.end() ? std::nullopt : std::optional(at->second);
  };
  std::set<std::string> fields;
  for (const auto& [field, value] : artifact) fields.insert(field);
  for (const auto& [field, value] : here) fields.insert(field);
  for (const std::string& field : fields) {
    const auto a = find(artifact, field), b = find(here, field);
    if (!a || !b || *a != *b) found.push_back({field, a, b});
  }
  return found;
}

}  // namespace epweave
