#include "compare/ranks/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <concepts>
#include <set>
#include <utility>

#include "analysis/collectives.h"
#include "analysis/devices_on_rank.h"
#include "analysis/rank_view.h"
#include "analysis/world.h"
#include "ir/walk.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

// A group by what it is on every rank: "mesh_fsdp fsdp stride 2 extent 4 of nccl".
std::string describe_group(const Graph& graph, const ProcessGroup& group, std::uint32_t world_size) {
  std::string text(graph.text(group.description));
  if (group.axes)
    for (StringId axis : *group.axes) text += fmt::format(" {}", graph.text(axis));
  if (const auto rule = find_group_rule(group.ranks, world_size)) {
    text += fmt::format(" stride {} extent {}", rule->stride, rule->extent);
  } else {
    text += " ranks";  // how far each is from the first
    for (Rank rank : group.ranks)
      text += fmt::format(" {:+}", static_cast<std::int64_t>(rank) - group.ranks.front());
  }
  if (group.priority) text += fmt::format(" priority {}", graph.text(group.priority));
  if (group.backend) text += fmt::format(" of {}", graph.text(group.backend));
  return text;
}

using GroupTexts = std::map<StringId, std::string>;  // by name

// Of every group in the table. One split from another says from which.
GroupTexts describe_groups(const Graph& graph, std::uint32_t world_size) {
  GroupTexts made, whole;
  for (const ProcessGroup& group : graph.groups)
    made.emplace(group.name, describe_group(graph, group, world_size));
  for (const ProcessGroup& group : graph.groups) {
    std::string text = made.at(group.name);
    if (const auto source = made.find(group.split_from); group.split_from)
      text += fmt::format(" split from ({})", source != made.end() ? source->second : "no group");
    whole.emplace(group.name, std::move(text));
  }
  return whole;
}

// Of the step's inputs, without the host where there is another: "cuda:0".
std::set<std::string> list_devices(const Graph& graph) {
  std::set<std::string> devices;
  for (const auto [id, node] : walk(graph.step())) {
    if (node.kind != NodeKind::kPlaceholder) break;
    const TensorType* tensor = tensor_of(*graph.context, node.type);
    if (tensor != nullptr && graph.text(tensor->device) != "cpu") devices.emplace(graph.text(tensor->device));
  }
  if (devices.empty()) devices.emplace("cpu");
  return devices;
}

// The one on which a step runs: each rank calls its own by another index. None: there are several.
std::string find_own_device(const Graph& graph) {
  const std::set<std::string> devices = list_devices(graph);
  return devices.size() == 1 ? *devices.begin() : std::string();
}

// Everything that decides what the graph computes, as text, with nodes by position and groups by
// what they are. Of each part of it, the hash.
class ContentWriter {
 public:
  ContentWriter(const Graph& graph, const GroupTexts& groups, HashBytes hash)
      : graph_(graph),
        context_(*graph.context),
        groups_(groups),
        hash_(hash),
        own_device_(find_own_device(graph)) {}

  std::string calls() {
    return hash_([&](const GiveBytes& give) {
      for (const Body& body : graph_.bodies) write_body(body, give);
      give(take());
    });
  }

  std::string inputs() {
    std::map<StringId, const InputRole*> roles;
    for (const InputRole& input : graph_.inputs) roles.emplace(input.name, &input);
    for (const auto [id, node] : walk(context_, graph_.step())) {
      if (node.kind != NodeKind::kPlaceholder) break;
      if (node.type) write_type(node.type);
      if (const auto role = roles.find(node.name); role != roles.end()) write_role(*role->second);
      text_ += '\n';
    }
    return hash_taken();
  }

  std::string outputs() {
    for (const OutputRole& output : graph_.outputs) {
      put(graph_.text(output.role), " ", graph_.text(output.fqn), " ");
      write_range(output.more, false);
      text_ += '\n';
    }
    return hash_taken();
  }

  std::string symbols() {
    for (const Symbol& symbol : graph_.symbols) write_symbol(symbol);
    return hash_taken();
  }

 private:
  static constexpr std::size_t kPiece = 1 << 16;

