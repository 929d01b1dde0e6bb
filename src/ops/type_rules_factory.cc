// Ops that make tensors from sizes.
#include <algorithm>

#include "ir/types/promotion.h"
#include "ops/number_dtype.h"
#include "ops/rules.h"

namespace epweave::rules {
namespace {

std::size_t param_of(TypeRuleCall& call, std::string_view name) {
  const auto found = call.node.op->find_param(name);
  EPWEAVE_CHECK(found.has_value());
  return *found;
}

// Parameters "dtype" and "device" of a factory; the device defaults to the host.
StringId factory_device(TypeRuleCall& call) {
  return call.device_or(param_of(call, "device"), call.context.strings.intern("cpu"));
}

TypeId made(TypeRuleCall& call, Dims sizes, DType fallback) {
  const StringId device = factory_device(call);
  return call.contiguous(call.dtype_or(param_of(call, "dtype"), fallback), std::move(sizes), device);
}

// new_*(self, size, ...): dtype and device default to self's.
TypeId made_like(TypeRuleCall& call, Dims sizes) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(call.dtype_or(param_of(call, "dtype"), self.dtype), std::move(sizes),
                         call.device_or(param_of(call, "device"), self.device));
}

ExprId ceil_quotient(TypeRuleCall& call, ExprId a, ExprId b) {
  ExprPool& pool = call.exprs;
  const ExprId minus_a = pool.sub(call.number(0), a);
  return pool.sub(call.number(0), pool.floordiv(minus_a, b));
}

// Number of elements from start to end by step.
ExprId range_length(TypeRuleCall& call, ExprId start, ExprId end, ExprId step) {
  const ExprId length = ceil_quotient(call, call.exprs.sub(end, start), step);
  return call.facts.at_least(length, call.number(0)) ? length : call.exprs.max(call.number(0), length);
}

TypeId arange_of(TypeRuleCall& call, std::size_t count) {
  DType dtype = DType::kInt64;
  for (std::size_t i = 0; i < count; ++i)
    if (call.arg(i).is(ArgKind::kReal)) dtype = kDefaultFloat;
  if (dtype == kDefaultFloat) {
    double v[3] = {0, 0, 1};
    for (std::size_t i = 0; i < count; ++i) {
      const Arg a = call.arg(i);
      if (!a.is_int() && !a.is(ArgKind::kReal)) call.mismatch("a bound is neither an integer nor a float");
      v[count == 1 ? 1 : i] = a.is_int() ? static_cast<double>(a.as_int()) : a.as_real();
    }
    const double length = (v[1] - v[0]) / v[2];
    if (!(length >= 0 && length < 1e18)) call.mismatch("a range of {} elements", length);
    std::int64_t whole = static_cast<std::int64_t>(length);
    if (static_cast<double>(whole) < length) ++whole;
    return made(call, {call.number(whole)}, dtype);
  }
  const ExprId zero = call.number(0);
  const ExprId start = count == 1 ? zero : call.extent(0);
  const ExprId end = call.extent(count == 1 ? std::size_t{0} : std::size_t{1});
  const ExprId step = count == 3 && call.has(2) ? call.extent(2) : call.number(1);
  return made(call, {range_length(call, start, end, step)}, dtype);
}

}  // namespace

// empty, zeros, ones, rand, randn: parameter 0 is the size.
TypeId factory(TypeRuleCall& call) {
  return made(call, call.extents(0), kDefaultFloat);
}

// full(size, fill_value, ...).
TypeId full(TypeRuleCall& call) {
  return made(call, call.extents(0), dtype_of_number(call, call.arg(1)).value_or(DType::kInt64));
}

TypeId empty_strided(TypeRuleCall& call) {
  Dims sizes = call.extents(0), strides = call.extents(1);
  if (sizes.size() != strides.size()) call.mismatch("{} sizes and {} strides", sizes.size(), strides.size());
  return call.result(call.dtype_or(param_of(call, "dtype"), kDefaultFloat), std::move(sizes),
                     std::move(strides), factory_device(call));
}

