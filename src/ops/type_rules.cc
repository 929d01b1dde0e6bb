#include "ops/type_rules.h"

#include <fmt/format.h>

#include "ops/op.h"
#include "ops/rules.h"
#include "ops/type_rule_call.h"

namespace epweave {
namespace {

// Which strides two equal types have in common.
enum class Strides : std::uint8_t { kAll, kMoving };

class TypeComparison {
 public:
  TypeComparison(Facts& facts, const Context& context, Strides strides)
      : facts_(facts), context_(context), strides_(strides) {}

  bool is_same(TypeId a, TypeId b) {
    if (a == b) return true;
    if (!a || !b) return false;
    const Type &x = context_.types[a], &y = context_.types[b];
    if (x.kind == TypeKind::kScalar && y.kind == TypeKind::kValue) return is_same_scalar(x, y);
    if (y.kind == TypeKind::kScalar && x.kind == TypeKind::kValue) return is_same_scalar(y, x);
    if (x.kind != y.kind) return false;
    switch (x.kind) {
      case TypeKind::kTensor:
        return is_same_tensor(x.tensor, y.tensor);
      case TypeKind::kScalar:
        return x.py_type == y.py_type && facts_.equal(x.expr, y.expr);
      case TypeKind::kTuple:
      case TypeKind::kList:
        if (x.elements.size() != y.elements.size()) return false;
        for (std::size_t i = 0; i < x.elements.size(); ++i)
          if (!is_same(x.elements[i], y.elements[i])) return false;
        return true;
      case TypeKind::kValue:
        return context_.args.equal(x.value, y.value);
    }
    return false;
  }

 private:
  bool is_same_tensor(const TensorType& a, const TensorType& b) {
    if (a.dtype != b.dtype || a.device != b.device || a.layout != b.layout || a.rank() != b.rank() ||
        a.strides.size() != b.strides.size())
      return false;
    for (std::size_t i = 0; i < a.rank(); ++i)
      if (!facts_.equal_as_assumed(a.sizes[i], b.sizes[i])) return false;
    for (std::size_t i = 0; i < a.strides.size(); ++i)
      if (is_compared(a, i) && !is_same_stride(a.strides[i], b.strides[i])) return false;
    if (a.offset == b.offset) return true;
    const ExprId zero = facts_.pool().number(0);
    return is_same_stride(a.offset ? a.offset : zero, b.offset ? b.offset : zero);
  }
  bool is_compared(const TensorType& tensor, std::size_t dim) {
    return strides_ == Strides::kAll || dim >= tensor.rank() || !is_one(facts_, tensor.sizes[dim]);
  }
  bool is_same_stride(ExprId a, ExprId b) {
    return facts_.equal_strides(a, b) || facts_.equal_as_assumed(a, b);
  }

  // A symbolic scalar whose expression is a number, and a number.
  bool is_same_scalar(const Type& scalar, const Type& value) {
    return value.value.is_int() &&
           facts_.equal_as_assumed(scalar.expr, facts_.pool().number(value.value.as_int()));
  }

  Facts& facts_;
  const Context& context_;
  Strides strides_;
};

}  // namespace

bool has_type_rule(const Node& node) {
  return node.op != nullptr && node.op->type_rule != nullptr;
}

namespace {

TypeId apply(TypeRule rule, Facts& facts, const Graph& graph, const Body& body, const Node& node) {
  TypeRuleCall call(facts, graph, body, node);
  try {
    return rule(call);
  } catch (const InputError& overflow) {
    call.fail(overflow.what());
  }
}

}  // namespace

TypeId infer_type(Facts& facts, const Graph& graph, const Body& body, const Node& node) {
  if (!has_type_rule(node)) return {};
  return apply(node.op->type_rule, facts, graph, body, node);
}

TypeId infer_kernel_type(Facts& facts, const Graph& graph, const Body& body, const Node& node) {
  if (node.op == nullptr || node.op->type_rule != rules::backward_formula) return {};
  return apply(rules::backward_kernel, facts, graph, body, node);
}

bool same_type(Facts& facts, const Context& context, TypeId a, TypeId b) {
  return TypeComparison(facts, context, Strides::kAll).is_same(a, b);
}

bool reaches_same_elements(Facts& facts, const Context& context, TypeId a, TypeId b) {
  return TypeComparison(facts, context, Strides::kMoving).is_same(a, b);
}

namespace {

std::string print_extents(const Context& context, const std::vector<ExprId>& extents) {
  std::string text;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (i > 0) text += ", ";
    text += context.exprs.text(extents[i]);
  }
  return text;
}

std::string print_tensor(const Context& context, const TensorType& t) {
  std::string text = fmt::format("{}[{}]", info(t.dtype).short_name, print_extents(context, t.sizes));
  if (!t.layout) text += fmt::format("{{{}}}", print_extents(context, t.strides));
  if (t.offset) text += fmt::format("+{}", context.exprs.text(t.offset));
  text += fmt::format("@{}", context.text(t.device));
  if (t.layout) text += fmt::format(" {}", context.text(t.layout));
  return text;
}

std::string print_value(const Context& context, Arg value) {
  switch (value.kind()) {
    case ArgKind::kNone:
      return "None";
    case ArgKind::kBool:
      return value.as_bool() ? "True" : "False";
    case ArgKind::kInt:
      return fmt::format("{}", value.as_int());
    case ArgKind::kReal:
      return fmt::format("{}", value.as_real());
    case ArgKind::kSymbolic:
      return std::string(context.exprs.text(value.as_expr()));
    case ArgKind::kMesh:
      return "a device mesh";
    case ArgKind::kProcessGroup:
      return fmt::format("process group '{}'", context.text(value.as_name()));
    case ArgKind::kDevice:
      return fmt::format("device {}", context.text(value.as_name()));
    default:
      return "a value";
  }
}

}  // namespace

std::string print_type(const Context& context, TypeId id) {
  if (!id) return "nothing";
  const Type& type = context.types[id];
  switch (type.kind) {
    case TypeKind::kTensor:
      return print_tensor(context, type.tensor);
    case TypeKind::kScalar:
      return fmt::format("{}({})", type.py_type ? context.text(type.py_type) : "Sym",
                         context.exprs.text(type.expr));
    case TypeKind::kTuple:
    case TypeKind::kList: {
      std::string text;
      for (std::size_t i = 0; i < type.elements.size(); ++i)
        text += (i > 0 ? ", " : "") + print_type(context, type.elements[i]);
      return type.kind == TypeKind::kTuple ? fmt::format("({})", text) : fmt::format("[{}]", text);
    }
    case TypeKind::kValue:
      return print_value(context, type.value);
  }
  return {};
}

}  // namespace epweave