  void write_body(const Body& body, const GiveBytes& give) {
    positions_ = SideTable<NodeId, std::uint32_t>();
    put("body ", graph_.text(body.name), "\n");
    for (const auto [id, node] : walk(context_, body)) {
      positions_.at(id) = count_++;
      put(static_cast<int>(node.kind), " ", node.kind == NodeKind::kCall ? graph_.text(node.target) : "");
      position_ = node.op != nullptr ? node.op->find_param("group_name") : std::nullopt;
      write_range(node.args, true);
      position_.reset();
      write_range(node.kwargs, false);
      if (!node.attr.is_none()) write(node.attr);
      if (node.type) write_type(node.type);
      write_notes(node);
      text_ += '\n';
      if (text_.size() < kPiece) continue;
      give(text_);
      text_.clear();
    }
  }

  // What the tracer said of a call, by which passes and runs go.
  void write_notes(const Node& node) {
    put("@", graph_.text(node.module), " ", node.is_backward() ? "backward" : "");
    const EpLabels& ep = node.ep;
    for (StringId label : {node.recompute, ep.ep, ep.token_count_exchange, ep.token_count_sync,
                           ep.token_exchange, ep.token_exchange_wait, node.chunk.region, node.chunk.role}) {
      text_ += ',';
      text_ += graph_.text(label);
    }
    if (node.chunk.part) put(" part ", *node.chunk.part);
    if (node.extra == nullptr) return;
    for (const Binding& binding : node.extra->bindings) {
      put(" bind ", graph_.text(binding.symbol));
      write_range(binding.path, false);
    }
    for (const auto& [symbol, value] : node.extra->chunk_hints)
      put(" hint ", graph_.text(symbol), "=", value);
    if (node.extra->py_type) put(" py_type ", graph_.text(node.extra->py_type));
    if (node.extra->example_type) write_type(node.extra->example_type);
    if (node.extra->custom.count != 0) write_range(node.extra->custom, false);
    write_meta(node.extra->meta);
  }

  // Other metadata, but for accounts of where a call came from and for objects that are only
  // described, whose texts hold addresses.
  void write_meta(ArgRange meta) {
    for (std::uint32_t i = 0; i + 1 < meta.count; i += 2) {
      const Arg name = context_.args[meta][i], value = context_.args[meta][i + 1];
      if (is_account(context_.text(name.as_name())) || holds_description(value)) continue;
      put(" ", context_.text(name.as_name()), "=");
      write(value);
    }
  }
  static bool is_account(std::string_view key) {
    static constexpr std::string_view kAccounts[] = {"stack_trace",         "from_node",
                                                     "source_fn_stack",     "nn_module_stack",
                                                     "fwd_nn_module_stack", "original_aten"};
    return key.starts_with("bucketing_") || std::ranges::find(kAccounts, key) != std::end(kAccounts);
  }
  bool holds_description(Arg value) const {
    if (value.is(ArgKind::kOpaque)) return true;
    if (!value.is_tree()) return false;
    return std::ranges::any_of(context_.args.children(value),
                               [&](Arg item) { return holds_description(item); });
  }

  void write_role(const InputRole& input) {
    put(" ", graph_.text(input.role), " ", graph_.text(input.fqn), " ", graph_.text(input.which), " ");
    write_range(input.more, false);
  }

  void write_symbol(const Symbol& symbol) {
    const auto expression = [&](std::optional<ExprId> e) { return e ? context_.exprs.text(*e) : "none"; };
    const auto expressions = [&](const std::vector<ExprId>& all) {
      for (ExprId e : all) put(" ", context_.exprs.text(e), ";");
    };
    put(graph_.text(symbol.name), " [", expression(symbol.lower), ", ", expression(symbol.upper), "]");
    if (symbol.hint) put(" hint ", *symbol.hint);
    if (symbol.size_like) text_ += " size_like";
    if (symbol.unbacked) text_ += *symbol.unbacked ? " unbacked" : " backed";
    if (symbol.replaced_by) put(" is ", expression(symbol.replaced_by));
    if (symbol.part_of) put(" part of ", graph_.text(symbol.part_of));
    text_ += " asserts";
    if (symbol.asserts) expressions(*symbol.asserts);
    text_ += " assumes";
    expressions(symbol.assumptions);
    text_ += '\n';
  }

