// Reductions and scans. Sums are ordered_sum (sum.h) over the reduced elements in row-major order.
#include <limits>

#include "ir/types/promotion.h"
#include "replay/kernels/host/kernels.h"
#include "replay/kernels/host/operands.h"
#include "replay/kernels/host/sum.h"
#include "replay/kernels/ops/rows.h"

namespace epweave::replay::cpu {
namespace {

DType sum_dtype(const KernelCall& call, std::size_t dtype_param) {
  return call[dtype_param].is<DType>() ? call[dtype_param].as<DType>() : to_sum(call.tensor(0).dtype);
}

Value sum_rows(KernelCall& call, const Rows& rows, DType dtype) {
  return with_compute(dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    if constexpr (std::is_same_v<C, Complex>)
      throw KernelError("sums of complex numbers are not supported");
    else
      return reduce_rows<C, C>(call, rows, dtype,
                               [](const C* x, std::int64_t n) { return ordered_sum(x, n); });
  });
}
Value sum(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return sum_rows(call, rows_of(self, std::vector<bool>(self.rank(), true), false), sum_dtype(call, 1));
}
Value sum_dims(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return sum_rows(call, rows_of(self, reduced_dims(call[1], self.rank()), call.boolean(2)),
                  sum_dtype(call, 3));
}

// The sum divided by the number of elements.
Value mean_rows(KernelCall& call, const Rows& rows, DType dtype) {
  return with_floating(dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    return reduce_rows<C, C>(
        call, rows, dtype, [](const C* x, std::int64_t n) { return ordered_sum(x, n) / static_cast<C>(n); });
  });
}
Value mean(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return mean_rows(call, rows_of(self, std::vector<bool>(self.rank(), true), false),
                   call[1].is<DType>() ? call[1].as<DType>() : self.dtype);
}
Value mean_dims(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return mean_rows(call, rows_of(self, reduced_dims(call[1], self.rank()), call.boolean(2)),
                   call[3].is<DType>() ? call[3].as<DType>() : self.dtype);
}

// The position of the extreme element: the first of equals; a NaN wins.
struct Largest {
  template <class C>
  static bool beats(C a, C b) {
    return a > b;
  }
};
struct Smallest {
  template <class C>
  static bool beats(C a, C b) {
    return a < b;
  }
};
template <class Order, class C>
std::int64_t find_extreme(const C* x, std::int64_t n) {
  if (n == 0) throw KernelError("the extreme of no elements");
  std::int64_t best = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (x[i] != x[i]) return i;
    if (Order::beats(x[i], x[best])) best = i;
  }
  return best;
}
template <class F>
decltype(auto) with_ordered(DType dtype, const F& f) {
  if (compute_of(dtype) == Compute::kInt) return f(TypeTag<std::int64_t>{});
  return with_floating(dtype, f);
}

template <class Order>
Value extreme_rows(KernelCall& call, const Rows& rows) {
  return with_ordered(call.tensor(0).dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    return reduce_rows<C, C>(call, rows, call.tensor(0).dtype,
                             [](const C* x, std::int64_t n) { return x[find_extreme<Order>(x, n)]; });
  });
}
template <class Order>
Value extreme(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return extreme_rows<Order>(call, rows_of(self, reduced_dims(call[1], self.rank()), call.boolean(2)));
}
template <class Order>
Value extreme_all(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return extreme_rows<Order>(call, rows_of(self, std::vector<bool>(self.rank(), true), false));
}
// max.dim, min.dim: values and indices.
template <class Order>
Value extreme_and_index(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Rows rows = rows_of(self, reduced_dims(call[1], self.rank()), call.boolean(2));
  return with_ordered(self.dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    const Buffer<C> x = dense<C>(rows.tensor);
    Buffer<C> values;
    Buffer<std::int64_t> indices;
    for (std::int64_t i = 0; i < rows.count; ++i) {
      indices.push_back(find_extreme<Order>(x.data() + i * rows.length, rows.length));
      values.push_back(x[static_cast<std::size_t>(i * rows.length + indices.back())]);
    }
    Tensor out = call.make_result(0, self.dtype, rows.sizes),
           at = call.make_result(1, DType::kInt64, rows.sizes);
    store_dense(values, out);
    store_dense(indices, at);
    return Value::tuple({out, at});
  });
}
template <class Order>
Value index_of_extreme(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Rows rows = rows_of(self, reduced_dims(call[1], self.rank()), call.boolean(2));
  return with_ordered(self.dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    return reduce_rows<C, std::int64_t>(call, rows, DType::kInt64,
                                        [](const C* x, std::int64_t n) { return find_extreme<Order>(x, n); });
  });
}

