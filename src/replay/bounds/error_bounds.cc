#include "replay/bounds/error_bounds.h"

#include <algorithm>
#include <limits>

#include "ops/op.h"
#include "replay/check/bound_comparison.h"
#include "replay/values/block_cache.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {
namespace {

// Added to what rounds: covers results below the smallest normal number of the type.
constexpr double kUnderflow = 0x1p-120;
constexpr double kUnderflowHalf = 0x1p-25;  // float16

template <class Visit>
void for_each_tensor(const Value& value, const Visit& visit) {
  if (value.is_tensor()) visit(value.tensor());
  if (value.is<List>())
    for (const Value& item : value.items()) for_each_tensor(item, visit);
}

bool is_view_of(const Tensor& result, std::span<const Value> args) {
  bool is_view = false;
  for (const Value& arg : args)
    for_each_tensor(arg,
                    [&](const Tensor& tensor) { is_view = is_view || tensor.storage == result.storage; });
  return is_view;
}

// A complex number is two elements: its parts have a bound each.
std::size_t bytes_of_part(DType dtype) {
  const auto bytes = static_cast<std::size_t>(info(dtype).bytes);
  return is_complex(dtype) ? bytes / 2 : bytes;
}

// The bounds of a value's elements among those of all that is stored; of complex numbers with a
// last dimension of their two parts.
Tensor view_bounds(const Tensor& value, std::shared_ptr<Storage> bounds) {
  Tensor view{DType::kFloat32, value.sizes, value.strides, value.offset, std::move(bounds)};
  return is_complex(value.dtype) ? view_parts(view) : view;
}

}  // namespace

Tensor view_parts(const Tensor& pairs) {
  Tensor parts = pairs;
  if (is_complex(pairs.dtype))
    parts.dtype = pairs.dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
  for (std::int64_t& stride : parts.strides) stride *= 2;
  parts.offset *= 2;
  parts.sizes.push_back(2);
  parts.strides.push_back(1);
  return parts;
}

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kBfloat16:
      return 0x1p-8;
    case DType::kFloat16:
      return 0x1p-11;
    case DType::kFloat32:
    case DType::kComplex64:
      return 0x1p-24;
    case DType::kFloat64:
    case DType::kComplex128:
      return 0x1p-53;
    default:
      return 0;
  }
}

const ErrorBounds::Shadow* ErrorBounds::find_shadow(const Tensor& value) const {
  const auto found = shadows_.find(value.storage.get());
  return found == shadows_.end() || found->second.of.expired() ? nullptr : &found->second;
}

std::optional<Tensor> ErrorBounds::find(const Tensor& value) const {
  const Shadow* shadow = find_shadow(value);
  if (shadow == nullptr) return std::nullopt;
  if (shadow->element_bytes != bytes_of_part(value.dtype)) {  // seen as another type: which bound is whose?
    Tensor unknown = make_tensor(memory_, DType::kFloat32, value.sizes);
    std::fill_n(unknown.data<float>(), unknown.numel(), std::numeric_limits<float>::infinity());
    return unknown;
  }
  const Tensor bounds = view_bounds(value, shadow->bounds);
  if (!is_complex(value.dtype)) return bounds;
  Buffer<float> parts(static_cast<std::size_t>(bounds.numel()));
  gather_elements(bounds, reinterpret_cast<std::byte*>(parts.data()));
  Tensor sums = make_tensor(memory_, DType::kFloat32, value.sizes);
  for (std::int64_t i = 0; i < sums.numel(); ++i)
    sums.data<float>()[i] =
        parts[static_cast<std::size_t>(2 * i)] + parts[static_cast<std::size_t>(2 * i + 1)];
  return sums;
}

bool ErrorBounds::has_any(const Value& value) const {
  bool any = false;
  for_each_tensor(value, [&](const Tensor& tensor) { any = any || find_shadow(tensor) != nullptr; });
  return any;
}

Tensor ErrorBounds::find_or_zero(const Tensor& value) {
  Tensor dense = make_tensor(memory_, DType::kFloat32, value.sizes);
  if (const auto found = find(value))
    gather_elements(*found, dense.bytes());
  else
    std::fill_n(dense.data<float>(), dense.numel(), 0.0F);
  return dense;
}

void ErrorBounds::forget_dead() {
  std::erase_if(shadows_, [](const auto& entry) { return entry.second.of.expired(); });
  ideals_.forget_dead();
}

void ErrorBounds::set(const Tensor& value, const Tensor& bound) {
  EPWEAVE_CHECK(bound.dtype == DType::kFloat32 && bound.sizes == value.sizes);
  Shadow& shadow = shadows_[value.storage.get()];
  if (shadow.bounds == nullptr || shadow.of.expired()) {
    const auto count = static_cast<std::int64_t>(value.storage->bytes() / bytes_of_part(value.dtype));
    const Tensor all = make_tensor(memory_, DType::kFloat32, {count});
    std::fill_n(all.data<float>(), count, 0.0F);
    shadow = Shadow{value.storage, bytes_of_part(value.dtype), all.storage};
  }
  if (shadow.element_bytes != bytes_of_part(value.dtype)) {
    auto* first = reinterpret_cast<float*>(shadow.bounds->data());
    std::fill_n(first, shadow.bounds->bytes() / sizeof(float), std::numeric_limits<float>::infinity());
    return;
  }
  Buffer<float> dense(static_cast<std::size_t>(bound.numel()));
  auto* bytes = reinterpret_cast<std::byte*>(dense.data());
  gather_elements(bound, bytes);
  EPWEAVE_CHECK(std::none_of(dense.begin(), dense.end(), [](float x) { return x < 0; }));
  const Tensor to = view_bounds(value, shadow.bounds);
  if (!is_complex(value.dtype)) return scatter_elements(bytes, to);
  Buffer<float> parts(2 * dense.size());
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = dense[i / 2];
  scatter_elements(reinterpret_cast<const std::byte*>(parts.data()), to);
}