  template <typename... Pieces>
  void put(const Pieces&... pieces) {
    (append(pieces), ...);
  }
  void append(std::string_view text) { text_ += text; }
  void append(std::integral auto number) {
    const fmt::format_int digits(number);
    text_.append(digits.data(), digits.size());
  }

  std::string take() { return std::exchange(text_, {}); }
  std::string hash_taken() {
    return hash_([&](const GiveBytes& give) { give(take()); });
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
    put("group<", found == groups_.end() ? graph_.text(name) : found->second, ">");
  }

  // Through any rank, it is the same one.
  void write_mesh(Arg arg) {
    const auto mesh = read_mesh(context_, arg);
    if (!mesh) return;
    text_ += "mesh<";
    for (std::size_t d = 0; d < mesh->axes.size(); ++d)
      put(graph_.text(mesh->axes[d]), " ", mesh->shape[d], ",");
    if (const auto strides = strides_of(*mesh))
      for (std::uint32_t stride : *strides) put("/", stride);
    text_ += '>';
  }

  void write_type(TypeId type) {
    if (context_.types[type].kind == TypeKind::kValue) return write(context_.types[type].value);
    std::string& text = type_texts_.at(type);
    if (text.empty()) {
      const std::size_t from = text_.size();
      text_ += ':';
      write_on_own_device(print_type(context_, type));
      write_tensor_notes(context_.types[type]);
      text = text_.substr(from);
    } else {
      text_ += text;
    }
  }

  // With the step's device said to be that.
  void write_on_own_device(std::string_view type) {
    const std::string own = "@" + own_device_;
    for (std::size_t at = type.find(own); !own_device_.empty() && at != type.npos; at = type.find(own)) {
      const std::string_view rest = type.substr(at + own.size());
      const bool is_whole = rest.empty() || std::isdigit(static_cast<unsigned char>(rest.front())) == 0;
      put(type.substr(0, at), is_whole ? "@own" : std::string_view(own));
      type = rest;
    }
    text_ += type;
  }

  // What print_type leaves out of a tensor's type.
  void write_tensor_notes(const Type& type) {
    if (type.kind == TypeKind::kTensor && type.tensor.requires_grad) text_ += " requires_grad";
    if (type.kind == TypeKind::kTensor && type.tensor.subclass) put(" ", graph_.text(type.tensor.subclass));
    for (TypeId element : type.elements)
      if (element) write_tensor_notes(context_.types[element]);
  }

