#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/unknown_field_set.h>

#include <cmath>
#include <map>

#include "io/proto/proto_codec.h"
#include "io/proto/wire_writer.h"

namespace epweave {
namespace {

// Walks the graph in the order of the message's field numbers, depth first, so that tables are
// numbered by first use. That order is the format's canonical form: every function here writes its
// message's fields in order of their numbers, which are those of proto/epweave.proto.
class GraphEncoder {
 public:
  explicit GraphEncoder(const Graph& graph) : graph_(graph), context_(*graph.context) {
    string_refs_.resize(context_.strings.size());
    type_refs_.resize(context_.types.size());
  }

  std::vector<std::string> encode() {
    out_.put_text(1, "epweave");
    message(2, [&] { encode_version(); });
    encode_value(3, graph_.info);
    for (const PassRun& run : graph_.passes) message(4, [&] { encode_pass(run); });
    for (const Origin& origin : graph_.origins)
      message(5, [&] {
        out_.put(1, ref(origin.name));
        out_.put(2, ref(origin.target));
      });
    for (const ProcessGroup& group : graph_.groups) message(6, [&] { encode_group(group); });
    for (const Symbol& symbol : graph_.symbols) message(7, [&] { encode_symbol(symbol); });
    for (const InputRole& input : graph_.inputs) message(8, [&] { encode_input(input); });
    for (const OutputRole& output : graph_.outputs) message(9, [&] { encode_output(output); });
    for (const Body& body : graph_.bodies) message(10, [&] { encode_body(body); });
    out_.append(types_.take());
    for (StringId id : strings_) {
      out_.set_text(14, context_.strings[id]);
      out_.cut_if_long();
    }
    append_unknown(graph_.unknown_fields);
    return out_.take_pieces();
  }

 private:
  template <class WriteFields>
  void message(int field, const WriteFields& write_fields) {
    const WireWriter::Open open = out_.open(field);
    write_fields();
    out_.close(open);
  }

  // In the form that protobuf gives them, after the known fields.
  void append_unknown(const std::string& fields) {
    if (fields.empty()) return;
    google::protobuf::io::CodedInputStream input(reinterpret_cast<const std::uint8_t*>(fields.data()),
                                                 static_cast<int>(fields.size()));
    input.SetRecursionLimit(INT32_MAX);  // a reader has limited the depth of groups
    google::protobuf::UnknownFieldSet set;
    std::string bytes;
    EPWEAVE_CHECK(set.ParseFromCodedStream(&input) && set.SerializeToString(&bytes));
    out_.append(bytes);
  }

  // Nearly all name a string that is in the table: that is inlined.
  std::uint32_t ref(StringId id) {
    if (!id) return 0;
    const std::uint32_t number = id.index() < string_refs_.size() ? string_refs_[id.index()] : 0;
    return number != 0 ? number : add_string(id);
  }
  [[gnu::noinline]] std::uint32_t add_string(StringId id) {
    if (id.index() >= string_refs_.size()) string_refs_.resize(context_.strings.size());
    strings_.push_back(id);
    return string_refs_[id.index()] = static_cast<std::uint32_t>(strings_.size());
  }
  std::uint32_t ref(ExprId id) { return ref(context_.exprs.text_id(id)); }

  // Numbers, by add(item) for each; no field where there is none.
  template <class Items, class Add>
  void packed(int field, const Items& items, const Add& add) {
    if (!items.empty())
      message(field, [&] {
        for (const auto& item : items) add(item);
      });
  }
  template <class Items>
  void packed_refs(int field, const Items& items) {
    packed(field, items, [&](auto id) { out_.add(ref(id)); });
  }
  void packed_extents(int field, const std::vector<ExprId>& extents) {
    packed(field, extents, [&](ExprId e) { out_.add_signed(extent(e)); });
  }

  std::int64_t extent(ExprId id) {
    if (auto value = context_.exprs.constant(id); value && *value >= 0) return *value;
    return -static_cast<std::int64_t>(ref(id));
  }

