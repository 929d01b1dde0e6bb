// Variances, norms, products of elements, running products and extremes, layer norm. Sums are
// ordered_sum (sum.h) of terms that are rounded first; products of elements go ascending, one at a
// time. In float32 for the 16-bit floats, rounded once.
#include <limits>

#include "ir/types/promotion.h"
#include "replay/kernels/host/kernels.h"
#include "replay/kernels/host/operands.h"
#include "replay/kernels/host/sum.h"
#include "replay/kernels/math/special_functions.h"
#include "replay/kernels/ops/normalise_call.h"
#include "replay/kernels/ops/rows.h"

namespace epweave::replay::cpu {
namespace {

// The ordered sum of term(x[i]).
template <class C, class Term>
C sum_of(const C* x, std::int64_t n, const Term& term) {
  Buffer<C> terms(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) terms[static_cast<std::size_t>(i)] = term(x[i]);
  return ordered_sum(terms.data(), n);
}

// ---- variance -----------------------------------------------------------------------------

template <class C>
struct Moments {
  C mean, variance;
};
// The mean, then the sum of squared distances from it over n - correction, or 0 / 0 where that is
// not positive.
template <class C>
Moments<C> moments_of(const C* x, std::int64_t n, double correction) {
  const C mean = ordered_sum(x, n) / static_cast<C>(n);
  const C squares = sum_of(x, n, [&](C v) { return (v - mean) * (v - mean); });
  const double divisor = static_cast<double>(n) - correction;
  return {mean, squares / static_cast<C>(divisor > 0 ? divisor : 0.0)};
}

enum class Spread { kVariance, kDeviation };
// var, std (self, dim, *, correction, keepdim); var_mean gives the mean too.
template <Spread spread>
Value spread_of(KernelCall& call, std::size_t result_count) {
  const Tensor& self = call.tensor(0);
  const Rows rows = rows_of(self, reduced_dims(call[1], self.rank()), call.boolean(3));
  const double correction = call[2].is_none() ? 1.0 : call.real(2);
  return with_floating(self.dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    const Buffer<C> x = dense<C>(rows.tensor);
    Buffer<C> spreads, means;
    for (std::int64_t i = 0; i < rows.count; ++i) {
      const Moments<C> moments = moments_of(x.data() + i * rows.length, rows.length, correction);
      spreads.push_back(spread == Spread::kDeviation ? math::sqrt(moments.variance) : moments.variance);
      means.push_back(moments.mean);
    }
    const Tensor out = call.make_result(0, self.dtype, rows.sizes);
    store_dense(spreads, out);
    if (result_count == 1) return out;
    const Tensor mean = call.make_result(1, self.dtype, rows.sizes);
    store_dense(means, mean);
    return Value::tuple({out, mean});
  });
}
Value variance(KernelCall& call) {
  return spread_of<Spread::kVariance>(call, 1);
}
Value deviation(KernelCall& call) {
  return spread_of<Spread::kDeviation>(call, 1);
}
Value variance_and_mean(KernelCall& call) {
  return spread_of<Spread::kVariance>(call, 2);
}

// ---- norms --------------------------------------------------------------------------------

template <class C>
C norm_of(const C* x, std::int64_t n, double order) {
  const C infinity = std::numeric_limits<C>::infinity();
  const auto extreme = [&](C start, const auto& beats) {
    C best = start;
    for (std::int64_t i = 0; i < n; ++i) {
      const C magnitude = math::abs(x[i]);
      if (magnitude != magnitude) return magnitude;
      if (beats(magnitude, best)) best = magnitude;
    }
    return best;
  };
  if (order == static_cast<double>(infinity)) return extreme(C(0), [](C a, C b) { return a > b; });
  if (order == -static_cast<double>(infinity)) return extreme(infinity, [](C a, C b) { return a < b; });
  if (order == 0) return sum_of(x, n, [](C v) { return C(v != C(0) ? 1 : 0); });
  if (order == 1) return sum_of(x, n, [](C v) { return math::abs(v); });
  if (order == 2) return math::sqrt(sum_of(x, n, [](C v) { return v * v; }));
  const C p = static_cast<C>(order);
  return math::pow(sum_of(x, n, [&](C v) { return math::pow(math::abs(v), p); }), C(1) / p);
}
// linalg_vector_norm(self, ord, dim, keepdim, *, dtype).
Value vector_norm(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const DType dtype = call[4].is<DType>() ? call[4].as<DType>() : self.dtype;
  const Rows rows = rows_of(self, reduced_dims(call[2], self.rank()), call.boolean(3));
  return with_floating(dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    return reduce_rows<C, C>(call, rows, dtype,
                             [&](const C* x, std::int64_t n) { return norm_of(x, n, call.real(1)); });
  });
}

