#include <fmt/format.h>
#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>

#include <array>
#include <bit>
#include <unordered_map>

#include "epweave.pb.h"
#include "io/proto/proto_codec.h"
#include "io/proto/wire_reader.h"
#include "ir/text/text_spelling.h"
#include "ops/op.h"

namespace epweave {
namespace {

using google::protobuf::io::CodedInputStream;

// How deep messages of the tables may lie within one another: a value is two, a value of a keyword
// lies in two.
constexpr int kMaxMessageDepth = 2 * text::kMaxValueDepth + 3;

template <class Message>
bool parse(std::string_view bytes, Message& message) {
  CodedInputStream input(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size()));
  input.SetRecursionLimit(kMaxMessageDepth);
  return message.ParseFromCodedStream(&input);
}

// Takes a message apart: take(tag, content) is asked for each length-delimited field whether it
// keeps the bytes; all other fields are returned, in their order. None if the bytes are no fields.
template <class Take>
std::optional<std::string> split_fields(std::string_view bytes, const Take& take) {
  WireReader in(bytes);
  std::string others;
  while (in.next())
    if (!in.is_bytes() || !take(in.tag(), in.content())) others += in.field();
  return in.is_broken() ? std::nullopt : std::optional(std::move(others));
}

// The name of a node that is not parsed yet: the first field 1, which writers put first. What is no
// node, and a node of two names, is found when it is parsed.
std::uint32_t name_ref_of(std::string_view node) {
  WireReader in(node);
  while (in.next())
    if (in.tag() == number_tag(1)) return in.ref();
  return 0;
}

// Takes the file apart. Its tables are parsed by protobuf, nodes are read where they lie: they are
// nearly all of a file.
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
    graph_.origins.reserve(origin_rows_.size());
    for (std::string_view origin : origin_rows_) graph_.origins.push_back(decode_origin(origin));
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
      if (tag == bytes_tag(kLimits[i].field) && ++counts_[i] > kLimits[i].most)
        fail(fmt::format("more than {} {}, which no step has", kLimits[i].most, kLimits[i].entries));
  }

  // All of the file but its bodies, strings and origins, which stay where they lie.
  void parse_tables(std::string_view bytes) {
    const auto others = split_fields(bytes, [&](std::uint32_t tag, std::string_view content) {
      count_entry(tag);
      if (tag == bytes_tag(proto::File::kGraphsFieldNumber)) {
        bodies_.push_back(content);
      } else if (tag == bytes_tag(proto::File::kStringsFieldNumber)) {
        if (text::count_valid_utf8(content) < content.size()) fail_parse();
        texts_.push_back(content);
      } else if (tag == bytes_tag(proto::File::kOriginsFieldNumber)) {
        origin_rows_.push_back(content);
      } else {
        return false;
      }
      return true;
    });
    if (!others || !parse(*others, file_)) fail_parse();
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
    if (!message.GetReflection()->GetUnknownFields(message).empty()) fail_unknown(message.GetTypeName());
  }
  [[noreturn]] void fail_unknown(std::string_view message) const {
    fail(fmt::format("a {} has fields of a newer format that a rewrite could not keep", message));
  }
  // Calls take(reader) for each field of a message.
  template <class Take>
  void for_each_field(std::string_view message, const Take& take) const {
    WireReader in(message);
    while (in.next()) take(in);
    if (in.is_broken()) fail_parse();
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

  Arg named(ArgKind kind, std::uint32_t ref) const {
    const StringId id = text(ref);
    if (!id) fail("a value refers to no string");
    return Arg::named(kind, id);
  }

  // Trees are interned, so that equal types get the same id. Children lie on a stack until all are
  // there.
  Arg decode_tree(ArgKind kind, std::string_view values) {
    const std::size_t begin = stack_.size();
    ++trees_;
    for_each_field(values, [&](const WireReader& in) {
      if (in.tag() != bytes_tag(1)) return;
      if (trees_ >= text::kMaxValueDepth)
        fail(fmt::format("values are nested more than {} deep", text::kMaxValueDepth));
      const Arg child = decode_value(in.content());
      stack_.push_back(child);
    });
    --trees_;
    const std::span<const Arg> children(stack_.data() + begin, stack_.size() - begin);
    check_children(kind, children.size());
    const Arg tree = context_.args.intern_tree(kind, children);
    stack_.resize(begin);
    return tree;
  }
  void check_children(ArgKind kind, std::size_t count) const {
    if (kind == ArgKind::kDict && count % 2 != 0) fail("a dict has a key without a value");
    if (kind == ArgKind::kNamedTuple && count % 2 != 1) fail("a named tuple has a field without a value");
    const bool is_triple = kind == ArgKind::kSlice || kind == ArgKind::kTensor;
    if ((is_triple && count != 3) || (kind == ArgKind::kComplex && count != 2))
      fail("a value has the wrong number of parts");
  }

  // An absent message reads as None (File.info, Keyword.value); one with unknown fields alone is of
  // a newer format.
  Arg decode_value(std::string_view message) {
    std::optional<Arg> value;
    bool has_unknown = false;
    for_each_field(message, [&](const WireReader& in) {
      const std::optional<Arg> kind = decode_kind(in);
      if (kind && value) fail("a value is of two kinds");
      has_unknown |= !kind;
      if (kind) value = kind;
    });
    if (!value && has_unknown) fail_unknown("epweave.proto.Value");
    return value.value_or(Arg::none());
  }
  Arg decode_value(const proto::Value& value) { return decode_value(value.SerializeAsString()); }

  // The field of the oneof in Value; none: another field.
  std::optional<Arg> decode_kind(const WireReader& in) {
    switch (in.tag()) {
      case number_tag(1):
        return Arg::none();
      case number_tag(2):
        return Arg::boolean(in.number() != 0);
      case number_tag(3):
        return Arg::integer(in.signed_number());
      case fixed64_tag(4):
      case fixed64_tag(5):
        return Arg::real(std::bit_cast<double>(in.number()));
      case number_tag(6):
        return named(ArgKind::kText, in.ref());
      case number_tag(7):
        return decode_node_ref(in.ref());
      case number_tag(8):
        return Arg::symbolic(expr(in.ref()));
      case bytes_tag(9):
        return decode_tree(ArgKind::kList, in.content());
      case bytes_tag(10):
        return decode_tree(ArgKind::kTuple, in.content());
      case bytes_tag(11):
        return decode_tree(ArgKind::kDict, in.content());
      case bytes_tag(12):
        return decode_tree(ArgKind::kSlice, in.content());
      case number_tag(13):
        return named(ArgKind::kDType, in.ref());
      case number_tag(14):
        return named(ArgKind::kDevice, in.ref());
      case number_tag(15):
        return named(ArgKind::kLayout, in.ref());
      case number_tag(16):
        return named(ArgKind::kMemoryFormat, in.ref());
      case number_tag(17):
        return named(ArgKind::kGraph, in.ref());
      case bytes_tag(18):
        return decode_tree(ArgKind::kMesh, in.content());
      case number_tag(19):
        return named(ArgKind::kProcessGroup, in.ref());
      case number_tag(20):
        return Arg::ellipsis();
      case bytes_tag(21):
        return decode_tree(ArgKind::kComplex, in.content());
      case bytes_tag(22):
        return decode_tree(ArgKind::kNamedTuple, in.content());
      case bytes_tag(23):
        return decode_tree(ArgKind::kOpaque, in.content());
      case number_tag(24):
        return named(ArgKind::kOperator, in.ref());
      case bytes_tag(25):
        return decode_tree(ArgKind::kTensor, in.content());
      case number_tag(26):
        return Arg::type_ref(type(in.ref()));
      case bytes_tag(27):
        return decode_tree(ArgKind::kSet, in.content());
      default:
        return std::nullopt;
    }
  }

  Arg decode_node_ref(std::uint32_t ref) const {
    const StringId name = text(ref);
    if (!name) fail("a node reference has no name");
    if (body_ == nullptr) fail(fmt::format("a reference to node '{}' outside a graph", context_.text(name)));
    const NodeId id = node_of_name_[name];
    return id ? Arg::node(id) : Arg::named(ArgKind::kUnresolved, name);
  }

  // Of tables.
  ArgRange decode_keywords(const google::protobuf::RepeatedPtrField<proto::Keyword>& keywords) {
    std::vector<Arg> pairs;
    for (const proto::Keyword& keyword : keywords) add_keyword(keyword.SerializeAsString(), pairs);
    return context_.args.add(pairs);
  }
  // Name and value.
  void add_keyword(std::string_view keyword, std::vector<Arg>& pairs) {
    std::uint32_t name = 0;
    Arg value;
    for_each_field(keyword, [&](const WireReader& in) {
      if (in.tag() == number_tag(1)) name = in.ref();
      if (in.tag() == bytes_tag(2)) value = decode_value(in.content());
    });
    pairs.push_back(named(ArgKind::kText, name));
    pairs.push_back(value);
  }

  Origin decode_origin(std::string_view message) const {
    Origin origin;
    for_each_field(message, [&](const WireReader& in) {
      if (in.tag() == number_tag(1)) origin.name = text(in.ref());
      if (in.tag() == number_tag(2)) origin.target = text(in.ref());
    });
    return origin;
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
    const auto others = split_fields(bytes, [&](std::uint32_t tag, std::string_view content) {
      const bool is_node = tag == bytes_tag(proto::Graph::kNodesFieldNumber);
      if (is_node) nodes.push_back(content);
      return is_node;
    });
    proto::Graph message;
    if (!others || !parse(*others, message)) fail_parse();

    extras_.clear();  // they may name nodes of the body
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
    for (std::size_t i = 0; i < nodes.size(); ++i) decode_node(nodes[i], body.nodes[body.order[i]]);
    body_ = nullptr;
    // Name by name: the table is as long as that of strings, which may be in all of many bodies.
    for (NodeId id : body.order) node_of_name_.at(body.nodes[id].name) = NodeId();
    body.unknown_fields = unknown_of(message);
    graph_.bodies.push_back(std::move(body));
  }

  // What of a node is put together from several fields, in room that all nodes share.
  struct NodeParts {
    std::vector<Arg> args, kwargs;
    std::vector<Provenance> provenance;
    std::vector<Binding> bindings;
    std::vector<std::pair<StringId, std::int64_t>> chunk_hints;
    std::string extra;  // the other fields that go to NodeExtra, as they are
    void clear() {
      args.clear(), kwargs.clear(), provenance.clear();
      bindings.clear(), chunk_hints.clear(), extra.clear();
    }
  };

  void decode_node(std::string_view message, Node& node) {
    parts_.clear();
    for_each_field(message, [&](const WireReader& in) {
      if (!decode_field(in, node)) parts_.extra += in.field();
    });
    if (!node.target) fail(fmt::format("node '{}' has no target", context_.text(node.name)));
    resolve_call(node);
    node.args = context_.args.add(parts_.args);
    node.kwargs = context_.args.add(parts_.kwargs);
    node.provenance = context_.own(parts_.provenance);
    if (!parts_.extra.empty()) node.extra = read_extra(parts_.extra);
    if (parts_.bindings.empty() && parts_.chunk_hints.empty()) return;
    NodeExtra extra = node.extra == nullptr ? NodeExtra() : *node.extra;
    extra.bindings = parts_.bindings;
    extra.chunk_hints = parts_.chunk_hints;
    node.extra = context_.own(std::move(extra));
  }

  // As resolve_op; the op of each target is looked up once.
  void resolve_call(Node& node) {
    if (node.kind != NodeKind::kCall) return;
    std::optional<const OpInfo*>& op = ops_.at(node.target);
    if (!op) op = find_op(context_.text(node.target));
    node.op = *op;
  }

  // Null where they say nothing. All but bindings and hints is the same for many nodes of a body:
  // equal bytes are read once.
  const NodeExtra* read_extra(const std::string& fields) {
    const auto [known, is_new] = extras_.try_emplace(fields);
    if (!is_new) return known->second;
    NodeExtra extra;
    std::vector<Arg> custom, meta;
    for_each_field(fields, [&](const WireReader& in) {
      switch (in.tag()) {
        case number_tag(7):
          extra.example_type = type(in.ref());
          break;
        case number_tag(9):
          extra.py_type = text(in.ref());
          break;
        case bytes_tag(20):
          add_keyword(in.content(), custom);
          break;
        case bytes_tag(21):
          add_keyword(in.content(), meta);
          break;
        default:
          extra.unknown_fields += in.field();
      }
    });
    extra.custom = context_.args.intern(custom);
    extra.meta = context_.args.intern(meta);
    const bool is_empty = extra == NodeExtra();
    return known->second = is_empty ? nullptr : context_.own(std::move(extra));
  }

  // Whether it is a field that few nodes have alike; others go to NodeExtra as they are.
  bool decode_field(const WireReader& in, Node& node) {
    switch (in.tag()) {
      case number_tag(1):
        if (text(in.ref()) != node.name)
          fail(fmt::format("node '{}' has two names", context_.text(node.name)));
        return true;
      case number_tag(2):
        node.kind = decode_node_kind(in.number(), node);
        return true;
      case number_tag(3):
        node.target = text(in.ref());
        return true;
      case bytes_tag(4):
        parts_.args.push_back(decode_value(in.content()));
        return true;
      case bytes_tag(5):
        add_keyword(in.content(), parts_.kwargs);
        return true;
      case number_tag(6):
        node.type = type(in.ref());
        return true;
      case bytes_tag(8):
        node.attr = decode_value(in.content());
        return true;
      case number_tag(10):
        node.module = text(in.ref());
        return true;
      case number_tag(11):
        node.backward = in.number() != 0;
        return true;
      case number_tag(12):
        node.seq_nr = in.signed_number();
        return true;
      case number_tag(13):
        node.source = text(in.ref());
        return true;
      case bytes_tag(14):
        decode_ep(in.content(), node.ep);
        return true;
      case bytes_tag(15):
        decode_chunk(in.content(), node.chunk);
        return true;
      case number_tag(16):
        node.recompute = text(in.ref());
        return true;
      case bytes_tag(17):
        parts_.bindings.push_back(decode_binding(in.content()));
        return true;
      case bytes_tag(18):
        parts_.chunk_hints.push_back(decode_hint(in.content()));
        return true;
      case number_tag(19):
        node.has_custom = in.number() != 0;
        return true;
      case bytes_tag(22):
        parts_.provenance.push_back(decode_provenance(in.content()));
        return true;
      default:
        return false;
    }
  }

  NodeKind decode_node_kind(std::uint64_t kind, const Node& node) const {
    switch (kind) {
      case proto::Node::CALL:
        return NodeKind::kCall;
      case proto::Node::PLACEHOLDER:
        return NodeKind::kPlaceholder;
      case proto::Node::GET_ATTR:
        return NodeKind::kGetAttr;
      case proto::Node::OUTPUT:
        return NodeKind::kOutput;
      default:
        fail(fmt::format("node '{}' is of a kind that this version does not know", context_.text(node.name)));
    }
  }

  Binding decode_binding(std::string_view message) {
    Binding binding;
    std::vector<Arg> path;
    for_each_field(message, [&](const WireReader& in) {
      if (in.tag() == number_tag(1)) {
        binding.symbol = text(in.ref());
      } else if (in.tag() == bytes_tag(2)) {
        path.push_back(decode_value(in.content()));
      } else {
        fail_unknown("epweave.proto.Binding");
      }
    });
    if (!binding.symbol) fail("a binding names no symbol");
    binding.path = context_.args.add(path);
    return binding;
  }

  std::pair<StringId, std::int64_t> decode_hint(std::string_view message) const {
    std::pair<StringId, std::int64_t> hint;
    for_each_field(message, [&](const WireReader& in) {
      if (in.tag() == number_tag(1)) hint.first = text(in.ref());
      if (in.tag() == number_tag(2)) hint.second = in.signed_number();
    });
    if (!hint.first) fail("a hint names no symbol");
    return hint;
  }

  void decode_ep(std::string_view message, EpLabels& ep) const {
    for_each_field(message, [&](const WireReader& in) {
      switch (in.tag()) {
        case number_tag(1):
          ep.ep = text(in.ref());
          break;
        case number_tag(2):
          ep.token_count_exchange = text(in.ref());
          break;
        case number_tag(3):
          ep.token_count_sync = text(in.ref());
          break;
        case number_tag(4):
          ep.token_exchange = text(in.ref());
          break;
        case number_tag(5):
          ep.token_exchange_wait = text(in.ref());
          break;
        default:
          fail_unknown("epweave.proto.Ep");
      }
    });
  }

  void decode_chunk(std::string_view message, ChunkInfo& chunk) const {
    for_each_field(message, [&](const WireReader& in) {
      switch (in.tag()) {
        case number_tag(1):
          chunk.region = text(in.ref());
          break;
        case number_tag(2):
          chunk.role = text(in.ref());
          break;
        case number_tag(3):
          chunk.part = decode_chunk_part(in.signed_number());
          break;
        case number_tag(4):
          chunk.backward = in.number() != 0;
          break;
        case number_tag(5):
          chunk.producer = text(in.ref());
          break;
        case number_tag(6):
          chunk.original_name = text(in.ref());
          break;
        case number_tag(7):
          chunk.proof = text(in.ref());
          break;
        default:
          fail_unknown("epweave.proto.Chunk");
      }
    });
  }
  std::int32_t decode_chunk_part(std::int64_t part) const {
    if (part < 0 || part > INT32_MAX) fail(fmt::format("chunk part {} is out of range", part));
    return static_cast<std::int32_t>(part);
  }

  Provenance decode_provenance(std::string_view message) {
    Provenance record;
    origins_.clear();
    for_each_field(message, [&](const WireReader& in) {
      switch (in.tag()) {
        case number_tag(1):
          record.pass = text(in.ref());
          break;
        case number_tag(2):
          record.role = decode_role(in.number());
          break;
        case number_tag(3):
          origins_.push_back(text(in.ref()));
          break;
        case bytes_tag(3):  // packed, as writers do
          if (!read_numbers(in.content(), [&](std::uint64_t ref) {
                origins_.push_back(text(static_cast<std::uint32_t>(ref)));
              }))
            fail_parse();
          break;
        case number_tag(4):
          record.part = static_cast<std::uint32_t>(in.number());
          break;
        case number_tag(5):
          record.parts = static_cast<std::uint32_t>(in.number());
          break;
        case number_tag(6):
          record.region = text(in.ref());
          break;
        case number_tag(7):
          record.backward = in.number() != 0;
          break;
        case number_tag(8):
          record.reason = text(in.ref());
          break;
        default:
          fail_unknown("epweave.proto.Provenance");
      }
    });
    record.origins = context_.own(origins_);
    return record;
  }
  ProvenanceRole decode_role(std::uint64_t role) const {
    if (role > proto::Provenance::SPECIALIZED)
      fail(fmt::format("provenance role {} is not known to this version", static_cast<int>(role)));
    return static_cast<ProvenanceRole>(role);
  }

  static constexpr std::size_t kLimitedFields = 6;

  const std::string& path_;
  google::protobuf::Arena arena_;  // of file_, whose tables are many small messages
  proto::File& file_ = *google::protobuf::Arena::CreateMessage<proto::File>(&arena_);
  // file_ has all but these.
  std::array<std::uint32_t, kLimitedFields> counts_{};
  std::vector<std::string_view> bodies_, texts_, origin_rows_;
  Graph graph_;
  Context& context_;
  std::vector<StringId> strings_;
  std::vector<ExprId> exprs_;
  std::vector<TypeId> types_;
  SideTable<StringId, NodeId> node_of_name_;
  const Body* body_ = nullptr;
  NodeParts parts_;
  std::unordered_map<std::string, const NodeExtra*> extras_;  // by their fields
  SideTable<StringId, std::optional<const OpInfo*>> ops_;     // by target
  std::vector<StringId> origins_;
  std::vector<Arg> stack_;  // the children of trees that are decoded
  int trees_ = 0;           // these trees, within one another
};

}  // namespace

Graph decode_proto(std::string_view bytes, const std::string& path, std::shared_ptr<Context> context) {
  return GraphDecoder(bytes, path, std::move(context)).decode();
}

}  // namespace epweave
