// Softmax, RMS norm, layer norm and the negative log likelihood: what divides a row by something
// that the whole row decides. In float32 for the 16-bit floats, rounded once at the end; every step
// is rounded, and sums are those of math/sum_order.h.
#include "replay/kernels/ops/normalise_call.h"

#include "replay/kernels/shared/kernels.h"
#include "replay/kernels/shared/moments.h"
#include "replay/kernels/shared/whole_rows.h"

namespace epweave::replay::shared {
namespace {

using namespace math;  // NOLINT: the ops
using cpu::LossReduction;

// ---- softmax ------------------------------------------------------------------------------

struct Softmax {
  std::size_t dim;
  DType result, computed;
};
Softmax read_softmax(const KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return {cpu::checked_dim(call.integer(1), self.rank()), call.boolean(2) ? DType::kFloat32 : self.dtype,
          floating_dtype(self.dtype)};
}
// Row, where one kernel can do it; else f(block, rows along the dimension less their maximum, rows
// of the result).
template <class Row, class F>
Value softmax_by(KernelCall& call, Scratch& scratch, const F& f) {
  const Softmax s = read_softmax(call);
  const Tensor& self = call.tensor(0);
  const Tensor out = call.make_result(0, s.result, self.sizes);
  const Rows in = scratch.rows_along(self, s.dim), rows = scratch.rows_for_along(out, s.dim);
  if (launch_rows<Row>(scratch, {{{in.length}}}, {{find_place(in)}, find_place(rows), in.count},
                       {&self, &out}))
    return out;
  scratch.for_each_block(in, {&rows}, [&](const Block& block) {
    const Tensor x = block.load(in, s.computed);
    f(block, scratch.map<Difference>(x, scratch.maximum_of_rows(x, NanRule::kSkip)), rows);
  });
  return out;
}
Value softmax(KernelCall& call) {
  Scratch scratch(call);
  return softmax_by<tasks::SoftmaxRow>(call, scratch,
                                       [&](const Block& block, const Tensor& shifted, const Rows& out) {
                                         const Tensor e = scratch.map<Exp>(shifted);
                                         block.map_into<Div>(out, e, scratch.sum_rows(e));
                                       });
}
Value log_softmax(KernelCall& call) {
  Scratch scratch(call);
  return softmax_by<tasks::LogSoftmaxRow>(
      call, scratch, [&](const Block& block, const Tensor& shifted, const Rows& out) {
        const Tensor total = scratch.sum_rows(scratch.map<Exp>(shifted));
        block.map_into<Difference>(out, shifted, scratch.map<LogOf>(total));
      });
}

// Zeros, where a row is all -inf.
Value safe_softmax(KernelCall& call) {
  const DType dtype = call[2].is<DType>() ? call[2].as<DType>() : call.tensor(0).dtype;
  Scratch scratch(call);
  const Tensor self = call.tensor(0).dtype == dtype ? call.tensor(0) : scratch.dense(call.tensor(0), dtype);
  const std::size_t dim = cpu::checked_dim(call.integer(1), self.rank());
  const Tensor out = call.make_result(0, dtype, self.sizes);
  const Rows in = scratch.rows_along(self, dim), rows = scratch.rows_for_along(out, dim);
  scratch.for_each_block(in, {&rows}, [&](const Block& block) {
    const Tensor x = block.load(in, floating_dtype(dtype));
    const Tensor maximum = scratch.maximum_of_rows(x, NanRule::kWins);
    const Tensor e = scratch.map<ShiftedExp>(x, maximum);
    block.map_into<DivideRow>(rows, e, scratch.sum_rows(e), maximum);
  });
  return out;
}

// Of a derivative: an operand that has the sizes of another.
void require_sizes(const Tensor& tensor, const Tensor& like, const char* what) {
  if (tensor.sizes != like.sizes) throw KernelError(what);
}

struct SoftmaxBackward {
  const Block& block;
  Tensor grad, output;
};
// Row, where one kernel can do it; else f({block, rows of grad, rows of the output}, rows of the
// result).
template <class Row, class F>
Value softmax_backward_by(KernelCall& call, Scratch& scratch, const F& f) {
  const Tensor& grad = call.tensor(0);
  const DType dtype = floating_dtype(grad.dtype);
  require_sizes(call.tensor(1), grad, "the output has not the sizes of its gradient");
  const std::size_t dim = cpu::checked_dim(call.integer(2), grad.rank());
  const Tensor out = call.make_result(0, call[3].as<DType>(), grad.sizes);
  const Rows g = scratch.rows_along(grad, dim), y = scratch.rows_along(call.tensor(1), dim),
             rows = scratch.rows_for_along(out, dim);
  if (launch_rows<Row>(scratch, {{g.length}}, {{find_place(g), find_place(y)}, find_place(rows), g.count},
                       {&grad, &call.tensor(1), &out}))
    return out;
  scratch.for_each_block(g, {&rows}, [&](const Block& block) {
    f(SoftmaxBackward{block, block.load(g, dtype), block.load(y, dtype)}, rows);
  });
  return out;
}
// (grad - sum(grad * output)) * output
Value softmax_backward(KernelCall& call) {
  Scratch scratch(call);
  return softmax_backward_by<tasks::SoftmaxBackwardRow>(
      call, scratch, [&](const SoftmaxBackward& in, const Rows& out) {
        const Tensor total = scratch.sum_rows(scratch.map<Mul>(in.grad, in.output));
        in.block.map_into<Mul>(out, scratch.map<Difference>(in.grad, total), in.output);
      });
}
// grad - exp(output) * sum(grad)
Value log_softmax_backward(KernelCall& call) {
  Scratch scratch(call);
  return softmax_backward_by<tasks::LogSoftmaxBackwardRow>(
      call, scratch, [&](const SoftmaxBackward& in, const Rows& out) {
        const Tensor product = scratch.map<Mul>(scratch.map<Exp>(in.output), scratch.sum_rows(in.grad));
        in.block.map_into<Difference>(out, in.grad, product);
      });
}

// ---- RMS norm and layer norm --------------------------------------------------------------

// What is normalised: the trailing dimensions of `shape` together.
struct Norm {
  std::size_t split;
  std::int64_t length;
  DType dtype;
  Extents kept;  // sizes of a number for each row
};
Norm read_norm(const Tensor& input, const Extents& shape) {
  const std::int64_t length = cpu::norm_length(input, shape);
  return {input.rank() - shape.size(), length, floating_dtype(input.dtype), cpu::rstd_sizes(input, shape)};
}
// Throws KernelError unless a weight or bias has an element for each that is normalised.
void check_weight(const Value& weight, const Norm& norm) {
  if (!weight.is_none() && weight.tensor().numel() != norm.length)
    throw KernelError("the weight or bias has not as many elements as are normalised");
}
// The same of a number for each row.
void check_kept(const Tensor& kept, const Rows& rows) {
  if (kept.numel() != rows.count) throw KernelError("a mean or rstd has not an element for each row");
}
// A weight or bias as [1, length]; None: `otherwise`.
Tensor weight_row(Scratch& scratch, const Value& weight, double otherwise, const Norm& norm) {
  check_weight(weight, norm);
  if (weight.is_none()) return scratch.filled(norm.dtype, {1, norm.length}, Value(otherwise));
  return as_matrix(scratch.dense(weight.tensor(), norm.dtype), 1, norm.length);
}
// 1 / sqrt(x + epsilon)
Tensor reciprocal_root(Scratch& scratch, const Tensor& x, double epsilon) {
  const Tensor shift = scratch.filled(x.dtype, {1, 1}, Value(epsilon));
  return scratch.map<Rsqrt>(scratch.map_with<AddScaled>(Value(1.0), x, shift));
}

// A weight as it is given; ones where there is none.
Tensor given_weight(Scratch& scratch, const Value& weight, const Norm& norm) {
  check_weight(weight, norm);
  return weight.is_none() ? weight_row(scratch, weight, 1.0, norm) : weight.tensor();
}
struct RmsNorm {
  const Value& weight;
  const Rows &in, &out;
  const Tensor& scale;
  double epsilon;
};
// By a kernel that does whole rows; false, and nothing is done, where it cannot.
bool launch_rms_norm(Scratch& scratch, const Norm& norm, const RmsNorm& of) {
  if (scratch.queue() == nullptr || of.scale.dtype != DType::kFloat32 || !of.scale.is_contiguous())
    return false;
  const Tensor weight = given_weight(scratch, of.weight, norm);
  const tasks::RmsNormRow op{{norm.length}, of.scale.data<float>(), static_cast<float>(of.epsilon)};
  return launch_rows<tasks::RmsNormRow>(
      scratch, op, {{find_place(of.in), find_place_of_all(weight)}, find_place(of.out), of.in.count},
      {&of.in.tensor, &weight, &of.out.tensor, &of.scale});
}

// (x * rstd) * weight with rstd = 1 / sqrt(mean of squares + eps)
Value rms_norm(KernelCall& call) {
  const Tensor& input = call.tensor(0);
  const Norm norm = read_norm(input, call[1].integers());
  const double epsilon = cpu::norm_epsilon(call[3], input.dtype);
  Scratch scratch(call);
  const Tensor out = call.make_result(0, input.dtype, input.sizes),
               scale = call.make_result(1, norm.dtype, norm.kept);
  const Rows in = scratch.rows_of(input, norm.split), normal = scratch.rows_for(out, norm.split),
             scales = scratch.rows_for(scale, norm.split);
  if (launch_rms_norm(scratch, norm, {call[2], in, normal, scale, epsilon}))
    return Value::tuple({out, scale});
  const Tensor weight = weight_row(scratch, call[2], 1.0, norm);
  scratch.for_each_block(in, {&normal, &scales}, [&](const Block& block) {
    const Tensor x = block.load(in, norm.dtype);
    const Tensor mean = scratch.sum_rows(scratch.map<Square>(x), Scratch::Sum::kMean);
    const Tensor rstd = reciprocal_root(scratch, mean, epsilon);
    block.store(rstd, scales);
    block.map_into<Mul>(normal, scratch.map<Mul>(x, rstd), weight);
  });
  return Value::tuple({out, scale});
}

constexpr const char* kOtherGradient = "the gradient has not the sizes of the input";

// The gradient of the input, result 0.
Tensor make_gradient(KernelCall& call, const Tensor& input) {
  return call.make_result(0, input.dtype, input.sizes);
}
// A gradient of a weight or bias, result i: `rows` of all rows [rows, length], added up by column.
struct Summed {
  std::size_t index;
  const Tensor& like;
};
Tensor add_columns(KernelCall& call, Scratch& scratch, const Summed& sum, const Tensor& rows) {
  return store_result(call, sum.index, sum.like.dtype, sum.like.sizes, scratch.sum_columns(rows));
}

struct RmsNormGradient {
  const Value& weight;
  const Rows &grads, &in;
  Tensor scale;  // row-major, of the norm's dtype
};
// Both by kernels that read whole rows; false or none, and nothing is done, where they cannot.
bool launch_input_gradient(Scratch& scratch, const Norm& norm, const RmsNormGradient& of, const Rows& to) {
  if (scratch.queue() == nullptr || norm.dtype != DType::kFloat32) return false;
  const Tensor weight = given_weight(scratch, of.weight, norm);
  return launch_rows<tasks::RmsNormBackwardRow>(
      scratch, {{norm.length}, of.scale.data<float>()},
      {{find_place(of.grads), find_place(of.in), find_place_of_all(weight)}, find_place(to), of.in.count},
      {&of.grads.tensor, &of.in.tensor, &weight, &of.scale, &to.tensor});
}
std::optional<Tensor> sum_weight_gradient(Scratch& scratch, const Norm& norm, const RmsNormGradient& of) {
  if (norm.dtype != DType::kFloat32) return std::nullopt;
  return sum_columns<tasks::RmsNormWeightGradient>(
      scratch, {of.scale.data<float>()},
      {{find_place(of.grads), find_place(of.in)}, of.in.count, of.in.length},
      {&of.grads.tensor, &of.in.tensor, &of.scale});
}

// With h = x * rstd and g = grad * weight:
//   d input = rstd * (g - h * mean(g * h)),   d weight = the column sums of grad * h
Value rms_norm_backward(KernelCall& call) {
  const Tensor& input = call.tensor(1);
  const Norm norm = read_norm(input, call[2].integers());
  const bool wants_input = call[5].items()[0].boolean(),
             wants_weight = call[5].items()[1].boolean() && !call[4].is_none();
  Scratch scratch(call);
  const Rows grads = scratch.rows_of(call.tensor(0), norm.split), in = scratch.rows_of(input, norm.split),
             scales = scratch.rows_of(call.tensor(3), call.tensor(3).rank());
  require_sizes(call.tensor(0), input, kOtherGradient);
  check_kept(call.tensor(3), in);
  check_weight(call[4], norm);
  const Tensor of_input = wants_input ? make_gradient(call, input) : Tensor();
  const Rows to_input = wants_input ? scratch.rows_for(of_input, norm.split) : Rows();
  const RmsNormGradient gradient{call[4], grads, in, scratch.dense(call.tensor(3), norm.dtype)};
  const bool composes_input = wants_input && !launch_input_gradient(scratch, norm, gradient, to_input);
  const std::optional<Tensor> weights =
      wants_weight ? sum_weight_gradient(scratch, norm, gradient) : std::nullopt;
  const bool composes_weight = wants_weight && !weights;
  const Tensor weight = composes_input ? weight_row(scratch, call[4], 1.0, norm) : Tensor(),
               products = composes_weight ? scratch.make(norm.dtype, {in.count, in.length}) : Tensor();
  const Rows to_products = composes_weight ? scratch.rows_for(products, 1) : Rows();
  const auto compose = [&](const Block& block) {
    const Tensor grad = block.load(grads, norm.dtype), rstd = block.load(scales, norm.dtype);
    const Tensor h = scratch.map<Mul>(block.load(in, norm.dtype), rstd);
    if (composes_input) {
      const Tensor g = scratch.map<Mul>(grad, weight);
      const Tensor mean = scratch.sum_rows(scratch.map<Mul>(g, h), Scratch::Sum::kMean);
      block.map_into<Mul>(to_input, rstd, scratch.map<Difference>(g, scratch.map<Mul>(h, mean)));
    }
    if (composes_weight) block.map_into<Mul>(to_products, grad, h);
  };
  if (composes_input || composes_weight)
    scratch.for_each_block(
        in, {composes_input ? &to_input : nullptr, composes_weight ? &to_products : nullptr}, compose);
  std::vector<Value> results(2);
  if (wants_input) results[0] = of_input;
  if (wants_weight) {
    const Tensor& like = call.tensor(4);
    results[1] =
        store_result(call, 1, like.dtype, like.sizes, weights ? *weights : scratch.sum_columns(products));
  }
  return Value::tuple(std::move(results));
}

// ((x - mean) * rstd) * weight + bias, the last two fused; rstd = 1 / sqrt(variance + eps).
Value layer_norm(KernelCall& call) {
  const Tensor& input = call.tensor(0);
  const Norm norm = read_norm(input, call[1].integers());
  Scratch scratch(call);
  const Tensor weight = weight_row(scratch, call[2], 1.0, norm),
               bias = weight_row(scratch, call[3], 0.0, norm);
  const Tensor out = call.make_result(0, input.dtype, input.sizes),
               mean = call.make_result(1, call.result_dtype(1, norm.dtype), norm.kept),
               rstd = call.make_result(2, call.result_dtype(2, norm.dtype), norm.kept);
  const Rows in = scratch.rows_of(input, norm.split), to_out = scratch.rows_for(out, norm.split),
             to_mean = scratch.rows_for(mean, norm.split), to_rstd = scratch.rows_for(rstd, norm.split);
  scratch.for_each_block(in, {&to_out, &to_mean, &to_rstd}, [&](const Block& block) {
    const Moments moments = moments_of(scratch, block.load(in, norm.dtype), 0.0);
    const Tensor scale = reciprocal_root(scratch, moments.variance, call.real(4));
    const Tensor normal = scratch.map<Mul>(moments.distances, scale);
    block.store(scratch.map_with<AddProduct>(Value(1.0), bias, normal, weight), to_out);
    block.store(moments.mean, to_mean);
    block.store(scale, to_rstd);
  });
  return Value::tuple({out, mean, rstd});
}

// With h = (x - mean) * rstd and g = grad * weight:
//   d input = rstd * (g - mean(g) - h * mean(g * h)), d weight = column sums of grad * h, d bias = column sums of grad
Value layer_norm_backward(KernelCall& call) {
  const Tensor& input = call.tensor(1);
  const Norm norm = read_norm(input, call[2].integers());
  const std::vector<Value>& wanted = call[7].items();
  const bool wants_input = wanted[0].boolean(), wants_weight = wanted[1].boolean() && !call[5].is_none(),
             wants_bias = wanted[2].boolean() && !call[6].is_none();
  Scratch scratch(call);
  const Tensor weight = weight_row(scratch, call[5], 1.0, norm);
  const Rows grads = scratch.rows_of(call.tensor(0), norm.split), in = scratch.rows_of(input, norm.split),
             means = scratch.rows_of(call.tensor(3), call.tensor(3).rank()),
             scales = scratch.rows_of(call.tensor(4), call.tensor(4).rank());
  require_sizes(call.tensor(0), input, kOtherGradient);
  check_kept(call.tensor(3), in);
  check_kept(call.tensor(4), in);
  check_weight(call[6], norm);
  const Tensor of_input = wants_input ? make_gradient(call, input) : Tensor(),
               products = wants_weight ? scratch.make(norm.dtype, {in.count, in.length}) : Tensor();
  const Rows to_input = wants_input ? scratch.rows_for(of_input, norm.split) : Rows(),
             to_products = wants_weight ? scratch.rows_for(products, 1) : Rows();
  scratch.for_each_block(in, {&to_input, &to_products}, [&](const Block& block) {
    const Tensor grad = block.load(grads, norm.dtype), rstd = block.load(scales, norm.dtype);
    const Tensor distances =
        scratch.map<Difference>(block.load(in, norm.dtype), block.load(means, norm.dtype));
    const Tensor h = scratch.map<Mul>(distances, rstd);
    if (wants_input) {
      const Tensor g = scratch.map<Mul>(grad, weight);
      const Tensor mean_g = scratch.sum_rows(g, Scratch::Sum::kMean),
                   mean_product = scratch.sum_rows(scratch.map<Mul>(g, h), Scratch::Sum::kMean);
      const Tensor along = scratch.map<Mul>(h, mean_product);
      block.map_into<Mul>(to_input, rstd, scratch.map<Difference>(scratch.map<Difference>(g, mean_g), along));
    }
    if (wants_weight) block.map_into<Mul>(to_products, grad, h);
  });
  std::vector<Value> results(3);
  if (wants_input) results[0] = of_input;
  if (wants_weight) results[1] = add_columns(call, scratch, {1, call.tensor(5)}, products);
  if (wants_bias) {
    const Tensor grad = as_matrix(scratch.dense(call.tensor(0), norm.dtype), in.count, in.length);
    results[2] = add_columns(call, scratch, {2, call.tensor(6)}, grad);
  }
  return Value::tuple(std::move(results));
}

// ---- negative log likelihood --------------------------------------------------------------

struct Loss : cpu::LossShape {
  DType dtype = DType::kFloat32;
  Tensor targets;                // int64
  std::optional<Tensor> weight;  // computed
};
Loss read_loss(Scratch& scratch, const Tensor& self, const Tensor& target, const Value& weight) {
  Loss loss{cpu::read_loss_shape(self, target), DType::kFloat32, {}, {}};
  loss.dtype = floating_dtype(self.dtype);
  loss.targets = scratch.dense(target, DType::kInt64);
  if (weight.is_none()) return loss;
  if (weight.tensor().numel() != loss.classes) throw KernelError("nll_loss: a weight per class");
  loss.weight = scratch.dense(weight.tensor(), loss.dtype);
  return loss;
}

Value nll_loss(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  Scratch scratch(call);
  const Loss loss = read_loss(scratch, self, call.tensor(1), call[2]);
  const auto reduction = static_cast<LossReduction>(call.integer(3));
  const Tensor x = scratch.dense(self, loss.dtype);
  const Tensor losses = scratch.make(loss.dtype, {1, loss.rows}),
               weights = scratch.make(loss.dtype, {1, loss.rows});
  with_float(self.dtype, [&](auto zero) {
    using C = decltype(zero);
    scratch.launch(tasks::LossTask<C>{x.data<C>(), loss.weight ? loss.weight->data<C>() : nullptr,
                                      loss.targets.data<std::int64_t>(), loss.classes, call.integer(4),
                                      losses.data<C>(), weights.data<C>(), scratch.sink()},
                   loss.rows, {&x, loss.weight ? &*loss.weight : nullptr, &loss.targets, &losses, &weights});
  });
  if (reduction == LossReduction::kNone && self.rank() == 2) {
    Tensor out = store_result(call, 0, self.dtype, {loss.rows}, losses);
    return Value::tuple(
        {out, store_result(call, 1, self.dtype, {}, scratch.filled(loss.dtype, {}, Value(0.0)))});
  }
  const Tensor weight_total = scratch.sum_rows(weights), total = scratch.sum_rows(losses);
  Tensor out =
      store_result(call, 0, self.dtype, {},
                   reduction == LossReduction::kMean ? scratch.map<Div>(total, weight_total) : total);
  return Value::tuple({out, store_result(call, 1, self.dtype, {}, weight_total)});
}

Value nll_loss_backward(KernelCall& call) {
  const Tensor& self = call.tensor(1);
  Scratch scratch(call);
  const Loss loss = read_loss(scratch, self, call.tensor(2), call[3]);
  const bool is_mean = static_cast<LossReduction>(call.integer(4)) == LossReduction::kMean;
  const Tensor grad = scratch.dense(call.tensor(0), loss.dtype),
               total = scratch.dense(call.tensor(6), loss.dtype);
  if (grad.numel() != 1 && grad.numel() != loss.rows)
    throw KernelError("nll_loss_backward: one gradient, or one per row");
  if (total.numel() != 1) throw KernelError("nll_loss_backward: one total weight");
  // Row-major, of the compute dtype: the result itself where it is so.
  const Tensor result = call.make_result(0, self.dtype, self.sizes);
  const bool is_direct = self.dtype == loss.dtype && result.is_contiguous();
  const Tensor out = is_direct ? result : scratch.make(loss.dtype, self.sizes);
  cpu::fill_elements(out, Value(0.0));
  with_float(self.dtype, [&](auto zero) {
    using C = decltype(zero);
    scratch.launch(
        tasks::LossBackwardTask<C>{grad.data<C>(), grad.numel() == 1 ? 0 : 1,
                                   loss.weight ? loss.weight->data<C>() : nullptr,
                                   is_mean ? total.data<C>() : nullptr, loss.targets.data<std::int64_t>(),
                                   loss.classes, call.integer(5), out.data<C>(), scratch.sink()},
        loss.rows, {&grad, &total, loss.weight ? &*loss.weight : nullptr, &loss.targets, &out});
  });
  if (!is_direct) cpu::copy_elements(out, result);
  return result;
}

constexpr KernelRow kRows[] = {
    {"aten._fused_rms_norm.default", rms_norm},
    {"aten._fused_rms_norm_backward.default", rms_norm_backward},
    {"aten._log_softmax.default", log_softmax},
    {"aten._log_softmax_backward_data.default", log_softmax_backward},
    {"aten._safe_softmax.default", safe_softmax},
    {"aten._softmax.default", softmax},
    {"aten._softmax_backward_data.default", softmax_backward},
    {"aten.native_layer_norm.default", layer_norm},
    {"aten.native_layer_norm_backward.default", layer_norm_backward},
    {"aten.nll_loss_backward.default", nll_loss_backward},
    {"aten.nll_loss_forward.default", nll_loss},
};

}  // namespace

std::span<const KernelRow> normalise_rows() {
  return kRows;
}

}  // namespace epweave::replay::shared
