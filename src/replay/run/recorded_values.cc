#include "replay/run/recorded_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "replay/collectives/groups.h"

namespace epweave::replay {

void RecordedValues::check(const Node& node, const Value& value) {
  if (node.extra != nullptr)
    for (const Binding& binding : node.extra->bindings) bind_symbol(binding, value);
  check_value(node.type, value);
}

void RecordedValues::bind_symbol(const Binding& binding, const Value& value) {
  const Value* at = &value;
  std::optional<std::int64_t> found;
  std::string_view method;
  std::int64_t divisor = 1;
  for (Arg key : context_.args[binding.path]) {
    const auto field = [&](std::string_view name) { return find_entry(context_, key, name); };
    const Arg* kind = field("kind");
    if (kind == nullptr || !kind->is(ArgKind::kText))
      throw KernelError("a symbol's binding is not understood");
    const std::string_view step = context_.text(kind->as_name());
    if (step == "CallMethodKey") {
      method = context_.text(field("name")->as_name());
      if (method == "item") method = {};
      if (method == "storage_offset") found = at->tensor().offset;
    } else if (step == "SequenceKey") {
      const auto index = static_cast<std::size_t>(field("idx")->as_int());
      if (method == "size") {
        found = at->tensor().sizes.at(index);
      } else if (method == "stride") {
        found = at->tensor().strides.at(index);
      } else {
        at = &at->items().at(index);
      }
    } else if (step == "DivideByKey") {
      divisor = field("divisor")->as_int();
    } else if (step != "ConvertIntKey") {  // of a truth value, which is 1 or 0
      throw KernelError(fmt::format("a symbol's binding has the unknown step {}", step));
    }
  }
  if (at->is<double>()) return;  // no size depends on it: nodes hand it on
  if (!found && at->is_number()) found = at->integer();
  if (!found) throw KernelError("a symbol's binding leads to no integer");
  if (!symbols_.bind(binding.symbol, *found / divisor))
    throw KernelError(fmt::format("symbol {} is {}, and had another value before",
                                  context_.text(binding.symbol), *found / divisor));
}

void RecordedValues::check_value(TypeId id, const Value& value) {
  if (!id) return;
  const Type& type = context_.types[id];
  switch (type.kind) {
    case TypeKind::kTensor:
      if (!value.is_tensor()) throw KernelError("the result is no tensor, a tensor is recorded");
      return check_tensor(type.tensor, value.tensor());
    case TypeKind::kScalar:
      return check_scalar(type, value);
    case TypeKind::kTuple:
    case TypeKind::kList:
      if (!value.is<List>()) throw KernelError("the result is no tuple, a tuple is recorded");
      if (value.items().size() != type.elements.size())
        throw KernelError(
            fmt::format("{} results, {} are recorded", value.items().size(), type.elements.size()));
      for (std::size_t i = 0; i < type.elements.size(); ++i) check_value(type.elements[i], value.items()[i]);
      return;
    case TypeKind::kValue:
      return;
  }
}

void RecordedValues::check_scalar(const Type& type, const Value& value) const {
  if (!value.is_number() || value.is<double>() || !type.expr) return;
  const auto recorded = symbols_.evaluate(type.expr);
  if (recorded && *recorded != value.integer())
    throw KernelError(fmt::format("the result is {}, recorded is {} = {}", value.integer(),
                                  context_.exprs.text(type.expr), *recorded));
}

void RecordedValues::check_tensor(const TensorType& type, const Tensor& tensor) {
  symbols_.learn(type, tensor);
  const auto recorded = evaluate(symbols_, type);
  const auto complain = [&](std::string_view what) {
    throw KernelError(fmt::format("the result is {}[{}]{{{}}}, its {} is not what is recorded: {}[{}]{{{}}}",
                                  info(tensor.dtype).short_name, fmt::join(tensor.sizes, ", "),
                                  fmt::join(tensor.strides, ", "), what, info(type.dtype).short_name,
                                  recorded ? fmt::format("{}", fmt::join(recorded->sizes, ", ")) : "?",
                                  recorded ? fmt::format("{}", fmt::join(recorded->strides, ", ")) : "?"));
  };
  if (tensor.dtype != type.dtype) complain("dtype");
  if (!recorded) return;
  if (tensor.sizes != recorded->sizes) complain("shape");
  if (tensor.numel() == 0 || recorded->strides.size() != tensor.rank()) return;
  for (std::size_t d = 0; d < tensor.rank(); ++d)
    if (tensor.sizes[d] > 1 && tensor.strides[d] != recorded->strides[d]) complain("layout");
}

}  // namespace epweave::replay
