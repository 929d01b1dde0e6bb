#include "ir/text/text_printer.h"

#include <bit>
#include <charconv>
#include <cmath>

#include "ir/text/text_spelling.h"

namespace epweave::text {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";
// Types share their elements, so that a small hostile file can hold one of boundless text.
constexpr int kMaxTypeDepth = 100;
constexpr std::size_t kMaxTypeText = 1 << 20;
constexpr std::uint64_t kPlainNan = 0x7ff8000000000000;

// Whether the text of an expression can stand among brackets as it is: what ends it is a comma or
// bracket.
bool is_plain_expr(std::string_view text) {
  return text.front() != ' ' && text.back() != ' ' && text.find('\n') == text.npos;
}

}  // namespace

const NodeExtra& extra_of(const Node& node) {
  static const NodeExtra kNothing;
  return node.extra ? *node.extra : kNothing;
}

bool implies_custom(const Node& node, ArgRange custom) {
  return node.module || !(node.ep == EpLabels()) || !custom.empty();
}

// --------------------------------------------------------------------------- words and numbers

void Printer::hex(std::string_view bytes) {
  for (char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out_ += kHexDigits[byte >> 4];
    out_ += kHexDigits[byte & 15];
  }
}

void Printer::quoted(std::string_view text) {
  out_ += '"';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += c;
    } else if (c == '\n') {
      out_ += "\\n";
    } else if (c == '\t') {
      out_ += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out_ += "\\x";
      hex({&c, 1});
    } else if (c1_control(text.substr(i)) != 0) {
      out_ += "\\u00";
      hex({&text[++i], 1});
    } else {
      out_ += c;
    }
  }
  out_ += '"';
}

void Printer::word(std::string_view text) {
  if (is_word(text)) {
    out_ += text;
  } else {
    quoted(text);
  }
}

void Printer::word(StringId id) {
  if (id) {
    word(context_.text(id));
  } else {
    out_ += kAbsent;
  }
}

void Printer::name(StringId id) {
  const std::string_view text = context_.text(id);
  if (!id) {
    out_ += kAbsent;
  } else if (is_name(text)) {
    out_ += text;
  } else {
    quoted(text);
  }
}

void Printer::node_name(StringId id) {
  out_ += '%';
  name(id);
}

void Printer::expr(ExprId id) {
  const std::string_view text = context_.exprs.text(id);
  if (is_plain_expr(text)) {
    out_ += text;
  } else {
    quoted(text);
  }
}

void Printer::expr_word(ExprId id) {
  word(context_.exprs.text(id));
}

void Printer::integer(std::int64_t value) {
  char buffer[24];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out_.append(buffer, end);
}

// The shortest decimal that reads back as the same double, never looking like an integer.
void Printer::real(double value) {
  if (std::isnan(value)) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    out_ += "nan";
    if (bits == kPlainNan) return;
    char buffer[24];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, bits, 16).ptr;
    out_ += "(0x";
    out_.append(buffer, end);
    out_ += ')';
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  const std::string_view digits(buffer, static_cast<std::size_t>(end - buffer));
  out_ += digits;
  if (digits.find_first_of(".en") == digits.npos) out_ += ".0";
}

// --------------------------------------------------------------------------- arguments

