// Formulas of several elementwise ops, computed in double: what is stored at the end alone is
// rounded to the dtype of the elements.
//
//   InDouble by(call);
//   by.map<Div>(by.map<Sin>(x), by.map<Cos>(x))
#pragma once

#include <cstddef>
#include <vector>

#include "replay/kernels/host/map_ops.h"

namespace epweave::replay::cpu {

class InDouble {
 public:
  explicit InDouble(KernelCall& call) : call_(call) {}

  template <class Op, class... In>
  Tensor map(const In&... in) {
    const std::vector<const Tensor*> all{&in...};
    Tensor to = call_.make(DType::kFloat64, broadcast_sizes(all));
    map_op<Op, sizeof...(In)>(call_, DType::kFloat64, to, {&in...});
    return to;
  }
  Tensor number(double value) { return number_tensor(call_, Value(value), DType::kFloat64); }
  Tensor values_of(const Tensor& from) {
    Tensor to = call_.make(DType::kFloat64, from.sizes);
    copy_elements(from, to);
    return to;
  }
  Tensor operand(std::size_t param) { return values_of(call_.tensor(param)); }

 protected:
  KernelCall& call_;
};

}  // namespace epweave::replay::cpu