  std::uint32_t ref(TypeId id) {
    if (!id) return 0;
    if (type_refs_[id.index()] == 0) {
      const Type& type = context_.types[id];
      for (TypeId element : type.elements) ref(element);  // element types come first in the table
      WireWriter outer = std::exchange(out_, WireWriter());
      message(13, [&] { encode_type(type); });
      types_.append(std::exchange(out_, std::move(outer)).take());
      type_refs_[id.index()] = ++type_count_;
    }
    return type_refs_[id.index()];
  }

  void encode_type(const Type& type) {
    switch (type.kind) {
      case TypeKind::kTensor:
        message(1, [&] { encode_tensor(type.tensor); });
        break;
      case TypeKind::kScalar:
        message(2, [&] {
          out_.put(1, ref(type.expr));
          out_.put(2, ref(type.py_type));
        });
        break;
      case TypeKind::kTuple:
      case TypeKind::kList:
        message(type.kind == TypeKind::kTuple ? 3 : 4, [&] { packed_refs(1, type.elements); });
        break;
      case TypeKind::kValue:
        encode_value(5, type.value);
        break;
    }
  }

  void encode_tensor(const TensorType& tensor) {
    out_.put(1, ref(context_.strings.find(info(tensor.dtype).name)));
    packed_extents(2, tensor.sizes);
    packed_extents(3, tensor.strides);
    if (tensor.offset) out_.put_signed(4, extent(tensor.offset));
    out_.put(5, ref(tensor.device));
    out_.put(6, ref(tensor.layout));
    out_.put(7, tensor.requires_grad);
    out_.put(8, ref(tensor.subclass));
  }

  void encode_value(int field, Arg arg) {
    message(field, [&] { encode_kind(arg); });
  }

  void encode_tree(int field, Arg tree) {
    message(field, [&] {
      for (Arg child : context_.args.children(tree)) encode_value(1, child);
    });
  }

  // The field of the oneof in Value.
  void encode_kind(Arg arg) {
    switch (arg.kind()) {
      case ArgKind::kNone:
        out_.set(1, 1);
        break;
      case ArgKind::kBool:
        out_.set(2, arg.as_bool());
        break;
      case ArgKind::kInt:
        out_.set_signed(3, arg.as_int());
        break;
      case ArgKind::kReal:
        out_.set_fixed64(std::isnan(arg.as_real()) ? 5 : 4, arg.bits());
        break;
      case ArgKind::kText:
        out_.set(6, ref(arg.as_name()));
        break;
      case ArgKind::kNode:
        out_.set(7, ref(body_->nodes[arg.as_node()].name));
        break;
      case ArgKind::kUnresolved:
        out_.set(7, ref(arg.as_name()));
        break;
      case ArgKind::kSymbolic:
        out_.set(8, ref(arg.as_expr()));
        break;
      case ArgKind::kDType:
        out_.set(13, ref(arg.as_name()));
        break;
      case ArgKind::kDevice:
        out_.set(14, ref(arg.as_name()));
        break;
      case ArgKind::kLayout:
        out_.set(15, ref(arg.as_name()));
        break;
      case ArgKind::kMemoryFormat:
        out_.set(16, ref(arg.as_name()));
        break;
      case ArgKind::kGraph:
        out_.set(17, ref(arg.as_name()));
        break;
      case ArgKind::kProcessGroup:
        out_.set(19, ref(arg.as_name()));
        break;
      case ArgKind::kOperator:
        out_.set(24, ref(arg.as_name()));
        break;
      case ArgKind::kEllipsis:
        out_.set(20, 1);
        break;
      case ArgKind::kTypeRef:
        out_.set(26, ref(arg.as_type()));
        break;
      case ArgKind::kList:
        encode_tree(9, arg);
        break;
      case ArgKind::kTuple:
        encode_tree(10, arg);
        break;
      case ArgKind::kDict:
        encode_tree(11, arg);
        break;
      case ArgKind::kSlice:
        encode_tree(12, arg);
        break;
      case ArgKind::kMesh:
        encode_tree(18, arg);
        break;
      case ArgKind::kComplex:
        encode_tree(21, arg);
        break;
      case ArgKind::kNamedTuple:
        encode_tree(22, arg);
        break;
      case ArgKind::kOpaque:
        encode_tree(23, arg);
        break;
      case ArgKind::kTensor:
        encode_tree(25, arg);
        break;
      case ArgKind::kSet:
        encode_tree(27, arg);
        break;
    }
  }