// The row's maximum (0 where it is not finite) and the logarithm of the sum of exponentials of what
// is beyond it.
Value logsumexp(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const DType dtype = to_float(self.dtype);
  const Rows rows = rows_of(self, reduced_dims(call[1], self.rank()), call.boolean(2));
  return with_floating(dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    const C infinity = std::numeric_limits<C>::infinity();
    return reduce_rows<C, C>(call, rows, dtype, [&](const C* x, std::int64_t n) {
      C maximum = -infinity;
      for (std::int64_t i = 0; i < n; ++i) maximum = x[i] > maximum ? x[i] : maximum;
      const C shift = math::abs(maximum) == infinity ? C(0) : maximum;
      return shift + math::log(sum_of(x, n, [&](C v) { return math::exp(v - shift); }));
    });
  });
}

// ---- products -----------------------------------------------------------------------------

DType product_dtype(const KernelCall& call, std::size_t param) {
  return call[param].is<DType>() ? call[param].as<DType>() : to_sum(call.tensor(0).dtype);
}
template <class C>
C times(C a, C b) {
  if constexpr (std::is_same_v<C, std::int64_t>)
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  else
    return a * b;
}
Value product_rows(KernelCall& call, const Rows& rows, DType dtype) {
  return with_compute(dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    return reduce_rows<C, C>(call, rows, dtype, [](const C* x, std::int64_t n) {
      C product(1);
      for (std::int64_t i = 0; i < n; ++i) product = times(product, x[i]);
      return product;
    });
  });
}
Value product(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return product_rows(call, rows_of(self, std::vector<bool>(self.rank(), true), false),
                      product_dtype(call, 1));
}
Value product_along(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return product_rows(call, rows_of(self, reduced_dims(Value::list({call[1]}), self.rank()), call.boolean(2)),
                      product_dtype(call, 3));
}

Value running_product(KernelCall& call) {
  const DType dtype = product_dtype(call, 2);
  const Tensor out = call.make_result(0, dtype, call.tensor(0).sizes);
  const Rows from = rows_along(call.tensor(0), call.integer(1)), to = rows_along(out, call.integer(1));
  with_compute(dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    Buffer<C> x = dense<C>(from.tensor);
    for (std::int64_t i = 0; i < from.count; ++i)
      for (std::int64_t j = 1; j < from.length; ++j) {
        C* at = x.data() + i * from.length + j;
        *at = times(at[-1], *at);
      }
    store_dense(x, to.tensor);
  });
  return out;
}

// cummax: of equals the last, and a NaN stays.
Value running_maximum(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Tensor values = call.make_result(0, self.dtype, self.sizes),
               indices = call.make_result(1, DType::kInt64, self.sizes);
  const std::int64_t dim = call.integer(1);
  const Rows from = rows_along(self, dim);
  with_compute(self.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    if constexpr (std::is_same_v<C, Complex>) {
      throw KernelError("cummax: complex numbers have no order");
    } else {
      Buffer<C> x = dense<C>(from.tensor);
      Buffer<std::int64_t> at(x.size(), 0);
      for (std::int64_t i = 0; i < from.count; ++i) {
        C* row = x.data() + i * from.length;
        std::int64_t best = 0;
        for (std::int64_t j = 0; j < from.length; ++j) {
          if (row[best] == row[best] && (row[j] != row[j] || row[j] >= row[best]))
            best = j;
          else if (row[best] != row[best] && row[j] != row[j])
            best = j;
          row[j] = row[best];
          at[static_cast<std::size_t>(i * from.length + j)] = best;
        }
      }
      store_dense(x, rows_along(values, dim).tensor);
      store_dense(at, rows_along(indices, dim).tensor);
    }
  });
  return Value::tuple({values, indices});
}

// ---- layer norm ---------------------------------------------------------------------------

template <class C>
Buffer<C> weight_or(KernelCall& call, std::size_t param, std::int64_t length, C otherwise) {
  return call[param].is_none() ? Buffer<C>(static_cast<std::size_t>(length), otherwise)
                               : dense<C>(call.tensor(param));
}