void Printer::arg(const Body* body, Arg value) {
  switch (value.kind()) {
    case ArgKind::kNone:
      out_ += "None";
      break;
    case ArgKind::kBool:
      out_ += value.as_bool() ? "True" : "False";
      break;
    case ArgKind::kInt:
      integer(value.as_int());
      break;
    case ArgKind::kReal:
      real(value.as_real());
      break;
    case ArgKind::kText:
      quoted(context_.text(value.as_name()));
      break;
    case ArgKind::kNode:
      node_name(body->nodes[value.as_node()].name);
      break;
    case ArgKind::kUnresolved:
      node_name(value.as_name());
      break;
    case ArgKind::kSymbolic:
      out_ += "sym(";
      expr(value.as_expr());
      out_ += ')';
      break;
    case ArgKind::kDevice:
      out_ += '@';
      word(value.as_name());
      break;
    case ArgKind::kDType:
    case ArgKind::kLayout:
    case ArgKind::kMemoryFormat:
    case ArgKind::kGraph:
    case ArgKind::kProcessGroup:
    case ArgKind::kOperator:
      torch_constant(value);
      break;
    case ArgKind::kEllipsis:
      out_ += "...";
      break;
    case ArgKind::kTypeRef:
      out_ += "type(";
      type(value.as_type());
      out_ += ')';
      break;
    case ArgKind::kList:
    case ArgKind::kTuple:
    case ArgKind::kDict:
    case ArgKind::kSlice:
    case ArgKind::kMesh:
    case ArgKind::kComplex:
    case ArgKind::kNamedTuple:
    case ArgKind::kOpaque:
    case ArgKind::kTensor:
    case ArgKind::kSet:
      tree(body, value);
      break;
  }
}

void Printer::torch_constant(Arg value) {
  const std::string_view text = context_.text(value.as_name());
  if (const auto dtype = find_dtype(text); value.is(ArgKind::kDType) && dtype && info(*dtype).name == text) {
    out_ += info(*dtype).short_name;
  } else if (find_torch_constant(text) == value.kind()) {
    out_ += text;
  } else {
    out_ += keyword_of(kNamedArgs, value.kind());
    out_ += '(';
    word(value.as_name());
    out_ += ')';
  }
}

void Printer::tree(const Body* body, Arg value) {
  switch (value.kind()) {
    case ArgKind::kList:
      return sequence(body, value.children(), '[', ']');
    case ArgKind::kTuple:
      return sequence(body, value.children(), '(', ')');
    case ArgKind::kDict:
      return dict(body, value.children());
    case ArgKind::kOpaque:
      if (overload(context_.args.children(value))) return;
      [[fallthrough]];
    default:
      out_ += keyword_of(kTreeArgs, value.kind());
      out_ += '(';
      joined(context_.args[value.children()], [&](Arg child) { arg(body, child); });
      out_ += ')';
  }
}

// Writes the parts of an opaque value as an operator overload, if they are one.
bool Printer::overload(std::span<const Arg> parts) {
  if (parts.size() != 2 || !parts[0].is(ArgKind::kText) || !parts[1].is(ArgKind::kText)) return false;
  if (context_.text(parts[1].as_name()) != kOverloadClass) return false;
  const auto target = find_overload(context_.text(parts[0].as_name()));
  if (!target) return false;
  out_ += "overload(" + *target + ")";
  return true;
}

void Printer::sequence(const Body* body, ArgRange items, char open, char close) {
  out_ += open;
  joined(context_.args[items], [&](Arg item) { arg(body, item); });
  if (open == '(' && items.count == 1) out_ += ',';
  out_ += close;
}

void Printer::dict(const Body* body, ArgRange items) {
  out_ += '{';
  const auto entries = context_.args[items];
  for (std::size_t i = 0; i + 1 < entries.size(); i += 2) {
    if (i > 0) out_ += ", ";
    arg(body, entries[i]);
    out_ += ": ";
    arg(body, entries[i + 1]);
  }
  out_ += '}';
}

void Printer::pairs(const Body* body, ArgRange named, char open, std::string_view between, char close) {
  out_ += open;
  const auto entries = context_.args[named];
  for (std::size_t i = 0; i + 1 < entries.size(); i += 2) {
    if (i > 0) out_ += ", ";
    const std::string_view key = context_.text(entries[i].as_name());
    if (is_key(key)) {
      out_ += key;
    } else {
      quoted(key);
    }
    out_ += between;
    arg(body, entries[i + 1]);
  }
  out_ += close;
}

