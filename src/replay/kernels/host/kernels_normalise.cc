// Softmax, RMS norm, the loss: what divides a row by something the whole row decides. In float32
// for the 16-bit floats, rounded once at the end. Sums are ordered_sum (sum.h) of products that are
// rounded first.
#include <limits>

#include "replay/kernels/host/kernels.h"
#include "replay/kernels/host/operands.h"
#include "replay/kernels/host/sum.h"
#include "replay/kernels/host/vector_math.h"
#include "replay/kernels/ops/normalise_call.h"

namespace epweave::replay::cpu {
namespace {

// The tensor with `dim` last.
Tensor with_dim_last(const Tensor& self, std::size_t dim) {
  Tensor moved = self;
  if (self.rank() == 0) return moved;
  moved.sizes.erase(moved.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  moved.strides.erase(moved.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  moved.sizes.push_back(self.sizes[dim]);
  moved.strides.push_back(self.strides[dim]);
  return moved;
}

template <class C>
void exp_row(C* out, const C* x, std::int64_t n, C shift) {
  if constexpr (std::is_same_v<C, float>) {
    exp_shifted_run(n, out, x, shift);
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i] = math::exp(x[i] - shift);
  }
}

// out = map_row(row of each input) for rows along `dim`; the result has self's sizes.
template <std::size_t N, class MapRow>
Value map_rows(KernelCall& call, const std::array<Tensor, N>& inputs, std::int64_t dim_arg, DType dtype,
               const MapRow& map_row) {
  const Tensor& shape = inputs[0];
  const std::size_t dim = checked_dim(dim_arg, shape.rank());
  Tensor out = call.make_result(0, dtype, shape.sizes);
  const std::int64_t length = shape.rank() == 0 ? 1 : shape.sizes[dim];
  // float64 inputs are computed in double.
  with_floating(shape.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    std::array<Buffer<C>, N> in;
    for (std::size_t k = 0; k < N; ++k) in[k] = dense<C>(with_dim_last(inputs[k], dim));
    Buffer<C> scratch(static_cast<std::size_t>(length));
    for (std::size_t at = 0; at < in[0].size(); at += static_cast<std::size_t>(length)) {
      if constexpr (N == 1)
        map_row(in[0].data() + at, length, scratch.data());
      else
        map_row(in[0].data() + at, in[1].data() + at, length, scratch.data());
    }
    store_dense(in[0], with_dim_last(out, dim));
  });
  return out;
}

template <class C>
C row_maximum(const C* x, std::int64_t n) {
  C maximum = -std::numeric_limits<C>::infinity();
  for (std::int64_t i = 0; i < n; ++i) maximum = x[i] > maximum ? x[i] : maximum;
  return maximum;
}

Value softmax(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return map_rows<1>(call, {self}, call.integer(1), call.boolean(2) ? DType::kFloat32 : self.dtype,
                     [](auto* x, std::int64_t n, auto*) {
                       exp_row(x, x, n, row_maximum(x, n));
                       const auto total = ordered_sum(x, n);
                       for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] / total;
                     });
}
Value log_softmax(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return map_rows<1>(call, {self}, call.integer(1), call.boolean(2) ? DType::kFloat32 : self.dtype,
                     [](auto* x, std::int64_t n, auto* e) {
                       const auto maximum = row_maximum(x, n);
                       exp_row(e, x, n, maximum);
                       const auto log_total = math::log(ordered_sum(e, n));
                       for (std::int64_t i = 0; i < n; ++i) x[i] = (x[i] - maximum) - log_total;
                     });
}
// (grad - sum(grad * output)) * output
Value softmax_backward(KernelCall& call) {
  return map_rows<2>(call, {call.tensor(0), call.tensor(1)}, call.integer(2), call[3].as<DType>(),
                     [](auto* g, const auto* y, std::int64_t n, auto* product) {
                       for (std::int64_t i = 0; i < n; ++i) product[i] = g[i] * y[i];
                       const auto total = ordered_sum(product, n);
                       for (std::int64_t i = 0; i < n; ++i) g[i] = (g[i] - total) * y[i];
                     });
}
// grad - exp(output) * sum(grad)
Value log_softmax_backward(KernelCall& call) {
  return map_rows<2>(call, {call.tensor(0), call.tensor(1)}, call.integer(2), call[3].as<DType>(),
                     [](auto* g, const auto* y, std::int64_t n, auto* e) {
                       using C = std::remove_reference_t<decltype(*g)>;
                       const C total = ordered_sum(g, n);
                       exp_row(e, y, n, C(0));
                       for (std::int64_t i = 0; i < n; ++i) g[i] = g[i] - e[i] * total;
                     });
}

// ---- RMS norm -----------------------------------------------------------------------------

// (x * rstd) * weight with rstd = 1 / sqrt(mean of squares + eps)
Value rms_norm(KernelCall& call) {
  const Tensor& input = call.tensor(0);
  const Extents shape = call[1].integers();
  const std::int64_t length = norm_length(input, shape);
  const double eps = norm_epsilon(call[3], input.dtype);
  return with_floating(input.dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    Buffer<C> x = dense<C>(input);
    const Buffer<C> weight =
        call[2].is_none() ? Buffer<C>(static_cast<std::size_t>(length), C(1)) : dense<C>(call.tensor(2));
    Buffer<C> squares(static_cast<std::size_t>(length)), rstd;
    for (std::size_t at = 0; at < x.size(); at += static_cast<std::size_t>(length)) {
      C* row = x.data() + at;
      for (std::int64_t i = 0; i < length; ++i) squares[static_cast<std::size_t>(i)] = row[i] * row[i];
      const C mean = ordered_sum(squares.data(), length) / static_cast<C>(length);
      rstd.push_back(math::rsqrt(mean + static_cast<C>(eps)));
      for (std::int64_t i = 0; i < length; ++i)
        row[i] = row[i] * rstd.back() * weight[static_cast<std::size_t>(i)];
    }
    Tensor out = call.make_result(0, input.dtype, input.sizes);
    Tensor scale = call.make_result(1, std::is_same_v<C, double> ? DType::kFloat64 : DType::kFloat32,
                                    rstd_sizes(input, shape));
    store_dense(x, out);
    store_dense(rstd, scale);
    return Value::tuple({out, scale});
  });
}

