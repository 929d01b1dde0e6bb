#include <algorithm>
#include <bit>
#include <cmath>

#include "io/proto/proto_codec.h"

namespace epweave {
namespace {

// Walks the graph in the order of the message's field numbers, depth first, so that tables are numbered by
// first use. That order is the format's canonical form: every function here fills its message's fields in
// order of their numbers.
class Encoder {
 public:
  Encoder(const Graph& graph, proto::File& file) : graph_(graph), context_(*graph.context), file_(file) {
    string_refs_.resize(context_.strings.size());
    type_refs_.resize(context_.types.size());
  }

  void encode() {
    file_.set_magic("epweave");
    encode_version();
    encode_value(graph_.info, *file_.mutable_info());
    for (const PassRun& run : graph_.passes) encode_pass(run, *file_.add_passes());
    for (const Origin& origin : graph_.origins) {
      proto::Origin& out = *file_.add_origins();
      out.set_name(ref(origin.name));
      out.set_target(ref(origin.target));
    }
    for (const ProcessGroup& group : graph_.groups) encode_group(group, *file_.add_process_groups());
    for (const Symbol& symbol : graph_.symbols) encode_symbol(symbol, *file_.add_symbols());
    for (const InputRole& input : graph_.inputs) encode_input(input, *file_.add_inputs());
    for (const OutputRole& output : graph_.outputs) encode_output(output, *file_.add_outputs());
    for (const Body& body : graph_.bodies) encode_body(body, *file_.add_graphs());
    restore_unknown(graph_.unknown_fields, file_);
  }

 private:
  template <class Message>
  static void restore_unknown(const std::string& fields, Message& message) {
    if (!fields.empty())
      EPWEAVE_CHECK(message.GetReflection()->MutableUnknownFields(&message)->ParseFromString(fields));
  }

  std::uint32_t ref(StringId id) {
    if (!id) return 0;
    if (id.index() >= string_refs_.size()) string_refs_.resize(context_.strings.size());
    std::uint32_t& number = string_refs_[id.index()];
    if (number == 0) {
      file_.add_strings(std::string(context_.strings[id]));
      number = static_cast<std::uint32_t>(file_.strings_size());
    }
    return number;
  }
  std::uint32_t ref(ExprId id) { return ref(context_.exprs.text_id(id)); }

  std::int64_t extent(ExprId id) {
    if (auto value = context_.exprs.constant(id); value && *value >= 0) return *value;
    return -static_cast<std::int64_t>(ref(id));
  }

  std::uint32_t ref(TypeId id) {
    if (!id) return 0;
    if (type_refs_[id.index()] == 0) {
      const Type& type = context_.types[id];
      for (TypeId element : type.elements) ref(element);  // element types come first in the table
      proto::Type message;
      encode_type(type, message);
      *file_.add_types() = std::move(message);
      type_refs_[id.index()] = static_cast<std::uint32_t>(file_.types_size());
    }
    return type_refs_[id.index()];
  }

  void encode_type(const Type& type, proto::Type& out) {
    switch (type.kind) {
      case TypeKind::kTensor:
        encode_tensor(type.tensor, *out.mutable_tensor());
        break;
      case TypeKind::kScalar:
        out.mutable_scalar()->set_expression(ref(type.expr));
        out.mutable_scalar()->set_py_type(ref(type.py_type));
        break;
      case TypeKind::kTuple:
      case TypeKind::kList: {
        proto::Elements& elements =
            type.kind == TypeKind::kTuple ? *out.mutable_tuple() : *out.mutable_list();
        for (TypeId element : type.elements) elements.add_types(ref(element));
        break;
      }
      case TypeKind::kValue:
        encode_value(type.value, *out.mutable_value());
        break;
    }
  }

  void encode_tensor(const TensorType& tensor, proto::Tensor& out) {
    out.set_dtype(ref(context_.strings.find(info(tensor.dtype).name)));
    for (ExprId e : tensor.sizes) out.add_sizes(extent(e));
    for (ExprId e : tensor.strides) out.add_strides(extent(e));
    if (tensor.offset) out.set_offset(extent(tensor.offset));
    out.set_device(ref(tensor.device));
    out.set_layout(ref(tensor.layout));
    out.set_requires_grad(tensor.requires_grad);
    out.set_subclass(ref(tensor.subclass));
  }

  void encode_values(Arg tree, proto::Values& out) {
    for (Arg child : context_.args.children(tree)) encode_value(child, *out.add_items());
  }

