#include "replay/bounds/ideal_values.h"

#include <algorithm>
#include <limits>

#include "replay/bounds/error_rules.h"

namespace epweave::replay {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// The types whose rounding is followed: not those of 8 bits.
bool is_rounded(DType dtype) {
  return unit_roundoff(dtype) != 0;
}

// Those of a value's elements among the ideals of all that is stored.
Tensor view_ideals(const Tensor& value, std::shared_ptr<Storage> ideals) {
  return {DType::kFloat64, value.sizes, value.strides, value.offset, std::move(ideals)};
}

// The first tensor among the values that lies where `result` does.
const Tensor* find_written(std::span<const Value> args, const Tensor& result) {
  for (const Value& arg : args)
    if (arg.is_tensor() && arg.tensor().storage == result.storage) return &arg.tensor();
  return nullptr;
}

bool has_complex(const Value& value) {
  if (value.is_tensor()) return is_complex(value.tensor().dtype);
  return value.is<List>() && std::ranges::any_of(value.items(), has_complex);
}

}  // namespace

bool has_ideals(DType dtype) {
  return is_floating(dtype) && dtype != DType::kFloat64 && is_rounded(dtype);
}

const IdealValues::Shadow* IdealValues::find_shadow(const Tensor& value) const {
  const auto found = shadows_.find(value.storage.get());
  return found == shadows_.end() || found->second.of.expired() ? nullptr : &found->second;
}

void IdealValues::forget_dead() {
  std::erase_if(shadows_, [](const auto& entry) { return entry.second.of.expired(); });
}

Tensor IdealValues::find(const Tensor& value) const {
  const Shadow* shadow = find_shadow(value);
  if (shadow == nullptr) return ops_.cast(value, DType::kFloat64);
  if (shadow->element_bytes != value.element_bytes())
    return ops_.filled(DType::kFloat64, value.sizes, kUnknown);
  return ops_.copied(view_ideals(value, shadow->ideals));
}

// Elements that nobody sets are exact.
IdealValues::Shadow& IdealValues::make_shadow(const Tensor& value) {
  Shadow& shadow = shadows_[value.storage.get()];
  if (shadow.ideals != nullptr && !shadow.of.expired()) return shadow;
  const std::size_t bytes = value.element_bytes();
  const auto count = static_cast<std::int64_t>(value.storage->bytes() / bytes);
  const Tensor all = ops_.cast({value.dtype, {count}, {1}, 0, value.storage}, DType::kFloat64);
  shadow = Shadow{value.storage, bytes, all.storage};
  return shadow;
}

void IdealValues::keep(const Tensor& value) {
  if (has_ideals(value.dtype)) make_shadow(value);
}

void IdealValues::set(const Tensor& value, const Tensor& ideal) {
  EPWEAVE_CHECK(ideal.dtype == DType::kFloat64 && ideal.sizes == value.sizes);
  const Shadow& shadow = make_shadow(value);
  if (shadow.element_bytes == value.element_bytes())
    return ops_.copy(ideal, view_ideals(value, shadow.ideals));
  // Seen as another type: which number is whose?
  const auto count = static_cast<std::int64_t>(shadow.ideals->bytes() / sizeof(double));
  ops_.fill({DType::kFloat64, {count}, {1}, 0, shadow.ideals}, kUnknown);
}

template <class Find>
void IdealValues::set_each(const Value& value, const Find& find_ideal) {
  if (value.is<List>())
    for (const Value& item : value.items()) set_each(item, find_ideal);
  if (!value.is_tensor() || !is_rounded(value.tensor().dtype)) return;
  const Tensor& tensor = value.tensor();
  const Tensor numbers = is_complex(tensor.dtype) ? view_parts(tensor) : tensor;
  if (const std::optional<Tensor> ideal = find_ideal(numbers)) set(numbers, *ideal);
}

void IdealValues::set_exact(const Value& value) {
  set_each(value, [&](const Tensor& numbers) {
    return has_any(numbers) ? std::optional(ops_.cast(numbers, DType::kFloat64)) : std::nullopt;
  });
}

