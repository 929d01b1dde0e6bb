// Ops on numbers of the host: the same for every device, except that reading a tensor's element
// needs host memory.
#include <cmath>
#include <cstring>

#include "replay/kernels/kernel.h"
#include "replay/kernels/math/portable_math.h"
#include "replay/kernels/math/special_functions.h"

namespace epweave::replay {
namespace {

bool is_real(const KernelCall& call) {
  return call[0].is<double>() || (call.size() > 1 && call[1].is<double>());
}

// Python's // and %: rounding towards minus infinity.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) throw KernelError("division by zero");
  const std::int64_t quotient = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

template <class Operation>
Value apply(const KernelCall& call, const Operation& operation) {
  if (is_real(call)) return operation(call.real(0), call.real(1));
  return operation(call.integer(0), call.integer(1));
}

Value scalar_add(KernelCall& call) {
  return apply(call, [](auto a, auto b) { return a + b; });
}
Value scalar_sub(KernelCall& call) {
  return apply(call, [](auto a, auto b) { return a - b; });
}
Value scalar_mul(KernelCall& call) {
  return apply(call, [](auto a, auto b) { return a * b; });
}
Value scalar_neg(KernelCall& call) {
  if (call[0].is<double>()) return -call.real(0);
  return -call.integer(0);
}
Value scalar_floordiv(KernelCall& call) {
  if (is_real(call)) return std::floor(call.real(0) / call.real(1));
  return floor_divide(call.integer(0), call.integer(1));
}
Value scalar_mod(KernelCall& call) {
  if (is_real(call)) {
    const double a = call.real(0), b = call.real(1), rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
  const std::int64_t a = call.integer(0), b = call.integer(1);
  return a - floor_divide(a, b) * b;
}
Value scalar_truediv(KernelCall& call) {
  return call.real(0) / call.real(1);
}
// Python's **: of an integer and a natural exponent an integer, else a floating-point number.
Value scalar_pow(KernelCall& call) {
  if (is_real(call) || call.integer(1) < 0) return math::pow(call.real(0), call.real(1));
  std::int64_t power = 1;
  for (std::int64_t left = call.integer(1), factor = call.integer(0); left > 0; left >>= 1) {
    if ((left & 1) != 0 && __builtin_mul_overflow(power, factor, &power))
      throw KernelError("a power overflows");
    if (left > 1 && __builtin_mul_overflow(factor, factor, &factor)) throw KernelError("a power overflows");
  }
  return power;
}
Value scalar_eq(KernelCall& call) {
  return apply(call, [](auto a, auto b) { return a == b; });
}
Value scalar_ne(KernelCall& call) {
  return apply(call, [](auto a, auto b) { return a != b; });
}
Value scalar_lt(KernelCall& call) {
  return apply(call, [](auto a, auto b) { return a < b; });
}
Value scalar_le(KernelCall& call) {
  return apply(call, [](auto a, auto b) { return a <= b; });
}
Value scalar_gt(KernelCall& call) {
  return apply(call, [](auto a, auto b) { return a > b; });
}
Value scalar_ge(KernelCall& call) {
  return apply(call, [](auto a, auto b) { return a >= b; });
}
Value scalar_and(KernelCall& call) {
  return call.boolean(0) && call.boolean(1);
}
Value scalar_or(KernelCall& call) {
  return call.boolean(0) || call.boolean(1);
}
Value scalar_not(KernelCall& call) {
  return !call.boolean(0);
}

Value getitem(KernelCall& call) {
  const std::vector<Value>& items = call[0].items();
  const auto count = static_cast<std::int64_t>(items.size());
  const std::int64_t index = call.integer(1) < 0 ? call.integer(1) + count : call.integer(1);
  if (index < 0 || index >= count) throw KernelError("index out of range");
  return items[static_cast<std::size_t>(index)];
}

std::size_t dim_of(const KernelCall& call) {
  const std::size_t dim = call.tensor(0).wrap(call.integer(1));
  if (dim >= call.tensor(0).rank()) throw KernelError("dimension out of range");
  return dim;
}
Value sym_size(KernelCall& call) {
  return call.tensor(0).sizes[dim_of(call)];
}
Value sym_stride(KernelCall& call) {
  return call.tensor(0).strides[dim_of(call)];
}
Value sym_numel(KernelCall& call) {
  return call.tensor(0).numel();
}
Value sym_offset(KernelCall& call) {
  return call.tensor(0).offset;
}

template <class T>
T read_element(const Tensor& tensor) {
  T value;
  std::memcpy(&value, tensor.bytes(), sizeof value);
  return value;
}

Value local_scalar(KernelCall& call) {
  const Tensor& tensor = call.tensor(0);
  if (tensor.numel() != 1) throw KernelError("a tensor of one element is needed");
  switch (tensor.dtype) {
    case DType::kBool:
      return read_element<std::uint8_t>(tensor) != 0;
    case DType::kUint8:
      return static_cast<std::int64_t>(read_element<std::uint8_t>(tensor));
    case DType::kInt8:
      return static_cast<std::int64_t>(read_element<std::int8_t>(tensor));
    case DType::kInt16:
      return static_cast<std::int64_t>(read_element<std::int16_t>(tensor));
    case DType::kInt32:
      return static_cast<std::int64_t>(read_element<std::int32_t>(tensor));
    case DType::kInt64:
      return read_element<std::int64_t>(tensor);
    case DType::kFloat32:
      return static_cast<double>(read_element<float>(tensor));
    case DType::kFloat64:
      return read_element<double>(tensor);
    case DType::kBfloat16:
      return static_cast<double>(math::float_from_bf16(read_element<std::uint16_t>(tensor)));
    case DType::kFloat16:
      return static_cast<double>(math::float_from_fp16(read_element<std::uint16_t>(tensor)));
    default:
      throw KernelError("this dtype cannot be read by the host yet");
  }
}

// ---- assertions and ranges ----------------------------------------------------------------

Value assert_scalar(KernelCall& call) {
  if (!call.boolean(0))
    throw KernelError("assertion failed: " + (call[1].is<Text>() ? call[1].as<Text>().text : std::string()));
  return {};
}

// _assert_tensor_metadata(a, size, stride, dtype, ...): where a tensor lies is no matter here.
Value assert_metadata(KernelCall& call) {
  const Tensor& tensor = call.tensor(0);
  if (!call[1].is_none() && call[1].integers() != tensor.sizes)
    throw KernelError("the tensor has other sizes");
  if (!call[2].is_none() && call[2].integers() != tensor.strides)
    throw KernelError("the tensor has other strides");
  if (call[3].is<DType>() && call[3].as<DType>() != tensor.dtype)
    throw KernelError("the tensor is " + std::string(info(tensor.dtype).name) + ", not " +
                      std::string(info(call[3].as<DType>()).name));
  return {};
}

// sym_constrain_range(size, *, min, max).
Value constrain_range(KernelCall& call) {
  const std::int64_t size = call.integer(0);
  const bool is_low = !call[1].is_none() && size < call.integer(1);
  const bool is_high = !call[2].is_none() && size > call.integer(2);
  if (is_low || is_high) throw KernelError(std::to_string(size) + " is outside of its declared range");
  return {};
}

Value scalar_max(KernelCall& call) {
  return apply(call, [](auto a, auto b) { return a < b ? b : a; });
}
Value scalar_min(KernelCall& call) {
  return apply(call, [](auto a, auto b) { return b < a ? b : a; });
}
Value scalar_choice(KernelCall& call) {
  return call.boolean(0) ? call[1] : call[2];
}

constexpr KernelRow kRows[] = {
    {"aten._assert_scalar.default", assert_scalar},
    {"aten._assert_tensor_metadata.default", assert_metadata},
    {"aten._local_scalar_dense.default", local_scalar},
    {"aten.item.default", local_scalar},
    {"aten.sym_constrain_range.default", constrain_range},
    {"aten.sym_constrain_range_for_size.default", constrain_range},
    {"aten.sym_numel.default", sym_numel},
    {"aten.sym_size.int", sym_size},
    {"aten.sym_storage_offset.default", sym_offset},
    {"aten.sym_stride.int", sym_stride},
    {"operator.add", scalar_add},
    {"operator.and_", scalar_and},
    {"operator.eq", scalar_eq},
    {"operator.floordiv", scalar_floordiv},
    {"operator.ge", scalar_ge},
    {"operator.getitem", getitem},
    {"operator.gt", scalar_gt},
    {"operator.le", scalar_le},
    {"operator.lt", scalar_lt},
    {"operator.mod", scalar_mod},
    {"operator.mul", scalar_mul},
    {"operator.ne", scalar_ne},
    {"operator.neg", scalar_neg},
    {"operator.not_", scalar_not},
    {"operator.or_", scalar_or},
    {"operator.pow", scalar_pow},
    {"operator.sub", scalar_sub},
    {"operator.truediv", scalar_truediv},
    {"torch.sym_ite", scalar_choice},
    {"torch.sym_max", scalar_max},
    {"torch.sym_min", scalar_min},
    {"torch.sym_not", scalar_not},
};

}  // namespace

std::span<const KernelRow> host_kernel_rows() {
  return kRows;
}

}  // namespace epweave::replay
