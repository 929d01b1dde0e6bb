#include "testing/row_code.h"

#include <array>
#include <span>

#include "testing/elementwise_calls.h"

namespace epweave {

NodeId RowCode::widened(NodeId a) {
  if (width(a) == kResidualWidth) return a;
  return call("aten.mm.default", {arg(a), arg(weight_for(width(a), kResidualWidth))});
}

NodeId RowCode::weight_for(std::int64_t in, std::int64_t out) {
  // Weights are f32[12, 12]: what is needed is cut out.
  NodeId w = dice_.pick(weights_);
  if (dice_.one_in(3)) w = call("aten.t.default", {arg(w)});
  w = call("aten.slice.Tensor",
           {arg(w), build_.arg(std::int64_t{0}), build_.arg(std::int64_t{0}), build_.arg(in)});
  w = call("aten.slice.Tensor",
           {arg(w), build_.arg(std::int64_t{1}), build_.arg(std::int64_t{0}), build_.arg(out)});
  return w;
}

NodeId RowCode::partial(const RowPool& rows) {
  const NodeId a = dice_.pick(rows.values), b = dice_.pick(rows.values);
  if (dice_.one_in(8))
    return call("aten.unsqueeze.default",
                {arg(call("aten.sum.default", {arg(a)})), build_.arg(std::int64_t{0})});
  NodeId sum = dice_.one_in(3) ? call("aten.sum.dim_IntList", {arg(a), list({0})})
                               : call("aten.mm.default", {arg(call("aten.t.default", {arg(a)})), arg(b)});
  switch (dice_.below(5)) {
    case 0:
      return call("aten.mul.Tensor", {arg(sum), build_.arg(0.5)});
    case 1:
      return call("aten.neg.default", {arg(sum)});
    case 2:
      return build_.rank_of(sum) == 2 ? call("aten.t.default", {arg(sum)}) : sum;
    case 3:
      return call("aten.add.Tensor", {arg(sum), arg(sum)});
    default:
      return sum;
  }
}

NodeId RowCode::unary(const RowPool& rows) {
  static constexpr std::array<std::string_view, 12> kOps = {
      "aten.neg.default",  "aten.sigmoid.default", "aten.silu.default",  "aten.relu.default",
      "aten.abs.default",  "aten.sin.default",     "aten.cos.default",   "aten.tanh.default",
      "aten.sign.default", "aten.floor.default",   "aten.clone.default", "aten.detach.default"};
  return call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(any(rows))});
}

NodeId RowCode::composed(const RowPool& rows) {
  const NodeId positive =
      call("aten.add.Tensor", {arg(call("aten.abs.default", {arg(any(rows))})), build_.arg(1.0)});
  switch (dice_.below(5)) {
    case 0:
      return call("aten.exp.default", {arg(call("aten.neg.default", {arg(positive)}))});
    case 1:
      return call("aten.pow.Tensor_Scalar", {arg(positive), build_.arg(std::int64_t{2})});
    default: {
      static constexpr std::array<std::string_view, 4> kOps = {
          "aten.rsqrt.default", "aten.log.default", "aten.sqrt.default", "aten.reciprocal.default"};
      return call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(positive)});
    }
  }
}

NodeId RowCode::binary(const RowPool& rows) {
  static constexpr std::array<std::string_view, 5> kOps = {"aten.add.Tensor", "aten.sub.Tensor",
                                                           "aten.mul.Tensor", "aten.maximum.default",
                                                           "aten.minimum.default"};
  const NodeId a = any(rows);
  return call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(a), arg(like(rows, a))});
}

NodeId RowCode::with_number(const RowPool& rows) {
  static constexpr std::array<std::string_view, 5> kOps = {
      "aten.add.Tensor", "aten.mul.Tensor", "aten.div.Tensor", "aten.sub.Tensor", "aten.rsub.Scalar"};
  return call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(any(rows)), build_.arg(1.5)});
}

