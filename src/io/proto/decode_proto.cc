#include <fmt/format.h>
#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <array>
#include <bit>

#include "epweave.pb.h"
#include "io/proto/proto_codec.h"
#include "ir/text/text_spelling.h"
#include "ops/op.h"

namespace epweave {
namespace {

using google::protobuf::Arena;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// How deep messages may lie within one another: a value is two, a value of a node's keyword lies in
// three.
constexpr int kMaxMessageDepth = 2 * text::kMaxValueDepth + 3;
constexpr int kDepthOfBody = 1, kDepthOfNode = 2;

// The fields of one message, which lies `depth` deep.
class FieldStream : public CodedInputStream {
 public:
  FieldStream(std::string_view bytes, int depth)
      : CodedInputStream(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                         static_cast<int>(bytes.size())) {
    SetRecursionLimit(kMaxMessageDepth - depth);
  }
};

template <class Message>
bool parse(std::string_view bytes, int depth, Message& message) {
  FieldStream input(bytes, depth);
  return message.ParseFromCodedStream(&input);
}

constexpr std::uint32_t length_delimited_tag(int field) {
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

// Takes a message apart: take(tag, content) is asked for each length-delimited field whether it
// keeps the bytes; all other fields are returned, in their order. None if the bytes are no fields.
template <class Take>
std::optional<std::string> split_fields(std::string_view bytes, int depth, const Take& take) {
  FieldStream input(bytes, depth);
  const auto position = [&] { return static_cast<std::size_t>(input.CurrentPosition()); };
  std::string others;
  for (;;) {
    const std::size_t begin = position();
    const std::uint32_t tag = input.ReadTag();
    if (tag == 0) break;
    if (WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      int length = 0;
      if (!input.ReadVarintSizeAsInt(&length) || !input.Skip(length)) return std::nullopt;
      const auto size = static_cast<std::size_t>(length);
      if (take(tag, bytes.substr(position() - size, size))) continue;
    } else if (!WireFormatLite::SkipField(&input, tag)) {
      return std::nullopt;
    }
    others += bytes.substr(begin, position() - begin);
  }
  return input.ConsumedEntireMessage() ? std::optional(std::move(others)) : std::nullopt;
}

// The name of a node that is not parsed yet: the first field 1, which writers put first. What is no
// node, and a node of two names, is found when it is parsed.
std::uint32_t name_ref_of(std::string_view node) {
  constexpr std::uint32_t kName = WireFormatLite::MakeTag(1, WireFormatLite::WIRETYPE_VARINT);
  FieldStream input(node, kDepthOfNode);
  std::uint32_t name = 0;
  for (;;) {
    const std::uint32_t tag = input.ReadTag();
    if (tag == kName) return input.ReadVarint32(&name) ? name : 0;
    if (tag == 0 || !WireFormatLite::SkipField(&input, tag)) return 0;
  }
}

// Takes the file apart and parses one node at a time: as messages, all nodes would be ten times the
// file.
class GraphDecoder {
 public:
  GraphDecoder(std::string_view bytes, const std::string& path, std::shared_ptr<Context> context)
      : path_(path), graph_{.context = std::move(context)}, context_(*graph_.context) {
    parse_tables(bytes);
  }

  Graph decode() {
    if (file_.magic() != "epweave") fail("not an epweave graph");
    decode_version();
    strings_.reserve(texts_.size());
    for (std::string_view text : texts_) strings_.push_back(context_.strings.intern(text));
    exprs_.resize(strings_.size());
    decode_types();
    // Node references exist only inside bodies.
    graph_.info = decode_value(file_.info());
    for (const proto::PassRun& run : file_.passes()) graph_.passes.push_back(decode_pass(run));
    for (const proto::Origin& origin : file_.origins())
      graph_.origins.push_back({text(origin.name()), text(origin.target())});
    for (const proto::ProcessGroup& group : file_.process_groups())
      graph_.groups.push_back(decode_group(group));
    for (const proto::Symbol& symbol : file_.symbols()) graph_.symbols.push_back(decode_symbol(symbol));
    for (const proto::Input& input : file_.inputs()) graph_.inputs.push_back(decode_input(input));
    for (const proto::Output& output : file_.outputs()) graph_.outputs.push_back(decode_output(output));
    for (std::string_view body : bodies_) decode_body(body);
    graph_.unknown_fields = unknown_of(file_);
    return std::move(graph_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("{}: {}", path_, what));
  }
  [[noreturn]] void fail_parse() const { fail("not a valid protobuf message"); }

  // An empty entry takes two bytes of a file and hundreds in memory, so that a small file could
  // fill it. No step has as many as these.
  void count_entry(std::uint32_t tag) {
    struct Limit {
      int field;
      std::uint32_t most;
      std::string_view entries;
    };
    static constexpr std::array<Limit, kLimitedFields> kLimits = {{
        {proto::File::kPassesFieldNumber, 1u << 17, "passes"},
        {proto::File::kProcessGroupsFieldNumber, 1u << 17, "process groups"},
        {proto::File::kGraphsFieldNumber, 1u << 17, "graphs"},
        {proto::File::kSymbolsFieldNumber, 1u << 20, "symbols"},
        {proto::File::kInputsFieldNumber, 1u << 20, "inputs"},
        {proto::File::kOutputsFieldNumber, 1u << 20, "outputs"},
    }};
    for (std::size_t i = 0; i < kLimits.size(); ++i)
      if (tag == length_delimited_tag(kLimits[i].field) && ++counts_[i] > kLimits[i].most)
        fail(fmt::format("more than {} {}, which no step has", kLimits[i].most, kLimits[i].entries));
  }

  // All of the file but its bodies and strings, which stay where they lie.
  void parse_tables(std::string_view bytes) {
    const auto others = split_fields(bytes, 0, [&](std::uint32_t tag, std::string_view content) {
      count_entry(tag);
      if (tag == length_delimited_tag(proto::File::kGraphsFieldNumber)) {
        bodies_.push_back(content);
      } else if (tag == length_delimited_tag(proto::File::kStringsFieldNumber)) {
        if (text::count_valid_utf8(content) < content.size()) fail_parse();
        texts_.push_back(content);
      } else {
        return false;
      }
      return true;
    });
    if (!others || !parse(*others, 0, file_)) fail_parse();
  }

  template <class Message>
  static std::string unknown_of(const Message& message) {
    const auto& fields = message.GetReflection()->GetUnknownFields(message);
    return fields.empty() ? std::string() : serialize(fields);
  }
  static std::string serialize(const google::protobuf::UnknownFieldSet& fields) {
    std::string bytes;
    fields.SerializeToString(&bytes);
    return bytes;
  }
  // Messages that have no room for fields of a newer format: better refused than lost.
  template <class Message>
  void refuse_unknown(const Message& message) const {
    if (!message.GetReflection()->GetUnknownFields(message).empty())
      fail(fmt::format("a {} has fields of a newer format that a rewrite could not keep",
                       message.GetTypeName()));
  }

  StringId text(std::uint32_t ref) const {
    if (ref == 0) return StringId();
    if (ref > strings_.size())
      fail(fmt::format("string {} is outside the table of {}", ref, strings_.size()));
    return strings_[ref - 1];
  }

  ExprId expr(std::uint32_t ref) {
    const StringId id = text(ref);
    if (!id) fail("an expression is missing");
    ExprId& known = exprs_[ref - 1];
    if (!known) {
      try {
        known = context_.exprs.parse(context_.strings[id]);
      } catch (const InputError& error) {
        fail(error.what());
      }
    }
    return known;
  }

  ExprId extent(std::int64_t value) {
    if (value >= 0) return context_.exprs.number(value);
    if (value < -static_cast<std::int64_t>(strings_.size()))
      fail(fmt::format("extent {} is outside the string table", value));
    return expr(static_cast<std::uint32_t>(-value));
  }

  TypeId type(std::uint32_t ref) const {
    if (ref == 0) return TypeId();
    if (ref > types_.size())
      fail(fmt::format("type {} is outside the table of {}, or refers forward", ref, types_.size()));
    return types_[ref - 1];
  }

  void decode_version() {
    const proto::Version& version = file_.version();
    if (version.format() == 0) fail("no format version");
    if (version.min_reader() > 1)
      fail(fmt::format(
          "format version {} needs a reader of version {}; this is version 1: use a newer epweave",
          version.format(), version.min_reader()));
    for (const std::string& feature : version.required_features())
      fail(fmt::format("requires feature '{}', which this version does not know: use a newer epweave",
                       feature));
    graph_.version = {version.format(), version.min_reader(), version.producer(), {}, unknown_of(version)};
  }

  void decode_types() {
    types_.reserve(static_cast<std::size_t>(file_.types_size()));
    for (const proto::Type& message : file_.types()) types_.push_back(decode_type(message));
  }

  TypeId decode_type(const proto::Type& message) {
    refuse_unknown(message);
    Type result;
    switch (message.kind_case()) {
      case proto::Type::kTensor:
        result.kind = TypeKind::kTensor;
        result.tensor = decode_tensor(message.tensor());
        break;
      case proto::Type::kScalar:
        result.kind = TypeKind::kScalar;
        result.expr = expr(message.scalar().expression());
        result.py_type = text(message.scalar().py_type());
        break;
      case proto::Type::kTuple:
      case proto::Type::kList: {
        const bool is_tuple = message.kind_case() == proto::Type::kTuple;
        result.kind = is_tuple ? TypeKind::kTuple : TypeKind::kList;
        for (std::uint32_t ref : (is_tuple ? message.tuple() : message.list()).types())
          result.elements.push_back(type(ref));
        break;
      }
      case proto::Type::kValue:
        result.kind = TypeKind::kValue;
        result.value = decode_value(message.value());
        break;
      case proto::Type::KIND_NOT_SET:
        fail("a type of a kind that this version does not know");
    }
    return context_.types.intern(std::move(result));
  }

  TensorType decode_tensor(const proto::Tensor& message) {
    refuse_unknown(message);
    TensorType tensor;
    const StringId name = text(message.dtype());
    const auto dtype = find_dtype(context_.text(name));
    if (!dtype) fail(fmt::format("unknown dtype '{}'", context_.text(name)));
    tensor.dtype = *dtype;
    for (std::int64_t e : message.sizes()) tensor.sizes.push_back(extent(e));
    for (std::int64_t e : message.strides()) tensor.strides.push_back(extent(e));
    if (message.offset() != 0) tensor.offset = extent(message.offset());
    tensor.device = text(message.device());
    tensor.layout = text(message.layout());
    tensor.requires_grad = message.requires_grad();
    tensor.subclass = text(message.subclass());
    if (!tensor.layout && tensor.strides.size() != tensor.sizes.size())
      fail(fmt::format("a tensor type has {} sizes but {} strides", tensor.sizes.size(),
                       tensor.strides.size()));
    return tensor;
  }

  // Trees are interned, so that equal types get the same id.
  Arg decode_tree(ArgKind kind, const proto::Values& values) {
    if (values.items_size() > 0 && trees_ + 2 > text::kMaxValueDepth)
      fail(fmt::format("values are nested more than {} deep", text::kMaxValueDepth));
    std::vector<Arg> children;
    children.reserve(static_cast<std::size_t>(values.items_size()));
    ++trees_;
    for (const proto::Value& item : values.items()) children.push_back(decode_value(item));
    --trees_;
    return context_.args.intern_tree(kind, children);
  }
  Arg decode_tree(ArgKind kind, const proto::Values& values, int count) {
    if (values.items_size() != count) fail("a value has the wrong number of parts");
    return decode_tree(kind, values);
  }

  Arg named(ArgKind kind, std::uint32_t ref) const {
    const StringId id = text(ref);
    if (!id) fail("a value refers to no string");
    return Arg::named(kind, id);
  }

  Arg decode_value(const proto::Value& value) {
    switch (value.kind_case()) {
      case proto::Value::kNone:
        return Arg::none();
      case proto::Value::kBoolean:
        return Arg::boolean(value.boolean());
      case proto::Value::kInteger:
        return Arg::integer(value.integer());
      case proto::Value::kReal:
        return Arg::real(value.real());
      case proto::Value::kNan:
        return Arg::real(std::bit_cast<double>(value.nan()));
      case proto::Value::kText:
        return named(ArgKind::kText, value.text());
      case proto::Value::kNode:
        return decode_node_ref(value.node());
      case proto::Value::kSymbolic:
        return Arg::symbolic(expr(value.symbolic()));
      case proto::Value::kDtype:
        return named(ArgKind::kDType, value.dtype());
      case proto::Value::kDevice:
        return named(ArgKind::kDevice, value.device());
      case proto::Value::kLayout:
        return named(ArgKind::kLayout, value.layout());
      case proto::Value::kMemoryFormat:
        return named(ArgKind::kMemoryFormat, value.memory_format());
      case proto::Value::kGraph:
        return named(ArgKind::kGraph, value.graph());
      case proto::Value::kProcessGroup:
        return named(ArgKind::kProcessGroup, value.process_group());
      case proto::Value::kOperator:
        return named(ArgKind::kOperator, value.operator_());
      case proto::Value::kEllipsis:
        return Arg::ellipsis();
      case proto::Value::kTypeRef:
        return Arg::type_ref(type(value.type_ref()));
      case proto::Value::kList:
        return decode_tree(ArgKind::kList, value.list());
      case proto::Value::kTuple:
        return decode_tree(ArgKind::kTuple, value.tuple());
      case proto::Value::kDict:
        if (value.dict().items_size() % 2 != 0) fail("a dict has a key without a value");
        return decode_tree(ArgKind::kDict, value.dict());
      case proto::Value::kSlice:
        return decode_tree(ArgKind::kSlice, value.slice(), 3);
      case proto::Value::kMesh:
        return decode_tree(ArgKind::kMesh, value.mesh());
      case proto::Value::kComplex:
        return decode_tree(ArgKind::kComplex, value.complex(), 2);
      case proto::Value::kNamedTuple:
        if (value.named_tuple().items_size() % 2 != 1) fail("a named tuple has a field without a value");
        return decode_tree(ArgKind::kNamedTuple, value.named_tuple());
      case proto::Value::kOpaque:
        return decode_tree(ArgKind::kOpaque, value.opaque());
      case proto::Value::kTensor:
        return decode_tree(ArgKind::kTensor, value.tensor(), 3);
      case proto::Value::kSet:
        return decode_tree(ArgKind::kSet, value.set());
      case proto::Value::KIND_NOT_SET:
        // An absent message reads as None (File.info, Keyword.value); one with unknown fields is of
        // a newer format.
        refuse_unknown(value);
        return Arg::none();
    }
    return Arg::none();
  }

  Arg decode_node_ref(std::uint32_t ref) const {
    const StringId name = text(ref);
    if (!name) fail("a node reference has no name");
    if (body_ == nullptr) fail(fmt::format("a reference to node '{}' outside a graph", context_.text(name)));
    const NodeId id = node_of_name_[name];
    return id ? Arg::node(id) : Arg::named(ArgKind::kUnresolved, name);
  }

  template <class Keywords>
  ArgRange decode_keywords(const Keywords& keywords) {
    std::vector<Arg> pairs;
    for (const proto::Keyword& keyword : keywords) {
      pairs.push_back(named(ArgKind::kText, keyword.name()));
      pairs.push_back(decode_value(keyword.value()));
    }
    return context_.args.add(pairs);
  }

  static PassRun decode_pass(const proto::PassRun& run) {
    return {run.name(),
            run.options(),
            run.tool(),
            run.nodes_before(),
            run.nodes_after(),
            run.input_sha256(),
            {run.notes().begin(), run.notes().end()},
            unknown_of(run)};
  }

  ProcessGroup decode_group(const proto::ProcessGroup& group) {
    ProcessGroup result;
    result.name = text(group.name());
    result.ranks.assign(group.ranks().begin(), group.ranks().end());
    result.description = text(group.description());
    if (group.has_axes()) {
      result.axes.emplace();
      for (std::uint32_t axis : group.axes()) result.axes->push_back(text(axis));
    }
    result.priority = text(group.priority());
    result.split_from = text(group.split_from());
    result.backend = text(group.backend());
    result.unknown_fields = unknown_of(group);
    return result;
  }

  Symbol decode_symbol(const proto::Symbol& symbol) {
    Symbol result;
    result.name = text(symbol.name());
    if (!result.name) fail("a symbol has no name");
    if (symbol.lower() != 0) result.lower = expr(symbol.lower());
    if (symbol.upper() != 0) result.upper = expr(symbol.upper());
    if (symbol.has_hint()) result.hint = symbol.hint();
    result.size_like = symbol.size_like();
    if (symbol.has_unbacked()) result.unbacked = symbol.unbacked();
    if (symbol.has_asserts()) {
      result.asserts.emplace();
      for (std::uint32_t ref : symbol.asserts()) result.asserts->push_back(expr(ref));
    }
    if (symbol.replaced_by() != 0) result.replaced_by = expr(symbol.replaced_by());
    for (std::uint32_t ref : symbol.assumptions()) result.assumptions.push_back(expr(ref));
    result.part_of = text(symbol.part_of());
    result.unknown_fields = unknown_of(symbol);
    return result;
  }

  InputRole decode_input(const proto::Input& input) {
    return {text(input.name()),
            text(input.role()),
            text(input.fqn()),
            text(input.which()),
            decode_keywords(input.more()),
            unknown_of(input)};
  }

  OutputRole decode_output(const proto::Output& output) {
    return {text(output.role()), text(output.fqn()), decode_keywords(output.more()), unknown_of(output)};
  }

  void decode_body(std::string_view bytes) {
    std::vector<std::string_view> nodes;
    const auto others = split_fields(bytes, kDepthOfBody, [&](std::uint32_t tag, std::string_view content) {
      const bool is_node = tag == length_delimited_tag(proto::Graph::kNodesFieldNumber);
      if (is_node) nodes.push_back(content);
      return is_node;
    });
    proto::Graph message;
    if (!others || !parse(*others, kDepthOfBody, message)) fail_parse();

    Body body;
    body.name = text(message.name());
    body.order.reserve(nodes.size());
    for (std::string_view node : nodes) {
      Node named_only;
      named_only.name = text(name_ref_of(node));
      if (!named_only.name) fail("a node has no name");
      const NodeId id = body.nodes.push_back(std::move(named_only));
      // The first of several nodes with one name; verify reports the others.
      if (NodeId& known = node_of_name_.at(body.nodes[id].name); !known) known = id;
      body.order.push_back(id);
    }
    body_ = &body;
    decode_nodes(nodes, body);
    body_ = nullptr;
    // Name by name: the table is as long as that of strings, which may be in all of many bodies.
    for (NodeId id : body.order) node_of_name_.at(body.nodes[id].name) = NodeId();
    body.unknown_fields = unknown_of(message);
    graph_.bodies.push_back(std::move(body));
  }

  void decode_nodes(const std::vector<std::string_view>& nodes, Body& body) {
    alignas(std::max_align_t) std::array<char, 1 << 14> block;  // most nodes fit
    google::protobuf::ArenaOptions options;
    options.initial_block = block.data();
    options.initial_block_size = block.size();
    Arena arena(options);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      auto* const message = Arena::CreateMessage<proto::Node>(&arena);
      if (!parse(nodes[i], kDepthOfNode, *message)) fail_parse();
      decode_node(*message, body.nodes[body.order[i]]);
      arena.Reset();
    }
  }

  void decode_node(const proto::Node& message, Node& node) {
    if (text(message.name()) != node.name)
      fail(fmt::format("node '{}' has two names", context_.text(node.name)));
    node.target = text(message.target());
    switch (message.kind()) {
      case proto::Node::CALL:
        node.kind = NodeKind::kCall;
        break;
      case proto::Node::PLACEHOLDER:
        node.kind = NodeKind::kPlaceholder;
        break;
      case proto::Node::GET_ATTR:
        node.kind = NodeKind::kGetAttr;
        break;
      case proto::Node::OUTPUT:
        node.kind = NodeKind::kOutput;
        break;
      default:
        fail(fmt::format("node '{}' is of a kind that this version does not know", context_.text(node.name)));
    }
    if (!node.target) fail(fmt::format("node '{}' has no target", context_.text(node.name)));
    resolve_op(context_, node);
    scratch_.clear();
    for (const proto::Value& value : message.args()) scratch_.push_back(decode_value(value));
    node.args = context_.args.add(scratch_);
    node.kwargs = decode_keywords(message.kwargs());
    node.type = type(message.type());
    if (message.has_attr()) node.attr = decode_value(message.attr());
    node.module = text(message.module());
    if (message.has_backward()) node.backward = message.backward();
    if (message.has_seq_nr()) node.seq_nr = message.seq_nr();
    node.source = text(message.source());
    if (message.has_ep()) node.ep = decode_ep(message.ep());
    if (message.has_chunk()) node.chunk = decode_chunk(message.chunk());
    node.recompute = text(message.recompute());
    node.has_custom = message.has_custom();
    decode_extra(message, node);
    if (message.provenance_size() > 0) {
      std::vector<Provenance> records;
      for (const proto::Provenance& record : message.provenance())
        records.push_back(decode_provenance(record));
      node.provenance = context_.own(records);
    }
  }

  void decode_extra(const proto::Node& message, Node& node) {
    NodeExtra extra;
    extra.example_type = type(message.example_type());
    extra.py_type = text(message.py_type());
    for (const proto::Binding& binding : message.bindings()) {
      refuse_unknown(binding);
      std::vector<Arg> path;
      for (const proto::Value& step : binding.path()) path.push_back(decode_value(step));
      extra.bindings.push_back({text(binding.symbol()), context_.args.add(path)});
    }
    for (const proto::Hint& hint : message.chunk_hints())
      extra.chunk_hints.emplace_back(text(hint.symbol()), hint.value());
    extra.custom = decode_keywords(message.custom());
    extra.meta = decode_keywords(message.meta());
    extra.unknown_fields = unknown_of(message);
    const bool is_empty = !extra.example_type && !extra.py_type && extra.bindings.empty() &&
                          extra.chunk_hints.empty() && extra.custom.empty() && extra.meta.empty() &&
                          extra.unknown_fields.empty();
    if (!is_empty) node.extra = context_.own(std::move(extra));
  }

  EpLabels decode_ep(const proto::Ep& ep) const {
    refuse_unknown(ep);
    return {text(ep.ep()), text(ep.token_count_exchange()), text(ep.token_count_sync()),
            text(ep.token_exchange()), text(ep.token_exchange_wait())};
  }

  ChunkInfo decode_chunk(const proto::Chunk& chunk) const {
    refuse_unknown(chunk);
    ChunkInfo result;
    result.region = text(chunk.region());
    result.role = text(chunk.role());
    if (chunk.has_part()) {
      if (chunk.part() < 0 || chunk.part() > INT32_MAX)
        fail(fmt::format("chunk part {} is out of range", chunk.part()));
      result.part = static_cast<std::int32_t>(chunk.part());
    }
    if (chunk.has_backward()) result.backward = chunk.backward();
    result.producer = text(chunk.producer());
    result.original_name = text(chunk.original_name());
    result.proof = text(chunk.proof());
    return result;
  }

  Provenance decode_provenance(const proto::Provenance& record) {
    refuse_unknown(record);
    if (record.role() < 0 || record.role() > proto::Provenance::SPECIALIZED)
      fail(fmt::format("provenance role {} is not known to this version", static_cast<int>(record.role())));
    Provenance result;
    result.pass = text(record.pass());
    result.role = static_cast<ProvenanceRole>(record.role());
    std::vector<StringId> origins;
    for (std::uint32_t ref : record.origins()) origins.push_back(text(ref));
    result.origins = context_.own(origins);
    result.part = record.part();
    result.parts = record.parts();
    result.region = text(record.region());
    if (record.has_backward()) result.backward = record.backward();
    result.reason = text(record.reason());
    return result;
  }

  static constexpr std::size_t kLimitedFields = 6;

  const std::string& path_;
  proto::File file_;  // but for its bodies and strings
  std::array<std::uint32_t, kLimitedFields> counts_{};
  std::vector<std::string_view> bodies_, texts_;
  Graph graph_;
  Context& context_;
  std::vector<StringId> strings_;
  std::vector<ExprId> exprs_;
  std::vector<TypeId> types_;
  SideTable<StringId, NodeId> node_of_name_;
  const Body* body_ = nullptr;
  std::vector<Arg> scratch_;
  int trees_ = 0;  // around the value that is decoded
};

}  // namespace

Graph decode_proto(std::string_view bytes, const std::string& path, std::shared_ptr<Context> context) {
  return GraphDecoder(bytes, path, std::move(context)).decode();
}

}  // namespace epweave