  void write(Arg arg) {
    put(static_cast<int>(arg.kind()));
    switch (arg.kind()) {
      case ArgKind::kNode:
        put("%", positions_[arg.as_node()]);
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
      case ArgKind::kDevice:
        if (context_.text(arg.as_name()) == own_device_) {
          text_ += "own";
          return;
        }
        [[fallthrough]];
      case ArgKind::kUnresolved:
      case ArgKind::kText:
      case ArgKind::kDType:
      case ArgKind::kLayout:
      case ArgKind::kMemoryFormat:
      case ArgKind::kGraph:
      case ArgKind::kOperator:
        put("'", context_.text(arg.as_name()), "'");
        return;
      case ArgKind::kNone:
      case ArgKind::kEllipsis:
        return;
      case ArgKind::kBool:
      case ArgKind::kInt:
      case ArgKind::kReal:
        put(" ", arg.bits());
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
  SideTable<TypeId, std::string> type_texts_;  // of those written before
  std::optional<std::size_t> position_;        // of the argument that names the group
  const GroupTexts& groups_;
  const HashBytes hash_;
  const std::string own_device_;
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

std::string join(const std::multiset<std::string>& items, std::string_view between) {
  std::string text;
  for (const std::string& item : items) text += fmt::format("{}{}", text.empty() ? "" : between, item);
  return text;
}

// "cuda": kinds of the inputs' devices.
std::string device_kinds(const Graph& graph) {
  std::multiset<std::string> kinds;
  for (const std::string& device : list_devices(graph)) {
    const std::string kind(device_kind(device));
    if (!kinds.contains(kind)) kinds.insert(kind);
  }
  return join(kinds, ", ");
}

// What a run says of itself beside what it computes: no field.
bool is_of_one_run(std::string_view key) {
  static constexpr std::string_view kKeys[] = {
      "rank",      "device",         "name",         "trace_seconds", "world_size",
      kOneRankKey, kRankAgnosticKey, kRankGroupsKey, kRankDevicesKey, kFingerprintKey};
  return std::ranges::find(kKeys, key) != std::end(kKeys);
}

// The tracer's passes say how long they took (`passes_run`).
Arg without_seconds(Context& context, Arg value) {
  if (!value.is_tree()) return value;
  const auto children = context.args.children(value);
  const std::vector<Arg> items(children.begin(), children.end());
  const bool is_dict = value.is(ArgKind::kDict);
  std::vector<Arg> kept;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Arg key = is_dict ? items[i - i % 2] : Arg::none();
    if (key.is(ArgKind::kText) && context.text(key.as_name()) == "seconds") continue;
    kept.push_back(without_seconds(context, items[i]));
  }
  return context.args.add_tree(value.kind(), kept);
}

constexpr std::size_t kLongestText = 400;  // of a field; of more, the hash says whether it is the same

// The graph's info: fields that every fingerprint has, and `info.KEY` for whatever else is
// recorded.
void add_info(const Graph& graph, HashBytes hash, Fingerprint& made) {
  static constexpr std::pair<std::string_view, std::string_view> kFields[] = {
      {"global_meshes", "meshes"},  {"model", "model"},
      {"config", "configuration"},  {"options", "options"},
      {"torch", "torch"},           {"stage", "stage"},
      {"torchtitan", "torchtitan"}, {"deterministic", "deterministic"}};
  for (const auto& [key, field] : kFields) made[std::string(field)] = kNotRecorded;
  if (!graph.info.is(ArgKind::kDict)) return;
  Context& context = *graph.context;
  const auto children = context.args.children(graph.info);
  const std::vector<Arg> entries(children.begin(), children.end());  // making values moves the pool
  for (std::size_t i = 0; i + 1 < entries.size(); i += 2) {
    if (!entries[i].is(ArgKind::kText)) continue;
    const std::string_view key = context.text(entries[i].as_name());
    if (is_of_one_run(key)) continue;
    const auto field = std::ranges::find(kFields, key, [](const auto& f) { return f.first; });
    const Arg value = key == "passes_run" ? without_seconds(context, entries[i + 1]) : entries[i + 1];
    std::string text = print_data(context, value);
    if (text.size() > kLongestText) text = hash([&](const GiveBytes& give) { give(text); });
    made[field != std::end(kFields) ? std::string(field->second) : fmt::format("info.{}", key)] =
        std::move(text);
  }
}

}  // namespace

Fingerprint take_fingerprint(const Graph& graph, HashBytes hash) {
  const std::uint32_t world_size = read_world(graph).size;
  const GroupTexts groups = describe_groups(graph, world_size);
  Fingerprint made;
  ContentWriter content(graph, groups, hash);
  made["graph"] = content.calls();
  made["inputs"] = content.inputs();
  made["outputs"] = content.outputs();
  made["symbols"] = content.symbols();
  std::multiset<std::string> rows;
  for (const auto& [name, text] : groups) rows.insert(text);
  made["groups"] = join(rows, "; ");
  std::string& passes = made["passes"];
  std::multiset<std::string> tools;
  for (const PassRun& pass : graph.passes) {
    if (pass.name == "specialize") continue;  // which rank's it is
    passes += fmt::format("{}{}{{{}}}", passes.empty() ? "" : ",", pass.name, pass.options);
    if (!tools.contains(pass.tool)) tools.insert(pass.tool);
  }
  made["tool"] = join(tools, ", ");
  made["ranks"] = is_rank_agnostic(graph) ? "all" : "one";
  made["world_size"] = std::to_string(world_size);
  made["device"] = device_kinds(graph);
  made["producer"] = graph.version.producer;
  add_info(graph, hash, made);
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