  void encode_value(Arg arg, proto::Value& out) {
    switch (arg.kind()) {
      case ArgKind::kNone:
        out.set_none(true);
        break;
      case ArgKind::kBool:
        out.set_boolean(arg.as_bool());
        break;
      case ArgKind::kInt:
        out.set_integer(arg.as_int());
        break;
      case ArgKind::kReal:
        if (std::isnan(arg.as_real())) {
          out.set_nan(arg.bits());
        } else {
          out.set_real(arg.as_real());
        }
        break;
      case ArgKind::kText:
        out.set_text(ref(arg.as_name()));
        break;
      case ArgKind::kNode:
        out.set_node(ref(body_->nodes[arg.as_node()].name));
        break;
      case ArgKind::kUnresolved:
        out.set_node(ref(arg.as_name()));
        break;
      case ArgKind::kSymbolic:
        out.set_symbolic(ref(arg.as_expr()));
        break;
      case ArgKind::kDType:
        out.set_dtype(ref(arg.as_name()));
        break;
      case ArgKind::kDevice:
        out.set_device(ref(arg.as_name()));
        break;
      case ArgKind::kLayout:
        out.set_layout(ref(arg.as_name()));
        break;
      case ArgKind::kMemoryFormat:
        out.set_memory_format(ref(arg.as_name()));
        break;
      case ArgKind::kGraph:
        out.set_graph(ref(arg.as_name()));
        break;
      case ArgKind::kProcessGroup:
        out.set_process_group(ref(arg.as_name()));
        break;
      case ArgKind::kOperator:
        out.set_operator_(ref(arg.as_name()));
        break;
      case ArgKind::kEllipsis:
        out.set_ellipsis(true);
        break;
      case ArgKind::kTypeRef:
        out.set_type_ref(ref(arg.as_type()));
        break;
      case ArgKind::kList:
        encode_values(arg, *out.mutable_list());
        break;
      case ArgKind::kTuple:
        encode_values(arg, *out.mutable_tuple());
        break;
      case ArgKind::kDict:
        encode_values(arg, *out.mutable_dict());
        break;
      case ArgKind::kSlice:
        encode_values(arg, *out.mutable_slice());
        break;
      case ArgKind::kMesh:
        encode_values(arg, *out.mutable_mesh());
        break;
      case ArgKind::kComplex:
        encode_values(arg, *out.mutable_complex());
        break;
      case ArgKind::kNamedTuple:
        encode_values(arg, *out.mutable_named_tuple());
        break;
      case ArgKind::kOpaque:
        encode_values(arg, *out.mutable_opaque());
        break;
      case ArgKind::kTensor:
        encode_values(arg, *out.mutable_tensor());
        break;
      case ArgKind::kSet:
        encode_values(arg, *out.mutable_set());
        break;
    }
  }

  template <class AddKeyword>
  void encode_keywords(ArgRange range, const AddKeyword& add) {
    const std::span<const Arg> pairs = context_.args[range];
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
      proto::Keyword& keyword = *add();
      keyword.set_name(ref(pairs[i].as_name()));
      encode_value(pairs[i + 1], *keyword.mutable_value());
    }
  }

  void encode_version() {
    proto::Version& out = *file_.mutable_version();
    out.set_format(graph_.version.format);
    out.set_min_reader(graph_.version.min_reader);
    out.set_producer(graph_.version.producer);
    for (const std::string& feature : graph_.version.required_features) out.add_required_features(feature);
    restore_unknown(graph_.version.unknown_fields, out);
  }

  static void encode_pass(const PassRun& run, proto::PassRun& out) {
    out.set_name(run.name);
    out.set_options(run.options);
    out.set_tool(run.tool);
    out.set_nodes_before(run.nodes_before);
    out.set_nodes_after(run.nodes_after);
    out.set_input_sha256(run.input_sha256);
    for (const std::string& note : run.notes) out.add_notes(note);
    restore_unknown(run.unknown_fields, out);
  }

  void encode_group(const ProcessGroup& group, proto::ProcessGroup& out) {
    out.set_name(ref(group.name));
    for (std::uint32_t rank : group.ranks) out.add_ranks(rank);
    out.set_description(ref(group.description));
    if (group.axes) {
      for (StringId axis : *group.axes) out.add_axes(ref(axis));
      out.set_has_axes(true);
    }
    out.set_priority(ref(group.priority));
    out.set_split_from(ref(group.split_from));
    out.set_backend(ref(group.backend));
    restore_unknown(group.unknown_fields, out);
  }

  void encode_symbol(const Symbol& symbol, proto::Symbol& out) {
    out.set_name(ref(symbol.name));
    if (symbol.lower) out.set_lower(ref(*symbol.lower));
    if (symbol.upper) out.set_upper(ref(*symbol.upper));
    if (symbol.hint) out.set_hint(*symbol.hint);
    out.set_size_like(symbol.size_like);
    if (symbol.unbacked) out.set_unbacked(*symbol.unbacked);
    if (symbol.asserts) {
      for (ExprId e : *symbol.asserts) out.add_asserts(ref(e));
      out.set_has_asserts(true);
    }
    if (symbol.replaced_by) out.set_replaced_by(ref(*symbol.replaced_by));
    for (ExprId e : symbol.assumptions) out.add_assumptions(ref(e));
    out.set_part_of(ref(symbol.part_of));
    restore_unknown(symbol.unknown_fields, out);
  }

