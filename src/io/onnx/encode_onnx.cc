#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "analysis/verify.h"
#include "io/onnx/onnx_codec.h"
#include "io/onnx/onnx_facts.h"
#include "io/onnx/onnx_labels.h"
#include "io/onnx/onnx_types.h"
#include "ir/text/text_fields.h"
#include "ops/op.h"

namespace epweave {
namespace {

using namespace onnx_form;

// Readers limit how deep messages nest, a graph within a graph counts three. Deeper ones stand
// beside the step.
constexpr int kMaxBodyDepth = 16;

bool is_float(double value) {
  return !std::isnan(value) && std::bit_cast<std::uint64_t>(static_cast<double>(static_cast<float>(value))) ==
                                   std::bit_cast<std::uint64_t>(value);
}

// Has an overload: aten.mm.default, not operator.getitem.
bool is_torch_op(std::string_view target) {
  return std::ranges::count(target, '.') == 2;
}

// Which entry of a list of ONNX values each node reference of a call stands for.
class References {
 public:
  enum class Order { kEachUse, kDistinct };
  explicit References(Order order) : order_(order) {}

  std::size_t add(NodeId node) {
    if (order_ == Order::kDistinct) {
      const auto [known, is_new] = index_of_.try_emplace(node, nodes_.size());
      if (!is_new) return known->second;
    }
    nodes_.push_back(node);
    return nodes_.size() - 1;
  }
  const std::vector<NodeId>& nodes() const { return nodes_; }

 private:
  Order order_;
  std::vector<NodeId> nodes_;
  std::unordered_map<NodeId, std::size_t> index_of_;
};

class OnnxEncoder {
 public:
  OnnxEncoder(const Graph& graph, OnnxIr ir, onnx::ModelProto& model)
      : graph_(graph), context_(*graph.context), ir_(ir), model_(model), printer_(graph, StringId()) {
    for (std::size_t i = 1; i < graph.bodies.size(); ++i) body_of_.emplace(graph.bodies[i].name, i);
    is_embedded_.resize(graph.bodies.size());
  }

  void encode() {
    check_structure();
    model_.set_ir_version(static_cast<int>(ir_));
    model_.set_producer_name("epweave");
    add_domain("", 17);
    add_domain(kTorchDomain, 1);
    add_domain(kPythonDomain, 1);
    add_domain(kOwnDomain, 1);
    encode_header();
    encode_body(graph_.step(), *model_.mutable_graph());
    for (std::size_t i = 1; i < graph_.bodies.size(); ++i)
      if (!is_embedded_[i]) encode_unreferenced(graph_.bodies[i]);
  }

 private:
  void check_structure() const {
    std::vector<Violation> violations;
    verify_structure(graph_, violations);
    if (!violations.empty())
      throw InputError("the ONNX form needs a graph whose structure is sound: " +
                       print_violation(graph_, violations.front()));
  }

  void add_domain(std::string_view domain, int version) {
    onnx::OperatorSetIdProto& opset = *model_.add_opset_import();
    opset.set_domain(std::string(domain));
    opset.set_version(version);
  }

  // The header of the text form, one entry for each kind of line.
  void encode_header() {
    add_entry(*model_.mutable_metadata_props(), "format", std::string(kFormatVersion));
    text::print_header(printer_, graph_, text::InputRoles::kElsewhere);
    const std::string header = printer_.take();
    std::string key, lines;
    auto finish = [&] {
      if (!lines.empty()) add_entry(*model_.mutable_metadata_props(), key, std::exchange(lines, {}));
    };
    for (std::size_t begin = 0; begin < header.size();) {
      const std::size_t end = header.find('\n', begin) + 1;
      const std::string_view line = std::string_view(header).substr(begin, end - begin);
      if (const std::string_view word = line.substr(0, line.find_first_of(" \n")); word != key) {
        finish();
        key = word;
      }
      lines += line;
      begin = end;
    }
    finish();
    if (graph_.bodies.size() == 1) return;
    for (std::size_t i = 1; i < graph_.bodies.size(); ++i) {
      if (i > 1) printer_.out() += ' ';
      printer_.word(graph_.bodies[i].name);
    }
    add_entry(*model_.mutable_metadata_props(), "graphs", printer_.take());
  }

  // ------------------------------------------------------------------------- graphs