  void encode_keywords(int field, ArgRange range) {
    const std::span<const Arg> pairs = context_.args[range];
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2)
      message(field, [&] {
        out_.put(1, ref(pairs[i].as_name()));
        encode_value(2, pairs[i + 1]);
      });
  }

  // Metadata is the same for many nodes of a body: its bytes are made once. The context stores
  // equal metadata once (Context::own), so that where it lies tells it apart.
  void encode_metadata(int field, ArgRange range) {
    if (range.empty()) return;
    std::string& bytes = metadata_[{field, range.begin}];
    if (bytes.empty()) {
      WireWriter outer = std::exchange(out_, WireWriter());
      encode_keywords(field, range);
      bytes = std::exchange(out_, std::move(outer)).take();
    }
    out_.append(bytes);
  }

  void encode_version() {
    out_.put(1, graph_.version.format);
    out_.put(2, graph_.version.min_reader);
    out_.put_text(3, graph_.version.producer);
    for (const std::string& feature : graph_.version.required_features) out_.set_text(4, feature);
    append_unknown(graph_.version.unknown_fields);
  }

  void encode_pass(const PassRun& run) {
    out_.put_text(1, run.name);
    out_.put_text(2, run.options);
    out_.put_text(3, run.tool);
    out_.put(4, run.nodes_before);
    out_.put(5, run.nodes_after);
    out_.put_text(6, run.input_sha256);
    for (const std::string& note : run.notes) out_.set_text(7, note);
    append_unknown(run.unknown_fields);
  }

  void encode_group(const ProcessGroup& group) {
    out_.put(1, ref(group.name));
    packed(2, group.ranks, [&](std::uint32_t rank) { out_.add(rank); });
    out_.put(3, ref(group.description));
    if (group.axes) packed_refs(4, *group.axes);
    out_.put(5, group.axes.has_value());
    out_.put(6, ref(group.priority));
    out_.put(7, ref(group.split_from));
    out_.put(8, ref(group.backend));
    append_unknown(group.unknown_fields);
  }

  void encode_symbol(const Symbol& symbol) {
    out_.put(1, ref(symbol.name));
    if (symbol.lower) out_.put(2, ref(*symbol.lower));
    if (symbol.upper) out_.put(3, ref(*symbol.upper));
    if (symbol.hint) out_.set_signed(4, *symbol.hint);
    out_.put(5, symbol.size_like);
    if (symbol.unbacked) out_.set(6, *symbol.unbacked);
    if (symbol.asserts) packed_refs(7, *symbol.asserts);
    out_.put(8, symbol.asserts.has_value());
    if (symbol.replaced_by) out_.put(9, ref(*symbol.replaced_by));
    packed_refs(10, symbol.assumptions);
    out_.put(11, ref(symbol.part_of));
    append_unknown(symbol.unknown_fields);
  }

  void encode_input(const InputRole& input) {
    out_.put(1, ref(input.name));
    out_.put(2, ref(input.role));
    out_.put(3, ref(input.fqn));
    out_.put(4, ref(input.which));
    encode_keywords(5, input.more);
    append_unknown(input.unknown_fields);
  }

  void encode_output(const OutputRole& output) {
    out_.put(1, ref(output.role));
    out_.put(2, ref(output.fqn));
    encode_keywords(3, output.more);
    append_unknown(output.unknown_fields);
  }

  void encode_body(const Body& body) {
    body_ = &body;
    metadata_.clear();  // it may name nodes of the body
    out_.put(1, ref(body.name));
    for (NodeId id : body.order) {
      message(2, [&] { encode_node(body.nodes[id]); });
      out_.cut_if_long();
    }
    append_unknown(body.unknown_fields);
  }

