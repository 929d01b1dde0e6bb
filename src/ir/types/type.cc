#include "ir/types/type.h"

namespace epweave {
namespace {

constexpr DTypeInfo kDTypes[] = {
    {DType::kUint8, "torch.uint8", "u8", 1},
    {DType::kInt8, "torch.int8", "i8", 1},
    {DType::kInt16, "torch.int16", "i16", 2},
    {DType::kInt32, "torch.int32", "i32", 4},
    {DType::kInt64, "torch.int64", "i64", 8},
    {DType::kFloat16, "torch.float16", "f16", 2},
    {DType::kFloat32, "torch.float32", "f32", 4},
    {DType::kFloat64, "torch.float64", "f64", 8},
    {DType::kComplex32, "torch.complex32", "c32", 4},
    {DType::kComplex64, "torch.complex64", "c64", 8},
    {DType::kComplex128, "torch.complex128", "c128", 16},
    {DType::kBool, "torch.bool", "b8", 1},
    {DType::kBfloat16, "torch.bfloat16", "bf16", 2},
    {DType::kUint16, "torch.uint16", "u16", 2},
    {DType::kUint32, "torch.uint32", "u32", 4},
    {DType::kUint64, "torch.uint64", "u64", 8},
    {DType::kFloat8E5m2, "torch.float8_e5m2", "f8e5m2", 1},
    {DType::kFloat8E4m3fn, "torch.float8_e4m3fn", "f8e4m3fn", 1},
    {DType::kFloat8E5m2fnuz, "torch.float8_e5m2fnuz", "f8e5m2fnuz", 1},
    {DType::kFloat8E4m3fnuz, "torch.float8_e4m3fnuz", "f8e4m3fnuz", 1},
    {DType::kFloat8E8m0fnu, "torch.float8_e8m0fnu", "f8e8m0fnu", 1},
    {DType::kFloat4E2m1fnX2, "torch.float4_e2m1fn_x2", "f4e2m1fnx2", 1},
};

std::size_t hash(const Type& type) {
  std::size_t h = static_cast<std::size_t>(type.kind);
  h = mix_hash(h, static_cast<std::size_t>(type.tensor.dtype));
  for (ExprId e : type.tensor.sizes) h = mix_hash(h, e.index());
  for (ExprId e : type.tensor.strides) h = mix_hash(h, e.index());
  h = mix_hash(h, type.tensor.offset.index());
  h = mix_hash(h, type.tensor.device.index());
  h = mix_hash(h, type.expr.index());
  for (TypeId t : type.elements) h = mix_hash(h, t.index());
  h = mix_hash(h, static_cast<std::size_t>(type.value.kind()));
  return mix_hash(h, static_cast<std::size_t>(type.value.bits()));
}

}  // namespace

std::span<const DTypeInfo> dtypes() {
  return kDTypes;
}

const DTypeInfo& info(DType dtype) {
  return kDTypes[static_cast<std::size_t>(dtype)];
}

std::optional<DType> find_dtype(std::string_view name) {
  for (const DTypeInfo& d : kDTypes)
    if (d.name == name || d.short_name == name) return d.dtype;
  return std::nullopt;
}

bool is_complex(DType d) {
  return d == DType::kComplex32 || d == DType::kComplex64 || d == DType::kComplex128;
}

bool is_integral(DType d) {
  switch (d) {
    case DType::kUint8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint16:
    case DType::kUint32:
    case DType::kUint64:
      return true;
    default:
      return false;
  }
}

bool is_floating(DType d) {
  return !is_integral(d) && !is_complex(d) && d != DType::kBool;
}

bool is_inexact(DType d) {
  return is_floating(d) || is_complex(d);
}

bool converts_sums(DType from, DType to) {
  if (from == DType::kBool || to == DType::kBool) return false;
  if (!is_integral(from)) return !is_integral(to);
  const std::size_t bytes = info(from).bytes;
  return from == to || bytes >= 4 || (is_integral(to) && info(to).bytes <= bytes);
}

TypeId TypePool::intern(Type type) {
  const std::size_t h = hash(type);
  const std::uint32_t known = ids_.find(h, [&](std::uint32_t id) { return *types_[id] == type; });
  if (known != HashIndex::kNone) return TypeId(known);
  types_.push_back(&stored_.emplace_back(std::move(type)));
  TypeId id(types_.size() - 1);
  ids_.insert(h, id.index());
  return id;
}

}  // namespace epweave