  // Unique among all graphs of the model, as ONNX wants it.
  std::string value_name(const Body& body, StringId name) {
    const std::string_view own = context_.text(name);
    return body.name ? fmt::format("{}/{}", context_.text(body.name), own) : std::string(own);
  }
  std::string define_value(const Body& body, const Node& node) {
    std::string name = value_name(body, node.name);
    if (name.empty() || !values_.insert(name).second)
      throw InputError(fmt::format("the ONNX form cannot name the value of node '{}'{}: '{}' is {}",
                                   context_.text(node.name), body.name ? " of a nested graph" : "", name,
                                   name.empty() ? "empty" : "taken"));
    return name;
  }

  void encode_body(const Body& body, onnx::GraphProto& out) {
    out.set_name(body.name ? std::string(context_.text(body.name)) : "step");
    if (out.name().empty()) throw InputError("the ONNX form cannot hold a nested graph with an empty name");
    References returned(References::Order::kDistinct);
    encode_output(body, body.nodes[body.order.back()], returned, out);
    const std::unordered_set<NodeId> is_output(returned.nodes().begin(), returned.nodes().end());
    std::size_t inputs = 0;
    for (const NodeId id : body.order) {
      const Node& node = body.nodes[id];
      if (node.kind == NodeKind::kOutput) continue;
      std::string value = define_value(body, node);
      if (node.kind == NodeKind::kPlaceholder) {
        const InputRole* const role = body.name ? nullptr : &graph_.inputs[inputs++];
        encode_input(body, node, role, *out.add_input());
        continue;
      }
      if (is_expressible(context_, node.type) && !is_output.contains(id)) {
        onnx::ValueInfoProto& info = *out.add_value_info();
        info.set_name(value);
        encode_type(context_, node.type, *info.mutable_type());
      }
      encode_node(body, node, std::move(value), out);
    }
    FactWriter facts(printer_, &body, *out.mutable_metadata_props());
    facts.hex("unknown", body.unknown_fields);
  }

  void encode_output(const Body& body, const Node& node, References& returned, onnx::GraphProto& out) {
    FactWriter facts(printer_, &body, *out.mutable_metadata_props(), "output.");
    if (context_.text(node.name) != "output") facts("name", node.name);
    if (context_.text(node.target) != "output") facts("target", node.target);
    facts.add("call", print_call(node, nullptr, returned));
    encode_facts(node, facts);
    for (const NodeId id : returned.nodes()) {
      onnx::ValueInfoProto& value = *out.add_output();
      value.set_name(value_name(body, body.nodes[id].name));
      encode_type(context_, body.nodes[id].type, *value.mutable_type());
    }
  }

  void encode_input(const Body& body, const Node& node, const InputRole* role, onnx::ValueInfoProto& out) {
    out.set_name(value_name(body, node.name));
    encode_type(context_, node.type, *out.mutable_type());
    FactWriter facts(printer_, &body, *out.mutable_metadata_props());
    if (node.target != node.name) facts("target", node.target);
    References none(References::Order::kEachUse);
    if (!node.args.empty() || !node.kwargs.empty()) facts.add("call", print_call(node, nullptr, none));
    if (!none.nodes().empty())
      throw InputError(fmt::format("the ONNX form cannot hold placeholder '{}': it reads another node",
                                   context_.text(node.name)));
    if (role != nullptr) text::visit_input(facts, *role);
    encode_facts(node, facts);
    describe(node, role, out);
  }

  // For people, who see no metadata of values in most viewers.
  void describe(const Node& node, const InputRole* role, onnx::ValueInfoProto& out) {
    printer_.type(node.type);
    const std::string type = printer_.take();
    if (role == nullptr) return out.set_doc_string(type);
    const StringId name = role->fqn ? role->fqn : role->which;
    out.set_doc_string(fmt::format("{} {} : {}", context_.text(role->role), context_.text(name), type));
  }

  // What a node of any kind can have.
  void encode_facts(const Node& node, FactWriter& facts) {
    facts("type", node.type);
    facts("module", node.module);
    text::visit_node(facts, node, text::extra_of(node));
  }

  void encode_unreferenced(const Body& body) {
    onnx::NodeProto& out = *model_.mutable_graph()->add_node();
    const std::string name = fmt::format("{}/{}", kNestedGraph, context_.text(body.name));
    if (!values_.insert(name).second)
      throw InputError(fmt::format("the ONNX form cannot name a nested graph: '{}' is taken", name));
    out.set_name(name);
    out.set_domain(std::string(kOwnDomain));
    out.set_op_type(std::string(kNestedGraph));
    out.add_output(name);
    onnx::AttributeProto& attribute = *out.add_attribute();
    attribute.set_name("graph");
    embed(body, attribute);
  }