// With h = x * rstd and g = grad * weight:
//   d input = rstd * (g - h * mean(g * h)),   d weight = the column sums of grad * h
Value rms_norm_backward(KernelCall& call) {
  const Tensor& grad_out = call.tensor(0);
  const Tensor& input = call.tensor(1);
  const std::int64_t length = norm_length(input, call[2].integers());
  const std::vector<Value>& mask = call[5].items();
  return with_floating(input.dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    Buffer<C> grad = dense<C>(grad_out), x = dense<C>(input);
    const Buffer<C> rstd = dense<C>(call.tensor(3));
    const Buffer<C> weight =
        call[4].is_none() ? Buffer<C>(static_cast<std::size_t>(length), C(1)) : dense<C>(call.tensor(4));
    Buffer<C> scaled(static_cast<std::size_t>(length)), products(static_cast<std::size_t>(length));
    const std::int64_t rows = length == 0 ? 0 : static_cast<std::int64_t>(x.size()) / length;
    for (std::int64_t r = 0; r < rows; ++r) {
      C* g = grad.data() + r * length;
      C* h = x.data() + r * length;
      const C scale = rstd[static_cast<std::size_t>(r)];
      for (std::int64_t i = 0; i < length; ++i) {
        const auto k = static_cast<std::size_t>(i);
        h[i] = h[i] * scale;
        scaled[k] = g[i] * weight[k];
        products[k] = scaled[k] * h[i];
      }
      const C mean = ordered_sum(products.data(), length) / static_cast<C>(length);
      for (std::int64_t i = 0; i < length; ++i) {
        const C grad_weight = g[i] * h[i];
        g[i] = scale * (scaled[static_cast<std::size_t>(i)] - h[i] * mean);
        h[i] = grad_weight;
      }
    }
    std::vector<Value> results(2);
    if (mask[0].boolean()) {
      Tensor out = call.make_result(0, input.dtype, input.sizes);
      store_dense(grad, out);
      results[0] = out;
    }
    if (mask[1].boolean() && !call[4].is_none()) {
      Buffer<C> sums(static_cast<std::size_t>(length));
      ordered_column_sums(x.data(), rows, length, sums.data());
      Tensor out = call.make_result(1, call.tensor(4).dtype, call.tensor(4).sizes);
      store_dense(sums, out);
      results[1] = out;
    }
    return Value::tuple(std::move(results));
  });
}

