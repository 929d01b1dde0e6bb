// What is recorded about a value: dtype, sizes, strides, storage offset, device and
// layout of a tensor, the expression of a symbolic scalar, or a tuple of such. Types are
// stored once and compared by id.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash_index.h"
#include "base/id.h"
#include "base/interner.h"
#include "ir/arg.h"
#include "ir/expr.h"

namespace epweave {

using TypeId = Id<struct TypeTag>;

// torch's element types. Names as torch prints them ("torch.bfloat16").
enum class DType : std::uint8_t {
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kFloat32,
  kFloat64,
  kComplex32,
  kComplex64,
  kComplex128,
  kBool,
  kBfloat16,
  kUint16,
  kUint32,
  kUint64,
  kFloat8E5m2,
  kFloat8E4m3fn,
  kFloat8E5m2fnuz,
  kFloat8E4m3fnuz,
  kFloat8E8m0fnu,
  kFloat4E2m1fnX2,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;        // "torch.bfloat16"
  std::string_view short_name;  // "bf16", used in the text form
  std::uint8_t bytes;           // of one element
};

std::span<const DTypeInfo> dtypes();
const DTypeInfo& info(DType dtype);
std::optional<DType> find_dtype(std::string_view name);  // by either name
bool is_floating(DType dtype);
bool is_complex(DType dtype);
bool is_inexact(DType dtype);   // floating or complex: arithmetic rounds
bool is_integral(DType dtype);  // bool is not
// Whether a sum converts to the sum of what its summands convert to, but for rounding. Not where
// fractions are dropped, where only zero or not is kept, or where a type that wraps at 8 or 16 bits
// becomes another: sums of 32 and 64 bits are taken not to wrap.
bool converts_sums(DType from, DType to);

enum class TypeKind : std::uint8_t {
  kTensor,
  kScalar,  // symbolic int, float or bool
  kTuple,
  kList,
  kValue,  // a value known when traced: number, None, mesh, process group, device, ...
};

// A strided view of storage. Extents and strides are expressions, strides and offset in elements.
struct TensorType {
  DType dtype = DType::kFloat32;
  bool requires_grad = false;
  StringId device;
  StringId layout;    // none: torch.strided
  StringId subclass;  // none: a plain tensor
  std::vector<ExprId> sizes;
  std::vector<ExprId> strides;  // as many as sizes, or none if not strided
  ExprId offset;                // none: 0
  friend bool operator==(const TensorType&, const TensorType&) = default;

  std::size_t rank() const { return sizes.size(); }
};

struct Type {
  TypeKind kind = TypeKind::kValue;
  TensorType tensor;             // kTensor
  ExprId expr;                   // kScalar
  StringId py_type;              // kScalar: SymInt, SymFloat, SymBool
  std::vector<TypeId> elements;  // kTuple, kList; none for an element without a recorded value
  Arg value;                     // kValue
  friend bool operator==(const Type&, const Type&) = default;
};

class TypePool {
 public:
  // Interns; equal types get the same id. For kValue, `value` must come from the context's
  // ArgPool::intern.
  TypeId intern(Type type);
  TypeId tensor(TensorType type) {
    return intern(Type{.kind = TypeKind::kTensor, .tensor = std::move(type)});
  }

  const Type& operator[](TypeId id) const { return *types_[id.index()]; }  // stays valid while the pool grows
  std::size_t size() const { return types_.size(); }

 private:
  std::deque<Type> stored_;         // a deque: references stay valid while it grows
  std::vector<const Type*> types_;  // where each lies: found at once, which in a deque takes a division
  HashIndex ids_;
};

}  // namespace epweave