NodeId RowCode::chosen(const RowPool& rows) {
  const NodeId a = any(rows), b = like(rows, a);
  static constexpr std::array<std::string_view, 4> kOps = {"aten.gt.Scalar", "aten.lt.Scalar",
                                                           "aten.ge.Scalar", "aten.le.Scalar"};
  const NodeId mask =
      call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(a), build_.arg(std::int64_t{0})});
  return dice_.one_in(2) ? call("aten.where.self", {arg(mask), arg(a), arg(b)})
                         : call("aten.masked_fill.Scalar", {arg(b), arg(mask), build_.arg(std::int64_t{0})});
}

NodeId RowCode::logical(const RowPool& rows) {
  const NodeId a = any(rows), b = like(rows, a);
  const NodeId x = call("aten.gt.Tensor", {arg(a), arg(b)});
  const NodeId y = call("aten.lt.Scalar", {arg(b), build_.arg(std::int64_t{1})});
  static constexpr std::array<std::string_view, 3> kOps = {
      "aten.logical_and.default", "aten.bitwise_or.Tensor", "aten.logical_xor.default"};
  const NodeId both = call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(x), arg(y)});
  return to(call("aten.logical_not.default", {arg(both)}), kF32);
}

NodeId RowCode::softmax(const RowPool& rows) {
  return call(dice_.one_in(3) ? "aten._log_softmax.default" : "aten._softmax.default",
              {arg(any(rows)), build_.arg(std::int64_t{-1}), build_.flag(false)});
}

NodeId RowCode::reduced(const RowPool& rows) {
  static constexpr std::array<std::string_view, 3> kOps = {"aten.sum.dim_IntList", "aten.mean.dim",
                                                           "aten.amax.default"};
  const NodeId a = any(rows);
  const NodeId r =
      call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(a), list({1}), build_.flag(true)});
  if (dice_.one_in(2)) return call("aten.sub.Tensor", {arg(a), arg(r)});
  return call("aten.expand.default", {arg(r), list({-1, width(a)})});
}

NodeId RowCode::product(const RowPool& rows) {
  const NodeId a = any(rows);
  const std::int64_t out = 4 + 2 * static_cast<std::int64_t>(dice_.below(4));
  NodeId w = weight_for(width(a), out);
  if (dice_.one_in(4)) w = call("aten.tanh.default", {arg(w)});
  return call("aten.mm.default", {arg(a), arg(w)});
}

NodeId RowCode::biased(const RowPool& rows) {
  const NodeId a = any(rows);
  const NodeId row = call("aten.select.int", {arg(weight_for(width(a), width(a))),
                                              build_.arg(std::int64_t{0}), build_.arg(std::int64_t{0})});
  return call(dice_.one_in(2) ? "aten.add.Tensor" : "aten.mul.Tensor", {arg(a), arg(row)});
}

NodeId RowCode::top(const RowPool& rows) {
  const NodeId a = any(rows);
  const NodeId pair =
      dice_.one_in(3)
          ? call("aten.sort.stable", {arg(a)},
                 {{"stable", build_.flag(true)}, {"dim", build_.arg(std::int64_t{-1})}})
          : call("aten.topk.default", {arg(a), build_.arg(std::int64_t{4}), build_.arg(std::int64_t{-1}),
                                       build_.flag(true), build_.flag(true)});
  if (dice_.one_in(2)) return item(pair, 0);
  const NodeId index = item(pair, 1);
  if (dice_.one_in(2)) return call("aten.gather.default", {arg(a), build_.arg(std::int64_t{1}), arg(index)});
  const NodeId zeros = call("aten.zeros_like.default", {arg(a)});
  return call("aten.scatter.value", {arg(zeros), build_.arg(std::int64_t{1}), arg(index), build_.arg(1.0)});
}

NodeId RowCode::scanned(const RowPool& rows) {
  return call("aten.cumsum.default", {arg(any(rows)), build_.arg(std::int64_t{1})});
}

NodeId RowCode::cast(const RowPool& rows) {
  return to(to(any(rows), dice_.one_in(3) ? "torch.float16" : "torch.bfloat16"), kF32);
}

NodeId RowCode::rotated(const RowPool& rows) {
  const NodeId a = any(rows);
  const NodeId pairs = call("aten.reshape.default", {arg(a), list({-1, width(a) / 2, 2})});
  // A complex number needs its two parts side by side, at an even place.
  const NodeId dense = call("aten.clone.default", {arg(pairs)}, {{"memory_format", contiguous()}});
  const NodeId z = call("aten.view_as_complex.default", {arg(dense)});
  const NodeId other = dice_.one_in(2) ? z : call("aten._conj.default", {arg(z)});
  const NodeId r = call("aten.view_as_real.default", {arg(call("aten.mul.Tensor", {arg(z), arg(other)}))});
  return call("aten.reshape.default", {arg(r), list({-1, width(a)})});
}

