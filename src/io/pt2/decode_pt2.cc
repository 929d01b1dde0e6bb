#include <algorithm>
#include <array>
#include <unordered_set>

#include "io/pt2/pt2_codec.h"
#include "io/pt2/pt2_metadata.h"
#include "io/pt2/pt2_symbols.h"
#include "io/pt2/pt2_types.h"
#include "ops/op.h"

namespace epweave {
namespace {

constexpr int kMaxJsonDepth = 100;
constexpr int kSchemaVersion = 8;

// "torch.ops.aten.mm.default" is aten.mm.default, "_operator.mul" operator.mul.
std::string target_of(std::string_view target) {
  constexpr std::string_view kOps = "torch.ops.", kOperator = "_operator.";
  if (target.starts_with(kOps)) return std::string(target.substr(kOps.size()));
  if (target.starts_with(kOperator)) return "operator." + std::string(target.substr(kOperator.size()));
  return std::string(target);
}

class Pt2Decoder {
 public:
  Pt2Decoder(const Json& program, const std::string& path, std::shared_ptr<Context> context)
      : program_(program),
        json_(path),
        graph_{.context = std::move(context)},
        context_(*graph_.context),
        types_(json_, context_),
        metadata_(json_, context_) {}

  Graph decode() {
    check_version();
    const Json& module = json_.object(program_, "graph_module");
    const Json& signature = json_.object(module, "signature");
    constants_ = &json_.array(signature, "input_specs");
    Body step = decode_body(json_.object(module, "graph"), StringId());
    decode_inputs(*constants_, step);
    decode_outputs(json_.array(signature, "output_specs"));
    graph_.bodies.insert(graph_.bodies.begin(), std::move(step));
    graph_.symbols = types_.symbols(json_.object(program_, "range_constraints"));
    bind_unbacked_symbols(graph_);
    return std::move(graph_);
  }

 private:
  StringId intern(std::string_view text) { return context_.strings.intern(text); }
  Arg text(std::string_view text) { return Arg::text(intern(text)); }
  Arg tree(ArgKind kind, const std::vector<Arg>& items) { return context_.args.intern_tree(kind, items); }

  void check_version() {
    const Json& version = json_.object(program_, "schema_version");
    const std::int64_t major = json_.integer(version, "major"), minor = json_.integer(version, "minor");
    if (major != kSchemaVersion)
      json_.fail(fmt::format(
          "schema version {}.{} of torch.export; this program reads version {}: export again with "
          "torch 2.8 or newer",
          major, minor, kSchemaVersion));
    const Json* const torch = json_.find(program_, "torch_version");
    const std::string torch_version = torch ? json_.as_text(*torch) : "unknown";
    graph_.version.producer = "torch.export " + torch_version;
    graph_.info = tree(ArgKind::kDict, {text("torch"), text(torch_version), text("export_schema"),
                                        text(fmt::format("{}.{}", major, minor))});
  }

  // ------------------------------------------------------------------------- inputs and outputs

  void decode_inputs(const Json& specs, const Body& step) {
    std::size_t at = 0;
    for (const Json& spec : specs) {
      if (at >= step.order.size() || step.nodes[step.order[at]].kind != NodeKind::kPlaceholder)
        json_.fail("the signature has more inputs than the graph");
      InputRole& role = graph_.inputs.emplace_back();
      role.name = step.nodes[step.order[at++]].name;
      const auto [kind, what] = json_.as_union(spec);
      json_.set_place(fmt::format("input '{}'", context_.text(role.name)));
      decode_input_role(kind, what, role);
    }
    if (at < step.order.size() && step.nodes[step.order[at]].kind == NodeKind::kPlaceholder)
      json_.fail("the graph has more inputs than the signature");
    json_.set_place("");
  }

  void decode_input_role(std::string_view kind, const Json& what, InputRole& role) {
    if (kind == "parameter") {
      role.role = intern("parameter");
      role.fqn = intern(json_.text(what, "parameter_name"));
    } else if (kind == "buffer") {
      role.role = intern("buffer");
      role.fqn = intern(json_.text(what, "buffer_name"));
      const Arg more[] = {text("persistent"), Arg::boolean(json_.as_bool(json_.field(what, "persistent")))};
      role.more = context_.args.add(more);
    } else if (kind == "tensor_constant") {
      role.role = intern("buffer");
      role.fqn = intern(json_.text(what, "tensor_constant_name"));
      const Arg more[] = {text("constant"), Arg::boolean(true)};
      role.more = context_.args.add(more);
    } else if (kind == "user_input" || kind == "constant_input") {
      role.role = intern("user");
      role.which = role.name;
    } else {
      json_.fail(fmt::format("an input of kind '{}' cannot be read", kind));
    }
  }