void ErrorBounds::fill(const Tensor& value, float bound) {
  Tensor all = make_tensor(memory_, DType::kFloat32, value.sizes);
  std::fill_n(all.data<float>(), all.numel(), bound);
  set(value, all);
}

void ErrorBounds::set_exact(const Value& value) {
  for_each_tensor(value, [&](const Tensor& tensor) {
    if (has_any(tensor)) fill(tensor, 0);
  });
  ideals_.set_exact(value);
}

void ErrorBounds::set_unknown(const Value& value) {
  for_each_tensor(value, [&](const Tensor& tensor) { fill(tensor, std::numeric_limits<float>::infinity()); });
  ideals_.set_unknown(value);
}

void ErrorBounds::follow(const BoundedCall& call) {
  forget_dead();
  if (!call.op.writes) {
    bool is_all_views = true;
    for_each_tensor(call.result, [&](const Tensor& tensor) {
      is_all_views = is_all_views && is_view_of(tensor, call.args);
    });
    if (is_all_views) return;
  }
  const BoundRule rule = find_bound_rule(call.op);
  try {
    if (rule == nullptr) throw NoBound();
    rule(*this, call);
    if (!has_any(call.result)) return;
    ideals_.follow(call);
    for_each_tensor(call.result, [&](const Tensor& tensor) { keep_exact(tensor); });
  } catch (const NoBound&) {
    without_bound_.emplace(call.op.target);
    set_unknown(call.result);
  }
}

// What has a bound of 0 is exact: a number filled in is that of its type, not of float64.
void ErrorBounds::keep_exact(const Tensor& value) {
  if (is_complex(value.dtype)) return keep_exact(view_parts(value));
  if (!has_ideals(value.dtype) || find_shadow(value) == nullptr) return;
  const Buffer<double> bound = read_numbers(find_or_zero(value)), numbers = read_numbers(value);
  const auto is_exact = [](double b) { return b == 0; };
  if (std::none_of(bound.begin(), bound.end(), is_exact)) return;
  const Tensor ideal = ideals_.find(value);
  for (std::size_t i = 0; i < bound.size(); ++i)
    if (is_exact(bound[i])) ideal.data<double>()[i] = numbers[i];
  ideals_.set(value, ideal);
}

Tensor ErrorBounds::apply(std::string_view target, std::vector<Value> args) {
  const OpInfo* op = find_op(target);
  EPWEAVE_CHECK(op != nullptr && kernels_.find(*op) != nullptr);
  const auto given = static_cast<std::uint32_t>((std::uint64_t{1} << args.size()) - 1);
  for (std::size_t i = args.size(); i < op->params.size(); ++i)
    args.push_back(op->params[i].has_default ? parse_default(op->params[i].default_value) : Value());
  KernelCall call(*op, std::move(args), given, memory_);
  return kernels_.find(*op)(call).tensor();
}

Tensor ErrorBounds::magnitude(const Tensor& value) {
  if (is_complex(value.dtype))
    return apply("aten.sum.dim_IntList", {magnitude(view_parts(value)), Value::list({std::int64_t{-1}})});
  return apply("aten.abs.default", {narrow(value)});
}

Tensor ErrorBounds::narrow(const Tensor& value) {
  return apply("aten._to_copy.default", {value, DType::kFloat32});
}

Tensor ErrorBounds::scale(const Tensor& a, double factor) {
  return apply("aten.mul.Tensor", {a, factor});
}

Tensor ErrorBounds::add(const Tensor& a, const Tensor& b) {
  return apply("aten.add.Tensor", {a, b});
}

Tensor ErrorBounds::round_off(const Tensor& result) {
  const double underflow = result.dtype == DType::kFloat16 ? kUnderflowHalf : kUnderflow;
  return apply("aten.add.Tensor", {scale(magnitude(result), unit_roundoff(result.dtype)), underflow});
}

Tensor ErrorBounds::bound_operand(const Tensor& operand, std::size_t members) {
  Tensor bound = find_or_zero(operand);
  if (!is_floating(operand.dtype)) return bound;
  const double u = operand.dtype == DType::kFloat64 ? 0x1p-53 : 0x1p-24;
  return add(bound, scale(magnitude(operand), static_cast<double>(members) * u));
}

void ErrorBounds::set_reduced(const Tensor& result, const Tensor& bound) {
  set(result, is_floating(result.dtype) ? add(bound, round_off(result)) : bound);
}

}  // namespace epweave::replay
