#include "replay/values/evaluate.h"

#include <fmt/format.h>

#include <cstring>

#include "base/parse_number.h"
#include "replay/kernels/math/portable_math.h"

namespace epweave::replay {

Symbols::Symbols(const Graph& graph) : graph_(graph) {
  for (const Symbol& symbol : graph.symbols)
    if (symbol.replaced_by) replaced_[symbol.name] = *symbol.replaced_by;
}

bool Symbols::bind(StringId symbol, std::int64_t value) {
  if (const auto known = find(symbol)) return *known == value;
  values_[symbol] = value;
  if (const auto replaced = replaced_.find(symbol); replaced != replaced_.end())
    if (const auto other = bare_symbol(replaced->second); other && !find(*other)) values_[*other] = value;
  return true;
}

std::optional<std::int64_t> Symbols::find(StringId symbol) const {
  if (const auto value = values_.find(symbol); value != values_.end()) return value->second;
  const auto replaced = replaced_.find(symbol);
  return replaced == replaced_.end() ? std::nullopt : evaluate(replaced->second);
}

std::optional<std::int64_t> Symbols::evaluate(ExprId expr) const {
  const ExprPool& pool = graph_.context->exprs;
  if (const auto constant = pool.constant(expr)) return constant;
  const auto value = pool.evaluate(pool.poly(expr), [this](StringId name) { return find(name); });
  if (!value || !value->is_integer()) return std::nullopt;
  return value->num;
}

std::optional<Extents> Symbols::evaluate(const std::vector<ExprId>& exprs) const {
  Extents extents;
  extents.reserve(exprs.size());
  for (ExprId expr : exprs) {
    const auto value = evaluate(expr);
    if (!value) return std::nullopt;
    extents.push_back(*value);
  }
  return extents;
}

std::optional<StringId> Symbols::bare_symbol(ExprId expr) const {
  const ExprPool& pool = graph_.context->exprs;
  const Poly& poly = pool[pool.poly(expr)];
  if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1 ||
      poly.terms[0].coefficient != Rational{1, 1})
    return std::nullopt;
  const Atom& atom = pool[poly.terms[0].atoms[0]];
  return atom.kind == AtomKind::kSymbol ? std::optional(atom.name) : std::nullopt;
}

void Symbols::learn(const TensorType& type, const Tensor& tensor) {
  if (type.sizes.size() != tensor.rank()) return;
  for (std::size_t d = 0; d < tensor.rank(); ++d)
    if (const auto symbol = bare_symbol(type.sizes[d]); symbol && !find(*symbol))
      bind(*symbol, tensor.sizes[d]);
}

std::optional<ResultType> evaluate(const Symbols& symbols, const TensorType& type) {
  auto sizes = symbols.evaluate(type.sizes);
  auto strides = symbols.evaluate(type.strides);
  if (!sizes || !strides) return std::nullopt;
  const auto offset = type.offset ? symbols.evaluate(type.offset) : std::optional<std::int64_t>(0);
  return ResultType{true, type.dtype, std::move(*sizes), std::move(*strides), offset.value_or(0)};
}

namespace {

Value evaluate_leaf(const Environment& environment, Arg arg) {
  const Context& context = *environment.graph.context;
  switch (arg.kind()) {
    case ArgKind::kNone:
      return {};
    case ArgKind::kBool:
      return arg.as_bool();
    case ArgKind::kInt:
      return arg.as_int();
    case ArgKind::kReal:
      return arg.as_real();
    case ArgKind::kNode:
      return environment.value_of(arg.as_node());
    case ArgKind::kSymbolic: {
      const auto value = environment.symbols.evaluate(arg.as_expr());
      if (!value)
        throw KernelError(
            fmt::format("the symbolic argument {} has no value", context.exprs.text(arg.as_expr())));
      return *value;
    }
    case ArgKind::kDType: {
      const auto dtype = find_dtype(context.text(arg.as_name()));
      if (!dtype) throw KernelError(fmt::format("unknown dtype {}", context.text(arg.as_name())));
      return *dtype;
    }
    case ArgKind::kEllipsis:
      return Text{arg.kind(), "..."};
    case ArgKind::kTypeRef:
      return Text{arg.kind(), "type"};
    default:
      return Text{arg.kind(), std::string(context.text(arg.as_name()))};
  }
}

}  // namespace

Value evaluate(const Environment& environment, Arg arg) {
  if (!arg.is_tree()) return evaluate_leaf(environment, arg);
  const auto children = environment.graph.context->args.children(arg);
  switch (arg.kind()) {
    case ArgKind::kList:
    case ArgKind::kTuple: {
      List list{arg.is(ArgKind::kTuple), {}};
      list.items.reserve(children.size());
      for (Arg child : children) list.items.push_back(evaluate(environment, child));
      return list;
    }
    case ArgKind::kDict: {
      Dict dict;
      for (std::size_t i = 0; i + 1 < children.size(); i += 2)
        dict.items.emplace_back(evaluate(environment, children[i]), evaluate(environment, children[i + 1]));
      return dict;
    }
    case ArgKind::kComplex: {
      const auto real = [](Arg part) {
        return part.is_int() ? static_cast<double>(part.as_int()) : part.as_real();
      };
      return std::complex<double>(real(children[0]), real(children[1]));
    }
    default:
      return Text{arg.kind(), ""};  // meshes, slices, what an exporter could not encode: pass through only
  }
}

