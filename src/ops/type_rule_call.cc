#include "ops/type_rule_call.h"

#include <algorithm>

#include "base/parse_number.h"
#include "ir/types/dimension.h"

namespace epweave {

TypeRuleCall::TypeRuleCall(Facts& facts_in, const Graph& graph_in, const Body& body_in, const Node& node_in)
    : facts(facts_in),
      graph(graph_in),
      body(body_in),
      node(node_in),
      context(*graph_in.context),
      exprs(graph_in.context->exprs),
      bound_(bind_args(*graph_in.context, node_in)) {}

ExprId TypeRuleCall::bound_symbol() {
  if (!node.extra || node.extra->bindings.empty()) return {};
  return exprs.from_poly(exprs.poly_symbol(node.extra->bindings.front().symbol));
}

void TypeRuleCall::fail(const std::string& text) const {
  std::string_view name = node.op->target;  // "aten.mm.default" -> "mm"
  if (const std::size_t dot = name.find('.'); dot != name.npos) {
    name.remove_prefix(dot + 1);
    name = name.substr(0, name.rfind('.'));
  }
  throw TypeMismatch(fmt::format("{}: {}", name, text));
}

std::string_view TypeRuleCall::default_of(std::size_t param) const {
  const OpParam& p = node.op->params[param];
  if (!p.has_default) mismatch("'{}' is missing", p.name);
  return p.default_value;
}

namespace {

bool can_infer(const Node& node) {
  return !node.type && node.op != nullptr && node.op->type_rule != nullptr;
}

// Whether few calls without a recorded type lie behind the node. Each is inferred within the
// inference of the next: producers leave a few in a row unrecorded, and a file may have any number.
bool is_soon_inferred(const Context& context, const Body& body, NodeId id) {
  constexpr std::size_t kMost = 64;
  std::vector<NodeId> unrecorded{id};
  for (std::size_t i = 0; i < unrecorded.size() && unrecorded.size() <= kMost; ++i)
    for_each_input(context, body.nodes[unrecorded[i]], [&](NodeId input) {
      if (can_infer(body.nodes[input])) unrecorded.push_back(input);
    });
  return unrecorded.size() <= kMost;
}

}  // namespace

TypeId TypeRuleCall::type_of(Arg value) {
  if (!value.is_node()) return {};
  const Node& source = body.nodes[value.as_node()];
  if (source.type) return source.type;
  // Some producers leave values unrecorded (split_with_sizes made by torchtitan's chunker).
  if (!can_infer(source) || !is_soon_inferred(context, body, value.as_node())) return {};
  return infer_type(facts, graph, body, source);
}

const TensorType& TypeRuleCall::tensor(Arg value) {
  const TensorType* found = nullptr;
  if (value.is_node()) {
    if (const TypeId type = type_of(value)) {
      found = tensor_of(context, type);
    } else {
      mismatch("{} has no recorded type", context.text(body.nodes[value.as_node()].name));
    }
  }
  if (found == nullptr) {
    if (value.is_node())
      mismatch("{} is {}, not a tensor", context.text(body.nodes[value.as_node()].name),
               print_type(context, type_of(value)));
    mismatch("an argument is not a tensor");
  }
  if (found->layout) mismatch("layout {} is not known", context.text(found->layout));
  return *found;
}

const TensorType& TypeRuleCall::tensor(std::size_t param) {
  if (!arg(param).is_node()) mismatch("'{}' is {}", name_of(param), has(param) ? "not a tensor" : "missing");
  return tensor(arg(param));
}

const TensorType* TypeRuleCall::optional_tensor(std::size_t param) {
  if (!has(param)) return nullptr;
  // A value that is None when traced stands for None.
  if (const TypeId type = type_of(arg(param));
      type && context.types[type].kind == TypeKind::kValue && context.types[type].value.is_none())
    return nullptr;
  return &tensor(param);
}

std::span<const Arg> TypeRuleCall::list(Arg value) {
  if (!value.is_list()) mismatch("an argument is not a list");
  return context.args.children(value);
}

std::vector<const TensorType*> TypeRuleCall::optional_tensors(std::size_t param) {
  std::vector<const TensorType*> result;
  const std::size_t count = list(arg(param)).size();
  for (std::size_t i = 0; i < count; ++i) {
    const Arg element = list(arg(param))[i];  // typing an element may grow the pool
    result.push_back(element.is_none() ? nullptr : &tensor(element));
  }
  return result;
}

std::vector<const TensorType*> TypeRuleCall::tensors(std::size_t param) {
  std::vector<const TensorType*> result = optional_tensors(param);
  for (const TensorType* tensor : result)
    if (tensor == nullptr) mismatch("'{}' holds None", name_of(param));
  return result;
}

ExprId TypeRuleCall::extent(Arg value) {
  if (value.is_int()) return number(value.as_int());
  if (value.is(ArgKind::kSymbolic)) return value.as_expr();
  if (value.is(ArgKind::kBool)) return number(value.as_bool() ? 1 : 0);
  if (value.is_node()) {
    if (const TypeId type = type_of(value)) {
      const Type& t = context.types[type];
      if (t.kind == TypeKind::kScalar) return t.expr;
      if (t.kind == TypeKind::kValue && !t.value.is_node()) return extent(t.value);
    }
    mismatch("{} is not an integer", context.text(body.nodes[value.as_node()].name));
  }
  mismatch("an argument is not an integer");
}

ExprId TypeRuleCall::extent(std::size_t param) {
  if (has(param)) return extent(arg(param));
  return number(integer(param));
}

Dims TypeRuleCall::extents(std::size_t param) {
  if (!arg(param).is_list()) return {extent(param)};
  const std::size_t count = list(arg(param)).size();
  Dims result;
  result.reserve(count);
  for (std::size_t i = 0; i < count; ++i) result.push_back(extent(list(arg(param))[i]));
  return result;
}

std::int64_t TypeRuleCall::integer(std::size_t param) {
  const Arg value = arg(param);
  if (value.is_int()) return value.as_int();
  if (value.is_none()) {
    const auto number = parse_number<std::int64_t>(default_of(param));
    if (!number) mismatch("'{}' is missing", name_of(param));
    return *number;
  }
  const ExprId expr = extent(value);
  if (auto number = exprs.constant(facts.normalize(expr))) return *number;
  mismatch("'{}' is {}, not a number", name_of(param), text(expr));
}

std::vector<std::int64_t> TypeRuleCall::integers(std::size_t param) {
  if (!has(param)) return {};
  if (!arg(param).is_list()) return {integer(param)};
  std::vector<std::int64_t> result;
  const std::size_t count = list(arg(param)).size();
  for (std::size_t i = 0; i < count; ++i) {
    const ExprId expr = extent(list(arg(param))[i]);
    const auto number = exprs.constant(facts.normalize(expr));
    if (!number) mismatch("'{}' holds {}, not a number", name_of(param), text(expr));
    result.push_back(*number);
  }
  return result;
}

bool TypeRuleCall::boolean(std::size_t param) {
  if (arg(param).is(ArgKind::kBool)) return arg(param).as_bool();
  if (arg(param).is_int()) return arg(param).as_int() != 0;
  if (!has(param)) return default_of(param) == "True";
  mismatch("'{}' is not a bool", name_of(param));
}

std::optional<DType> TypeRuleCall::dtype(std::size_t param) {
  if (!has(param)) return std::nullopt;
  if (!arg(param).is(ArgKind::kDType)) mismatch("'{}' is not a dtype", name_of(param));
  const auto found = find_dtype(context.text(arg(param).as_name()));
  if (!found) mismatch("dtype {} is not known", context.text(arg(param).as_name()));
  return found;
}

StringId TypeRuleCall::device_or(std::size_t param, StringId fallback) {
  Arg value = arg(param);
  if (value.is_node())
    if (const TypeId type = type_of(value); type && context.types[type].kind == TypeKind::kValue)
      value = context.types[type].value;
  if (value.is_none()) return fallback;
  if (value.is(ArgKind::kDevice) || value.is(ArgKind::kText)) return value.as_name();
  mismatch("'{}' is not a device", name_of(param));
}

TypeId TypeRuleCall::in_memory_format(std::size_t param, const TensorType& tensor, DType dtype,
                                      StringId device) {
  const bool is_said = arg(param).is(ArgKind::kMemoryFormat);
  const std::string_view format = is_said ? context.text(arg(param).as_name()) : std::string_view();
  if (format == "torch.contiguous_format") return contiguous(dtype, tensor.sizes, device);
  const std::size_t channels_last_rank = format == "torch.channels_last"      ? 4
                                         : format == "torch.channels_last_3d" ? 5
                                                                              : 0;
  if (channels_last_rank == 0)
    return result(dtype, tensor.sizes, preserved_strides(facts, layout_of(tensor)), device);
  check_rank(tensor, channels_last_rank, name_of(param));
  return channels_last(dtype, tensor.sizes, device);
}

TypeId TypeRuleCall::channels_last(DType dtype, Dims sizes, StringId device) {
  std::vector<std::size_t> fill = {1};  // channels, then from the last dimension outwards, then rows
  for (std::size_t dim = sizes.size(); --dim > 1;) fill.push_back(dim);
  fill.push_back(0);
  Dims strides = filled_strides(facts, sizes, fill);
  return result(dtype, std::move(sizes), std::move(strides), device);
}

bool TypeRuleCall::has_channels_last(const Dims& sizes, const Dims& strides) {
  if ((sizes.size() != 4 && sizes.size() != 5) || strides.size() != sizes.size()) return false;
  std::int64_t least = 0;
  std::vector<std::size_t> order{1};  // innermost first
  for (std::size_t d = sizes.size(); d-- > 2;) order.push_back(d);
  order.push_back(0);
  // What has a symbol counts as it did when torch traced. How many batches there are decides
  // nothing.
  const auto channel_stride = facts.hint(strides[1]);
  for (const std::size_t d : order) {
    const auto stride = facts.hint(strides[d]);
    auto size = facts.hint(sizes[d]);
    if (d == 0 && !size) size = 1;
    if (!size || !stride || *size == 0 || *stride == 0 || *stride < least) return false;
    if (d == 0 && least == *channel_stride) return false;  // of extents 1 the order is not known
    least = *stride * *size;
  }
  return true;
}

std::size_t TypeRuleCall::wrap_dim(std::int64_t dim, std::size_t rank) const {
  const auto found = find_dimension(dim, std::max<std::size_t>(rank, 1));
  if (!found) mismatch("dimension {} is out of range for {} dimensions", dim, rank);
  return *found;
}

std::size_t TypeRuleCall::dim(std::size_t param, std::size_t rank) {
  if (rank == 0) mismatch("a 0-dimensional tensor has no dimension {}", integer(param));
  return wrap_dim(integer(param), rank);
}

std::size_t TypeRuleCall::dim_or_scalar(std::size_t param, std::size_t rank) {
  return wrap_dim(integer(param), rank);
}

std::vector<std::size_t> TypeRuleCall::dims(std::size_t param, std::size_t rank) {
  std::vector<std::size_t> result;
  for (std::int64_t d : integers(param)) result.push_back(wrap_dim(d, rank));
  return result;
}

TypeId TypeRuleCall::result(DType dtype, Dims sizes, Dims strides, StringId device, ExprId offset) {
  TensorType type;
  type.dtype = dtype;
  type.device = device;
  type.sizes = std::move(sizes);
  type.strides = std::move(strides);
  if (offset && !is_zero(facts, offset)) type.offset = offset;
  return context.types.tensor(std::move(type));
}

TypeId TypeRuleCall::contiguous(DType dtype, Dims sizes, StringId device) {
  Dims strides = contiguous_strides(facts, sizes);
  return result(dtype, std::move(sizes), std::move(strides), device);
}

TypeId TypeRuleCall::view(const TensorType& of, Dims sizes, Dims strides, ExprId offset) {
  return result(of.dtype, std::move(sizes), std::move(strides), of.device, offset);
}

TypeId TypeRuleCall::same(const TensorType& tensor) {
  return result(tensor.dtype, tensor.sizes, tensor.strides, tensor.device, tensor.offset);
}

TypeId TypeRuleCall::fresh_like(const TensorType& tensor, DType dtype) {
  return result(dtype, tensor.sizes, preserved_strides(facts, layout_of(tensor)), tensor.device);
}

TypeId TypeRuleCall::laid_out_like(const TensorType& tensor, DType dtype) {
  const Layout layout = layout_of(tensor);
  return result(dtype, tensor.sizes, elementwise_strides(facts, tensor.sizes, std::span(&layout, 1)),
                tensor.device);
}

TypeId TypeRuleCall::tuple(std::vector<TypeId> elements) {
  return context.types.intern(Type{.kind = TypeKind::kTuple, .elements = std::move(elements)});
}

TypeId TypeRuleCall::list_of(std::vector<TypeId> elements) {
  return context.types.intern(Type{.kind = TypeKind::kList, .elements = std::move(elements)});
}

TypeId TypeRuleCall::value(Arg v) {
  return context.types.intern(Type{.kind = TypeKind::kValue, .value = v});
}

TypeId TypeRuleCall::scalar(ExprId expr, std::string_view py_type) {
  return context.types.intern(
      Type{.kind = TypeKind::kScalar, .expr = expr, .py_type = context.strings.intern(py_type)});
}

void TypeRuleCall::check_equal(ExprId a, ExprId b, std::string_view what) {
  if (facts.differ(a, b)) mismatch("{} {} and {} differ", what, text(a), text(b));
}

void TypeRuleCall::check_rank(const TensorType& tensor, std::size_t rank, std::string_view what) {
  if (tensor.rank() != rank) mismatch("{} has {} dimensions, not {}", what, tensor.rank(), rank);
}

Dims broadcast_sizes(TypeRuleCall& call, std::span<const std::span<const ExprId>> shapes) {
  std::size_t rank = 0;
  for (const auto& shape : shapes) rank = std::max(rank, shape.size());
  Dims sizes(rank, call.number(1));
  for (const auto& shape : shapes) {
    for (std::size_t i = 0; i < shape.size(); ++i) {
      ExprId& size = sizes[rank - shape.size() + i];
      if (size == shape[i] || is_one(call.facts, shape[i])) continue;
      if (is_one(call.facts, size)) {
        size = shape[i];
      } else if (call.facts.differ(size, shape[i])) {
        call.mismatch("sizes {} and {} of dimension {} do not broadcast", call.text(size),
                      call.text(shape[i]), rank - shape.size() + i);
      }
    }
  }
  return sizes;
}

}  // namespace epweave