enum class Quantifier { kAll, kAny };
template <Quantifier quantifier>
Value quantify_rows(KernelCall& call, const Rows& rows) {
  return with_compute(call.tensor(0).dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    const DType dtype = call.tensor(0).dtype == DType::kUint8 ? DType::kUint8 : DType::kBool;
    return reduce_rows<C, std::int64_t>(call, rows, dtype, [](const C* x, std::int64_t n) {
      constexpr bool kStops = quantifier == Quantifier::kAny;
      for (std::int64_t i = 0; i < n; ++i)
        if ((x[i] != C(0)) == kStops) return std::int64_t{kStops};
      return std::int64_t{!kStops};
    });
  });
}
template <Quantifier quantifier>
Value quantify(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return quantify_rows<quantifier>(call, rows_of(self, std::vector<bool>(self.rank(), true), false));
}
template <Quantifier quantifier>
Value quantify_dims(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return quantify_rows<quantifier>(call, rows_of(self, reduced_dims(call[1], self.rank()), call.boolean(2)));
}

// Partial sums in ascending order, each rounded when stored only.
template <class Where>
Tensor cumsum_into(KernelCall& call, DType dtype, const Where& target) {
  const Tensor& self = call.tensor(0);
  Tensor out = target(dtype);
  if (self.rank() == 0) {
    copy_elements(self, out);
    return out;
  }
  std::vector<bool> last(self.rank(), false);
  last[checked_dim(call.integer(1), self.rank())] = true;
  const Rows from = rows_of(self, last, false), to = rows_of(out, last, false);
  with_compute(dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    Buffer<C> x = dense<C>(from.tensor);
    for (std::int64_t i = 0; i < from.count; ++i) {
      C* row = x.data() + i * from.length;
      for (std::int64_t j = 1; j < from.length; ++j) row[j] = row[j - 1] + row[j];
    }
    store_dense(x, to.tensor);
  });
  return out;
}
Value cumsum(KernelCall& call) {
  return cumsum_into(call, sum_dtype(call, 2),
                     [&](DType dtype) { return call.make_result(0, dtype, call.tensor(0).sizes); });
}
Value cumsum_in_place(KernelCall& call) {
  return cumsum_into(call, call.tensor(0).dtype, [&](DType) { return call.tensor(0); });
}

Value assert_true(KernelCall& call) {
  const Buffer<std::int64_t> value = dense<std::int64_t>(call.tensor(0));
  if (value.size() != 1) throw KernelError("an assertion on a tensor of one element");
  if (value[0] == 0)
    throw KernelError(call.size() > 1 && call[1].is<Text>() ? "assertion failed: " + call[1].as<Text>().text
                                                            : std::string("assertion failed"));
  return Value();
}

constexpr KernelRow kRows[] = {
    {"aten._assert_async.default", assert_true},
    {"aten._assert_async.msg", assert_true},
    {"aten.all.default", quantify<Quantifier::kAll>},
    {"aten.all.dim", quantify_dims<Quantifier::kAll>},
    {"aten.all.dims", quantify_dims<Quantifier::kAll>},
    {"aten.amax.default", extreme<Largest>},
    {"aten.amin.default", extreme<Smallest>},
    {"aten.any.default", quantify<Quantifier::kAny>},
    {"aten.any.dim", quantify_dims<Quantifier::kAny>},
    {"aten.any.dims", quantify_dims<Quantifier::kAny>},
    {"aten.argmax.default", index_of_extreme<Largest>},
    {"aten.argmin.default", index_of_extreme<Smallest>},
    {"aten.cumsum.default", cumsum},
    {"aten.cumsum_.default", cumsum_in_place},
    {"aten.max.default", extreme_all<Largest>},
    {"aten.max.dim", extreme_and_index<Largest>},
    {"aten.mean.default", mean},
    {"aten.mean.dim", mean_dims},
    {"aten.min.dim", extreme_and_index<Smallest>},
    {"aten.sum.default", sum},
    {"aten.sum.dim_IntList", sum_dims},
};

}  // namespace

std::span<const KernelRow> reduce_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
