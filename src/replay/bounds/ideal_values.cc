#include "replay/bounds/ideal_values.h"

#include <algorithm>
#include <limits>

#include "replay/bounds/error_bounds.h"
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

void IdealValues::set_unknown(const Value& value) {
  if (value.is<List>())
    for (const Value& item : value.items()) set_unknown(item);
  if (!value.is_tensor() || !is_rounded(value.tensor().dtype)) return;
  const Tensor& tensor = value.tensor();
  const Tensor numbers = is_complex(tensor.dtype) ? view_parts(tensor) : tensor;
  Tensor unknown = make_tensor(memory_, DType::kFloat64, numbers.sizes);
  std::fill_n(unknown.data<double>(), unknown.numel(), kUnknown);
  set(numbers, unknown);
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

void IdealValues::follow(const BoundedCall& call) {
  const KernelFn kernel = kernels_.find(call.op);
  try {
    if (kernel == nullptr || call.op.cost == CostClass::kAttention) throw NoBound();
    if (call.op.writes) {
      // What the argument was before is known only by its ideals: it is overwritten by now.
      const Tensor* written =
          call.result.is_tensor() ? find_written(call.args, call.result.tensor()) : nullptr;
      if (written == nullptr) throw NoBound();
      if (!has_any(*written)) set_unknown(*written);
    }
    std::vector<Value> args;
    for (const Value& arg : call.args) args.push_back(take_ideals(arg));
    const auto given = static_cast<std::uint32_t>((std::uint64_t{1} << args.size()) - 1);
    KernelCall run(call.op, std::move(args), given, memory_);
    set_results(call.result, kernel(run));
  } catch (const NoBound&) {
    set_unknown(call.result);
  } catch (const KernelError&) {  // not for float64
    set_unknown(call.result);
  }
}

}  // namespace epweave::replay
