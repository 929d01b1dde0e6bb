#include <fmt/format.h>

#include <array>
#include <unordered_map>

#include "base/parse_number.h"
#include "io/onnx/onnx_codec.h"
#include "io/onnx/onnx_facts.h"
#include "io/onnx/onnx_types.h"
#include "ir/text/text.h"
#include "ir/text/text_fields.h"
#include "ops/op.h"

namespace epweave {
namespace {

using namespace onnx_form;
using Attribute = onnx::AttributeProto;

// Lines of the text form's header, in its order.
constexpr std::array<std::string_view, 8> kHeaderKeys = {"version", "info",   "pass",   "origins",
                                                         "group",   "symbol", "output", "unknown"};

// One node's call as it is put together: what it reads and its attributes, each to be used.
struct CallSource {
  std::vector<NodeId> inputs;
  const onnx::NodeProto* node = nullptr;  // none: without attributes
  std::vector<bool> is_input_used = {};
  std::vector<bool> is_attribute_used = {};
};

class OnnxDecoder {
 public:
  OnnxDecoder(const onnx::ModelProto& model, const std::string& path, std::shared_ptr<Context> context)
      : model_(model),
        path_(path),
        place_(path),
        context_owner_(std::move(context)),
        values_(*context_owner_) {}

  Graph decode() {
    decode_model();
    Body step;
    decode_body(model_.graph(), "", step);
    order_bodies(std::move(step));
    if (graph_.outputs.empty()) graph_.outputs.resize(text::count_outputs(graph_));
    return std::move(graph_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(fmt::format("{}: {}", place_, what));
  }

  // Names what is being read, for messages.
  class ReadingScope {
   public:
    ReadingScope(OnnxDecoder& decoder, std::string_view kind, std::string_view name)
        : decoder_(decoder),
          before_(std::exchange(decoder.place_, fmt::format("{}: {} '{}'", decoder.path_, kind, name))) {}
    ~ReadingScope() { decoder_.place_ = std::move(before_); }
    ReadingScope(const ReadingScope&) = delete;
    ReadingScope& operator=(const ReadingScope&) = delete;

   private:
    OnnxDecoder& decoder_;
    std::string before_;
  };

  StringId intern(std::string_view text) {
    if (text::count_valid_utf8(text) < text.size()) fail("holds a string that is not UTF-8");
    return context().strings.intern(text);
  }
  Context& context() { return *context_owner_; }

  // ------------------------------------------------------------------------- what is not ours

  template <class Message>
  void refuse_unknown(const Message& message) const {
    const auto& fields = message.GetReflection()->GetUnknownFields(message);
    if (!fields.empty())
      fail(fmt::format("{} has field {}, which epweave does not write and would lose",
                       message.GetDescriptor()->name(), fields.field(0).number()));
  }
  void refuse(bool is_there, std::string_view what) const {
    if (is_there) fail(fmt::format("has {}, which a graph of epweave cannot hold", what));
  }

  NamedFacts collect(const Metadata& metadata) {
    NamedFacts facts;
    for (const onnx::StringStringEntryProto& entry : metadata) add_fact(facts, entry.key(), entry.value());
    return facts;
  }
  void add_fact(NamedFacts& facts, std::string_view key, std::string_view value) const {
    if (text::count_valid_utf8(value) < value.size()) fail(fmt::format("{} is not UTF-8", key));
    if (facts.size() > kMaxFacts) fail(fmt::format("has more than {} entries of metadata", kMaxFacts));
    if (!facts.add(key, value))
      fail(fmt::format("{} is there twice, with different values: a tool changed one of them", key));
  }
  void expect_all_taken(const NamedFacts& facts) const {
    if (const auto key = facts.find_left())
      fail(fmt::format("metadata {}{} is not known to this version", kPrefix, *key));
  }

  // ------------------------------------------------------------------------- the model

  void decode_model() {
    NamedFacts facts = collect(model_.metadata_props());
    const auto format = facts.take("format");
    if (!format) refuse_foreign();
    if (*format != kFormatVersion)
      fail(
          fmt::format("is of version {} of the ONNX form, this program reads version {}: use a newer epweave",
                      *format, kFormatVersion));
    refuse_unknown(model_);
    refuse(model_.functions_size() > 0, "functions");
    refuse(model_.training_info_size() > 0, "training_info");
    refuse(model_.configuration_size() > 0, "device configurations");
    decode_header(facts);
    const std::string place = place_;
    FactReader reader(values_, facts, place);
    reader.read_text("graphs", [&](text::Cursor& in) {
      for (; !in.skip_to_end();) {
        const StringId name = values_.read_word(in);
        if (!name) in.fail("a nested graph has no name");
        if (!place_of_body_.emplace(name, place_of_body_.size()).second) in.fail("a graph is named twice");
      }
    });
    expect_all_taken(facts);
  }

  // Says what shows that the model is not ours.
  [[noreturn]] void refuse_foreign() const {
    std::string what = "its metadata has no " + std::string(kPrefix) + "format";
    for (const onnx::NodeProto& node : model_.graph().node()) {
      if (is_call(node) || node.domain() == kOwnDomain) continue;
      what += fmt::format("; node '{}' is {}{}{}", node.name(), node.domain(),
                          node.domain().empty() ? "" : "::", node.op_type());
      break;
    }
    fail(fmt::format("not a graph that epweave wrote: {}. Other ONNX models cannot be read", what));
  }

  void decode_header(NamedFacts& facts) {
    std::string header = std::string(text::kMagic) + '\n';
    for (const std::string_view key : kHeaderKeys)
      if (const auto lines = facts.take(key)) header.append(*lines).append("\n");
    const std::string place = place_ + " (header in the model's metadata)";
    graph_ = parse_text(header, place, context_owner_);
    if (!graph_.bodies.empty()) fail("the header in the model's metadata holds nodes");
  }

  void order_bodies(Body step) {
    graph_.bodies.resize(place_of_body_.size() + 1);
    graph_.bodies[0] = std::move(step);
    for (const auto& [name, at] : place_of_body_) {
      const auto body = nested_.find(name);
      if (body == nested_.end()) fail(fmt::format("there is no nested graph '{}'", context().text(name)));
      graph_.bodies[at + 1] = std::move(body->second);
    }
  }

  void decode_nested(const onnx::GraphProto& message) {
    const StringId name = intern(message.name());
    if (!place_of_body_.contains(name))
      fail(fmt::format("nested graph '{}' is not in the list {}graphs", message.name(), kPrefix));
    const auto [body, is_new] = nested_.try_emplace(name);
    if (!is_new) fail(fmt::format("nested graph '{}' is there twice", message.name()));
    // Graphs nest as deep as messages may; nodes are named by value names, which are of one graph
    // only.
    auto outer = std::exchange(nodes_of_values_, {});
    std::string place = std::exchange(place_, path_);
    Body decoded;
    decoded.name = name;
    decode_body(message, message.name() + "/", decoded);
    nested_[name] = std::move(decoded);
    nodes_of_values_ = std::move(outer);
    place_ = std::move(place);
  }

  // ------------------------------------------------------------------------- graphs

  void decode_body(const onnx::GraphProto& message, const std::string& prefix, Body& body) {
    {
      const ReadingScope place(*this, "graph", message.name());
      refuse_unknown(message);
      refuse(message.initializer_size() > 0 || message.sparse_initializer_size() > 0, "initializers");
      refuse(message.quantization_annotation_size() > 0, "quantization annotations");
    }
    declare_nodes(message, prefix, body);
    const NodeId output = declare_output(message, body);
    SideTable<StringId, NodeId> names;
    for (const NodeId id : body.order)
      if (NodeId& known = names.at(body.nodes[id].name); !known) known = id;
    collect_types(message);
    const auto types = std::exchange(types_, {});
    std::size_t next = 0;
    for (const onnx::ValueInfoProto& input : message.input())
      decode_input(input, types, names, body, body.order[next++]);
    for (const onnx::NodeProto& node : message.node()) {
      if (is_graph_holder(node)) {
        decode_holder(node);
      } else {
        decode_node(node, types, names, body.nodes[body.order[next++]]);
      }
    }
    decode_output(message, names, body, output);
  }

  static bool is_call(const onnx::NodeProto& node) {
    return node.domain() == kTorchDomain || node.domain() == kPythonDomain;
  }

  static bool is_graph_holder(const onnx::NodeProto& node) {
    return node.domain() == kOwnDomain && node.op_type() == kNestedGraph;
  }

  void declare_nodes(const onnx::GraphProto& message, const std::string& prefix, Body& body) {
    auto declare = [&](const std::string& value, std::string_view name) {
      Node node;
      node.name = intern(name);
      const NodeId id = body.nodes.push_back(std::move(node));
      body.order.push_back(id);
      if (value.empty()) fail("a value has no name");
      if (!nodes_of_values_.emplace(value, id).second)
        fail(fmt::format("value '{}' is defined twice", value));
    };
    nodes_of_values_.clear();
    for (const onnx::ValueInfoProto& input : message.input()) {
      const ReadingScope place(*this, "input", input.name());
      if (!input.name().starts_with(prefix)) fail(fmt::format("its name does not begin with '{}'", prefix));
      declare(input.name(), std::string_view(input.name()).substr(prefix.size()));
    }
    for (const onnx::NodeProto& node : message.node()) {
      if (is_graph_holder(node)) continue;
      const ReadingScope place(*this, "node", node.name());
      if (node.name().empty()) fail("a node has no name");
      if (node.output_size() != 1) fail(fmt::format("has {} outputs, not 1", node.output_size()));
      declare(node.output(0), node.name());
    }
  }

  // The node "output", whose facts are the graph's.
  NodeId declare_output(const onnx::GraphProto& message, Body& body) {
    Node node;
    node.kind = NodeKind::kOutput;
    node.name = node.target = intern("output");
    NamedFacts facts = collect(message.metadata_props());
    if (const auto name = facts.take("output.name")) node.name = intern(*name);
    const NodeId id = body.nodes.push_back(std::move(node));
    body.order.push_back(id);
    return id;
  }

  using Types = std::unordered_map<std::string_view, const onnx::TypeProto*>;

  // Types that ONNX has, to be compared with those of the metadata.
  void collect_types(const onnx::GraphProto& message) {
    types_.clear();
    for (const auto* list : {&message.value_info(), &message.output()})
      for (const onnx::ValueInfoProto& value : *list)
        if (value.has_type()) types_.emplace(value.name(), &value.type());
  }

  void check_type(TypeId type, const onnx::TypeProto& given) {
    onnx::TypeProto expected;
    encode_type(context(), type, expected);
    if (expected.SerializeAsString() != given.SerializeAsString())
      fail(fmt::format("its ONNX type is not that of {}type: a tool changed one of them", kPrefix));
  }

  // ------------------------------------------------------------------------- nodes

  void decode_input(const onnx::ValueInfoProto& message, const Types& types,
                    const SideTable<StringId, NodeId>& names, Body& body, NodeId id) {
    const ReadingScope place(*this, "input", message.name());
    refuse_unknown(message);
    Node& node = body.nodes[id];
    node.kind = NodeKind::kPlaceholder;
    node.target = node.name;
    NamedFacts facts = collect(message.metadata_props());
    if (facts.find_left() == std::nullopt && !body.name)
      fail("has no metadata: a tool that knows only IR versions below 10 dropped it");
    FactReader reader(values_, facts, place_);
    reader("target", node.target);
    CallSource source;
    read_call(reader, source, node);
    if (!body.name) {
      InputRole& role = graph_.inputs.emplace_back();
      role.name = node.name;
      text::visit_input(reader, role);
    }
    decode_facts(reader, names, node);
    expect_all_taken(facts);
    if (message.has_type()) check_type(node.type, message.type());
    if (const auto given = types.find(message.name()); given != types.end())
      check_type(node.type, *given->second);
  }

  void decode_node(const onnx::NodeProto& message, const Types& types,
                   const SideTable<StringId, NodeId>& names, Node& node) {
    const ReadingScope place(*this, "node", message.name());
    refuse_unknown(message);
    refuse(message.has_overload(), "an overload");
    refuse(message.device_configurations_size() > 0, "device configurations");
    refuse(message.attribute_size() > kMaxAttributes, "thousands of attributes");
    read_kind(message, node);
    CallSource source{.inputs = read_inputs(message), .node = &message};
    source.is_input_used.resize(source.inputs.size());
    source.is_attribute_used.resize(static_cast<std::size_t>(message.attribute_size()));
    NamedFacts facts = collect_with_mirrors(message, source);
    FactReader reader(values_, facts, place_);
    reader("target", node.target);
    const bool has_call = read_call(reader, source, node);
    if (node.kind == NodeKind::kCall && !has_call)
      fail(fmt::format("has no {}call: it was not written by epweave, or a tool dropped its metadata",
                       kPrefix));
    reader.read_text("attr", [&](text::Cursor& in) { node.attr = read_item(in, source); });
    decode_facts(reader, names, node);
    expect_all_taken(facts);
    expect_all_used(source);
    if (const auto given = types.find(message.output(0)); given != types.end())
      check_type(node.type, *given->second);
    resolve_op(context(), node);
  }

  void read_kind(const onnx::NodeProto& message, Node& node) {
    if (is_call(message)) {
      if (message.op_type().empty()) fail("has no op_type");
      node.kind = NodeKind::kCall;
      node.target = intern(message.op_type());
    } else if (message.domain() == kOwnDomain && message.op_type() == kGetAttr) {
      node.kind = NodeKind::kGetAttr;
      node.target = node.name;
    } else {
      fail(fmt::format("is the operator {}{}{}; epweave writes those of the domains {}, {} and {}",
                       message.domain(), message.domain().empty() ? "" : "::", message.op_type(),
                       kTorchDomain, kPythonDomain, kOwnDomain));
    }
  }

  std::vector<NodeId> read_inputs(const onnx::NodeProto& message) const {
    std::vector<NodeId> inputs;
    for (const std::string& name : message.input()) inputs.push_back(node_of_value(name));
    return inputs;
  }

  NodeId node_of_value(const std::string& name) const {
    const auto found = nodes_of_values_.find(name);
    if (found == nodes_of_values_.end())
      fail(fmt::format("reads '{}', which is no value of its graph", name));
    return found->second;
  }

  // Metadata, and string attributes of the same names that repeat it.
  NamedFacts collect_with_mirrors(const onnx::NodeProto& message, CallSource& source) {
    NamedFacts facts = collect(message.metadata_props());
    for (int i = 0; i < message.attribute_size(); ++i) {
      const Attribute& attribute = message.attribute(i);
      if (!attribute.name().starts_with(kPrefix)) continue;
      if (attribute.type() != Attribute::STRING) fail(fmt::format("{} is not a string", attribute.name()));
      add_fact(facts, attribute.name(), attribute.s());
      source.is_attribute_used[static_cast<std::size_t>(i)] = true;
    }
    return facts;
  }

  void expect_all_used(const CallSource& source) const {
    for (std::size_t i = 0; i < source.is_input_used.size(); ++i)
      if (!source.is_input_used[i]) fail(fmt::format("input {} is not part of {}call", i, kPrefix));
    for (std::size_t i = 0; i < source.is_attribute_used.size(); ++i)
      if (!source.is_attribute_used[i])
        fail(fmt::format("attribute '{}' is not part of {}call",
                         source.node->attribute(static_cast<int>(i)).name(), kPrefix));
  }

  void decode_facts(FactReader& reader, const SideTable<StringId, NodeId>& names, Node& node) {
    values_.set_nodes(&names);
    NodeExtra extra;
    reader.read_text("type", [&](text::Cursor& in) { node.type = values_.read_type(in); });
    reader("module", node.module);
    text::visit_node(reader, node, extra);
    const bool is_empty = !extra.example_type && !extra.py_type && extra.bindings.empty() &&
                          extra.chunk_hints.empty() && extra.custom.empty() && extra.meta.empty() &&
                          extra.unknown_fields.empty();
    if (!is_empty) node.extra = context().own(std::move(extra));
  }

  void decode_output(const onnx::GraphProto& message, const SideTable<StringId, NodeId>& names, Body& body,
                     NodeId id) {
    const ReadingScope place(*this, "graph", message.name());
    Node& node = body.nodes[id];
    NamedFacts facts = collect(message.metadata_props());
    FactReader reader(values_, facts, place_, "output.");
    reader("name", node.name);
    reader("target", node.target);
    CallSource source;
    for (const onnx::ValueInfoProto& output : message.output())
      source.inputs.push_back(node_of_value(output.name()));
    source.is_input_used.resize(source.inputs.size());
    if (!read_call(reader, source, node)) fail(fmt::format("its metadata has no {}output.call", kPrefix));
    values_.set_nodes(&names);
    decode_facts(reader, names, node);
    values_.set_nodes(nullptr);
    FactReader(values_, facts, place_).hex("unknown", body.unknown_fields);
    expect_all_taken(facts);
    expect_all_used(source);
  }

  void decode_holder(const onnx::NodeProto& message) {
    const ReadingScope place(*this, "node", message.name());
    if (message.attribute_size() != 1 || !message.attribute(0).has_g() || message.input_size() != 0)
      fail("must have one attribute, a graph");
    decode_nested(message.attribute(0).g());
  }

  // ------------------------------------------------------------------------- arguments

  // Whether there is an entry for it.
  bool read_call(FactReader& reader, CallSource& source, Node& node) {
    return reader.read_text("call", [&](text::Cursor& in) {
      std::vector<Arg> args, kwargs;
      in.expect('(');
      text::ValueParser::read_list(in, ')', [&] {
        StringId key;
        if (values_.read_key(in, key)) {
          in.skip_spaces();
          kwargs.push_back(Arg::text(key));
          kwargs.push_back(read_item(in, source));
        } else {
          if (!kwargs.empty()) in.fail("a positional argument cannot follow a keyword");
          args.push_back(read_item(in, source));
        }
      });
      node.args = context().args.add(args);
      node.kwargs = context().args.add(kwargs);
    });
  }

  // `@attribute:kind`, or a value in which %0 is the first input.
  Arg read_item(text::Cursor& in, CallSource& source) {
    in.skip_spaces();
    if (source.node != nullptr && in.accept('@')) {
      const std::string_view name = in.scan_name();
      const std::string_view kind = in.accept(':') ? in.scan_name() : std::string_view();
      return read_attribute(in, find_attribute(in, name, source), kind);
    }
    values_.set_nodes(&no_nodes_);  // so that references stay numbers
    const Arg numbered = values_.read_arg(in);
    return context().args.map(numbered, [&](Arg leaf) {
      return leaf.is(ArgKind::kUnresolved) ? Arg::node(use_input(in, leaf.as_name(), source)) : leaf;
    });
  }

  NodeId use_input(const text::Cursor& in, StringId name, CallSource& source) {
    const std::string_view digits = context().text(name);
    const auto index = parse_number<std::size_t>(digits);
    if (!index || *index >= source.inputs.size()) in.fail(fmt::format("there is no input %{}", digits));
    source.is_input_used[*index] = true;
    return source.inputs[*index];
  }

  const Attribute& find_attribute(const text::Cursor& in, std::string_view name, CallSource& source) const {
    for (std::size_t i = 0; i < source.is_attribute_used.size(); ++i) {
      const Attribute& attribute = source.node->attribute(static_cast<int>(i));
      if (attribute.name() != name || source.is_attribute_used[i]) continue;
      source.is_attribute_used[i] = true;
      return attribute;
    }
    in.fail(fmt::format("there is no attribute '{}', or it is used twice", name));
  }

  Arg read_attribute(const text::Cursor& in, const Attribute& attribute, std::string_view kind) {
    refuse_unknown(attribute);
    refuse(attribute.has_ref_attr_name(), "a reference to an attribute of a function");
    switch (attribute.type()) {
      case Attribute::INT:
        if (kind.empty()) return Arg::integer(attribute.i());
        if (kind == "bool" && (attribute.i() == 0 || attribute.i() == 1))
          return Arg::boolean(attribute.i() == 1);
        if (const auto dtype = dtype_of_onnx(attribute.i()); kind == "dtype" && dtype)
          return Arg::named(ArgKind::kDType, intern(info(*dtype).name));
        break;
      case Attribute::FLOAT:
        if (kind.empty()) return Arg::real(static_cast<double>(attribute.f()));
        break;
      case Attribute::TENSOR:
        if (kind.empty()) return read_double(attribute);
        break;
      case Attribute::STRING:
        return read_string(in, attribute, kind);
      case Attribute::INTS:
        if (kind.empty() || kind == "tuple") return read_integers(attribute, kind);
        break;
      case Attribute::GRAPH:
        if (!kind.empty()) break;
        decode_nested(attribute.g());
        return Arg::named(ArgKind::kGraph, intern(attribute.g().name()));
      default:
        break;
    }
    in.fail(fmt::format("attribute '{}' of type {} is no {}", attribute.name(),
                        Attribute::AttributeType_Name(attribute.type()), kind.empty() ? "argument" : kind));
  }

  Arg read_double(const Attribute& attribute) {
    const onnx::TensorProto& tensor = attribute.t();
    refuse(tensor.external_data_size() > 0 || tensor.data_location() != 0, "external data");
    if (tensor.data_type() != onnx_dtype(DType::kFloat64) || tensor.dims_size() != 0 ||
        tensor.double_data_size() != 1)
      fail(fmt::format("attribute '{}' is a tensor, but not of one double", attribute.name()));
    return Arg::real(tensor.double_data(0));
  }

  Arg read_integers(const Attribute& attribute, std::string_view kind) {
    std::vector<Arg> items;
    for (const std::int64_t item : attribute.ints()) items.push_back(Arg::integer(item));
    return context().args.intern_tree(kind.empty() ? ArgKind::kList : ArgKind::kTuple, items);
  }

  Arg read_string(const text::Cursor& in, const Attribute& attribute, std::string_view kind) {
    const std::string& text = attribute.s();
    if (kind.empty()) return Arg::text(intern(text));
    if (kind == "device") return Arg::named(ArgKind::kDevice, intern(text));
    if (const auto named = text::find_keyword(text::kNamedArgs, kind))
      return Arg::named(*named, intern(text));
    const std::string place = fmt::format("{}: attribute '{}'", place_, attribute.name());
    if (kind == "sym") {
      try {
        return Arg::symbolic(context().exprs.parse(context().text(intern(text))));
      } catch (const InputError& error) {
        throw InputError(fmt::format("{}: {}", place, error.what()));
      }
    }
    if (kind != "value") in.fail(fmt::format("unknown kind of argument '{}'", kind));
    intern(text);
    text::Cursor value(place, 1, text);
    values_.set_nodes(nullptr);
    const Arg arg = values_.read_arg(value);
    if (!value.skip_to_end()) value.fail("unexpected text");
    return arg;
  }

  const onnx::ModelProto& model_;
  const std::string& path_;
  std::string place_;  // begins messages
  std::shared_ptr<Context> context_owner_;
  Graph graph_;
  text::ValueParser values_;
  const SideTable<StringId, NodeId> no_nodes_;
  std::unordered_map<StringId, std::size_t> place_of_body_;  // among the nested graphs
  std::unordered_map<StringId, Body> nested_;
  std::unordered_map<std::string, NodeId> nodes_of_values_;  // of the graph that is read
  Types types_;
};

}  // namespace

Graph decode_onnx(const onnx::ModelProto& model, const std::string& path, std::shared_ptr<Context> context) {
  return OnnxDecoder(model, path, std::move(context)).decode();
}

}  // namespace epweave