// ((x - mean) * rstd) * weight + bias, the last two fused; rstd = 1 / sqrt(variance + eps).
Value layer_norm(KernelCall& call) {
  const Tensor& input = call.tensor(0);
  const Extents shape = call[1].integers();
  const std::int64_t length = norm_length(input, shape);
  return with_floating(input.dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    Buffer<C> x = dense<C>(input), means, scales;
    const Buffer<C> weight = weight_or<C>(call, 2, length, C(1)), bias = weight_or<C>(call, 3, length, C(0));
    for (std::size_t at = 0; at < x.size(); at += static_cast<std::size_t>(length)) {
      C* row = x.data() + at;
      const Moments<C> moments = moments_of(row, length, 0);
      means.push_back(moments.mean);
      scales.push_back(math::rsqrt(moments.variance + static_cast<C>(call.real(4))));
      for (std::int64_t i = 0; i < length; ++i) {
        const auto k = static_cast<std::size_t>(i);
        row[i] = math::fma((row[i] - means.back()) * scales.back(), weight[k], bias[k]);
      }
    }
    const DType kept = std::is_same_v<C, double> ? DType::kFloat64 : DType::kFloat32;
    const Tensor out = call.make_result(0, input.dtype, input.sizes),
                 mean = call.make_result(1, call.result_dtype(1, kept), rstd_sizes(input, shape)),
                 rstd = call.make_result(2, call.result_dtype(2, kept), rstd_sizes(input, shape));
    store_dense(x, out);
    store_dense(means, mean);
    store_dense(scales, rstd);
    return Value::tuple({out, mean, rstd});
  });
}

// With h = (x - mean) * rstd and g = grad * weight:
//   d input = rstd * (g - mean(g) - h * mean(g * h)), d weight = column sums of grad * h, d bias = column sums of grad
Value layer_norm_backward(KernelCall& call) {
  const Tensor& input = call.tensor(1);
  const std::int64_t length = norm_length(input, call[2].integers());
  const std::vector<Value>& wanted = call[7].items();
  return with_floating(input.dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    const Buffer<C> grad = dense<C>(call.tensor(0)), means = dense<C>(call.tensor(3)),
                    scales = dense<C>(call.tensor(4)), weight = weight_or<C>(call, 5, length, C(1));
    Buffer<C> x = dense<C>(input), of_input(x.size());
    Buffer<C> g(static_cast<std::size_t>(length)), products(static_cast<std::size_t>(length));
    const std::int64_t rows = length == 0 ? 0 : static_cast<std::int64_t>(x.size()) / length;
    for (std::int64_t r = 0; r < rows; ++r) {
      C* h = x.data() + r * length;
      const C* from = grad.data() + r * length;
      const C scale = scales[static_cast<std::size_t>(r)], mean = means[static_cast<std::size_t>(r)];
      for (std::int64_t i = 0; i < length; ++i) {
        const auto k = static_cast<std::size_t>(i);
        h[i] = (h[i] - mean) * scale;
        g[k] = from[i] * weight[k];
        products[k] = g[k] * h[i];
      }
      const C mean_g = ordered_sum(g.data(), length) / static_cast<C>(length);
      const C mean_product = ordered_sum(products.data(), length) / static_cast<C>(length);
      for (std::int64_t i = 0; i < length; ++i) {
        of_input[static_cast<std::size_t>(r * length + i)] =
            scale * ((g[static_cast<std::size_t>(i)] - mean_g) - h[i] * mean_product);
        h[i] = from[i] * h[i];
      }
    }
    std::vector<Value> results(3);
    const auto give = [&](std::size_t i, const Tensor& like, const Buffer<C>& values) {
      const Tensor out = call.make_result(i, like.dtype, like.sizes);
      store_dense(values, out);
      results[i] = out;
    };
    Buffer<C> sums(static_cast<std::size_t>(length));
    if (wanted[0].boolean()) give(0, input, of_input);
    if (wanted[1].boolean() && !call[5].is_none()) {
      ordered_column_sums(x.data(), rows, length, sums.data());
      give(1, call.tensor(5), sums);
    }
    if (wanted[2].boolean() && !call[6].is_none()) {
      ordered_column_sums(grad.data(), rows, length, sums.data());
      give(2, call.tensor(6), sums);
    }
    return Value::tuple(std::move(results));
  });
}

constexpr KernelRow kRows[] = {
    {"aten.cummax.default", running_maximum},
    {"aten.cumprod.default", running_product},
    {"aten.linalg_vector_norm.default", vector_norm},
    {"aten.logsumexp.default", logsumexp},
    {"aten.native_layer_norm.default", layer_norm},
    {"aten.native_layer_norm_backward.default", layer_norm_backward},
    {"aten.prod.default", product},
    {"aten.prod.dim_int", product_along},
    {"aten.std.correction", deviation},
    {"aten.var.correction", variance},
    {"aten.var_mean.correction", variance_and_mean},
};

}  // namespace

std::span<const KernelRow> statistics_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