  struct OutputKind {
    std::string_view kind, role, name;
  };
  static constexpr std::array kOutputKinds = {
      OutputKind{"user_output", "other", ""},
      OutputKind{"loss_output", "loss", ""},
      OutputKind{"gradient_to_parameter", "grad", "parameter_name"},
      OutputKind{"buffer_mutation", "mutation", "buffer_name"},
      OutputKind{"parameter_mutation", "mutation", "parameter_name"},
      OutputKind{"gradient_to_user_input", "other", "user_input_name"},
      OutputKind{"user_input_mutation", "other", "user_input_name"},
  };

  void decode_outputs(const Json& specs) {
    for (const Json& spec : specs) {
      const auto [kind, what] = json_.as_union(spec);
      const auto known = std::ranges::find(kOutputKinds, kind, &OutputKind::kind);
      if (known == kOutputKinds.end()) json_.fail(fmt::format("an output of kind '{}' cannot be read", kind));
      OutputRole& role = graph_.outputs.emplace_back();
      role.role = intern(known->role);
      if (known->name.empty()) continue;
      const std::string& name = json_.text(what, known->name.data());
      if (known->role != "other") {
        role.fqn = intern(name);
        continue;
      }
      const Arg more[] = {text("kind"), text(kind), text("which"), text(name)};
      role.more = context_.args.add(more);
    }
  }

  // ------------------------------------------------------------------------- graphs

  // What is being read of one graph.
  struct Scope {
    Body body;
    const Json* graph = nullptr;
    std::unordered_map<std::string_view, NodeId> values;  // by the names of the file
    std::unordered_set<StringId> names;                   // of nodes
  };

  Body decode_body(const Json& graph, StringId name) {
    Scope scope;
    scope.body.name = name;
    scope.graph = &graph;
    std::size_t at = 0;
    for (const Json& input : json_.array(graph, "inputs")) decode_placeholder(scope, input, at++);
    for (const Json& node : json_.array(graph, "nodes")) decode_node(scope, node);
    json_.set_place("");
    decode_output(scope);
    return std::move(scope.body);
  }

  NodeId add_node(Scope& scope, Node node) {
    if (!scope.names.insert(node.name).second)
      json_.fail(fmt::format("two nodes are named '{}'", context_.text(node.name)));
    const NodeId id = scope.body.nodes.push_back(std::move(node));
    scope.body.order.push_back(id);
    return id;
  }

  void define(Scope& scope, const std::string& name, NodeId node) {
    if (!scope.values.emplace(name, node).second) json_.fail(fmt::format("'{}' is defined twice", name));
  }

  NodeId value_named(const Scope& scope, const std::string& name) const {
    const auto found = scope.values.find(name);
    if (found == scope.values.end()) json_.fail(fmt::format("'{}' is used before it is defined", name));
    return found->second;
  }

  void decode_placeholder(Scope& scope, const Json& input, std::size_t position) {
    Node node;
    node.kind = NodeKind::kPlaceholder;
    const auto [kind, what] = json_.as_union(input);
    if (const std::string* name = name_of_value(kind, what)) {
      node.name = node.target = intern(*name);
      node.type = type_of_value(scope, kind, *name);
      return define(scope, *name, add_node(scope, std::move(node)));
    }
    if (kind == "as_custom_obj") json_.fail("custom objects cannot be read");
    node.name = node.target = intern(constant_name(position));
    node.type = context_.types.intern({.kind = TypeKind::kValue, .value = decode_argument(scope, input)});
    add_node(scope, std::move(node));
  }

  // Of an input that is a constant: only the signature names it.
  std::string constant_name(std::size_t position) {
    if (constants_ != nullptr && position < constants_->size()) {
      const auto [kind, what] = json_.as_union((*constants_)[position]);
      if (kind == "constant_input") return json_.text(what, "name");
    }
    return fmt::format("arg{}", position);
  }

  // The name of a value that a node defines, or null for a constant.
  const std::string* name_of_value(std::string_view kind, const Json& what) const {
    if (kind == "as_tensor") return &json_.text(what, "name");
    if (kind != "as_sym_int" && kind != "as_sym_float" && kind != "as_sym_bool") return nullptr;
    const auto [form, name] = json_.as_union(what);
    return form == "as_name" ? &json_.as_text(name) : nullptr;
  }