  void encode_node(const Node& node) {
    static const NodeExtra kNoExtra;
    const NodeExtra& extra = node.extra ? *node.extra : kNoExtra;
    out_.put(1, ref(node.name));
    out_.put(2, number_of(node.kind));
    out_.put(3, ref(node.target));
    for (Arg arg : context_.args[node.args]) encode_value(4, arg);
    encode_keywords(5, node.kwargs);
    out_.put(6, ref(node.type));
    out_.put(7, ref(extra.example_type));
    if (node.kind == NodeKind::kGetAttr) encode_value(8, node.attr);
    out_.put(9, ref(extra.py_type));
    out_.put(10, ref(node.module));
    if (node.backward) out_.set(11, *node.backward);
    if (node.seq_nr) out_.set_signed(12, *node.seq_nr);
    out_.put(13, ref(node.source));
    if (!(node.ep == EpLabels())) message(14, [&] { encode_ep(node.ep); });
    if (!(node.chunk == ChunkInfo())) message(15, [&] { encode_chunk(node.chunk); });
    out_.put(16, ref(node.recompute));
    for (const Binding& binding : extra.bindings) message(17, [&] { encode_binding(binding); });
    for (const auto& hint : extra.chunk_hints)
      message(18, [&] {
        out_.put(1, ref(hint.first));
        out_.put_signed(2, hint.second);
      });
    out_.put(19, node.has_custom);
    encode_metadata(20, extra.custom);
    encode_metadata(21, extra.meta);
    for (const Provenance& record : node.provenance) message(22, [&] { encode_provenance(record); });
    append_unknown(extra.unknown_fields);
  }

  static unsigned number_of(NodeKind kind) {
    switch (kind) {
      case NodeKind::kCall:
        return 0;
      case NodeKind::kPlaceholder:
        return 1;
      case NodeKind::kGetAttr:
        return 2;
      case NodeKind::kOutput:
        return 3;
    }
    return 0;
  }

  void encode_binding(const Binding& binding) {
    out_.put(1, ref(binding.symbol));
    for (Arg step : context_.args[binding.path]) encode_value(2, step);
  }

  void encode_ep(const EpLabels& ep) {
    out_.put(1, ref(ep.ep));
    out_.put(2, ref(ep.token_count_exchange));
    out_.put(3, ref(ep.token_count_sync));
    out_.put(4, ref(ep.token_exchange));
    out_.put(5, ref(ep.token_exchange_wait));
  }

  void encode_chunk(const ChunkInfo& chunk) {
    out_.put(1, ref(chunk.region));
    out_.put(2, ref(chunk.role));
    if (chunk.part) out_.set_signed(3, *chunk.part);
    if (chunk.backward) out_.set(4, *chunk.backward);
    out_.put(5, ref(chunk.producer));
    out_.put(6, ref(chunk.original_name));
    out_.put(7, ref(chunk.proof));
  }

  void encode_provenance(const Provenance& record) {
    out_.put(1, ref(record.pass));
    out_.put(2, static_cast<unsigned>(record.role));  // the roles of the message, in its order
    packed_refs(3, record.origins);
    out_.put(4, record.part);
    out_.put(5, record.parts);
    out_.put(6, ref(record.region));
    if (record.backward) out_.set(7, *record.backward);
    out_.put(8, ref(record.reason));
  }

  const Graph& graph_;
  Context& context_;
  WireWriter out_;
  WireWriter types_;               // the table's messages
  std::uint32_t type_count_ = 0;   // of them
  std::vector<StringId> strings_;  // the table
  const Body* body_ = nullptr;
  std::map<std::pair<int, std::uint32_t>, std::string> metadata_;  // its fields' bytes
  std::vector<std::uint32_t> string_refs_, type_refs_;             // numbers from 1; 0: not in the table yet
};

}  // namespace

std::vector<std::string> encode_proto(const Graph& graph) {
  for (const DTypeInfo& dtype : dtypes()) graph.context->strings.intern(dtype.name);
  return GraphEncoder(graph).encode();
}

}  // namespace epweave
