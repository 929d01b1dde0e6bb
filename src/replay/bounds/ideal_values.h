// What a value would be if nothing had been rounded since the sums whose order two graphs do not
// share: a float64 number beside each element, made while the graph runs.
//
//   %dw = aten.mm(%x_t, %dy)        the product in float64, of the same summands
//   %dw2 = aten._to_copy(%dw)       the same numbers: not rounded to bfloat16
//   %s = aten.add.Tensor(%a, %b)    ideal(a) + ideal(b)
//   reduce-scatter, all-reduce      the same of the ranks' ideals
//
// Each op is run on ideals instead of values. Of two graphs that add the same numbers in other
// orders, ideals differ by what float64 rounds: 2^-29 of what float32 rounds, which is a part of
// every bound (error_bounds.h). So their difference shows what one graph computes and the other
// does not, however coarse the type is in which both keep it.
//
// A complex number is a pair of reals, and each op on complex numbers what it is on those. A value
// without ideals is exact. NaN: not known, behind collectives between processes, and where an op
// has no bound or no kernel for float64. Ideals belong to storage, as bounds do.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>

#include "replay/bounds/tensor_ops.h"

namespace epweave::replay {

struct BoundedCall;

// Whether values of the type have ideals: real numbers that are rounded more than float64 is.
bool has_ideals(DType dtype);

// One rank's ideals.
class IdealValues {
 public:
  // The ops outlive it.
  explicit IdealValues(const TensorOps& ops) : ops_(ops) {}

  bool has_any(const Tensor& value) const { return find_shadow(value) != nullptr; }
  // float64, row-major: the value itself where it is exact.
  Tensor find(const Tensor& value) const;
  void set(const Tensor& value, const Tensor& ideal);
  void set_exact(const Value& value);
  // Of the elements where the mask is true; others stay as they are.
  void set_exact_where(const Tensor& mask, const Tensor& value);
  void set_unknown(const Value& value);

  // Before a tensor is written: what it holds is exact where nothing else is known.
  void keep(const Tensor& value);
  // Sets the ideals of a call's results, which are no views.
  void follow(const BoundedCall& call);
  void forget_dead();

 private:
  struct Shadow {
    std::weak_ptr<Storage> of;  // keeps the address from being given out again
    std::size_t element_bytes = 0;
    std::shared_ptr<Storage> ideals;  // of all that is stored
  };
  const Shadow* find_shadow(const Tensor& value) const;
  Shadow& make_shadow(const Tensor& value);
  // Of each tensor whose rounding is followed, where find_ideal gives one for its numbers.
  template <class Find>
  void set_each(const Value& value, const Find& find_ideal);
  Value take_ideals(const Value& value) const;
  void set_results(const Value& results, const Value& ideals);
  Value run(const OpInfo& op, std::vector<Value> args);

  // Of a real number there is no imaginary part.
  struct Parts {
    Tensor real;
    std::optional<Tensor> imaginary;
  };
  Parts find_parts(const Tensor& value) const;
  // Sets the ideals of a call that takes or gives complex numbers.
  void follow_complex(const BoundedCall& call);
  Parts make_parts(const BoundedCall& call);
  Parts run_on_first(const BoundedCall& call);
  Parts run_on_each(const BoundedCall& call);
  Parts run_on_all(const BoundedCall& call);

  const TensorOps& ops_;
  std::unordered_map<const Storage*, Shadow> shadows_;
};

}  // namespace epweave::replay
