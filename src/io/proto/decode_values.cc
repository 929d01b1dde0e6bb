#include "io/proto/decode_values.h"

#include <fmt/format.h>

#include <bit>

#include "base/error.h"
#include "ir/text/text_spelling.h"

namespace epweave {

void ValueDecoder::fail(const std::string& what) const {
  throw InputError(fmt::format("{}: {}", path_, what));
}

void ValueDecoder::fail_text(std::uint32_t ref) const {
  fail(fmt::format("string {} is outside the table of {}", ref, strings_.size()));
}

void ValueDecoder::fail_unknown(std::string_view message) const {
  fail(fmt::format("{} has fields of a newer format that a rewrite could not keep", message));
}

void ValueDecoder::add_strings(std::span<const std::string_view> texts) {
  strings_ = context_.strings.intern(texts);
  exprs_.resize(strings_.size());
}

void ValueDecoder::add_types(const google::protobuf::RepeatedPtrField<proto::Type>& types) {
  types_.reserve(static_cast<std::size_t>(types.size()));
  for (const proto::Type& message : types) types_.push_back(decode_type(message));
}

// Name by name: the table is as long as that of strings, which may be in all of many bodies.
void ValueDecoder::end_body(const Body& body) {
  is_in_body_ = false;
  for (NodeId id : body.order) node_of_name_.at(body.nodes[id].name) = NodeId();
}

ExprId ValueDecoder::expr(std::uint32_t ref) {
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

ExprId ValueDecoder::extent(std::int64_t value) {
  if (value >= 0) return context_.exprs.number(value);
  if (value < -static_cast<std::int64_t>(strings_.size()))
    fail(fmt::format("extent {} is outside the string table", value));
  return expr(static_cast<std::uint32_t>(-value));
}

TypeId ValueDecoder::decode_type(const proto::Type& message) {
  refuse_unknown(message);
  Type result;
  switch (message.kind_case()) {
    case proto::Type::kTensor:
      result.kind = TypeKind::kTensor;
      result.tensor = decode_tensor(message.tensor());
      break;
    case proto::Type::kScalar:
      refuse_unknown(message.scalar());
      result.kind = TypeKind::kScalar;
      result.expr = expr(message.scalar().expression());
      result.py_type = text(message.scalar().py_type());
      break;
    case proto::Type::kTuple:
    case proto::Type::kList: {
      const bool is_tuple = message.kind_case() == proto::Type::kTuple;
      refuse_unknown(is_tuple ? message.tuple() : message.list());
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

TensorType ValueDecoder::decode_tensor(const proto::Tensor& message) {
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
    fail(
        fmt::format("a tensor type has {} sizes but {} strides", tensor.sizes.size(), tensor.strides.size()));
  return tensor;
}

Arg ValueDecoder::named(ArgKind kind, std::uint32_t ref) const {
  const StringId id = text(ref);
  if (!id) fail("a value refers to no string");
  return Arg::named(kind, id);
}

Arg ValueDecoder::decode_tree(ArgKind kind, std::string_view values) {
  const std::size_t begin = stack_.size();
  ++trees_;
  for_each_field(values, [&](const WireReader& in) {
    if (in.tag() != bytes_tag(1)) fail_unknown("epweave.proto.Values");
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

void ValueDecoder::check_children(ArgKind kind, std::size_t count) const {
  if (kind == ArgKind::kDict && count % 2 != 0) fail("a dict has a key without a value");
  if (kind == ArgKind::kNamedTuple && count % 2 != 1) fail("a named tuple has a field without a value");
  const bool is_triple = kind == ArgKind::kSlice || kind == ArgKind::kTensor;
  if ((is_triple && count != 3) || (kind == ArgKind::kComplex && count != 2))
    fail("a value has the wrong number of parts");
}

Arg ValueDecoder::decode_value(std::string_view message) {
  std::optional<Arg> value;
  for_each_field(message, [&](const WireReader& in) {
    const std::optional<Arg> kind = decode_kind(in);
    if (!kind) fail_unknown("epweave.proto.Value");
    if (value) fail("a value is of two kinds");
    value = kind;
  });
  return value.value_or(Arg::none());
}

std::optional<Arg> ValueDecoder::decode_kind(const WireReader& in) {
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

Arg ValueDecoder::decode_node_ref(std::uint32_t ref) const {
  const StringId name = text(ref);
  if (!name) fail("a node reference has no name");
  if (!is_in_body_) fail(fmt::format("a reference to node '{}' outside a graph", context_.text(name)));
  const NodeId id = node_of_name_[name];
  return id ? Arg::node(id) : Arg::named(ArgKind::kUnresolved, name);
}

void ValueDecoder::add_keyword(std::string_view keyword, std::vector<Arg>& pairs) {
  std::uint32_t name = 0;
  Arg value;
  for_each_field(keyword, [&](const WireReader& in) {
    if (in.tag() == number_tag(1)) {
      name = in.ref();
    } else if (in.tag() == bytes_tag(2)) {
      value = decode_value(in.content());
    } else {
      fail_unknown("epweave.proto.Keyword");
    }
  });
  pairs.push_back(named(ArgKind::kText, name));
  pairs.push_back(value);
}

}  // namespace epweave