void Printer::call_args(const Body* body, const Node& node) {
  out_ += '(';
  joined(context_.args[node.args], [&](Arg value) { arg(body, value); });
  if (!node.kwargs.empty()) {
    if (!node.args.empty()) out_ += ", ";
    const std::size_t open = out_.size();
    pairs(body, node.kwargs, '(', "=", ')');
    out_.erase(open, 1);
    return;
  }
  out_ += ')';
}

// --------------------------------------------------------------------------- types

void Printer::type(TypeId id) {
  if (!id) {
    out_ += kAbsent;
    return;
  }
  if (!types_[id].empty()) {
    out_ += types_[id];
    return;
  }
  const std::size_t begin = out_.size();
  if (++type_depth_ > kMaxTypeDepth) throw InputError("a type is nested too deeply for the text form");
  print_type(context_.types[id]);
  --type_depth_;
  if (out_.size() - begin > kMaxTypeText) throw InputError("a type is too large for the text form");
  types_.at(id) = out_.substr(begin);
}

void Printer::print_type(const Type& type) {
  switch (type.kind) {
    case TypeKind::kTensor:
      return print_tensor(type.tensor);
    case TypeKind::kScalar: {
      const std::string_view py_type = context_.text(type.py_type);
      const bool is_plain = py_type == "SymInt" || py_type == "SymFloat" || py_type == "SymBool";
      out_ += is_plain ? py_type : "scalar";
      out_ += '(';
      expr(type.expr);
      if (!is_plain && type.py_type) {
        out_ += ", ";
        quoted(py_type);
      }
      out_ += ')';
      return;
    }
    case TypeKind::kTuple:
      return elements(type, '(', ')');
    case TypeKind::kList:
      return elements(type, '[', ']');
    case TypeKind::kValue:
      out_ += '=';
      return arg(nullptr, type.value);
  }
}

void Printer::elements(const Type& printed, char open, char close) {
  out_ += open;
  joined(printed.elements, [&](TypeId element) { type(element); });
  if (open == '(' && printed.elements.size() == 1) out_ += ',';
  out_ += close;
}

void Printer::print_tensor(const TensorType& tensor) {
  out_ += info(tensor.dtype).short_name;
  out_ += '[';
  joined(tensor.sizes, [&](ExprId size) { expr(size); });
  out_ += ']';
  const auto contiguous = contiguous_strides(context_.exprs, tensor.sizes);
  // The order in which an application's operands are written depends on what was interned before,
  // so that a reader may not arrive at the same text.
  auto is_reconstructible = [&](ExprId stride) {
    return context_.exprs.text(stride).find(',') == std::string_view::npos;
  };
  bool is_contiguous = contiguous == tensor.strides;
  for (ExprId stride : tensor.strides) is_contiguous = is_contiguous && is_reconstructible(stride);
  if (!is_contiguous) {
    out_ += '{';
    joined(tensor.strides, [&](ExprId stride) { expr(stride); });
    out_ += '}';
  }
  if (tensor.offset && context_.exprs.text(tensor.offset) != "0") {
    out_ += '+';
    expr_word(tensor.offset);
  }
  if (tensor.device != default_device_) {
    out_ += '@';
    word(tensor.device);
  }
  print_attributes(tensor);
}

void Printer::print_attributes(const TensorType& tensor) {
  if (!tensor.requires_grad && !tensor.layout && !tensor.subclass) return;
  out_ += '<';
  const std::size_t begin = out_.size();
  auto separate = [&] {
    if (out_.size() > begin) out_ += ", ";
  };
  if (tensor.requires_grad) out_ += "requires_grad";
  if (tensor.layout) {
    separate();
    out_ += "layout=";
    word(tensor.layout);
  }
  if (tensor.subclass) {
    separate();
    out_ += "subclass=";
    word(tensor.subclass);
  }
  out_ += '>';
}

}  // namespace epweave::text
