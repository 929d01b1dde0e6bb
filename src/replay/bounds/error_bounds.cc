#include "replay/bounds/error_bounds.h"

#include <algorithm>
#include <limits>

#include "ops/op.h"
#include "replay/bounds/error_rules.h"

namespace epweave::replay {
namespace {

// Added to what rounds: covers results below the smallest normal number of the type.
constexpr double kUnderflow = 0x1p-120;
constexpr double kUnderflowHalf = 0x1p-25;  // float16

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

template <class Visit>
void for_each_tensor(const Value& value, const Visit& visit) {
  if (value.is_tensor()) visit(value.tensor());
  if (value.is<List>())
    for (const Value& item : value.items()) for_each_tensor(item, visit);
}

// Calls visit(tensor) for all that the op writes, lists of tensors included.
template <class Visit>
void for_each_written(const OpInfo& op, std::span<const Value> args, const Visit& visit) {
  for (std::size_t i = 0; i < args.size() && i < op.params.size(); ++i)
    if (op.params[i].is_written) for_each_tensor(args[i], visit);
}

// Whether all that the call writes is its result, of which a rule sets the bounds.
bool returns_all_written(const BoundedCall& call) {
  bool returns_all = true;
  for_each_written(call.op, call.args, [&](const Tensor& written) {
    returns_all = returns_all && call.result.is_tensor() && call.result.tensor().storage == written.storage;
  });
  return returns_all;
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

// A device is not waited for.
bool has_negative(const Tensor& bound) {
  if (!bound.storage->is_on_host() || !bound.is_contiguous()) return false;
  return std::any_of(bound.data<float>(), bound.data<float>() + bound.numel(), [](float x) { return x < 0; });
}

Tensor all_of(std::shared_ptr<Storage> bounds) {
  const auto count = static_cast<std::int64_t>(bounds->bytes() / sizeof(float));
  return {DType::kFloat32, {count}, {1}, 0, std::move(bounds)};
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

Tensor view_part(const Tensor& pairs, std::int64_t i) {
  Tensor part = pairs;
  part.offset += i * part.strides.back();
  part.sizes.pop_back();
  part.strides.pop_back();
  return part;
}

std::size_t bytes_of_bounds(DType dtype) {
  const std::size_t parts = is_complex(dtype) ? 2 : 1;
  const DType part =
      is_complex(dtype) ? (dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64) : dtype;
  return parts * (sizeof(float) + (has_ideals(part) ? sizeof(double) : 0));
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
  if (shadow->element_bytes != bytes_of_part(value.dtype))  // seen as another type: which bound is whose?
    return unbounded(value.sizes);
  const Tensor bounds = view_bounds(value, shadow->bounds);
  return is_complex(value.dtype) ? add(view_part(bounds, 0), view_part(bounds, 1)) : bounds;
}

bool ErrorBounds::has_any(const Value& value) const {
  bool any = false;
  for_each_tensor(value, [&](const Tensor& tensor) { any = any || find_shadow(tensor) != nullptr; });
  return any;
}

Tensor ErrorBounds::find_or_zero(const Tensor& value) const {
  const auto found = find(value);
  return found ? ops_.copied(*found) : zeros(value.sizes);
}

Tensor ErrorBounds::unbounded(const Extents& sizes) const {
  return ops_.filled(DType::kFloat32, sizes, kUnbounded);
}

void ErrorBounds::forget_dead() {
  std::erase_if(shadows_, [](const auto& entry) { return entry.second.of.expired(); });
  ideals_.forget_dead();
}

void ErrorBounds::set(const Tensor& value, const Tensor& bound) {
  EPWEAVE_CHECK(bound.dtype == DType::kFloat32 && bound.sizes == value.sizes && !has_negative(bound));
  Shadow& shadow = shadows_[value.storage.get()];
  shadow.floor.reset();
  if (shadow.bounds == nullptr || shadow.of.expired()) {
    const auto count = static_cast<std::int64_t>(value.storage->bytes() / bytes_of_part(value.dtype));
    shadow = Shadow{value.storage, bytes_of_part(value.dtype), zeros({count}).storage};
  }
  if (shadow.element_bytes != bytes_of_part(value.dtype)) return ops_.fill(all_of(shadow.bounds), kUnbounded);
  const Tensor to = view_bounds(value, shadow.bounds);
  if (!is_complex(value.dtype)) return ops_.copy(bound, to);
  for (const std::int64_t part : {0, 1}) ops_.copy(bound, view_part(to, part));
}

void ErrorBounds::fill(const Tensor& value, float bound) {
  set(value, ops_.filled(DType::kFloat32, value.sizes, static_cast<double>(bound)));
}

void ErrorBounds::set_exact(const Value& value) {
  for_each_tensor(value, [&](const Tensor& tensor) {
    if (has_any(tensor)) fill(tensor, 0);
  });
  ideals_.set_exact(value);
}

void ErrorBounds::set_unknown(const Value& value) {
  for_each_tensor(value, [&](const Tensor& tensor) { fill(tensor, static_cast<float>(kUnbounded)); });
  ideals_.set_unknown(value);
}

std::optional<double> ErrorBounds::floor_of(const Tensor& value) const {
  const Shadow* shadow = find_shadow(value);
  return shadow == nullptr ? std::nullopt : shadow->floor;
}

void ErrorBounds::set_floor(const Tensor& value, double floor) {
  const auto stored = static_cast<std::int64_t>(value.storage->bytes() / value.element_bytes());
  if (value.numel() == stored) shadows_.at(value.storage.get()).floor = floor;
}

void ErrorBounds::keep_written(const OpInfo& op, std::span<const Value> args) {
  for_each_written(op, args, [&](const Tensor& tensor) { ideals_.keep(tensor); });
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
    if (rule == nullptr || !returns_all_written(call)) throw NoBound();
    const std::optional<double> floor = find_floor(*this, call, rule);
    rule(*this, call);
    if (!has_any(call.result)) return;
    if (floor) set_floor(call.result.tensor(), *floor);
    if (!call.op.is_random) ideals_.follow(call);  // else exact, or its rule sets them
    for_each_tensor(call.result, [&](const Tensor& tensor) { keep_exact(tensor); });
  } catch (const NoBound&) {
    leave_unbounded(call);
  }
}

void ErrorBounds::set_call_unknown(const BoundedCall& call) {
  set_unknown(call.result);
  for_each_written(call.op, call.args, [&](const Tensor& tensor) { set_unknown(tensor); });
}

void ErrorBounds::leave_unbounded(const BoundedCall& call) {
  without_bound_.emplace(call.op.target);
  set_call_unknown(call);
}

bool ErrorBounds::is_off(const Value& value) const {
  bool any = false;
  for_each_tensor(value, [&](const Tensor& tensor) {
    const auto bound = any ? std::nullopt : find(tensor);
    any = any || (bound && ops_.any(*bound));
  });
  return any;
}

// What has a bound of 0 is exact: a number filled in is that of its type, not of float64.
void ErrorBounds::keep_exact(const Tensor& value) {
  if (is_complex(value.dtype)) return keep_exact(view_parts(value));
  if (!has_ideals(value.dtype)) return;
  if (const auto bound = find(value)) ideals_.set_exact_where(apply(named::kEqNumber, {*bound, 0.0}), value);
}

Tensor ErrorBounds::magnitude(const Tensor& value) const {
  if (is_complex(value.dtype))
    return apply(named::kSum, {magnitude(view_parts(value)), Value::list({std::int64_t{-1}})});
  return apply(named::kAbs, {narrow(value)});
}

Tensor ErrorBounds::narrow(const Tensor& value) const {
  return apply(named::kCast, {value, DType::kFloat32});
}

Tensor ErrorBounds::scale(const Tensor& a, double factor) const {
  return apply(named::kMul, {a, factor});
}

Tensor ErrorBounds::add(const Tensor& a, const Tensor& b) const {
  return apply(named::kAdd, {a, b});
}

Tensor ErrorBounds::round_off(const Tensor& result) const {
  const double underflow = result.dtype == DType::kFloat16 ? kUnderflowHalf : kUnderflow;
  return apply(named::kAdd, {scale(magnitude(result), unit_roundoff(result.dtype)), underflow});
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
