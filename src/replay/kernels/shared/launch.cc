#include "replay/kernels/shared/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "replay/kernels/host/broadcast.h"

namespace epweave::replay::shared {
namespace {

using tasks::kMaxRank;
using tasks::Number;
using tasks::Shape;
using tasks::Strided;

bool is_computed(DType dtype) {
  try {
    stored_of(dtype);
    return true;
  } catch (const KernelError&) {
    return false;
  }
}

void require_few_dimensions(std::span<const std::int64_t> sizes) {
  if (sizes.size() > static_cast<std::size_t>(kMaxRank))
    throw KernelError("kernels of devices have at most " + std::to_string(kMaxRank) + " dimensions");
}

}  // namespace

Stored stored_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return Stored::kBool;
    case DType::kUint8:
      return Stored::kUint8;
    case DType::kInt8:
      return Stored::kInt8;
    case DType::kInt16:
      return Stored::kInt16;
    case DType::kUint16:
      return Stored::kUint16;
    case DType::kInt32:
      return Stored::kInt32;
    case DType::kUint32:
      return Stored::kUint32;
    case DType::kInt64:
      return Stored::kInt64;
    case DType::kBfloat16:
      return Stored::kBfloat16;
    case DType::kFloat16:
      return Stored::kFloat16;
    case DType::kFloat32:
      return Stored::kFloat32;
    case DType::kFloat64:
      return Stored::kFloat64;
    case DType::kComplex64:
      return Stored::kComplex64;
    default:
      throw KernelError("no kernel computes with " + std::string(info(dtype).name));
  }
}

Number number_of(const Value& value) {
  Number number{};
  if (value.is_none()) return number;
  if (value.is<std::complex<double>>()) {
    const auto& pair = value.as<std::complex<double>>();
    number.re = static_cast<float>(pair.real());
    number.im = static_cast<float>(pair.imag());
    return number;
  }
  number.real = value.real();
  number.whole = cpu::number_as<std::int64_t>(value);
  number.re = static_cast<float>(number.real);
  return number;
}

Shape shape_of(std::span<const std::int64_t> sizes) {
  require_few_dimensions(sizes);
  Shape shape{};
  shape.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), shape.sizes);
  shape.is_small = count_elements(sizes) <= std::numeric_limits<std::int32_t>::max();
  return shape;
}

Strided strided(const Tensor& tensor, std::span<const std::int64_t> sizes) {
  require_few_dimensions(sizes);
  Strided result{};
  result.data = tensor.bytes();
  cpu::broadcast_strides(tensor, sizes, std::span(result.strides).first(sizes.size()));
  result.stored = is_computed(tensor.dtype) ? stored_of(tensor.dtype) : Stored::kUint8;
  return result;
}

Strided plain_strides(const Tensor& tensor) {
  Strided result{};
  static_cast<void>(shape_of(tensor.sizes));
  result.data = tensor.bytes();
  std::copy(tensor.strides.begin(), tensor.strides.end(), result.strides);
  return result;
}

int bytes_of_element(const Tensor& tensor) {
  if (tensor.element_bytes() > sizeof(std::uint64_t))
    throw KernelError("no kernel of a device moves " + std::string(info(tensor.dtype).name));
  return static_cast<int>(tensor.element_bytes());
}

std::string describe_fault(const tasks::Fault& fault) {
  switch (static_cast<tasks::FaultCode>(fault.code)) {
    case tasks::FaultCode::kNone:
      break;
    case tasks::FaultCode::kIndex:
      return fmt::format("index {} is out of range for a dimension of {}", fault.value, fault.limit);
    case tasks::FaultCode::kDivision:
      return "integer division by zero";
    case tasks::FaultCode::kOffsets:
      return fmt::format("offs must ascend within the dimension of {}, found {}", fault.limit, fault.value);
    case tasks::FaultCode::kCount:
      return fmt::format("the count {} is negative", fault.value);
    case tasks::FaultCode::kTotal:
      return fmt::format("output_size is {} but the counts add up to {}", fault.limit, fault.value);
    case tasks::FaultCode::kBlock:
      return fmt::format("{} in a block table, of {}", fault.value, fault.limit);
    case tasks::FaultCode::kTwice:
      return fault.limit == 0
                 ? fmt::format("key block {} is listed twice", fault.value)
                 : fmt::format("the block tables by query and by key name different pairs (key block {})",
                               fault.value);
    case tasks::FaultCode::kAssertion:
      return "assertion failed";
    case tasks::FaultCode::kInterval:
      return "histc: bins and an interval";
  }
  return "an unknown fault";
}

}  // namespace epweave::replay::shared
