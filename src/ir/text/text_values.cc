#include "ir/text/text_values.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <limits>
#include <utility>

#include "ir/text/text_spelling.h"

namespace epweave::text {

struct ValueParser::Depth {
  Depth(ValueParser& p, const Cursor& in) : parser(p) {
    if (++parser.depth_ > kMaxValueDepth) in.fail("nested too deeply");
  }
  ~Depth() { --parser.depth_; }
  ValueParser& parser;
};

// While it lives, references to nodes are refused: they belong to arguments, not to types or data
// of the file.
struct ValueParser::NoNodes {
  explicit NoNodes(ValueParser& p) : parser(p), nodes(std::exchange(p.nodes_, nullptr)) {}
  ~NoNodes() { parser.nodes_ = nodes; }
  ValueParser& parser;
  const SideTable<StringId, NodeId>* nodes;
};

// --------------------------------------------------------------------------- names and expressions

StringId ValueParser::read_word(Cursor& in) {
  if (in.peek() == '"') return context_.strings.intern(in.read_quoted());
  const std::string_view word = in.scan_word();
  if (word.empty()) in.fail("expected a word or a string in double quotes");
  return word == kAbsent ? StringId() : context_.strings.intern(word);
}

std::string ValueParser::read_text(Cursor& in) {
  return std::string(context_.text(read_word(in)));
}

StringId ValueParser::read_name(Cursor& in) {
  if (in.peek() == '"') return context_.strings.intern(in.read_quoted());
  const std::string_view name = in.scan_name();
  if (name.empty()) in.fail("expected a name");
  return name == kAbsent ? StringId() : context_.strings.intern(name);
}

StringId ValueParser::read_node_name(Cursor& in) {
  if (!in.accept('%')) in.fail("expected '%' and the name of a node");
  return read_name(in);
}

ExprId ValueParser::intern_expr(Cursor& in, std::size_t begin, std::string_view text) {
  if (text.empty()) in.fail_at(begin, "expected an expression");
  try {
    return context_.exprs.parse(text);
  } catch (const InputError& error) {
    // What it says after " at column" counts from the expression's own begin.
    const std::string what = error.what();
    in.fail_at(begin, what.substr(0, std::min(what.find('\n'), what.find(" at column"))));
  }
}

ExprId ValueParser::read_expr(Cursor& in) {
  const std::size_t begin = in.position();
  if (in.peek() == '"') return intern_expr(in, begin, in.read_quoted());
  return intern_expr(in, begin, in.scan_expr());
}

ExprId ValueParser::read_expr_word(Cursor& in) {
  const std::size_t begin = in.position();
  if (in.peek() == '"') return intern_expr(in, begin, in.read_quoted());
  return intern_expr(in, begin, in.scan_word());
}

std::vector<ExprId> ValueParser::read_exprs(Cursor& in, char close) {
  std::vector<ExprId> exprs;
  read_list(in, close, [&] { exprs.push_back(read_expr(in)); });
  return exprs;
}

// Numbers have one spelling as extents: in binary they are numbers, not text.
ExprId ValueParser::canonical_extent(ExprId extent) {
  const auto value = context_.exprs.constant(extent);
  return value && *value >= 0 ? context_.exprs.number(*value) : extent;
}

std::vector<ExprId> ValueParser::read_extents(Cursor& in, char close) {
  std::vector<ExprId> extents = read_exprs(in, close);
  for (ExprId& extent : extents) extent = canonical_extent(extent);
  return extents;
}

// --------------------------------------------------------------------------- arguments

Arg ValueParser::read_arg(Cursor& in) {
  const Depth depth(*this, in);
  in.skip_spaces();
  const char c = in.peek();
  if (is_digit(c) || c == '-') return read_number(in);
  if (c == '%') return read_node(in);
  if (c == '"') return read_quoted_arg(in);
  if (in.accept('@')) return Arg::named(ArgKind::kDevice, context_.strings.intern(read_text(in)));
  if (in.accept("...")) return Arg::ellipsis();
  if (in.accept('(')) return read_parenthesised(in);
  if (in.accept('{')) return read_dict(in);
  if (in.accept('[')) {
    std::vector<Arg> items;
    read_list(in, ']', [&] { items.push_back(read_arg(in)); });
    return context_.args.intern_tree(ArgKind::kList, items);
  }
  return read_named(in);
}

// A double has a point or an exponent, an integer neither.
Arg ValueParser::read_number(Cursor& in) {
  const std::size_t begin = in.position();
  const std::string_view text = in.scan_number();
  if (text == "-inf") return Arg::real(-std::numeric_limits<double>::infinity());
  const char* end = text.data() + text.size();
  if (text.find_first_of(".e") == text.npos) {
    std::int64_t value = 0;
    const auto [after, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc::result_out_of_range) in.fail_at(begin, "integer does not fit in 64 bits");
    if (error == std::errc() && after == end) return Arg::integer(value);
  } else {
    double value = 0;
    const auto [after, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc::result_out_of_range) in.fail_at(begin, "number is beyond a double");
    if (error == std::errc() && after == end) return Arg::real(value);
  }
  in.fail_at(begin, "expected a number");
}

Arg ValueParser::read_node(Cursor& in) {
  const std::size_t begin = in.position();
  const StringId name = read_node_name(in);
  if (!name) in.fail_at(begin, "a node reference needs a name");
  if (nodes_ == nullptr) in.fail_at(begin, "only arguments of nodes can refer to nodes");
  const NodeId node = (*nodes_)[name];
  return node ? Arg::node(node) : Arg::named(ArgKind::kUnresolved, name);
}

Arg ValueParser::read_quoted_arg(Cursor& in) {
  return Arg::text(context_.strings.intern(in.read_quoted()));
}

// A tuple; one of a single element has a comma behind it.
Arg ValueParser::read_parenthesised(Cursor& in) {
  std::vector<Arg> items;
  bool has_comma = false;
  for (in.skip_spaces(); !in.accept(')'); in.skip_spaces()) {
    items.push_back(read_arg(in));
    in.skip_spaces();
    has_comma = in.accept(',');
    if (!has_comma && in.peek() != ')') in.fail("expected ',' or ')'");
  }
  if (items.size() == 1 && !has_comma) in.fail("a tuple of one element is written with a comma: (x,)");
  return context_.args.intern_tree(ArgKind::kTuple, items);
}

Arg ValueParser::read_dict(Cursor& in) {
  std::vector<Arg> entries;
  read_list(in, '}', [&] {
    entries.push_back(read_arg(in));
    in.expect(':');
    entries.push_back(read_arg(in));
  });
  return context_.args.intern_tree(ArgKind::kDict, entries);
}

// What begins with a letter: constants, dtypes, and `keyword(...)`.
Arg ValueParser::read_named(Cursor& in) {
  const std::size_t begin = in.position();
  const std::string_view name = in.scan_name();
  if (name == "None") return Arg::none();
  if (name == "True") return Arg::boolean(true);
  if (name == "False") return Arg::boolean(false);
  if (name == "inf") return Arg::real(std::numeric_limits<double>::infinity());
  if (name == "nan") return read_nan(in);
  if (const auto kind = find_torch_constant(name)) return Arg::named(*kind, context_.strings.intern(name));
  if (const auto dtype = find_dtype(name))
    return Arg::named(ArgKind::kDType, context_.strings.intern(info(*dtype).name));
  if (!name.empty() && in.accept('(')) return read_call(in, begin, name);
  in.fail_at(begin, name.empty() ? "expected a value" : fmt::format("unknown value '{}'", name));
}

Arg ValueParser::read_nan(Cursor& in) {
  if (!in.accept("(0x")) return Arg::real(std::bit_cast<double>(std::uint64_t{0x7ff8000000000000}));
  const std::size_t begin = in.position();
  const std::string_view digits = in.scan_name();
  std::uint64_t bits = 0;
  const char* end = digits.data() + digits.size();
  const auto [after, error] = std::from_chars(digits.data(), end, bits, 16);
  const double value = std::bit_cast<double>(bits);
  if (error != std::errc() || after != end || value == value) in.fail_at(begin, "expected the bits of a NaN");
  in.expect(')');
  return Arg::real(value);
}

Arg ValueParser::read_call(Cursor& in, std::size_t begin, std::string_view keyword) {
  if (const auto kind = find_keyword(kTreeArgs, keyword)) return read_tree(in, begin, *kind);
  Arg value;
  if (const auto kind = find_keyword(kNamedArgs, keyword)) {
    value = Arg::named(*kind, context_.strings.intern(read_text(in)));
  } else if (keyword == "sym") {
    in.skip_spaces();
    value = Arg::symbolic(read_expr(in));
  } else if (keyword == "overload") {
    const std::string repr = overload_repr(context_.text(read_name(in)));
    const Arg parts[] = {Arg::text(context_.strings.intern(repr)),
                         Arg::text(context_.strings.intern(kOverloadClass))};
    value = context_.args.intern_tree(ArgKind::kOpaque, parts);
  } else if (keyword == "type") {
    value = Arg::type_ref(read_type(in));
  } else {
    in.fail_at(begin, fmt::format("unknown kind of value '{}'", keyword));
  }
  in.expect(')');
  return value;
}

Arg ValueParser::read_tree(Cursor& in, std::size_t begin, ArgKind kind) {
  std::vector<Arg> items;
  read_list(in, ')', [&] { items.push_back(read_arg(in)); });
  const std::size_t count = items.size();
  if (kind == ArgKind::kSlice && count != 3) in.fail_at(begin, "a slice has a start, a stop and a step");
  if (kind == ArgKind::kComplex && count != 2) in.fail_at(begin, "a complex number has two parts");
  if (kind == ArgKind::kTensor && count != 3) in.fail_at(begin, "a tensor has a path, a type and values");
  if (kind == ArgKind::kNamedTuple && count % 2 == 0)
    in.fail_at(begin, "a named tuple has a name, then names and values");
  return context_.args.intern_tree(kind, items);
}

// Whether `key=` follows; reads it if so.
bool ValueParser::read_key(Cursor& in, StringId& key) {
  Cursor ahead = in;
  if (ahead.peek() == '"') {
    key = context_.strings.intern(ahead.read_quoted());
  } else {
    const std::string_view name = ahead.scan_name();
    if (!is_key(name)) return false;
    key = context_.strings.intern(name);
  }
  ahead.skip_spaces();
  if (!ahead.accept('=')) return false;
  in = ahead;
  return true;
}

void ValueParser::read_call_args(Cursor& in, Node& node) {
  if (!in.accept('(')) in.fail("expected '(' and the arguments");
  std::vector<Arg> args, kwargs;
  read_list(in, ')', [&] {
    StringId key;
    if (read_key(in, key)) {
      kwargs.push_back(Arg::text(key));
      kwargs.push_back(read_arg(in));
    } else {
      if (!kwargs.empty()) in.fail("a positional argument cannot follow a keyword");
      args.push_back(read_arg(in));
    }
  });
  node.args = context_.args.add(args);
  node.kwargs = context_.args.add(kwargs);
}

ArgRange ValueParser::read_pairs(Cursor& in) {
  in.expect('{');
  std::vector<Arg> entries;
  read_list(in, '}', [&] {
    StringId key;
    if (!read_key(in, key)) in.fail("expected a key and '='");
    entries.push_back(Arg::text(key));
    entries.push_back(read_arg(in));
  });
  return context_.args.add(entries);
}

ArgRange ValueParser::read_plain_pairs(Cursor& in) {
  const NoNodes no_nodes(*this);
  return read_pairs(in);
}

// --------------------------------------------------------------------------- types

TypeId ValueParser::read_type(Cursor& in) {
  const Depth depth(*this, in);
  in.skip_spaces();
  if (in.accept('(')) return read_elements(in, TypeKind::kTuple, ')');
  if (in.accept('[')) return read_elements(in, TypeKind::kList, ']');
  if (in.accept('=')) {
    const NoNodes no_nodes(*this);
    return context_.types.intern({.kind = TypeKind::kValue, .value = read_arg(in)});
  }
  const std::size_t begin = in.position();
  const std::string_view word = in.scan_name();
  if (word == kAbsent) return TypeId();
  if (word == "SymInt" || word == "SymFloat" || word == "SymBool" || word == "scalar")
    return read_scalar(in, word);
  if (word.empty()) in.fail("expected a type");
  const auto dtype = find_dtype(word);
  if (!dtype) in.fail_at(begin, fmt::format("unknown dtype '{}'", word));
  return read_tensor(in, begin, *dtype);
}

TypeId ValueParser::read_elements(Cursor& in, TypeKind kind, char close) {
  Type type{.kind = kind};
  read_list(in, close, [&] { type.elements.push_back(read_type(in)); });
  return context_.types.intern(std::move(type));
}

// SymInt(u0), or with any other Python type scalar(u0, "name").
TypeId ValueParser::read_scalar(Cursor& in, std::string_view keyword) {
  Type type{.kind = TypeKind::kScalar};
  in.expect('(');
  in.skip_spaces();
  type.expr = read_expr(in);
  in.skip_spaces();
  if (keyword != "scalar") {
    type.py_type = context_.strings.intern(keyword);
  } else if (in.accept(',')) {
    in.skip_spaces();
    type.py_type = context_.strings.intern(in.read_quoted());
  }
  in.expect(')');
  return context_.types.intern(std::move(type));
}

// What belongs to the type follows without a space: the module of a node, too, begins with '@'.
TypeId ValueParser::read_tensor(Cursor& in, std::size_t begin, DType dtype) {
  TensorType tensor;
  tensor.dtype = dtype;
  tensor.device = default_device_;
  if (!in.accept('[')) in.fail("expected '[' and the sizes");
  tensor.sizes = read_extents(in, ']');
  read_strides(in, begin, tensor);
  if (in.accept('+')) {
    tensor.offset = canonical_extent(read_expr_word(in));
    if (context_.exprs.text(tensor.offset) == "0") tensor.offset = ExprId();
  }
  if (in.accept('@')) tensor.device = read_word(in);
  if (in.accept('<')) read_attributes(in, tensor);
  if (!tensor.layout && tensor.strides.size() != tensor.sizes.size())
    in.fail_at(begin, fmt::format("{} sizes but {} strides", tensor.sizes.size(), tensor.strides.size()));
  return context_.types.tensor(std::move(tensor));
}

void ValueParser::read_strides(Cursor& in, std::size_t begin, TensorType& tensor) {
  if (in.accept('{')) {
    tensor.strides = read_extents(in, '}');
    return;
  }
  auto strides = contiguous_strides(context_.exprs, tensor.sizes);
  if (!strides) in.fail_at(begin, "the strides of so large a tensor must be written: {..}");
  tensor.strides = std::move(*strides);
}

void ValueParser::read_attributes(Cursor& in, TensorType& tensor) {
  read_list(in, '>', [&] {
    const std::size_t begin = in.position();
    const std::string_view key = in.scan_name();
    if (key == "requires_grad") {
      tensor.requires_grad = true;
    } else if (key == "layout" && in.accept('=')) {
      tensor.layout = read_word(in);
    } else if (key == "subclass" && in.accept('=')) {
      tensor.subclass = read_word(in);
    } else {
      in.fail_at(begin, "expected requires_grad, layout= or subclass=");
    }
  });
}

}  // namespace epweave::text
