#include "replay/bounds/ideal_values.h"

#include <algorithm>
#include <limits>

#include "replay/bounds/error_rules.h"
#include "replay/check/bound_comparison.h"
#include "replay/values/block_cache.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// The types whose rounding is followed: not those of 8 bits.
bool is_rounded(DType dtype) {
  return unit_roundoff(dtype) != 0;
}

// The elements of a tensor of real numbers as float64, row-major.
Tensor widen(const Tensor& value, Memory& memory) {
  Tensor wide = make_tensor(memory, DType::kFloat64, value.sizes);
  const Buffer<double> numbers = read_numbers(value);
  std::copy(numbers.begin(), numbers.end(), wide.data<double>());
  return wide;
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

// Part i of [.., 2].
Tensor view_part(Tensor parts, std::int64_t i) {
  parts.offset += i * parts.strides.back();
  parts.sizes.pop_back();
  parts.strides.pop_back();
  return parts;
}
// Between float64 tensors of the same sizes.
void copy_part(const Tensor& from, const Tensor& to) {
  const Buffer<double> numbers = read_numbers(from);
  scatter_elements(reinterpret_cast<const std::byte*>(numbers.data()), to);
}
// to += factor * other
void add_multiple(const Tensor& to, double factor, const Tensor& other) {
  Buffer<double> sum = read_numbers(to);
  const Buffer<double> addend = read_numbers(other);
  if (addend.size() != sum.size()) throw NoBound();
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * addend[i];
  scatter_elements(reinterpret_cast<const std::byte*>(sum.data()), to);
}
void scale(const Tensor& tensor, double factor) {
  Buffer<double> numbers = read_numbers(tensor);
  for (double& number : numbers) number *= factor;
  scatter_elements(reinterpret_cast<const std::byte*>(numbers.data()), tensor);
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
  if (shadow == nullptr) return widen(value, memory_);
  Tensor ideal = make_tensor(memory_, DType::kFloat64, value.sizes);
  if (shadow->element_bytes != value.element_bytes())
    std::fill_n(ideal.data<double>(), ideal.numel(), kUnknown);
  else
    gather_elements({DType::kFloat64, value.sizes, value.strides, value.offset, shadow->ideals},
                    ideal.bytes());
  return ideal;
}

// Elements that nobody sets are exact.
IdealValues::Shadow& IdealValues::make_shadow(const Tensor& value) {
  Shadow& shadow = shadows_[value.storage.get()];
  if (shadow.ideals != nullptr && !shadow.of.expired()) return shadow;
  const std::size_t bytes = value.element_bytes();
  const auto count = static_cast<std::int64_t>(value.storage->bytes() / bytes);
  const Tensor all = widen({value.dtype, {count}, {1}, 0, value.storage}, memory_);
  shadow = Shadow{value.storage, bytes, all.storage};
  return shadow;
}

void IdealValues::set(const Tensor& value, const Tensor& ideal) {
  EPWEAVE_CHECK(ideal.dtype == DType::kFloat64 && ideal.sizes == value.sizes);
  const Shadow& shadow = make_shadow(value);
  if (shadow.element_bytes != value.element_bytes()) {  // seen as another type: which number is whose?
    auto* first = reinterpret_cast<double*>(shadow.ideals->data());
    std::fill_n(first, shadow.ideals->bytes() / sizeof(double), kUnknown);
    return;
  }
  Buffer<double> dense(static_cast<std::size_t>(ideal.numel()));
  auto* bytes = reinterpret_cast<std::byte*>(dense.data());
  gather_elements(ideal, bytes);
  scatter_elements(bytes, {DType::kFloat64, value.sizes, value.strides, value.offset, shadow.ideals});
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
    return has_any(numbers) ? std::optional(widen(numbers, memory_)) : std::nullopt;
  });
}

void IdealValues::set_unknown(const Value& value) {
  set_each(value, [&](const Tensor& numbers) {
    Tensor unknown = make_tensor(memory_, DType::kFloat64, numbers.sizes);
    std::fill_n(unknown.data<double>(), unknown.numel(), kUnknown);
    return std::optional(unknown);
  });
}

// An argument with each floating tensor replaced by its ideal, and floating types by float64.
Value IdealValues::take_ideals(const Value& value) const {
  if (value.is_tensor()) {
    const DType dtype = value.tensor().dtype;
    if (is_floating(dtype) && is_rounded(dtype)) return find(value.tensor());
    if (is_floating(dtype) || is_complex(dtype)) throw NoBound();
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
  const KernelFn kernel = kernels_.find(op);
  if (kernel == nullptr) throw NoBound();
  const auto given = static_cast<std::uint32_t>((std::uint64_t{1} << args.size()) - 1);
  KernelCall call(op, std::move(args), given, memory_);
  return kernel(call);
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
  if (is_conjugation(call.op)) scale(*result.imaginary, -1);
  return result;
}

// Linear in each of the first two arguments, as a product is:
//   (a + b i) (c + d i) = a c - b d + (a d + b c) i
IdealValues::Parts IdealValues::run_on_each(const BoundedCall& call) {
  if (call.args.size() < 2 || !call.args[0].is_tensor()) throw NoBound();
  if (call.args[1].is_number()) return run_on_first(call);
  if (!call.args[1].is_tensor()) throw NoBound();
  const Parts a = find_parts(call.args[0].tensor()), b = find_parts(call.args[1].tensor());
  const auto product = [&](const Tensor& x, const Tensor& y) {
    std::vector<Value> args{x, y};
    for (const Value& arg : call.args.subspan(2)) args.push_back(take_ideals(arg));
    return run(call.op, std::move(args)).tensor();
  };
  Parts result{product(a.real, b.real), std::nullopt};
  if (a.imaginary && b.imaginary) add_multiple(result.real, -1, product(*a.imaginary, *b.imaginary));
  if (b.imaginary) result.imaginary = product(a.real, *b.imaginary);
  if (!a.imaginary) return result;
  const Tensor other = product(*a.imaginary, b.real);
  if (result.imaginary)
    add_multiple(*result.imaginary, 1, other);
  else
    result.imaginary = other;
  return result;
}

// Linear in all tensors together, as a sum is: the op on either part of them.
IdealValues::Parts IdealValues::run_on_all(const BoundedCall& call) {
  const auto take = [&](const Value& arg, bool is_imaginary) {
    const Parts parts = find_parts(arg.tensor());
    if (!is_imaginary) return parts.real;
    if (!parts.imaginary) scale(parts.real, 0);
    return parts.imaginary.value_or(parts.real);
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

void IdealValues::follow_complex(const BoundedCall& call) {
  if (!std::ranges::any_of(call.args, has_complex)) throw NoBound();
  if (call.op.writes || !call.result.is_tensor() || call.result.tensor().dtype != DType::kComplex64)
    throw NoBound();
  const auto find_result = [&] {
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
  const Tensor both = make_tensor(memory_, DType::kFloat64, parts.sizes);
  copy_part(ideal.real, view_part(both, 0));
  copy_part(*ideal.imaginary, view_part(both, 1));
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