// ---- negative log likelihood --------------------------------------------------------------

struct Loss : LossShape {
  Buffer<std::int64_t> targets;
  std::int64_t ignored = 0;
};
Loss read_loss(const Tensor& self, const Tensor& target, std::int64_t ignored) {
  const Loss loss{read_loss_shape(self, target), dense<std::int64_t>(target), ignored};
  for (std::int64_t t : loss.targets)
    if (t != ignored && (t < 0 || t >= loss.classes))
      throw KernelError("nll_loss: target " + std::to_string(t) + " out of range");
  return loss;
}

Value nll_loss(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Loss loss = read_loss(self, call.tensor(1), call.integer(4));
  const auto reduction = static_cast<LossReduction>(call.integer(3));
  return with_floating(self.dtype, [&](auto tag) -> Value {
    using C = typename decltype(tag)::type;
    const Buffer<C> x = dense<C>(self);
    const Buffer<C> weight = call[2].is_none() ? Buffer<C>(static_cast<std::size_t>(loss.classes), C(1))
                                               : dense<C>(call.tensor(2));
    Buffer<C> losses(loss.targets.size(), C(0)), weights(loss.targets.size(), C(0));
    for (std::size_t i = 0; i < losses.size(); ++i) {
      if (loss.targets[i] == loss.ignored) continue;
      const auto target = static_cast<std::size_t>(loss.targets[i]);
      weights[i] = weight[target];
      losses[i] = -x[i * static_cast<std::size_t>(loss.classes) + target] * weights[i];
    }
    const bool is_each = reduction == LossReduction::kNone && self.rank() == 2;
    Tensor out = call.make_result(0, self.dtype, is_each ? Extents{loss.rows} : Extents{});
    Tensor total = call.make_result(1, self.dtype, {});
    const C sum_of_weights = is_each ? C(0) : ordered_sum(weights.data(), loss.rows);
    if (is_each) {
      store_dense(losses, out);
    } else {
      const C sum = ordered_sum(losses.data(), loss.rows);
      store_dense(Buffer<C>{reduction == LossReduction::kMean ? sum / sum_of_weights : sum}, out);
    }
    store_dense(Buffer<C>{sum_of_weights}, total);
    return Value::tuple({out, total});
  });
}

Value nll_loss_backward(KernelCall& call) {
  const Tensor& self = call.tensor(1);
  const Loss loss = read_loss(self, call.tensor(2), call.integer(5));
  const auto reduction = static_cast<LossReduction>(call.integer(4));
  Tensor out = call.make_result(0, self.dtype, self.sizes);
  with_floating(self.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const Buffer<C> grad = dense<C>(call.tensor(0));
    const Buffer<C> weight = call[3].is_none() ? Buffer<C>(static_cast<std::size_t>(loss.classes), C(1))
                                               : dense<C>(call.tensor(3));
    const C total = load_one<C>(call.tensor(6));
    Buffer<C> result(static_cast<std::size_t>(self.numel()), C(0));
    for (std::size_t i = 0; i < loss.targets.size(); ++i) {
      if (loss.targets[i] == loss.ignored) continue;
      const auto target = static_cast<std::size_t>(loss.targets[i]);
      const C g = grad.size() == 1 ? grad[0] : grad[i];
      const C scaled = reduction == LossReduction::kMean ? g / total : g;
      result[i * static_cast<std::size_t>(loss.classes) + target] = -weight[target] * scaled;
    }
    store_dense(result, out);
  });
  return out;
}

constexpr KernelRow kRows[] = {
    {"aten._fused_rms_norm.default", rms_norm},
    {"aten._fused_rms_norm_backward.default", rms_norm_backward},
    {"aten._log_softmax.default", log_softmax},
    {"aten._log_softmax_backward_data.default", log_softmax_backward},
    {"aten._softmax.default", softmax},
    {"aten._softmax_backward_data.default", softmax_backward},
    {"aten.nll_loss_backward.default", nll_loss_backward},
    {"aten.nll_loss_forward.default", nll_loss},
};

}  // namespace

std::span<const KernelRow> normalise_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