  void encode_input(const InputRole& input, proto::Input& out) {
    out.set_name(ref(input.name));
    out.set_role(ref(input.role));
    out.set_fqn(ref(input.fqn));
    out.set_which(ref(input.which));
    encode_keywords(input.more, [&] { return out.add_more(); });
    restore_unknown(input.unknown_fields, out);
  }

  void encode_output(const OutputRole& output, proto::Output& out) {
    out.set_role(ref(output.role));
    out.set_fqn(ref(output.fqn));
    encode_keywords(output.more, [&] { return out.add_more(); });
    restore_unknown(output.unknown_fields, out);
  }

  void encode_body(const Body& body, proto::Graph& out) {
    body_ = &body;
    out.set_name(ref(body.name));
    out.mutable_nodes()->Reserve(static_cast<int>(body.order.size()));
    for (NodeId id : body.order) encode_node(body.nodes[id], *out.add_nodes());
    restore_unknown(body.unknown_fields, out);
  }

  void encode_node(const Node& node, proto::Node& out) {
    static const NodeExtra kNoExtra;
    const NodeExtra& extra = node.extra ? *node.extra : kNoExtra;
    out.set_name(ref(node.name));
    out.set_kind(kind_of(node.kind));
    out.set_target(ref(node.target));
    for (Arg arg : context_.args[node.args]) encode_value(arg, *out.add_args());
    encode_keywords(node.kwargs, [&] { return out.add_kwargs(); });
    out.set_type(ref(node.type));
    out.set_example_type(ref(extra.example_type));
    if (node.kind == NodeKind::kGetAttr) encode_value(node.attr, *out.mutable_attr());
    out.set_py_type(ref(extra.py_type));
    out.set_module(ref(node.module));
    if (node.backward) out.set_backward(*node.backward);
    if (node.seq_nr) out.set_seq_nr(*node.seq_nr);
    out.set_source(ref(node.source));
    if (!(node.ep == EpLabels())) encode_ep(node.ep, *out.mutable_ep());
    if (!(node.chunk == ChunkInfo())) encode_chunk(node.chunk, *out.mutable_chunk());
    out.set_recompute(ref(node.recompute));
    for (const Binding& binding : extra.bindings) {
      proto::Binding& message = *out.add_bindings();
      message.set_symbol(ref(binding.symbol));
      for (Arg step : context_.args[binding.path]) encode_value(step, *message.add_path());
    }
    for (auto [symbol, value] : extra.chunk_hints) {
      proto::Hint& hint = *out.add_chunk_hints();
      hint.set_symbol(ref(symbol));
      hint.set_value(value);
    }
    out.set_has_custom(node.has_custom);
    encode_keywords(extra.custom, [&] { return out.add_custom(); });
    encode_keywords(extra.meta, [&] { return out.add_meta(); });
    for (const Provenance& record : node.provenance) encode_provenance(record, *out.add_provenance());
    restore_unknown(extra.unknown_fields, out);
  }

  static proto::Node::Kind kind_of(NodeKind kind) {
    switch (kind) {
      case NodeKind::kCall:
        return proto::Node::CALL;
      case NodeKind::kPlaceholder:
        return proto::Node::PLACEHOLDER;
      case NodeKind::kGetAttr:
        return proto::Node::GET_ATTR;
      case NodeKind::kOutput:
        return proto::Node::OUTPUT;
    }
    return proto::Node::CALL;
  }

  void encode_ep(const EpLabels& ep, proto::Ep& out) {
    out.set_ep(ref(ep.ep));
    out.set_token_count_exchange(ref(ep.token_count_exchange));
    out.set_token_count_sync(ref(ep.token_count_sync));
    out.set_token_exchange(ref(ep.token_exchange));
    out.set_token_exchange_wait(ref(ep.token_exchange_wait));
  }

  void encode_chunk(const ChunkInfo& chunk, proto::Chunk& out) {
    out.set_region(ref(chunk.region));
    out.set_role(ref(chunk.role));
    if (chunk.part) out.set_part(*chunk.part);
    if (chunk.backward) out.set_backward(*chunk.backward);
    out.set_producer(ref(chunk.producer));
    out.set_original_name(ref(chunk.original_name));
    out.set_proof(ref(chunk.proof));
  }

  void encode_provenance(const Provenance& record, proto::Provenance& out) {
    out.set_pass(ref(record.pass));
    out.set_role(static_cast<proto::Provenance::Role>(record.role));
    for (StringId origin : record.origins) out.add_origins(ref(origin));
    out.set_part(record.part);
    out.set_parts(record.parts);
    out.set_region(ref(record.region));
    if (record.backward) out.set_backward(*record.backward);
    out.set_reason(ref(record.reason));
  }

  const Graph& graph_;
  Context& context_;
  proto::File& file_;
  const Body* body_ = nullptr;
  std::vector<std::uint32_t> string_refs_, type_refs_;
};

}  // namespace

void encode_proto(const Graph& graph, proto::File& file) {
  for (const DTypeInfo& dtype : dtypes()) graph.context->strings.intern(dtype.name);
  Encoder(graph, file).encode();
}

}  // namespace epweave
