// Ops on the tensors of a rank, by the kernels of its table: on the CPU, or queued on its device.
#pragma once

#include <string_view>
#include <vector>

#include "replay/kernels/kernel.h"

namespace epweave::replay {

// What is called.
namespace named {
inline constexpr std::string_view kAbs = "aten.abs.default";
inline constexpr std::string_view kAdd = "aten.add.Tensor";
inline constexpr std::string_view kAmax = "aten.amax.default";
inline constexpr std::string_view kAny = "aten.any.default";
inline constexpr std::string_view kAnyOfRows = "aten.any.dim";
inline constexpr std::string_view kArgmax = "aten.argmax.default";
inline constexpr std::string_view kArgsort = "aten.argsort.default";
inline constexpr std::string_view kCast = "aten._to_copy.default";
inline constexpr std::string_view kCat = "aten.cat.default";
inline constexpr std::string_view kClampMin = "aten.clamp_min.default";
inline constexpr std::string_view kComplex = "aten.complex.default";
inline constexpr std::string_view kCopyInto = "aten.copy_.default";
inline constexpr std::string_view kCos = "aten.cos.default";
inline constexpr std::string_view kCummax = "aten.cummax.default";
inline constexpr std::string_view kCumsum = "aten.cumsum.default";
inline constexpr std::string_view kDiv = "aten.div.Tensor";
inline constexpr std::string_view kDropout = "aten.native_dropout.default";
inline constexpr std::string_view kDropoutBackward = "aten.native_dropout_backward.default";
inline constexpr std::string_view kEq = "aten.eq.Tensor";
inline constexpr std::string_view kEqNumber = "aten.eq.Scalar";
inline constexpr std::string_view kExpm1 = "aten.expm1.default";
inline constexpr std::string_view kFill = "aten.fill_.Scalar";
inline constexpr std::string_view kExp = "aten.exp.default";
inline constexpr std::string_view kFmax = "aten.fmax.default";
inline constexpr std::string_view kFmin = "aten.fmin.default";
inline constexpr std::string_view kGt = "aten.gt.Tensor";
inline constexpr std::string_view kGtNumber = "aten.gt.Scalar";
inline constexpr std::string_view kIndexSelect = "aten.index_select.default";
inline constexpr std::string_view kIsnan = "aten.isnan.default";
inline constexpr std::string_view kLe = "aten.le.Tensor";
inline constexpr std::string_view kLogicalAnd = "aten.logical_and.default";
inline constexpr std::string_view kLogicalNot = "aten.logical_not.default";
inline constexpr std::string_view kLogicalOr = "aten.logical_or.default";
inline constexpr std::string_view kLtNumber = "aten.lt.Scalar";
inline constexpr std::string_view kMaximum = "aten.maximum.default";
inline constexpr std::string_view kMean = "aten.mean.dim";
inline constexpr std::string_view kMinimum = "aten.minimum.default";
inline constexpr std::string_view kMul = "aten.mul.Tensor";
inline constexpr std::string_view kMulNumber = "aten.mul.Scalar";
inline constexpr std::string_view kNeg = "aten.neg.default";
inline constexpr std::string_view kPolar = "aten.polar.default";
inline constexpr std::string_view kReciprocal = "aten.reciprocal.default";
inline constexpr std::string_view kSin = "aten.sin.default";
inline constexpr std::string_view kSlice = "aten.slice.Tensor";
inline constexpr std::string_view kSqrt = "aten.sqrt.default";
inline constexpr std::string_view kSub = "aten.sub.Tensor";
inline constexpr std::string_view kSum = "aten.sum.dim_IntList";
inline constexpr std::string_view kSumOfAll = "aten.sum.default";
inline constexpr std::string_view kWhere = "aten.where.self";
}  // namespace named

class TensorOps {
 public:
  TensorOps(const KernelTable& kernels, Memory& memory) : kernels_(kernels), memory_(memory) {}

  bool has(const OpInfo& op) const { return kernels_.find(op) != nullptr; }
  // With all its arguments, giving all its results.
  Value run(const OpInfo& op, std::vector<Value> args) const;
  // The first arguments; the others have their defaults. Ops with one result, of this table.
  Tensor apply(std::string_view target, std::vector<Value> args) const;

  // New tensors, row-major.
  Tensor filled(DType dtype, const Extents& sizes, double number) const;
  Tensor copied(const Tensor& tensor) const;
  Tensor cast(const Tensor& tensor, DType dtype) const;
  // The tensor itself where it is row-major.
  Tensor dense(const Tensor& tensor) const;

  void fill(const Tensor& to, double number) const;
  void copy(const Tensor& from, const Tensor& to) const;  // broadcast, and converted

  // Whether any element is not 0. The host waits for a device.
  bool any(const Tensor& tensor) const;
  Tensor on_host(const Tensor& tensor) const { return memory_.download(tensor); }

  // A row-major tensor in memory that later runs may use (Memory::borrow): itself where all memory
  // is such.
  Tensor lasting(const Tensor& dense) const;
  Tensor borrow(const Tensor& tensor) const { return memory_.borrow(tensor); }

  Memory& memory() const { return memory_; }

 private:
  // `given`: how many of the arguments are, the others being defaults.
  Value call(const OpInfo& op, std::vector<Value> args, std::size_t given) const;

  const KernelTable& kernels_;
  Memory& memory_;
};

}  // namespace epweave::replay