  TypeId type_of_value(const Scope& scope, std::string_view kind, const std::string& name) {
    if (kind == "as_tensor") return types_.tensor(entry(scope, "tensor_values", name));
    if (kind == "as_sym_int") return types_.scalar(entry(scope, "sym_int_values", name), "SymInt");
    if (kind == "as_sym_bool") return types_.scalar(entry(scope, "sym_bool_values", name), "SymBool");
    return types_.scalar(entry(scope, "sym_float_values", name), "SymFloat");
  }
  const Json& entry(const Scope& scope, const char* table, const std::string& name) const {
    return json_.field(json_.object(*scope.graph, table), name.c_str());
  }

  void decode_output(Scope& scope) {
    std::vector<Arg> values;
    for (const Json& output : json_.array(*scope.graph, "outputs"))
      values.push_back(decode_argument(scope, output));
    const Json* const is_single = json_.find(*scope.graph, "is_single_tensor_return");
    const bool returns_one = is_single != nullptr && json_.as_bool(*is_single);
    if (returns_one && values.size() != 1)
      json_.fail("a graph that returns one value has another number of outputs");
    Node node;
    node.kind = NodeKind::kOutput;
    node.name = node.target = intern("output");
    const Arg result[] = {returns_one ? values.front() : tree(ArgKind::kTuple, values)};
    node.args = context_.args.add(result);
    add_node(scope, std::move(node));
  }

  // ------------------------------------------------------------------------- nodes

  void decode_node(Scope& scope, const Json& message) {
    const std::string& target = json_.text(message, "target");
    const Json& outputs = json_.array(message, "outputs");
    Node node;
    node.name = intern(node_name(scope, message, outputs));
    json_.set_place(fmt::format("node '{}'", context_.text(node.name)));
    node.target = intern(target_of(target));
    resolve_op(context_, node);
    metadata_.read(json_.object(message, "metadata"), node);
    const Node facts = node;  // shared by getitem and get_attr nodes that the file leaves out
    call_facts_ = &facts;
    decode_arguments(scope, message, node);
    call_facts_ = nullptr;
    const NodeId id = add_node(scope, std::move(node));
    const Json* const is_single = json_.find(message, "is_hop_single_tensor_return");
    const bool is_tuple_of_one =
        target.starts_with("torch.ops.higher_order.") && is_single != nullptr && !json_.as_bool(*is_single);
    if (outputs.empty()) return;
    const auto [kind, what] = json_.as_union(outputs.front());
    if (outputs.size() == 1 && !is_tuple_of_one) {
      if (const std::string* name = name_of_value(kind, what)) {
        scope.body.nodes[id].type = type_of_value(scope, kind, *name);
        return define(scope, *name, id);
      }
      if (kind == "as_none") return;
      if (kind == "as_tensors") {
        const TypeId type = decode_list(scope, what, "as_tensor", id, facts);
        scope.body.nodes[id].type = type;
        return;
      }
    }
    const TypeId type = decode_tuple(scope, outputs, id, facts);
    scope.body.nodes[id].type = type;
  }

  // The file names nodes since schema version 8.9; before, a node is called like its only value.
  std::string node_name(const Scope& scope, const Json& message, const Json& outputs) {
    if (const Json* const name = json_.find(message, "name")) return json_.as_text(*name);
    if (outputs.size() == 1) {
      const auto [kind, what] = json_.as_union(outputs.front());
      if (const std::string* name = name_of_value(kind, what)) return *name;
    }
    std::string base = target_of(json_.text(message, "target"));
    std::ranges::replace(base, '.', '_');
    return unused_name(scope, base);
  }

  std::string unused_name(const Scope& scope, const std::string& base) {
    std::string name = base;
    for (std::size_t i = 1; scope.names.contains(intern(name)); ++i) name = fmt::format("{}_{}", base, i);
    return name;
  }

  NodeId add_getitem(Scope& scope, const std::string& name, NodeId of, const Node& facts) {
    Node node = facts;
    node.name = intern(name);
    node.target = intern("operator.getitem");
    resolve_op(context_, node);
    node.kwargs = {};
    const Arg args[] = {Arg::node(of), Arg::integer(next_index_)};
    node.args = context_.args.add(args);
    return add_node(scope, std::move(node));
  }