  void embed(const Body& body, onnx::AttributeProto& attribute) {
    is_embedded_[body_of_.at(body.name)] = true;
    attribute.set_type(onnx::AttributeProto::GRAPH);
    ++depth_;
    encode_body(body, *attribute.mutable_g());
    --depth_;
  }

  // ------------------------------------------------------------------------- nodes

  void encode_node(const Body& body, const Node& node, std::string value, onnx::GraphProto& graph) {
    onnx::NodeProto& out = *graph.add_node();
    out.set_name(std::string(context_.text(node.name)));
    out.add_output(std::move(value));
    FactWriter facts(printer_, &body, *out.mutable_metadata_props());
    References read(References::Order::kEachUse);
    if (node.kind == NodeKind::kCall) {
      out.set_op_type(std::string(context_.text(node.target)));
      out.set_domain(std::string(is_torch_op(out.op_type()) ? kTorchDomain : kPythonDomain));
      if (out.op_type().empty())
        throw InputError(fmt::format("the ONNX form cannot hold node '{}': its target is empty", out.name()));
      facts.add("call", print_call(node, &out, read));
    } else {
      out.set_domain(std::string(kOwnDomain));
      out.set_op_type(std::string(kGetAttr));
      if (node.target != node.name) facts("target", node.target);
      if (!node.args.empty() || !node.kwargs.empty()) facts.add("call", print_call(node, &out, read));
      if (!node.attr.is_none()) facts.add("attr", print_item(node.attr, "value", &out, read));
    }
    encode_facts(node, facts);
    if (out.attribute_size() > kMaxAttributes - static_cast<int>(kMaxFacts))
      throw InputError(
          fmt::format("the ONNX form cannot hold node '{}': it has thousands of arguments", out.name()));
    for (const NodeId id : read.nodes()) out.add_input(value_name(body, body.nodes[id].name));
    if (ir_ == OnnxIr::k8) mirror_metadata(out);
    if (std::string text = describe_node(node, printer_); !text.empty()) out.set_doc_string(std::move(text));
    name_inputs(node, out);
  }

  void name_inputs(const Node& node, onnx::NodeProto& out) {
    const std::vector<std::string> names = list_input_names(context_, node);
    // Nodes in `attr` have no parameter.
    if (names.empty() || names.size() != static_cast<std::size_t>(out.input_size())) return;
    onnx::StringStringEntryProto& entry = *out.add_metadata_props();
    entry.set_key(std::string(kInputNames));
    entry.set_value(fmt::format("['{}']", fmt::join(names, "', '")));
  }

  static void mirror_metadata(onnx::NodeProto& out) {
    for (const onnx::StringStringEntryProto& entry : out.metadata_props())
      add_attribute(out, entry.key(), onnx::AttributeProto::STRING).set_s(entry.value());
  }

  static onnx::AttributeProto& add_attribute(onnx::NodeProto& node, std::string_view name,
                                             onnx::AttributeProto::AttributeType type) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(std::string(name));
    attribute.set_type(type);
    return attribute;
  }

  // "(%0, @dim, @keepdim:bool)". Attributes go to `out`; without one, all is written in place.
  std::string print_call(const Node& node, onnx::NodeProto* out, References& references) {
    std::string call = "(";
    auto separate = [&] {
      if (call.size() > 1) call += ", ";
    };
    for (std::uint32_t i = 0; i < node.args.count; ++i) {
      separate();
      call += print_item(context_.args[node.args][i], parameter_name(node, i), out, references);
    }
    for (std::uint32_t i = 0; i + 1 < node.kwargs.count; i += 2) {
      const StringId key = context_.args[node.kwargs][i].as_name();
      separate();
      if (text::is_key(context_.text(key))) {
        call += context_.text(key);
      } else {
        printer_.quoted(context_.text(key));
        call += printer_.take();
      }
      call += '=';
      call += print_item(context_.args[node.kwargs][i + 1], keyword_name(context_, node, i), out, references);
    }
    return call + ')';
  }

  // The argument, or where it reads no node, `@name` of a new attribute.
  std::string print_item(Arg arg, std::string name, onnx::NodeProto* out, References& references) {
    bool reads_nodes = false;
    context_.args.for_each_node(arg, [&](NodeId) { reads_nodes = true; });
    if (out == nullptr || reads_nodes || arg.is_none()) {
      const Arg numbered = context_.args.map(arg, [&](Arg leaf) {
        if (!leaf.is_node()) return leaf;
        const std::string index = std::to_string(references.add(leaf.as_node()));
        return Arg::named(ArgKind::kUnresolved, context_.strings.intern(index));
      });
      printer_.arg(nullptr, numbered);
      return printer_.take();
    }
    auto is_taken = [&] {
      return std::ranges::any_of(out->attribute(), [&](const auto& other) { return other.name() == name; });
    };
    while (is_taken()) name += '_';
    onnx::AttributeProto& attribute = *out->add_attribute();
    attribute.set_name(name);
    const std::string_view kind = encode_attribute(arg, attribute);
    return kind.empty() ? fmt::format("@{}", name) : fmt::format("@{}:{}", name, kind);
  }

