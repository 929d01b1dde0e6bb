// How far a computed value can be from what exact arithmetic gives: a bound per element, made while
// the graph runs.
//
// Two graphs that add the same numbers in other orders differ by no more than the sum of their
// bounds. A bound starts at the sums themselves and follows what is computed from them:
//
//   %dw = aten.mm(%x_t, %dy)      n u |x_t| |dy| + v |dw|     n: terms; u: unit roundoff of the accumulator;
//   %dw2 = aten._to_copy(%dw)     + v |dw2| where it rounds   v: of the stored type
//   %s = aten.add.Tensor(%a, %b)  bound(a) + bound(b) + v |s|
//   reduce-scatter, all-reduce    sum of the ranks' bounds + n u (sum of the magnitudes) + v |result|
//   copies, views                 the bounds move with the elements
//
// What both graphs would have without any rounding is followed beside it (ideal_values.h).
//
// The sums of magnitudes are the op itself on absolute values. Bounds are float32 and rounded as
// they are made; `kBoundSlack` covers that. Where an op has no rule its bound is infinite: nothing
// can be said.
//
// Bounds lie where the values do and are made by the kernels of that device (tensor_ops.h): the
// host reads none, but where one decides what it does next.
//
// A value without a bound is taken to be exact: the same bits in both graphs. Numbers of the host
// have no bounds: what is computed from one that was read of a value with a bound has none either,
// unless both graphs were seen to have the same number. Bounds belong to
// storage, as values do: what is written through a view has its bound seen through all.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "replay/bounds/ideal_values.h"
#include "replay/bounds/tensor_ops.h"

namespace epweave::replay {

// Bounds are compared times 1 + this.
inline constexpr double kBoundSlack = 0x1p-10;

// The parts of complex numbers, or of other pairs, along a new last dimension; the same storage.
Tensor view_parts(const Tensor& pairs);
// Part i of [.., 2].
Tensor view_part(const Tensor& pairs, std::int64_t i);

// What lies beside an element whose bound is followed: float32, and float64 where its rounding is;
// of a complex number for each of its parts.
std::size_t bytes_of_bounds(DType dtype);

// Half a unit of the last place of 1; 0 for types that do not round.
double unit_roundoff(DType dtype);

// A call whose results get bounds. The result of an in-place op is its argument, already written.
struct BoundedCall {
  const OpInfo& op;
  std::span<const Value> args;  // by parameter, defaults filled in
  const Value& result;
};

// One rank's bounds.
class ErrorBounds {
 public:
  ErrorBounds(const KernelTable& kernels, Memory& memory) : ops_(kernels, memory), ideals_(ops_) {}
  ErrorBounds(const ErrorBounds&) = delete;
  ErrorBounds& operator=(const ErrorBounds&) = delete;

  // float32, sizes of the value; none: exact. Of a complex number: for both its parts.
  std::optional<Tensor> find(const Tensor& value) const;
  bool has_any(const Value& value) const;
  // float32, row-major; zeros where the value is exact.
  Tensor find_or_zero(const Tensor& value) const;
  void set(const Tensor& value, const Tensor& bound);  // no bound is below 0
  void set_exact(const Value& value);                  // it is its own ideal
  void set_unknown(const Value& value);  // infinite, in all tensors of the value; nor is the ideal known

  // Before a call that writes: what its bounds need of the elements that it writes over.
  void keep_written(const OpInfo& op, std::span<const Value> args);
  // Sets the bounds of a call's results. Views need none.
  void follow(const BoundedCall& call);
  // Nothing is known of what a call gives and writes.
  void set_call_unknown(const BoundedCall& call);
  // The same, for want of a rule.
  void leave_unbounded(const BoundedCall& call);
  // Whether an element of the value, or of a tensor in its list, may be off. The host waits for a
  // device.
  bool is_off(const Value& value) const;
  // The targets of calls that could not be bounded.
  const std::set<std::string>& without_bound() const { return without_bound_; }

  // What no element is below without rounding: a root is at least 0, and 1e-8 where that is added.
  // None: not known.
  std::optional<double> floor_of(const Tensor& value) const;

  // What a rank hands to a reduction of `members` operands: its bound and its share of the sum's
  // rounding.
  Tensor bound_operand(const Tensor& operand, std::size_t members);
  // Sets the bound of a collective's result from that of its operands.
  void set_reduced(const Tensor& result, const Tensor& bound);

  // What the values would be without rounding.
  IdealValues& ideals() { return ideals_; }
  const IdealValues& ideals() const { return ideals_; }

  // For the rules: runs an op on bounds and magnitudes.
  Tensor apply(std::string_view target, std::vector<Value> args) const {
    return ops_.apply(target, std::move(args));
  }
  Tensor narrow(const Tensor& value) const;            // as float32
  Tensor magnitude(const Tensor& value) const;         // float32
  Tensor round_off(const Tensor& result) const;        // v |result|
  Tensor add(const Tensor& a, const Tensor& b) const;  // broadcast
  Tensor multiply(const Tensor& a, const Tensor& b) const { return apply(named::kMul, {a, b}); }
  Tensor scale(const Tensor& a, double factor) const;
  Tensor zeros(const Extents& sizes) const { return ops_.filled(DType::kFloat32, sizes, 0); }
  Tensor unbounded(const Extents& sizes) const;  // infinite
  const TensorOps& ops() const { return ops_; }

 private:
  struct Shadow {
    std::weak_ptr<Storage> of;  // keeps the address from being given out again
    std::size_t element_bytes = 0;
    std::shared_ptr<Storage> bounds;
    std::optional<double> floor = {};  // of all that is stored
  };
  const Shadow* find_shadow(const Tensor& value) const;
  void forget_dead();
  void fill(const Tensor& value, float bound);
  void keep_exact(const Tensor& value);
  void set_floor(const Tensor& value, double floor);

  const TensorOps ops_;
  std::unordered_map<const Storage*, Shadow> shadows_;
  IdealValues ideals_;
  std::set<std::string> without_bound_;
};

// Thrown by a rule that cannot bound a call.
class NoBound : public std::runtime_error {
 public:
  NoBound() : std::runtime_error("no bound") {}
};

// The rule of an op, or null. error_rules.cc.
using BoundRule = void (*)(ErrorBounds& bounds, const BoundedCall& call);
BoundRule find_bound_rule(const OpInfo& op);

}  // namespace epweave::replay