  // getitem nodes for the elements of what node `of` returns, and its type.
  TypeId decode_tuple(Scope& scope, const Json& outputs, NodeId of, const Node& facts) {
    Type type{.kind = TypeKind::kTuple};
    std::int64_t index = 0;
    for (const Json& output : outputs) {
      next_index_ = index++;
      const auto [kind, what] = json_.as_union(output);
      if (kind == "as_tensors") {
        const NodeId list = add_getitem(scope, unused_name(scope, "getitem"), of, facts);
        const TypeId element = decode_list(scope, what, "as_tensor", list, facts);
        scope.body.nodes[list].type = element;
        type.elements.push_back(element);
      } else if (const std::string* name = name_of_value(kind, what)) {
        type.elements.push_back(decode_element(scope, kind, *name, of, facts));
      } else if (kind == "as_none") {
        add_getitem(scope, unused_name(scope, "as_none"), of, facts);
        type.elements.push_back(context_.types.intern({.kind = TypeKind::kValue}));
      } else {
        json_.fail(fmt::format("an output of kind '{}' cannot be read", kind));
      }
    }
    return context_.types.intern(std::move(type));
  }

  TypeId decode_list(Scope& scope, const Json& items, std::string_view kind, NodeId of, const Node& facts) {
    Type type{.kind = TypeKind::kList};
    std::int64_t index = 0;
    for (const Json& item : json_.as_array(items)) {
      next_index_ = index++;
      type.elements.push_back(decode_element(scope, kind, json_.text(item, "name"), of, facts));
    }
    return context_.types.intern(std::move(type));
  }

  TypeId decode_element(Scope& scope, std::string_view kind, const std::string& name, NodeId of,
                        const Node& facts) {
    const NodeId item = add_getitem(scope, name, of, facts);
    const TypeId type = type_of_value(scope, kind, name);
    scope.body.nodes[item].type = type;
    define(scope, name, item);
    return type;
  }

  // ------------------------------------------------------------------------- arguments

  void decode_arguments(Scope& scope, const Json& message, Node& node) {
    std::vector<Arg> args, kwargs;
    for (const Json& input : json_.array(message, "inputs")) {
      const std::string& name = json_.text(input, "name");
      const Arg value = decode_argument(scope, json_.field(input, "arg"));
      if (is_positional(input, name, node)) {
        if (!kwargs.empty()) json_.fail("a positional argument follows a keyword");
        args.push_back(value);
      } else {
        kwargs.push_back(text(name));
        kwargs.push_back(value);
      }
    }
    node.args = context_.args.add(args);
    node.kwargs = context_.args.add(kwargs);
  }

  // Older files do not say; torch then goes by the schema.
  bool is_positional(const Json& input, const std::string& name, const Node& node) {
    constexpr std::int64_t kPositional = 1, kKeyword = 2;
    const Json* const kind = json_.find(input, "kind");
    if (kind != nullptr && json_.as_integer(*kind) == kPositional) return true;
    if (kind != nullptr && json_.as_integer(*kind) == kKeyword) return false;
    if (name.empty() || context_.text(node.target).starts_with("operator.")) return true;
    if (node.op == nullptr)
      json_.fail("it is not said which arguments are keywords, and the op is not known");
    const auto param = node.op->find_param(name);
    return param && !node.op->params[*param].has_default && !node.op->params[*param].kwarg_only;
  }

  template <class Read>
  Arg list_of(const Json& items, const Read& read) {
    std::vector<Arg> args;
    for (const Json& item : json_.as_array(items)) args.push_back(read(item));
    return tree(ArgKind::kList, args);
  }

  Arg decode_argument(Scope& scope, const Json& argument) {
    const auto [kind, what] = json_.as_union(argument);
    if (const std::string* name = name_of_value(kind, what)) return Arg::node(value_named(scope, *name));
    const Json& value = what;
    auto nested = [&](const Json& item) { return decode_argument(scope, item); };
    auto integer = [&](const Json& item) { return Arg::integer(json_.as_integer(item)); };
    auto real = [&](const Json& item) { return Arg::real(json_.as_real(item)); };
    auto boolean = [&](const Json& item) { return Arg::boolean(json_.as_bool(item)); };
    auto string = [&](const Json& item) { return text(json_.as_text(item)); };
    auto tensor = [&](const Json& item) { return Arg::node(value_named(scope, json_.text(item, "name"))); };
    if (kind == "as_none") return Arg::none();
    if (kind == "as_int") return integer(value);
    if (kind == "as_float") return real(value);
    if (kind == "as_bool") return boolean(value);
    if (kind == "as_string") return string(value);
    if (kind == "as_name") return Arg::node(value_named(scope, json_.as_text(value)));
    if (kind == "as_ints") return list_of(value, integer);
    if (kind == "as_floats") return list_of(value, real);
    if (kind == "as_bools") return list_of(value, boolean);
    if (kind == "as_strings") return list_of(value, string);
    if (kind == "as_tensors") return list_of(value, tensor);
    if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool" ||
        kind == "as_optional_tensor")
      return nested(value);
    if (kind == "as_sym_ints" || kind == "as_sym_floats" || kind == "as_sym_bools" ||
        kind == "as_optional_tensors")
      return list_of(value, nested);
    if (kind == "as_nested_tensors")
      return list_of(value, [&](const Json& row) { return list_of(row, tensor); });
    if (kind == "as_float_lists") return list_of(value, [&](const Json& row) { return list_of(row, real); });
    if (kind == "as_int_lists")  // grids of Triton kernels, which torch loads as tuples
      return list_of(value, [&](const Json& row) {
        const Arg list = list_of(row, integer);
        const auto items = context_.args.children(list);
        return tree(ArgKind::kTuple, {items.begin(), items.end()});
      });
    return decode_constant(scope, kind, value);
  }