Value parse_default(std::string_view text) {
  if (text == "None") return {};
  if (text == "True") return true;
  if (text == "False") return false;
  if (const auto integer = parse_number<std::int64_t>(text)) return *integer;
  if (const auto real = parse_number<double>(text)) return *real;
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    std::vector<Value> items;
    std::string_view rest = text.substr(1, text.size() - 2);
    while (!rest.empty()) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      items.push_back(parse_default(rest.substr(0, comma)));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
    }
    return Value::list(std::move(items));
  }
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return Text{ArgKind::kText, std::string(text)};
}

void store_integer(const Tensor& tensor, std::int64_t index, std::int64_t value) {
  const auto store = [&](auto element) {
    std::memcpy(tensor.bytes() + index * static_cast<std::int64_t>(sizeof element), &element, sizeof element);
  };
  switch (tensor.dtype) {
    case DType::kBool:
      return store(static_cast<std::uint8_t>(value != 0));
    case DType::kUint8:
      return store(static_cast<std::uint8_t>(value));
    case DType::kInt8:
      return store(static_cast<std::int8_t>(value));
    case DType::kInt16:
      return store(static_cast<std::int16_t>(value));
    case DType::kInt32:
      return store(static_cast<std::int32_t>(value));
    case DType::kInt64:
      return store(value);
    default:
      return store_number(tensor, index, static_cast<double>(value));
  }
}

void store_number(const Tensor& tensor, std::int64_t index, double value) {
  const auto store = [&](auto element) {
    std::memcpy(tensor.bytes() + index * static_cast<std::int64_t>(sizeof element), &element, sizeof element);
  };
  switch (tensor.dtype) {
    case DType::kFloat32:
      return store(static_cast<float>(value));
    case DType::kFloat64:
      return store(value);
    case DType::kBfloat16:
      return store(math::bf16_from_float(static_cast<float>(value)));
    case DType::kFloat16:
      return store(math::fp16_from_float(static_cast<float>(value)));
    case DType::kComplex64:
      return store(std::complex<float>(static_cast<float>(value), 0));
    case DType::kBool:
    case DType::kUint8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      return store_integer(tensor, index, static_cast<std::int64_t>(value));
    default:
      throw InputError(fmt::format("values of {} cannot be made", info(tensor.dtype).name));
  }
}

double load_number(const std::byte* element, DType dtype) {
  const auto load = [&](auto value) {
    std::memcpy(&value, element, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::kBool:
    case DType::kUint8:
      return load(std::uint8_t{});
    case DType::kInt8:
      return load(std::int8_t{});
    case DType::kInt16:
      return load(std::int16_t{});
    case DType::kInt32:
      return load(std::int32_t{});
    case DType::kInt64:
      return static_cast<double>(load(std::int64_t{}));
    case DType::kUint64:
      return static_cast<double>(load(std::uint64_t{}));
    case DType::kFloat32:
      return static_cast<double>(load(float{}));
    case DType::kFloat64:
      return load(double{});
    case DType::kBfloat16:
      return static_cast<double>(math::float_from_bf16(load(std::uint16_t{})));
    case DType::kFloat16:
      return static_cast<double>(math::float_from_fp16(load(std::uint16_t{})));
    default:
      throw InputError(fmt::format("values of {} cannot be read as numbers", info(dtype).name));
  }
}

namespace {

// Stores the leaves of nested lists in order.
void store_leaves(const Context& context, Arg values, const Tensor& tensor, std::int64_t& next) {
  if (values.is_list()) {
    for (Arg child : context.args.children(values)) store_leaves(context, child, tensor, next);
    return;
  }
  EPWEAVE_CHECK(next < tensor.numel());
  switch (values.kind()) {
    case ArgKind::kBool:
      return store_integer(tensor, next++, values.as_bool() ? 1 : 0);
    case ArgKind::kInt:
      return store_integer(tensor, next++, values.as_int());
    case ArgKind::kReal:
      return store_number(tensor, next++, values.as_real());
    default:
      throw InputError("a constant tensor holds a value that is no number");
  }
}

}  // namespace

Tensor make_constant(const Graph& graph, const Symbols& symbols, Arg constant, Memory& memory) {
  const Context& context = *graph.context;
  const auto children = context.args.children(constant);
  EPWEAVE_CHECK(children.size() == 3);
  const TensorType* type = tensor_of(context, children[1].as_type());
  const auto recorded = type == nullptr ? std::nullopt : evaluate(symbols, *type);
  if (!recorded || children[2].is_none())
    throw InputError("the values of a constant tensor are not in the file");
  Tensor dense = make_tensor(memory, recorded->dtype, recorded->sizes);
  std::int64_t next = 0;
  store_leaves(context, children[2], dense, next);
  EPWEAVE_CHECK(next == dense.numel());
  if (recorded->strides == dense.strides) return dense;
  Tensor strided = make_tensor(memory, recorded->dtype, recorded->sizes, recorded->strides);
  scatter_elements(dense.bytes(), strided);
  return strided;
}

}  // namespace epweave::replay