// empty_permuted(size, physical_layout, ...): the dimensions' order in memory, outermost first.
TypeId empty_permuted(TypeRuleCall& call) {
  const Dims sizes = call.extents(0);
  const std::vector<std::int64_t> layout = call.integers(1);
  std::vector<std::size_t> fill;  // innermost first
  for (std::size_t i = layout.size(); i-- > 0;) {
    const auto dim = static_cast<std::size_t>(layout[i]);
    if (dim >= sizes.size() || std::find(fill.begin(), fill.end(), dim) != fill.end())
      call.mismatch("the layout is no order of {} dimensions", sizes.size());
    fill.push_back(dim);
  }
  if (fill.size() != sizes.size()) call.mismatch("the layout is no order of {} dimensions", sizes.size());
  return call.result(call.dtype_or(param_of(call, "dtype"), kDefaultFloat), sizes,
                     filled_strides(call.facts, sizes, fill), factory_device(call));
}

TypeId scalar_tensor(TypeRuleCall& call) {
  return made(call, {}, kDefaultFloat);
}

TypeId arange(TypeRuleCall& call) {
  return arange_of(call, 1);
}
TypeId arange_start(TypeRuleCall& call) {
  return arange_of(call, 2);
}
TypeId arange_step(TypeRuleCall& call) {
  return arange_of(call, 3);
}

// randint(high, size), randint.low(low, high, size), randperm(n).
TypeId randint(TypeRuleCall& call) {
  return made(call, call.extents(param_of(call, "size")), DType::kInt64);
}
TypeId randperm(TypeRuleCall& call) {
  return made(call, {call.extent(0)}, DType::kInt64);
}

// normal(mean, std, size, ...): two numbers.
TypeId sized_floats(TypeRuleCall& call) {
  return made(call, call.extents(param_of(call, "size")), kDefaultFloat);
}
// multinomial(self, num_samples, ...): of each row of weights as many places.
TypeId multinomial(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  if (self.rank() == 0 || self.rank() > 2) call.mismatch("{} dimensions, 1 or 2 are wanted", self.rank());
  Dims sizes = self.sizes;
  sizes.back() = call.extent(1);
  return call.contiguous(DType::kInt64, std::move(sizes), self.device);
}

TypeId eye(TypeRuleCall& call) {
  const bool is_square = call.node.op->params[1].name != "m";
  const ExprId n = call.extent(0);
  return made(call, {n, is_square ? n : call.extent(1)}, kDefaultFloat);
}

// linspace(start, end, steps).
TypeId linspace(TypeRuleCall& call) {
  return made(call, {call.extent(2)}, kDefaultFloat);
}

TypeId new_factory(TypeRuleCall& call) {
  return made_like(call, call.extents(1));
}

TypeId new_empty_strided(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  Dims sizes = call.extents(1), strides = call.extents(2);
  if (sizes.size() != strides.size()) call.mismatch("{} sizes and {} strides", sizes.size(), strides.size());
  return call.result(call.dtype_or(param_of(call, "dtype"), self.dtype), std::move(sizes), std::move(strides),
                     call.device_or(param_of(call, "device"), self.device));
}

// *_like(self, ..., dtype, layout, device, pin_memory, memory_format).
TypeId factory_like(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const DType dtype = call.dtype_or(param_of(call, "dtype"), self.dtype);
  const StringId device = call.device_or(param_of(call, "device"), self.device);
  return call.in_memory_format(param_of(call, "memory_format"), self, dtype, device);
}

// coor.current_device(): the device of this rank. A file is one rank's view, so it is the one its
// inputs are on.
TypeId current_device(TypeRuleCall& call) {
  for (NodeId id : call.body.order) {
    const Node& input = call.body.nodes[id];
    if (input.kind != NodeKind::kPlaceholder) break;
    const TensorType* tensor = tensor_of(call.context, input.type);
    if (tensor != nullptr && !call.context.text(tensor->device).starts_with("cpu"))
      return call.value(Arg::named(ArgKind::kDevice, tensor->device));
  }
  return {};
}

}  // namespace epweave::rules