NodeId RowCode::normalised(const RowPool& rows) {
  const NodeId a = any(rows);
  const NodeId gain = call("aten.select.int", {arg(weight_for(width(a), width(a))),
                                               build_.arg(std::int64_t{0}), build_.arg(std::int64_t{1})});
  return item(call("aten._fused_rms_norm.default", {arg(a), list({width(a)}), arg(gain), build_.arg(1e-5)}),
              0);
}

NodeId RowCode::batched(const RowPool& rows) {
  const NodeId a = any(rows);
  const NodeId b = call("aten.reshape.default", {arg(a), list({-1, 2, width(a) / 2})});
  const NodeId c =
      call("aten.transpose.int", {arg(b), build_.arg(std::int64_t{1}), build_.arg(std::int64_t{2})});
  const NodeId d = call("aten.bmm.default", {arg(b), arg(c)});  // [n, 2, 2]
  return call("aten.reshape.default", {arg(d), list({-1, 4})});
}

NodeId RowCode::gradient(const RowPool& rows) {
  const NodeId a = any(rows), b = like(rows, a);
  static constexpr std::array<std::string_view, 3> kOps = {
      "aten.silu_backward.default", "aten.sigmoid_backward.default", "aten.tanh_backward.default"};
  switch (dice_.below(4)) {
    case 0:
      return call("aten.threshold_backward.default", {arg(a), arg(b), build_.arg(std::int64_t{0})});
    case 1:
      return call("aten._softmax_backward_data.default",
                  {arg(a), arg(b), build_.arg(std::int64_t{-1}), build_.dtype(kF32)});
    default:
      return call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(a), arg(b)});
  }
}

NodeId RowCode::by_table(const RowPool& rows) {
  const NodeId a = any(rows);
  return make_elementwise_call(build_, dice_, a, like(rows, a));
}

NodeId RowCode::integers(NodeId a, double below) {
  const NodeId clamped = call("aten.clamp.default", {arg(call("aten.abs.default", {arg(a)})), build_.arg(0.0),
                                                     build_.arg(below - 1)});
  return to(clamped, kI64);
}

NodeId RowCode::looked_up(const RowPool& rows) {
  const NodeId a = any(rows);
  if (dice_.one_in(2)) {
    const NodeId column =
        call("aten.select.int", {arg(a), build_.arg(std::int64_t{1}), build_.arg(std::int64_t{0})});
    return call("aten.embedding.default", {arg(weight_for(12, width(a))), arg(integers(column, 12))});
  }
  const NodeId columns =
      call("aten.arange.default", {build_.arg(width(a))}, {{"device", build_.device("cuda:0")}});
  return call("aten.index_select.default", {arg(a), build_.arg(std::int64_t{1}), arg(columns)});
}

NodeId RowCode::select_one() {
  const NodeId row = call("aten.select.int",
                          {arg(weight_for(4, 4)), build_.arg(std::int64_t{0}), build_.arg(std::int64_t{0})});
  return call("aten.select.int", {arg(row), build_.arg(std::int64_t{0}), build_.arg(std::int64_t{0})});
}

NodeId RowCode::largest(const RowPool& rows) {
  const NodeId a = any(rows);
  const NodeId pair = call("aten.max.dim", {arg(a), build_.arg(std::int64_t{1}), build_.flag(true)});
  return call("aten.sub.Tensor", {arg(a), arg(item(pair, 0))});
}

NodeId RowCode::to(NodeId a, std::string_view dtype) {
  return call("aten._to_copy.default", {arg(a)}, {{"dtype", build_.dtype(dtype)}});
}

NodeId RowCode::widened_even(NodeId a) {
  return width(a) % 2 == 0 && width(a) >= 4
             ? a
             : call("aten.mm.default", {arg(a), arg(weight_for(width(a), kResidualWidth))});
}

}  // namespace epweave