  // What the attribute's type does not say.
  std::string_view encode_attribute(Arg arg, onnx::AttributeProto& out) {
    switch (arg.kind()) {
      case ArgKind::kInt:
        set_integer(arg.as_int(), out);
        return "";
      case ArgKind::kBool:
        set_integer(arg.as_bool() ? 1 : 0, out);
        return "bool";
      case ArgKind::kReal:
        set_real(arg.as_real(), out);
        return "";
      case ArgKind::kText:
        set_string(context_.text(arg.as_name()), out);
        return "";
      case ArgKind::kSymbolic:
        set_string(context_.exprs.text(arg.as_expr()), out);
        return "sym";
      case ArgKind::kDevice:
        set_string(context_.text(arg.as_name()), out);
        return "device";
      case ArgKind::kDType:
        return set_dtype(context_.text(arg.as_name()), out);
      case ArgKind::kGraph:
        return set_graph(arg.as_name(), out);
      case ArgKind::kLayout:
      case ArgKind::kMemoryFormat:
      case ArgKind::kProcessGroup:
      case ArgKind::kOperator:
        set_string(context_.text(arg.as_name()), out);
        return text::keyword_of(text::kNamedArgs, arg.kind());
      case ArgKind::kList:
      case ArgKind::kTuple:
        if (set_integers(arg, out)) return arg.is(ArgKind::kTuple) ? "tuple" : "";
        [[fallthrough]];
      default:
        printer_.arg(nullptr, arg);
        set_string(printer_.take(), out);
        return "value";
    }
  }

  static void set_integer(std::int64_t value, onnx::AttributeProto& out) {
    out.set_type(onnx::AttributeProto::INT);
    out.set_i(value);
  }

  static void set_string(std::string_view value, onnx::AttributeProto& out) {
    out.set_type(onnx::AttributeProto::STRING);
    out.set_s(std::string(value));
  }

  // ONNX has floats; a double that is none becomes a tensor of one element.
  static void set_real(double value, onnx::AttributeProto& out) {
    if (is_float(value)) {
      out.set_type(onnx::AttributeProto::FLOAT);
      out.set_f(static_cast<float>(value));
      return;
    }
    out.set_type(onnx::AttributeProto::TENSOR);
    out.mutable_t()->set_data_type(onnx_dtype(DType::kFloat64));
    out.mutable_t()->add_double_data(value);
  }

  static std::string_view set_dtype(std::string_view name, onnx::AttributeProto& out) {
    const auto dtype = find_dtype(name);
    const std::int32_t number = dtype && info(*dtype).name == name ? onnx_dtype(*dtype) : 0;
    if (number != 0) {
      set_integer(number, out);
    } else {
      set_string(name, out);
    }
    return "dtype";
  }

  // The graph itself where it is first named, else its name.
  std::string_view set_graph(StringId name, onnx::AttributeProto& out) {
    const std::size_t body = body_of_.at(name);
    if (is_embedded_[body] || depth_ >= kMaxBodyDepth) {
      set_string(context_.text(name), out);
      return "graph";
    }
    embed(graph_.bodies[body], out);
    return "";
  }

  bool set_integers(Arg list, onnx::AttributeProto& out) {
    for (const Arg item : context_.args.children(list))
      if (!item.is_int()) return false;
    out.set_type(onnx::AttributeProto::INTS);
    for (const Arg item : context_.args.children(list)) out.add_ints(item.as_int());
    return true;
  }

  const Graph& graph_;
  Context& context_;
  const OnnxIr ir_;
  onnx::ModelProto& model_;
  text::Printer printer_;
  std::unordered_map<StringId, std::size_t> body_of_;
  std::vector<bool> is_embedded_;
  std::unordered_set<std::string> values_;
  int depth_ = 0;
};

}  // namespace

void encode_onnx(const Graph& graph, OnnxIr ir, onnx::ModelProto& model) {
  OnnxEncoder(graph, ir, model).encode();
}

}  // namespace epweave
