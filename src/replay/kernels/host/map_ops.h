// How the kernels of elementwise ops are made: from an op of math/element_ops.h, its operands and
// its result.
//
//   {"aten.exp.default", unary_float<Exp>},  {"aten.mul_.Tensor", binary<Mul, InPlace>}
//
// They serve the CPU and a device: where the result is in a device's memory the op goes into its
// queue.
#pragma once

#include <tuple>

#include "ir/types/promotion.h"
#include "replay/kernels/host/operands.h"
#include "replay/kernels/host/vector_math.h"
#include "replay/kernels/math/element_ops.h"
#include "replay/kernels/shared/queue.h"

namespace epweave::replay::cpu {

using namespace math;  // NOLINT: the ops

[[noreturn]] inline void refuse_dtype(const KernelCall& call, DType dtype) {
  throw KernelError(std::string(call.op().target) + " is not defined for " + std::string(info(dtype).name));
}

inline Tensor result_like(KernelCall& call, DType dtype, std::initializer_list<const Tensor*> inputs) {
  const std::vector<const Tensor*> all(inputs);
  return call.make_result(0, dtype, broadcast_sizes(all));
}

// Where the result goes: a new tensor, or the first argument.
struct Fresh {
  static Tensor target(KernelCall& call, DType dtype, std::initializer_list<const Tensor*> inputs) {
    return result_like(call, dtype, inputs);
  }
};
struct InPlace {
  static Tensor target(KernelCall& call, DType, std::initializer_list<const Tensor*>) {
    return call.tensor(0);
  }
};

// Ops with a vector form for float (vector_math.h).
template <class Op>
constexpr bool HasRun = std::is_same_v<Op, Exp> || std::is_same_v<Op, Sigmoid> || std::is_same_v<Op, Silu> ||
                        std::is_same_v<Op, SiluBackward>;
template <class Op, class... In>
void run(std::int64_t n, float* to, In... from) {
  if constexpr (std::is_same_v<Op, Exp>)
    exp_run(n, to, from...);
  else if constexpr (std::is_same_v<Op, Sigmoid>)
    sigmoid_run(n, to, from...);
  else if constexpr (std::is_same_v<Op, Silu>)
    silu_run(n, to, from...);
  else
    silu_backward_run(n, to, from...);
}
template <class Op, class C, std::size_t N>
constexpr bool IsTest = N == 1 ? requires(C x) {
  Op::test(x);
} : requires(C x) {
  Op::test(x, x);
};

template <class Op, class C, std::size_t N>
void map_on_cpu(const Tensor& out, const std::array<const Tensor*, N>& in, const Value& number) {
  if constexpr (std::is_same_v<C, float> && HasRun<Op>) {
    map_runs<C, C, N>(out, in, [](std::int64_t n, float* to, auto... from) { run<Op>(n, to, from...); });
  } else {
    const C scalar = number.is_none() ? C(0) : number_as<C>(number);
    using R = std::conditional_t<IsTest<Op, C, N>, std::int64_t, C>;
    map_elements<C, R, N>(out, in, [&](auto... x) -> R {
      if constexpr (Op::divides && is_int<C>)
        if (std::get<1>(std::tuple(x...)) == 0) throw KernelError("integer division by zero");
      if constexpr (IsTest<Op, C, N>)
        return Op::test(x...) ? 1 : 0;
      else if constexpr (requires { Op::apply(x...); })
        return Op::apply(x...);
      else
        return Op::apply(scalar, x...);
    });
  }
}

// out[i] = Op of the inputs' elements, computed in the compute type of `common`, on the device of
// `out`.
template <class Op, std::size_t N>
void map_op(const KernelCall& call, DType common, const Tensor& out, const std::array<const Tensor*, N>& in,
            const Value& number = Value()) {
  with_compute(common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    if constexpr (!Op::template allows<C>) {
      refuse_dtype(call, common);
    } else if (Queue* queue = out.storage->queue(); queue != nullptr) {
      MapRequest request{code_of<Op>, common, out, {}, N, number};
      std::copy(in.begin(), in.end(), request.in.begin());
      queue->map(request);
    } else {
      map_on_cpu<Op, C>(out, in, number);
    }
  });
}

template <class Op, class Where>
Value binary_as(KernelCall& call, DType common) {
  const Tensor a = operand(call, 0, common), b = operand(call, 1, common);
  const Tensor out = Where::target(call, common, {&a, &b});
  map_op<Op, 2>(call, common, out, {&a, &b});
  return out;
}
template <class Op, class Where = Fresh>
Value binary(KernelCall& call) {
  return binary_as<Op, Where>(call, promoted_dtype(call, {0, 1}));
}

template <class Op, class Where>
Value unary_as(KernelCall& call, DType common) {
  const Tensor a = operand(call, 0, common);
  const Tensor out = Where::target(call, common, {&a});
  map_op<Op, 1>(call, common, out, {&a});
  return out;
}
template <class Op, class Where = Fresh>
Value unary(KernelCall& call) {
  return unary_as<Op, Where>(call, call.tensor(0).dtype);
}
// Integers become float32.
template <class Op, class Where = Fresh>
Value unary_float(KernelCall& call) {
  return unary_as<Op, Where>(call, to_float(call.tensor(0).dtype));
}

// A derivative from the gradient and what was saved; some take a number (the third argument).
template <class Op>
Value backward_of(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor grad = operand(call, 0, common), saved = operand(call, 1, common);
  const Tensor out = result_like(call, common, {&grad, &saved});
  map_op<Op, 2>(call, common, out, {&grad, &saved}, call.size() > 2 ? call[2] : Value());
  return out;
}

}  // namespace epweave::replay::cpu