void IdealValues::set_exact_where(const Tensor& mask, const Tensor& value) {
  if (has_any(value)) set(value, ops_.apply(named::kWhere, {mask, value, find(value)}));
}

void IdealValues::set_unknown(const Value& value) {
  set_each(value, [&](const Tensor& numbers) {
    return std::optional(ops_.filled(DType::kFloat64, numbers.sizes, kUnknown));
  });
}

// An argument with each floating tensor replaced by its ideal, and floating types by float64.
Value IdealValues::take_ideals(const Value& value) const {
  if (value.is_tensor()) {
    const DType dtype = value.tensor().dtype;
    if (is_floating(dtype) && is_rounded(dtype)) return find(value.tensor());
    if (is_inexact(dtype)) throw NoBound();
    return value;
  }
  if (value.is<DType>() && is_floating(value.as<DType>())) return DType::kFloat64;
  if (!value.is<List>()) return value;
  List list{value.as<List>().is_tuple, {}};
  for (const Value& item : value.items()) list.items.push_back(take_ideals(item));
  return list;
}

void IdealValues::set_results(const Value& results, const Value& ideals) {
  if (results.is<List>()) {
    if (!ideals.is<List>() || ideals.items().size() != results.items().size()) throw NoBound();
    for (std::size_t i = 0; i < results.items().size(); ++i)
      set_results(results.items()[i], ideals.items()[i]);
    return;
  }
  if (!results.is_tensor() || !is_rounded(results.tensor().dtype)) return;
  if (!has_ideals(results.tensor().dtype) || !ideals.is_tensor() ||
      ideals.tensor().dtype != DType::kFloat64 || ideals.tensor().sizes != results.tensor().sizes)
    throw NoBound();
  set(results.tensor(), ideals.tensor());
}

Value IdealValues::run(const OpInfo& op, std::vector<Value> args) {
  if (!ops_.has(op)) throw NoBound();
  return ops_.run(op, std::move(args));
}

IdealValues::Parts IdealValues::find_parts(const Tensor& value) const {
  if (!is_complex(value.dtype)) return {find(value), std::nullopt};
  const Tensor parts = find(view_parts(value));
  return {view_part(parts, 0), view_part(parts, 1)};
}

// Linear in the first argument, with real others: the op on either part.
IdealValues::Parts IdealValues::run_on_first(const BoundedCall& call) {
  if (!call.args[0].is_tensor()) throw NoBound();
  const Parts first = find_parts(call.args[0].tensor());
  if (!first.imaginary) throw NoBound();
  std::vector<Value> args{first.real};
  for (const Value& arg : call.args.subspan(1)) args.push_back(take_ideals(arg));
  Parts result{run(call.op, args).tensor(), std::nullopt};
  args[0] = *first.imaginary;
  result.imaginary = run(call.op, std::move(args)).tensor();
  if (is_conjugation(call.op)) result.imaginary = ops_.apply(named::kNeg, {*result.imaginary});
  return result;
}

// Linear in each of the first two arguments, as a product is:
//   (a + b i) (c + d i) = a c - b d + (a d + b c) i
IdealValues::Parts IdealValues::run_on_each(const BoundedCall& call) {
  if (call.args.size() < 2 || !call.args[0].is_tensor()) throw NoBound();
  if (call.args[1].is_number()) return run_on_first(call);
  if (!call.args[1].is_tensor()) throw NoBound();
  const Parts a = find_parts(call.args[0].tensor()), b = find_parts(call.args[1].tensor());
  const auto add = [&](const Tensor& x, const Tensor& y, std::int64_t factor) {
    if (x.sizes != y.sizes) throw NoBound();
    return ops_.apply(named::kAdd, {x, y, factor});
  };
  const auto product = [&](const Tensor& x, const Tensor& y) {
    std::vector<Value> args{x, y};
    for (const Value& arg : call.args.subspan(2)) args.push_back(take_ideals(arg));
    return run(call.op, std::move(args)).tensor();
  };
  Parts result{product(a.real, b.real), std::nullopt};
  if (a.imaginary && b.imaginary) result.real = add(result.real, product(*a.imaginary, *b.imaginary), -1);
  if (b.imaginary) result.imaginary = product(a.real, *b.imaginary);
  if (!a.imaginary) return result;
  const Tensor other = product(*a.imaginary, b.real);
  if (result.imaginary)
    result.imaginary = add(*result.imaginary, other, 1);
  else
    result.imaginary = other;
  return result;
}