  Arg decode_constant(Scope& scope, std::string_view kind, const Json& value) {
    if (kind == "as_scalar_type") return Arg::named(ArgKind::kDType, intern(pt2_dtype(json_, value)));
    if (kind == "as_layout") return Arg::named(ArgKind::kLayout, intern(pt2_layout(json_, value)));
    if (kind == "as_memory_format")
      return Arg::named(ArgKind::kMemoryFormat, intern(pt2_memory_format(json_, value)));
    if (kind == "as_device") return Arg::named(ArgKind::kDevice, intern(pt2_device(json_, value)));
    if (kind == "as_operator") return Arg::named(ArgKind::kOperator, intern(target_of(json_.as_text(value))));
    if (kind == "as_complex")
      return tree(ArgKind::kComplex, {Arg::real(json_.as_real(json_.field(value, "real"))),
                                      Arg::real(json_.as_real(json_.field(value, "imag")))});
    if (kind == "as_string_to_argument") {
      if (!value.is_object()) json_.fail("a dict of arguments is expected");
      std::vector<Arg> entries;
      for (const auto& [key, item] : value.items()) {
        entries.push_back(text(key));
        entries.push_back(decode_argument(scope, item));
      }
      return tree(ArgKind::kDict, entries);
    }
    if (kind == "as_graph") return decode_nested(scope, value);
    json_.fail(fmt::format("an argument of kind '{}' cannot be read", kind));
  }

  // A get_attr node before the call that takes the graph.
  Arg decode_nested(Scope& scope, const Json& value) {
    const std::string& name = json_.text(value, "name");
    std::string path = name;
    if (scope.body.name) path = fmt::format("{}.{}", context_.text(scope.body.name), name);
    if (!graphs_.insert(path).second) json_.fail(fmt::format("two graphs are named '{}'", path));
    const Json* const constants = std::exchange(constants_, nullptr);
    const Node* const call_facts = std::exchange(call_facts_, nullptr);
    // Its place comes before those of the graphs in it.
    const std::size_t at = graph_.bodies.size();
    graph_.bodies.emplace_back();
    Body body = decode_body(json_.object(value, "graph"), intern(path));
    graph_.bodies[at] = std::move(body);
    constants_ = constants;
    call_facts_ = call_facts;
    json_.set_place(fmt::format("graph '{}'", name));
    Node node = call_facts != nullptr ? *call_facts : Node();
    node.kind = NodeKind::kGetAttr;
    node.op = nullptr;
    node.name = intern(name);
    node.target = intern(name);
    node.attr = Arg::named(ArgKind::kGraph, intern(path));
    return Arg::node(add_node(scope, std::move(node)));
  }

  const Json& program_;
  JsonReader json_;
  Graph graph_;
  Context& context_;
  Pt2Types types_;
  Pt2Metadata metadata_;
  const Json* constants_ = nullptr;  // input specs of the step while its inputs are read
  std::unordered_set<std::string> graphs_;
  const Node* call_facts_ = nullptr;  // of the call whose arguments are read
  std::int64_t next_index_ = 0;       // of the element that the next getitem takes
};

}  // namespace

Graph decode_pt2(const std::string& program, const std::string& path, std::shared_ptr<Context> context) {
  // What is nested deeper is discarded by the callback, so that no recursion over the document runs
  // deep.
  bool is_too_deep = false;
  Json json;
  try {
    json = Json::parse(program, [&](int depth, Json::parse_event_t, const Json&) {
      is_too_deep |= depth > kMaxJsonDepth;
      return depth <= kMaxJsonDepth;
    });
  } catch (const Json::exception& error) {
    throw InputError(fmt::format("{}: the program is not JSON: {}", path, error.what()));
  }
  if (is_too_deep) throw InputError(fmt::format("{}: the program nests deeper than {}", path, kMaxJsonDepth));
  return Pt2Decoder(json, path, std::move(context)).decode();
}

}  // namespace epweave