// Linear in all tensors together, as a sum is: the op on either part of them.
IdealValues::Parts IdealValues::run_on_all(const BoundedCall& call) {
  const auto take = [&](const Value& arg, bool is_imaginary) {
    const Parts parts = find_parts(arg.tensor());
    if (!is_imaginary) return parts.real;
    return parts.imaginary ? *parts.imaginary : ops_.apply(named::kMulNumber, {parts.real, 0.0});
  };
  const auto run_on = [&](bool is_imaginary) {
    std::vector<Value> args(call.args.begin(), call.args.end());
    for (std::size_t i = 0; i < args.size(); ++i) {
      if (args[i].is_tensor()) {
        args[i] = take(call.args[i], is_imaginary);
      } else if (call.op.params[i].type == "Tensor") {
        throw NoBound();  // a number, which has parts, too
      } else if (has_complex(args[i])) {
        std::vector<Value> items;
        for (const Value& item : args[i].items()) items.emplace_back(take(item, is_imaginary));
        args[i] = Value::list(std::move(items));
      }
    }
    return run(call.op, std::move(args)).tensor();
  };
  return {run_on(false), run_on(true)};
}

// Complex numbers made of real ones: of their parts, or of length and angle.
IdealValues::Parts IdealValues::make_parts(const BoundedCall& call) {
  const bool is_polar = call.op.target == named::kPolar;
  if (!is_polar && call.op.target != named::kComplex) throw NoBound();
  const Tensor a = find(call.args[0].tensor()), b = find(call.args[1].tensor());
  if (!is_polar) return {a, b};
  return {ops_.apply(named::kMul, {a, ops_.apply(named::kCos, {b})}),
          ops_.apply(named::kMul, {a, ops_.apply(named::kSin, {b})})};
}

void IdealValues::follow_complex(const BoundedCall& call) {
  if (call.op.writes || !call.result.is_tensor() || call.result.tensor().dtype != DType::kComplex64)
    throw NoBound();
  const auto find_result = [&] {
    if (!std::ranges::any_of(call.args, has_complex)) return make_parts(call);
    switch (call.op.linearity) {
      case Linearity::kFirst:
        return run_on_first(call);
      case Linearity::kEach:
        return run_on_each(call);
      case Linearity::kSum:
        return run_on_all(call);
      case Linearity::kNone:
        break;
    }
    throw NoBound();
  };
  const Parts ideal = find_result();
  const Tensor& result = call.result.tensor();
  if (!ideal.imaginary || ideal.real.sizes != result.sizes || ideal.imaginary->sizes != result.sizes)
    throw NoBound();
  const Tensor parts = view_parts(result);
  const Tensor both = make_tensor(ops_.memory(), DType::kFloat64, parts.sizes);
  ops_.copy(ideal.real, view_part(both, 0));
  ops_.copy(*ideal.imaginary, view_part(both, 1));
  set(parts, both);
}

void IdealValues::follow(const BoundedCall& call) {
  try {
    if (call.op.writes) {
      // What the argument was before is known only by its ideals: it is overwritten by now.
      const Tensor* written =
          call.result.is_tensor() ? find_written(call.args, call.result.tensor()) : nullptr;
      if (written == nullptr) throw NoBound();
      if (!has_any(*written)) set_unknown(*written);
    }
    if (has_complex(call.result) || std::ranges::any_of(call.args, has_complex)) return follow_complex(call);
    std::vector<Value> args;
    for (const Value& arg : call.args) args.push_back(take_ideals(arg));
    set_results(call.result, run(call.op, std::move(args)));
  } catch (const NoBound&) {
    set_unknown(call.result);
  } catch (const KernelError&) {  // not for float64
    set_unknown(call.result);
  }
}

}  // namespace epweave::replay
