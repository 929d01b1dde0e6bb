#include "testing/random_graph.h"

#include <fmt/format.h>

#include <array>
#include <span>

#include "testing/attention_calls.h"
#include "testing/dice.h"
#include "testing/elementwise_calls.h"
#include "testing/grid_calls.h"
#include "testing/odd_calls.h"
#include "testing/step_builder.h"

namespace epweave {
namespace {

constexpr std::string_view kF32 = "torch.float32";
constexpr std::string_view kI64 = "torch.int64";
constexpr std::int64_t kVocabulary = 16;
constexpr std::int64_t kWidth = 8;    // of the residual stream
constexpr std::int64_t kExperts = 2;  // one per rank

// Rows of one kind: token slots in order, sorted slots, or received rows. All are f32[extent, width].
struct Rows {
  std::string extent;
  std::vector<NodeId> values;
};

// Random code on rows. Each operation takes values from the pool and adds what it computes.
class RowCode {
 public:
  RowCode(StepBuilder& build, Dice& dice) : build_(build), dice_(dice) {}
  // Makes no rows of pieces of others, which chunk refuses where a part has them in an order of its own.
  void keep_rows_whole() { regroups_rows_ = false; }

  void add_weight(NodeId weight) { weights_.push_back(weight); }
  NodeId weight() const { return weights_.front(); }

  // A few operations; the last result.
  NodeId grow(Rows& rows, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) rows.values.push_back(bounded(step(rows)));
    return rows.values.back();
  }

  // The value with the residual stream's width.
  NodeId widened(NodeId a) {
    if (width(a) == kWidth) return a;
    return call("aten.mm.default", {arg(a), arg(weight_for(width(a), kWidth))});
  }

  // [in, out], from the weights at hand.
  NodeId weight_for(std::int64_t in, std::int64_t out) {
    // Weights are f32[12, 12]: what is needed is cut out.
    NodeId w = dice_.pick(weights_);
    if (dice_.one_in(3)) w = call("aten.t.default", {arg(w)});
    w = call("aten.slice.Tensor",
             {arg(w), build_.arg(std::int64_t{0}), build_.arg(std::int64_t{0}), build_.arg(in)});
    w = call("aten.slice.Tensor",
             {arg(w), build_.arg(std::int64_t{1}), build_.arg(std::int64_t{0}), build_.arg(out)});
    return w;
  }

  // A sum over the rows: a weight's gradient f32[w, v], or f32[w].
  NodeId partial(const Rows& rows) {
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

  Arg arg(NodeId id) const { return build_.arg(id); }
  Arg list(const std::vector<std::int64_t>& items) const {
    std::vector<Arg> args;
    for (std::int64_t item : items) args.push_back(build_.arg(item));
    return build_.list(args);
  }
  NodeId call(std::string_view target, const std::vector<Arg>& args, const StepBuilder::Keywords& kw = {}) {
    return build_.call(target, args, kw);
  }
  NodeId item(NodeId tuple, std::int64_t i) { return call("operator.getitem", {arg(tuple), build_.arg(i)}); }
  std::int64_t width(NodeId a) const { return build_.number(a, 1).value(); }

 private:
  using Step = NodeId (RowCode::*)(const Rows&);

  NodeId step(const Rows& rows) {
    static constexpr Step kSteps[] = {
        &RowCode::unary,    &RowCode::unary,       &RowCode::composed,   &RowCode::binary,
        &RowCode::binary,   &RowCode::with_number, &RowCode::chosen,     &RowCode::softmax,
        &RowCode::reduced,  &RowCode::folded,      &RowCode::transposed, &RowCode::cut,
        &RowCode::split,    &RowCode::product,     &RowCode::product,    &RowCode::biased,
        &RowCode::top,      &RowCode::scanned,     &RowCode::selected,   &RowCode::cast,
        &RowCode::squeezed, &RowCode::rotated,     &RowCode::normalised, &RowCode::made,
        &RowCode::padded,   &RowCode::batched,     &RowCode::gradient,   &RowCode::by_size,
        &RowCode::permuted, &RowCode::logical,     &RowCode::by_table,   &RowCode::by_table,
        &RowCode::by_table, &RowCode::by_table,    &RowCode::by_table,   &RowCode::looked_up,
        &RowCode::filled,   &RowCode::shaped,      &RowCode::largest,    &RowCode::by_number,
    };
    const Step picked = dice_.pick(std::span<const Step>(kSteps));
    const bool may_regroup =
        picked == &RowCode::by_size || picked == &RowCode::by_number || picked == &RowCode::filled;
    return (this->*(may_regroup && !regroups_rows_ ? &RowCode::unary : picked))(rows);
  }

  // Keeps numbers moderate.
  NodeId bounded(NodeId a) {
    switch (dice_.below(4)) {
      case 0:
        return call("aten.tanh.default", {arg(a)});
      case 1:
        return call("aten.clamp.default", {arg(a), build_.arg(-4.0), build_.arg(4.0)});
      default:
        return a;
    }
  }

  NodeId any(const Rows& rows) { return dice_.pick(rows.values); }
  // Another value of the same width.
  NodeId like(const Rows& rows, NodeId a) {
    for (int i = 0; i < 4; ++i)
      if (const NodeId b = any(rows); width(b) == width(a)) return b;
    return a;
  }

  NodeId unary(const Rows& rows) {
    static constexpr std::array<std::string_view, 12> kOps = {
        "aten.neg.default",  "aten.sigmoid.default", "aten.silu.default",  "aten.relu.default",
        "aten.abs.default",  "aten.sin.default",     "aten.cos.default",   "aten.tanh.default",
        "aten.sign.default", "aten.floor.default",   "aten.clone.default", "aten.detach.default"};
    return call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(any(rows))});
  }

  // Functions that need arguments of one sign.
  NodeId composed(const Rows& rows) {
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

  NodeId binary(const Rows& rows) {
    static constexpr std::array<std::string_view, 5> kOps = {"aten.add.Tensor", "aten.sub.Tensor",
                                                             "aten.mul.Tensor", "aten.maximum.default",
                                                             "aten.minimum.default"};
    const NodeId a = any(rows);
    return call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(a), arg(like(rows, a))});
  }

  NodeId with_number(const Rows& rows) {
    static constexpr std::array<std::string_view, 5> kOps = {
        "aten.add.Tensor", "aten.mul.Tensor", "aten.div.Tensor", "aten.sub.Tensor", "aten.rsub.Scalar"};
    return call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(any(rows)), build_.arg(1.5)});
  }

  NodeId chosen(const Rows& rows) {
    const NodeId a = any(rows), b = like(rows, a);
    static constexpr std::array<std::string_view, 4> kOps = {"aten.gt.Scalar", "aten.lt.Scalar",
                                                             "aten.ge.Scalar", "aten.le.Scalar"};
    const NodeId mask =
        call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(a), build_.arg(std::int64_t{0})});
    return dice_.one_in(2)
               ? call("aten.where.self", {arg(mask), arg(a), arg(b)})
               : call("aten.masked_fill.Scalar", {arg(b), arg(mask), build_.arg(std::int64_t{0})});
  }

  NodeId logical(const Rows& rows) {
    const NodeId a = any(rows), b = like(rows, a);
    const NodeId x = call("aten.gt.Tensor", {arg(a), arg(b)});
    const NodeId y = call("aten.lt.Scalar", {arg(b), build_.arg(std::int64_t{1})});
    static constexpr std::array<std::string_view, 3> kOps = {
        "aten.logical_and.default", "aten.bitwise_or.Tensor", "aten.logical_xor.default"};
    const NodeId both = call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(x), arg(y)});
    return to(call("aten.logical_not.default", {arg(both)}), kF32);
  }

  NodeId softmax(const Rows& rows) {
    return call(dice_.one_in(3) ? "aten._log_softmax.default" : "aten._softmax.default",
                {arg(any(rows)), build_.arg(std::int64_t{-1}), build_.flag(false)});
  }

  NodeId reduced(const Rows& rows) {
    static constexpr std::array<std::string_view, 3> kOps = {"aten.sum.dim_IntList", "aten.mean.dim",
                                                             "aten.amax.default"};
    const NodeId a = any(rows);
    const NodeId r =
        call(dice_.pick(std::span<const std::string_view>(kOps)), {arg(a), list({1}), build_.flag(true)});
    if (dice_.one_in(2)) return call("aten.sub.Tensor", {arg(a), arg(r)});
    return call("aten.expand.default", {arg(r), list({-1, width(a)})});
  }

  NodeId folded(const Rows& rows) {
    const NodeId a = any(rows);
    const NodeId b = call("aten.reshape.default", {arg(a), list({-1, 2, width(a) / 2})});
    const NodeId c =
        dice_.one_in(2)
            ? call("aten.transpose.int", {arg(b), build_.arg(std::int64_t{1}), build_.arg(std::int64_t{2})})
            : call("aten.neg.default", {arg(b)});
    return call("aten.reshape.default", {arg(c), list({-1, width(a)})});
  }

  NodeId permuted(const Rows& rows) {
    const NodeId a = any(rows);
    const NodeId b = call("aten.reshape.default", {arg(a), list({-1, 2, width(a) / 2})});
    const NodeId c = call("aten.permute.default", {arg(b), list({1, 0, 2})});
    const NodeId d = call("aten.sigmoid.default", {arg(c)});
    return widened_even(call("aten.sum.dim_IntList", {arg(d), list({0})}));
  }

  NodeId transposed(const Rows& rows) {
    const NodeId b = call("aten.t.default", {arg(any(rows))});
    const NodeId c = call("aten.silu.default", {arg(b)});
    const NodeId d = call("aten.t.default", {arg(c)});
    if (!dice_.one_in(2)) return d;
    return call("aten.clone.default", {arg(d)}, {{"memory_format", contiguous()}});
  }

  NodeId cut(const Rows& rows) {
    const NodeId a = any(rows);
    const std::int64_t half = width(a) / 2;
    auto slice = [&](std::int64_t from, std::int64_t to) {
      return arg(
          call("aten.slice.Tensor", {arg(a), build_.arg(std::int64_t{1}), build_.arg(from), build_.arg(to)}));
    };
    return call("aten.cat.default",
                {build_.list({slice(half, width(a)), slice(0, half)}), build_.arg(std::int64_t{1})});
  }

  NodeId split(const Rows& rows) {
    const NodeId a = any(rows);
    const NodeId pieces =
        call("aten.split_with_sizes.default", {arg(a), list({2, width(a) - 2}), build_.arg(std::int64_t{1})});
    const NodeId sum = call("aten.sum.dim_IntList", {arg(item(pieces, 0)), list({1}), build_.flag(true)});
    return widened_even(call("aten.mul.Tensor", {arg(item(pieces, 1)), arg(sum)}));
  }

  NodeId product(const Rows& rows) {
    const NodeId a = any(rows);
    const std::int64_t out = 4 + 2 * static_cast<std::int64_t>(dice_.below(4));
    NodeId w = weight_for(width(a), out);
    if (dice_.one_in(4)) w = call("aten.tanh.default", {arg(w)});
    return call("aten.mm.default", {arg(a), arg(w)});
  }

  NodeId biased(const Rows& rows) {
    const NodeId a = any(rows);
    const NodeId row = call("aten.select.int", {arg(weight_for(width(a), width(a))),
                                                build_.arg(std::int64_t{0}), build_.arg(std::int64_t{0})});
    return call(dice_.one_in(2) ? "aten.add.Tensor" : "aten.mul.Tensor", {arg(a), arg(row)});
  }

  NodeId top(const Rows& rows) {
    const NodeId a = any(rows);
    const NodeId pair =
        dice_.one_in(3)
            ? call("aten.sort.stable", {arg(a)},
                   {{"stable", build_.flag(true)}, {"dim", build_.arg(std::int64_t{-1})}})
            : call("aten.topk.default", {arg(a), build_.arg(std::int64_t{4}), build_.arg(std::int64_t{-1}),
                                         build_.flag(true), build_.flag(true)});
    if (dice_.one_in(2)) return item(pair, 0);
    const NodeId index = item(pair, 1);
    if (dice_.one_in(2))
      return call("aten.gather.default", {arg(a), build_.arg(std::int64_t{1}), arg(index)});
    const NodeId zeros = call("aten.zeros_like.default", {arg(a)});
    return call("aten.scatter.value", {arg(zeros), build_.arg(std::int64_t{1}), arg(index), build_.arg(1.0)});
  }

  NodeId scanned(const Rows& rows) {
    return call("aten.cumsum.default", {arg(any(rows)), build_.arg(std::int64_t{1})});
  }

  NodeId selected(const Rows& rows) {
    const NodeId a = any(rows);
    const NodeId column =
        call("aten.select.int", {arg(a), build_.arg(std::int64_t{1}), build_.arg(std::int64_t{1})});
    const NodeId b = call("aten.unsqueeze.default", {arg(column), build_.arg(std::int64_t{1})});
    return call("aten.mul.Tensor", {arg(a), arg(b)});
  }

  NodeId cast(const Rows& rows) {
    return to(to(any(rows), dice_.one_in(3) ? "torch.float16" : "torch.bfloat16"), kF32);
  }

  NodeId squeezed(const Rows& rows) {
    const NodeId b = call("aten.unsqueeze.default", {arg(any(rows)), build_.arg(std::int64_t{1})});
    const NodeId c = call("aten.relu.default", {arg(b)});
    return call("aten.squeeze.dim", {arg(c), build_.arg(std::int64_t{1})});
  }

  NodeId rotated(const Rows& rows) {
    const NodeId a = any(rows);
    const NodeId pairs = call("aten.reshape.default", {arg(a), list({-1, width(a) / 2, 2})});
    // A complex number needs its two parts side by side, at an even place.
    const NodeId dense = call("aten.clone.default", {arg(pairs)}, {{"memory_format", contiguous()}});
    const NodeId z = call("aten.view_as_complex.default", {arg(dense)});
    const NodeId other = dice_.one_in(2) ? z : call("aten._conj.default", {arg(z)});
    const NodeId r = call("aten.view_as_real.default", {arg(call("aten.mul.Tensor", {arg(z), arg(other)}))});
    return call("aten.reshape.default", {arg(r), list({-1, width(a)})});
  }

  NodeId normalised(const Rows& rows) {
    const NodeId a = any(rows);
    const NodeId gain = call("aten.select.int", {arg(weight_for(width(a), width(a))),
                                                 build_.arg(std::int64_t{0}), build_.arg(std::int64_t{1})});
    return item(call("aten._fused_rms_norm.default", {arg(a), list({width(a)}), arg(gain), build_.arg(1e-5)}),
                0);
  }

  NodeId made(const Rows& rows) {
    const NodeId a = any(rows);
    NodeId b;
    switch (dice_.below(4)) {
      case 0:
        b = call("aten.full_like.default", {arg(a), build_.arg(0.5)});
        break;
      case 1:
        b = call("aten.ones_like.default", {arg(a)});
        break;
      case 2: {
        const NodeId n = call("aten.sym_size.int", {arg(a), build_.arg(std::int64_t{0})});
        b = call("aten.new_ones.default", {arg(a), build_.list({arg(n), build_.arg(width(a))})});
        break;
      }
      default: {
        const NodeId n = call("aten.sym_size.int", {arg(a), build_.arg(std::int64_t{0})});
        b = call("aten.full.default", {build_.list({arg(n), build_.arg(width(a))}), build_.arg(2.0)},
                 {{"dtype", build_.dtype(kF32)}, {"device", build_.device("cuda:0")}});
      }
    }
    return call("aten.mul.Tensor", {arg(a), arg(b)});
  }

  NodeId padded(const Rows& rows) {
    const NodeId a = any(rows);
    const NodeId b = call("aten.constant_pad_nd.default", {arg(a), list({0, 2}), build_.arg(1.0)});
    return call("aten.slice.Tensor",
                {arg(b), build_.arg(std::int64_t{1}), build_.arg(std::int64_t{2}), build_.arg(width(a) + 2)});
  }

  NodeId batched(const Rows& rows) {
    const NodeId a = any(rows);
    const NodeId b = call("aten.reshape.default", {arg(a), list({-1, 2, width(a) / 2})});
    const NodeId c =
        call("aten.transpose.int", {arg(b), build_.arg(std::int64_t{1}), build_.arg(std::int64_t{2})});
    const NodeId d = call("aten.bmm.default", {arg(b), arg(c)});  // [n, 2, 2]
    return call("aten.reshape.default", {arg(d), list({-1, 4})});
  }

  NodeId gradient(const Rows& rows) {
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

  // Row counts as arguments.
  NodeId by_size(const Rows& rows) {
    const NodeId a = any(rows);
    const NodeId n = call("aten.sym_size.int", {arg(a), build_.arg(std::int64_t{0})});
    const NodeId m = call("operator.mul", {arg(n), build_.arg(std::int64_t{2})});
    const NodeId b = call("aten.reshape.default", {arg(a), build_.list({arg(m), build_.arg(width(a) / 2)})});
    const NodeId c = call("aten.abs.default", {arg(b)});
    return call("aten.reshape.default", {arg(c), build_.list({arg(n), build_.arg(width(a))})});
  }

  NodeId by_table(const Rows& rows) {
    const NodeId a = any(rows);
    return make_elementwise_call(build_, dice_, a, like(rows, a));
  }

  // Small integers from 0 on, one for each row or element.
  NodeId integers(NodeId a, double below) {
    const NodeId clamped = call("aten.clamp.default", {arg(call("aten.abs.default", {arg(a)})),
                                                       build_.arg(0.0), build_.arg(below - 1)});
    return to(clamped, kI64);
  }

  // Entries of a table that all parts share, or of the same few columns.
  NodeId looked_up(const Rows& rows) {
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

  // New rows: zeros and a number in them, or memory that is not read.
  NodeId filled(const Rows& rows) {
    const NodeId a = any(rows);
    const Arg size = build_.list(
        {arg(call("aten.sym_size.int", {arg(a), build_.arg(std::int64_t{0})})), build_.arg(width(a))});
    const Arg strides = build_.list({build_.arg(width(a)), build_.arg(std::int64_t{1})});
    const StepBuilder::Keywords on_device = {{"dtype", build_.dtype(kF32)},
                                             {"device", build_.device("cuda:0")}};
    const NodeId first = integers(
        call("aten.slice.Tensor",
             {arg(a), build_.arg(std::int64_t{1}), build_.arg(std::int64_t{0}), build_.arg(std::int64_t{1})}),
        4);
    auto marked = [&](NodeId zeros) {
      const NodeId marks =
          call("aten.scatter_.value", {arg(zeros), build_.arg(std::int64_t{1}), arg(first), build_.arg(1.0)});
      return call("aten.mul.Tensor", {arg(a), arg(marks)});
    };
    auto covered = [&](NodeId empty) {
      const NodeId always =
          call("aten.ge.Scalar", {arg(call("aten.abs.default", {arg(a)})), build_.arg(-1.0)});
      return call("aten.masked_fill.Tensor", {arg(call("aten.where.self", {arg(always), arg(a), arg(empty)})),
                                              arg(call("aten.isnan.default", {arg(a)})), arg(select_one())});
    };
    switch (dice_.below(9)) {
      case 0:
        return marked(call("aten.new_zeros.default", {arg(a), size}));
      case 1:
        return marked(call("aten.zeros.default", {size}, on_device));
      case 2:
        return call("aten.mul.Tensor", {arg(a), arg(call("aten.ones.default", {size}, on_device))});
      case 3:
        return call("aten.mul.Tensor",
                    {arg(a), arg(call("aten.new_full.default", {arg(a), size, build_.arg(0.5)}))});
      case 4:
        return covered(call("aten.empty.memory_format", {size}, on_device));
      case 5:
        return covered(call("aten.empty_like.default", {arg(a)}));
      case 6:
        return covered(call("aten.empty_strided.default", {size, strides}, on_device));
      case 7:
        return covered(call("aten.new_empty_strided.default", {arg(a), size, strides}));
      default: {
        const NodeId n = call("aten.sym_numel.default", {arg(a)});
        const NodeId flat = call("aten.reshape.default", {arg(a), build_.list({arg(n)})});
        return call("aten.reshape.default", {arg(call("aten.neg.default", {arg(flat)})), size});
      }
    }
  }
  NodeId select_one() {
    const NodeId row = call(
        "aten.select.int", {arg(weight_for(4, 4)), build_.arg(std::int64_t{0}), build_.arg(std::int64_t{0})});
    return call("aten.select.int", {arg(row), build_.arg(std::int64_t{0}), build_.arg(std::int64_t{0})});
  }

  NodeId shaped(const Rows& rows) {
    const NodeId a = any(rows);
    switch (dice_.below(5)) {
      case 0: {
        const NodeId b = call("aten.view.default",
                              {arg(call("aten.clone.default", {arg(a)}, {{"memory_format", contiguous()}})),
                               list({-1, 2, width(a) / 2})});
        return call("aten._unsafe_view.default",
                    {arg(call("aten.neg.default", {arg(b)})), list({-1, width(a)})});
      }
      case 1: {
        const NodeId b = call("aten.unsqueeze.default", {arg(a), build_.arg(std::int64_t{0})});
        return call("aten.squeeze.dims", {arg(call("aten.relu.default", {arg(b)})), list({0})});
      }
      case 2: {
        const NodeId pieces =
            call("aten.split.Tensor", {arg(a), build_.arg(width(a) / 2), build_.arg(std::int64_t{1})});
        return call("aten.cat.default",
                    {build_.list({arg(item(pieces, 1)), arg(item(pieces, 0))}), build_.arg(std::int64_t{1})});
      }
      case 3: {
        const NodeId n = call("aten.sym_size.int", {arg(a), build_.arg(std::int64_t{0})});
        const Arg size = build_.list({arg(n), build_.arg(width(a) + 2)});
        const NodeId wide = call("aten.slice_backward.default",
                                 {arg(a), size, build_.arg(std::int64_t{1}), build_.arg(std::int64_t{2}),
                                  build_.arg(width(a) + 2), build_.arg(std::int64_t{1})});
        return call("aten.slice.Tensor", {arg(wide), build_.arg(std::int64_t{1}), build_.arg(std::int64_t{1}),
                                          build_.arg(width(a) + 1)});
      }
      default: {
        const NodeId gain = call(
            "aten.select.int",
            {arg(weight_for(width(a), width(a))), build_.arg(std::int64_t{0}), build_.arg(std::int64_t{1})});
        const NodeId norm =
            call("aten._fused_rms_norm.default", {arg(a), list({width(a)}), arg(gain), build_.arg(1e-5)});
        const NodeId back = call("aten._fused_rms_norm_backward.default",
                                 {arg(like(rows, a)), arg(a), list({width(a)}), arg(item(norm, 1)), arg(gain),
                                  build_.list({build_.flag(true), build_.flag(true)})});
        return item(back, 0);
      }
    }
  }

  NodeId largest(const Rows& rows) {
    const NodeId a = any(rows);
    const NodeId pair = call("aten.max.dim", {arg(a), build_.arg(std::int64_t{1}), build_.flag(true)});
    return call("aten.sub.Tensor", {arg(a), arg(item(pair, 0))});
  }

  // Divided by a number of the whole.
  NodeId scaled(NodeId a, NodeId n) {
    const NodeId number = call("aten.scalar_tensor.default", {arg(n)},
                               {{"dtype", build_.dtype(kF32)}, {"device", build_.device("cuda:0")}});
    return call("aten.div.Tensor", {arg(a), arg(number)});
  }

  // Arithmetic on row counts.
  NodeId by_number(const Rows& rows) {
    const NodeId a = any(rows);
    const NodeId n = call("aten.sym_size.int", {arg(a), build_.arg(std::int64_t{0})});
    const NodeId twice = call("operator.add", {arg(n), arg(n)});
    switch (dice_.below(6)) {
      case 4:
        return scaled(a,
                      call("operator.add", {arg(call("operator.mod", {arg(n), build_.arg(std::int64_t{7})})),
                                            build_.arg(std::int64_t{1})}));
      case 5:
        return scaled(a,
                      dice_.one_in(2) ? n : call("operator.truediv", {arg(n), build_.arg(std::int64_t{4})}));
      case 0: {
        const NodeId same = call("operator.sub", {arg(twice), arg(n)});
        return call("aten.reshape.default", {arg(a), build_.list({arg(same), build_.arg(width(a))})});
      }
      case 1: {
        const NodeId same = call("operator.neg", {arg(call("operator.neg", {arg(n)}))});
        return call("aten.reshape.default", {arg(a), build_.list({arg(same), build_.arg(width(a))})});
      }
      case 2: {
        const NodeId half = call("operator.floordiv", {arg(twice), build_.arg(std::int64_t{2})});
        return call("aten.reshape.default", {arg(a), build_.list({arg(half), build_.arg(width(a))})});
      }
      default: {
        const NodeId b =
            call("aten.reshape.default", {arg(a), build_.list({arg(twice), build_.arg(width(a) / 2)})});
        return call("aten.reshape.default", {arg(call("aten.sin.default", {arg(b)})), list({-1, width(a)})});
      }
    }
  }

  NodeId to(NodeId a, std::string_view dtype) {
    return call("aten._to_copy.default", {arg(a)}, {{"dtype", build_.dtype(dtype)}});
  }
  Arg contiguous() { return build_.memory_format("torch.contiguous_format"); }

  // Other steps halve the width.
  NodeId widened_even(NodeId a) {
    return width(a) % 2 == 0 && width(a) >= 4
               ? a
               : call("aten.mm.default", {arg(a), arg(weight_for(width(a), kWidth))});
  }

  StepBuilder& build_;
  Dice& dice_;
  bool regroups_rows_ = true;
  std::vector<NodeId> weights_;
};

// What a routing module keeps for its backward pass.
struct Routing {
  NodeId order;           // i64[n*k]: where each sorted slot was
  NodeId arrived_counts;  // i64[ranks]: how many rows each rank sent
  NodeId slot_token;      // i64[n*k]: the token of each sorted slot
  std::array<NodeId, kExperts> sent, received;
  Rows slots, arrived;
};

class StepGenerator {
 public:
  StepGenerator(std::uint64_t seed, std::optional<std::size_t> layers)
      : dice_(seed),
        build_(kRanks),
        code_(build_, dice_),
        layout_(layers ? TokenLayout::kFlat : pick_layout(dice_)),
        grid_(build_, dice_, layout_),
        attention_(build_, dice_, layout_) {
    layers_ = 1 + dice_.below(2);
    if (layers) {
      layers_ = *layers;
      code_.keep_rows_whole();
    }
    attends_ = !layers && dice_.one_in(3);
    counts_in_floats_ = !layers && dice_.one_in(15);
    for (std::size_t layer = 0; layer < layers_; ++layer) is_moe_.push_back(!dice_.one_in(4));
    choices_ = 1 + static_cast<std::int64_t>(dice_.below(2));
    if (!layers && !is_grid() && dice_.one_in(3)) odd_call_ = dice_.below(kOddCalls);
  }

  RandomStep run() {
    declare_symbols();
    make_inputs();
    forward();
    backward();
    RandomStep step{build_.finish(results_)};
    for (bool moe : is_moe_) step.has_exchange |= moe;
    step.has_attention = attends_;
    for (const auto& attention : attentions_) {
      step.crosses_documents |= attention && attention->crosses_documents;
      step.has_dropout |= attention && attention->drops;
    }
    step.divides_sequence = layout_ == TokenLayout::kSequence;
    return step;
  }

 private:
  static constexpr std::uint32_t kRanks = 2;

  static TokenLayout pick_layout(Dice& dice) {
    if (!dice.one_in(3)) return TokenLayout::kFlat;
    return dice.one_in(3) ? TokenLayout::kBatch : TokenLayout::kSequence;
  }
  bool is_grid() const { return layout_ != TokenLayout::kFlat; }

  std::string symbol(std::size_t layer, std::size_t i) const { return fmt::format("u{}", 1 + 4 * layer + i); }

  void declare_symbols() {
    build_.symbol({.name = "u0", .hint = 48, .divisor = 48});
    for (std::size_t layer = 0; layer < layers_; ++layer) {
      const std::string a = symbol(layer, 0), b = symbol(layer, 1);
      names_.push_back(a);
      build_.symbol({.name = a});
      const std::int64_t slots_of_u0 = choices_ * (is_grid() ? kGridExtent : 1);
      const std::string slots = slots_of_u0 == 1 ? "u0" : fmt::format("{}*u0", slots_of_u0);
      build_.symbol({.name = b, .asserts = {fmt::format("Eq({} + {}, {})", a, b, slots)}});
      build_.symbol({.name = symbol(layer, 2)});
      build_.symbol({.name = symbol(layer, 3)});
    }
  }

  void make_inputs() {
    embedding_ = build_.input("embedding", build_.tensor(kF32, sizes({kVocabulary, kWidth})),
                              {.role = "parameter", .fqn = "tok_embeddings.weight"});
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string name = fmt::format("layers.0.w{}.weight", i);
      code_.add_weight(build_.input(fmt::format("weight_{}", i), build_.tensor(kF32, sizes({12, 12})),
                                    {.role = "parameter", .fqn = name}));
    }
    for (std::size_t layer = 0; layer < layers_; ++layer)
      counters_.push_back(
          build_.input(fmt::format("counter_{}", layer), build_.tensor(kF32, sizes({kExperts})),
                       {.role = "buffer", .fqn = fmt::format("layers.{}.moe.counter", layer)}));
    const std::string plain = fmt::format("{}", kGridExtent);
    std::vector<std::string> shape = {"u0"};
    if (layout_ == TokenLayout::kBatch) shape = {"u0", plain};
    if (layout_ == TokenLayout::kSequence) shape = {plain, "u0"};
    const std::int64_t bound_dim = layout_ == TokenLayout::kSequence ? 1 : 0;
    tokens_ = build_.input("tokens", build_.tensor(kI64, shape),
                           {.role = "user", .which = "tokens", .bound_dim = bound_dim}, "u0");
  }

  static std::vector<std::string> sizes(const std::vector<std::int64_t>& numbers) {
    std::vector<std::string> texts;
    for (std::int64_t n : numbers) texts.push_back(fmt::format("{}", n));
    return texts;
  }

  std::string module(std::size_t layer) const {
    return fmt::format("layers.{}.{}", layer, is_moe_[layer] ? "moe" : "feed_forward");
  }
  Arg arg(NodeId id) const { return build_.arg(id); }
  Arg number(std::int64_t n) const { return build_.arg(n); }
  NodeId call(std::string_view target, const std::vector<Arg>& args, const StepBuilder::Keywords& kw = {}) {
    return build_.call(target, args, kw);
  }

  void forward() {
    build_.in_module("tok_embeddings");
    stream_ = call("aten.embedding.default", {arg(embedding_), arg(tokens_)});
    build_.in_module("attention_masks");
    if (attends_) attention_.make_masks(tokens_);
    for (std::size_t layer = 0; layer < layers_; ++layer) {
      build_.in_module(fmt::format("layers.{}.norm", layer));
      Rows outside{"u0", {rows_of(stream_)}};
      const NodeId normed = code_.widened(code_.grow(outside, 1 + dice_.below(3)));
      const NodeId x = stream_of(normed);
      // Rows that were merged outside, and not just there, have an order that cannot be told.
      const bool is_merged_outside = is_grid() && dice_.one_in(12);
      build_.in_module(module(layer));
      const NodeId inside = is_merged_outside ? normed
                            : is_grid()       ? rows_of(grid_.grow(x, dice_.below(4)))
                                              : x;
      Rows rows{"u0", {inside}};
      code_.grow(rows, 2 + dice_.below(5));
      attend(rows);
      routings_.emplace_back();
      const NodeId y = is_moe_[layer] ? route(layer, rows) : code_.grow(rows, 1 + dice_.below(3));
      const NodeId out = stream_of(call("aten.neg.default", {arg(code_.widened(y))}));
      if (!is_grid()) build_.node(out).ep.ep = build_.word("compute");
      saved_.push_back(rows);
      if (odd_call_ && layer == 0) add_odd_call(layer, x);
      build_.in_module(fmt::format("layers.{}", layer));
      stream_ = call("aten.add.Tensor", {arg(x), arg(out)});
    }
    build_.in_module("loss");
    loss_ = call("aten.sum.default", {arg(call("aten.tanh.default", {arg(stream_)}))});
    results_.push_back({loss_, "loss", ""});
  }

  // The residual stream is a grid where the tokens are; modules compute on its rows.
  NodeId rows_of(NodeId stream) { return is_grid() ? grid_.merged(stream) : stream; }
  NodeId stream_of(NodeId rows) { return is_grid() ? grid_.unmerged(rows) : rows; }

  void attend(Rows& rows) {
    attentions_.emplace_back();
    if (!attends_) return;
    const auto operand = [&] { return code_.widened(dice_.pick(rows.values)); };
    const NodeId query = operand(), key = operand(), value = operand();
    attentions_.back() = attention_.forward(query, key, value);
    rows.values.push_back(attentions_.back()->rows);
  }

  void add_odd_call(std::size_t layer, NodeId stream) {
    const Routing& routing = routings_[layer];
    const bool has_slots = is_moe_[layer] && choices_ == 1;
    const std::string root = module(layer), outside = fmt::format("layers.{}.norm", layer);
    OddContext context{.tokens = tokens_,
                       .stream = stream,
                       .rows = call("aten.neg.default", {arg(stream)}),
                       .weight = code_.weight(),
                       .counter = counters_[layer],
                       .module = root,
                       .outside = outside};
    if (has_slots) {
      context.slots = code_.widened(routing.slots.values.front());
      context.order = routing.order;
    }
    if (const auto made = make_odd_call(build_, context, *odd_call_))
      results_.push_back({*made, "other", ""});
  }

  // Tokens to experts and back, as torchtitan writes it.
  NodeId route(std::size_t layer, Rows& rows) {
    Routing& routing = routings_[layer];
    const std::string root = module(layer);
    build_.in_module(root + ".router");
    const NodeId x = code_.widened(dice_.pick(rows.values));
    const NodeId logits = call("aten.mm.default", {arg(x), arg(code_.weight_for(kWidth, kExperts))});
    const NodeId scores = call("aten._softmax.default", {arg(logits), number(-1), build_.flag(false)});
    const NodeId top = call("aten.topk.default", {arg(scores), number(choices_), number(-1),
                                                  build_.flag(true), build_.flag(false)});
    const NodeId chosen = code_.item(top, 1);
    build_.in_module(root);
    const NodeId zeros = call("aten.zeros_like.default", {arg(scores)},
                              {{"dtype", build_.dtype(counts_in_floats_ ? kF32 : "torch.bool")}});
    const NodeId marks =
        call("aten.scatter.value",
             {arg(zeros), number(-1), arg(chosen), counts_in_floats_ ? build_.arg(1.0) : build_.flag(true)});
    const NodeId counts = call("aten.sum.dim_IntList", {arg(marks), code_.list({0})});
    call("aten.add_.Tensor", {arg(counters_[layer]), arg(counts)});
    build_.in_module(root + ".routed_experts");
    const NodeId keys = call("aten.reshape.default", {arg(chosen), code_.list({-1})});
    const NodeId sorted = call("aten.sort.stable", {arg(keys)}, {{"stable", build_.flag(true)}});
    const NodeId order = code_.item(sorted, 1);
    routing.order = order;
    routing.slot_token = call("aten.floor_divide.default", {arg(order), number(choices_)});
    const NodeId weights = call("aten.gather.default", {arg(scores), number(-1), arg(chosen)});
    const NodeId flat = call("aten.reshape.default", {arg(weights), code_.list({-1})});
    const NodeId slot_weight = call("aten.index.Tensor", {arg(flat), build_.list({arg(order)})});
    const NodeId slot_rows = call("aten.index.Tensor", {arg(x), build_.list({arg(routing.slot_token)})});
    exchange_counts(layer, counts);
    const std::string slots = build_.extent(slot_rows, 0);
    routing.slots = {slots, {slot_rows}};
    const NodeId send = code_.widened(code_.grow(routing.slots, dice_.below(3)));
    const NodeId arrived = exchange(send, routing.received, routing.sent, "dispatch");
    routing.arrived = {build_.extent(arrived, 0), {arrived}};
    build_.in_module(root + ".routed_experts.inner_experts");
    if (dice_.one_in(2)) routing.arrived.values.push_back(by_rank(routing, arrived));
    const NodeId computed = code_.widened(code_.grow(routing.arrived, 1 + dice_.below(4)));
    build_.in_module(root + ".routed_experts");
    const NodeId back = exchange(computed, routing.sent, routing.received, "combine");
    const NodeId column = call("aten.reshape.default", {arg(slot_weight), code_.list({-1, 1})});
    const NodeId weighted = call("aten.mul.Tensor", {arg(back), arg(column)});
    rows.values.push_back(restored(x, weighted, order, routing));
    return dice_.one_in(2) ? rows.values.back() : code_.grow(rows, 1 + dice_.below(2));
  }

  // Received rows come in groups, one from each rank.
  NodeId by_rank(const Routing& routing, NodeId rows) {
    const NodeId n = call("aten.sym_size.int", {arg(rows), number(0)});
    switch (dice_.below(4)) {
      case 0: {
        const NodeId weight = code_.weight_for(kWidth, kWidth);
        auto layer = [&](NodeId w) { return arg(call("aten.unsqueeze.default", {arg(w), number(0)})); };
        const NodeId weights =
            call("aten.cat.default", {build_.list({layer(weight), layer(weight)}), number(0)});
        return call("aten._grouped_mm.default", {arg(rows), arg(weights), arg(ends(routing))});
      }
      case 1: {
        const NodeId ranks =
            call("aten.repeat_interleave.Tensor", {arg(routing.arrived_counts)}, {{"output_size", arg(n)}});
        const NodeId table = code_.weight_for(12, kWidth);
        return call("aten.mul.Tensor",
                    {arg(rows), arg(call("aten.embedding.default", {arg(table), arg(ranks)}))});
      }
      case 2: {
        // The rows, one by one.
        const StepBuilder::Keywords on_device = {{"device", build_.device("cuda:0")}};
        const NodeId positions =
            dice_.one_in(3)   ? call("aten.arange.default", {arg(n)}, on_device)
            : dice_.one_in(2) ? call("aten.arange.start", {number(0), arg(n)}, on_device)
                              : call("aten.arange.start_step", {number(0), arg(n), number(1)}, on_device);
        return call("aten.index.Tensor", {arg(rows), build_.list({arg(positions)})});
      }
      default: {
        const NodeId ranks =
            call("aten.repeat_interleave.Tensor", {arg(routing.arrived_counts)}, {{"output_size", arg(n)}});
        const NodeId column = call("aten.unsqueeze.default", {arg(ranks), number(1)});
        return call("aten.masked_fill.Scalar",
                    {arg(rows), arg(call("aten.eq.Scalar", {arg(column), number(1)})), build_.arg(0.5)});
      }
    }
  }
  NodeId by_rank_gradient(const Routing& routing, NodeId a, NodeId b) {
    const NodeId columns = call("aten.t.default", {arg(code_.widened(a))});
    return call("aten._grouped_mm.default", {arg(columns), arg(code_.widened(b)), arg(ends(routing))});
  }
  NodeId ends(const Routing& routing) {
    return call("aten.cumsum.default", {arg(routing.arrived_counts), number(0)},
                {{"dtype", build_.dtype("torch.int32")}});
  }

  // Slots back to tokens: added to their rows, or put back to where they were and summed.
  NodeId restored(NodeId like, NodeId rows, NodeId order, const Routing& routing) {
    const NodeId positions = order ? order : routing.slot_token;
    if (order && dice_.one_in(2)) {
      const NodeId tokens = call("aten.sym_size.int", {arg(like), number(0)});
      const NodeId slots = call("operator.mul", {arg(tokens), number(choices_)});
      const NodeId empty =
          call("aten.new_empty.default", {arg(like), build_.list({arg(slots), number(kWidth)})});
      const NodeId put =
          call("aten.index_put_.default", {arg(empty), build_.list({arg(positions)}), arg(rows)});
      const NodeId by_token = call("aten.reshape.default", {arg(put), code_.list({-1, choices_, kWidth})});
      return call("aten.sum.dim_IntList", {arg(by_token), code_.list({1})});
    }
    const NodeId zeros = call("aten.zeros_like.default", {arg(like)});
    const NodeId column = call("aten.reshape.default", {arg(routing.slot_token), code_.list({-1, 1})});
    const NodeId index = call("aten.expand.default", {arg(column), code_.list({-1, kWidth})});
    if (dice_.one_in(3))
      return call("torchtitan.deterministic_scatter_add.default", {arg(zeros), arg(index), arg(rows)});
    if (dice_.one_in(3))
      return call("aten.index_put.default",
                  {arg(zeros), build_.list({arg(routing.slot_token)}), arg(rows), build_.flag(true)});
    return call("aten.scatter_add.default", {arg(zeros), number(0), arg(index), arg(rows)});
  }

  void exchange_counts(std::size_t layer, NodeId counts) {
    Routing& routing = routings_[layer];
    const NodeId numbers = call("aten._to_copy.default", {arg(counts)}, {{"dtype", build_.dtype(kI64)}});
    const Arg ones = code_.list({1, 1});
    const NodeId launch =
        call("_c10d_functional.all_to_all_single.default", {arg(numbers), ones, ones, build_.text("1")});
    build_.node(launch).ep.token_count_exchange = build_.word("dispatch");
    const NodeId other = call("_c10d_functional.wait_tensor.default", {arg(launch)});
    routing.arrived_counts = other;
    // The second copy makes the host wait for both.
    const NodeId sent = copy_to_host(numbers, "input"), received = copy_to_host(other, "output");
    read_counts(sent, {symbol(layer, 0), symbol(layer, 1)}, routing.sent);
    read_counts(received, {symbol(layer, 2), symbol(layer, 3)}, routing.received);
  }

  NodeId copy_to_host(NodeId counts, std::string_view which) {
    StepBuilder::Keywords keywords = {{"dtype", build_.dtype(kI64)}, {"device", build_.device("cpu")}};
    if (which == "input") keywords.push_back({"non_blocking", build_.flag(true)});
    const NodeId host = call("aten._to_copy.default", {arg(counts)}, keywords);
    build_.node(host).ep.token_count_sync = build_.word("dispatch");
    return host;
  }

  void read_counts(NodeId host, const std::array<std::string, kExperts>& symbols,
                   std::array<NodeId, kExperts>& sizes) {
    const NodeId each = call("aten.unbind.int", {arg(host)});
    for (std::size_t i = 0; i < kExperts; ++i) {
      const NodeId one = code_.item(each, static_cast<std::int64_t>(i));
      sizes[i] = build_.call_binding("aten._local_scalar_dense.default", {arg(one)}, symbols[i]);
    }
  }

  NodeId exchange(NodeId rows, const std::array<NodeId, kExperts>& out,
                  const std::array<NodeId, kExperts>& in, std::string_view label) {
    auto splits = [&](const std::array<NodeId, kExperts>& s) { return build_.list({arg(s[0]), arg(s[1])}); };
    const NodeId launch = call("_c10d_functional.all_to_all_single.default",
                               {arg(rows), splits(out), splits(in), build_.text("1")});
    build_.node(launch).ep.token_exchange = build_.word(label);
    return call("_c10d_functional.wait_tensor.default", {arg(launch)});
  }

  void backward() {
    build_.in_backward();
    build_.in_module("loss");
    NodeId gradient = call("aten.cos.default", {arg(stream_)});
    for (std::size_t layer = layers_; layer-- > 0;) {
      build_.in_module(module(layer));
      Rows rows = saved_[layer];
      rows.values.push_back(rows_of(gradient));
      if (is_grid() && dice_.one_in(2)) add_gradient(layer, grid_.partial(gradient));
      if (attentions_[layer])
        rows.values.push_back(
            attention_.backward(*attentions_[layer], code_.widened(dice_.pick(rows.values))));
      const NodeId g = code_.widened(code_.grow(rows, 1 + dice_.below(4)));
      NodeId out = is_moe_[layer] ? route_back(layer, g) : g;
      add_gradient(layer, code_.partial(rows));
      if (dice_.one_in(2)) add_gradient(layer, code_.partial(rows));
      Rows last{"u0", {out}};
      out = stream_of(code_.widened(code_.grow(last, dice_.below(3))));
      build_.in_module(fmt::format("layers.{}", layer));
      gradient = call("aten.add.Tensor", {arg(gradient), arg(out)});
    }
    build_.in_module("tok_embeddings");
    results_.push_back(
        {call("aten.embedding_dense_backward.default",
              {arg(gradient), arg(tokens_), number(kVocabulary), number(-1), build_.flag(false)}),
         "grad", "tok_embeddings.weight"});
  }

  NodeId route_back(std::size_t layer, NodeId gradient) {
    Routing& routing = routings_[layer];
    const std::string root = module(layer);
    build_.in_module(root + ".routed_experts");
    const NodeId slot_rows =
        call("aten.index.Tensor", {arg(gradient), build_.list({arg(routing.slot_token)})});
    Rows slots{routing.slots.extent, {slot_rows}};
    const NodeId send = code_.widened(code_.grow(slots, dice_.below(2)));
    const NodeId arrived = exchange(send, routing.received, routing.sent, "combine");
    build_.in_module(root + ".routed_experts.inner_experts");
    Rows rows = routing.arrived;
    rows.values.push_back(arrived);
    const NodeId computed = code_.widened(code_.grow(rows, 1 + dice_.below(3)));
    add_gradient(layer, code_.partial(rows));
    if (dice_.one_in(3)) add_gradient(layer, by_rank_gradient(routing, arrived, computed));
    build_.in_module(root + ".routed_experts");
    const NodeId back = exchange(computed, routing.sent, routing.received, "dispatch");
    return restored(gradient, back, NodeId(), routing);
  }

  // A weight's gradient leaves the module: as it is, or summed over the ranks.
  void add_gradient(std::size_t layer, NodeId partial) {
    NodeId gradient = partial;
    if (dice_.one_in(2)) {
      // Collectives send dense tensors.
      const NodeId dense = call("aten.clone.default", {arg(partial)},
                                {{"memory_format", build_.memory_format("torch.contiguous_format")}});
      const bool has_halves = build_.number(dense, 0).value_or(1) % kRanks == 0;
      const NodeId launch = has_halves && dice_.one_in(3)
                                ? call("_c10d_functional.reduce_scatter_tensor.default",
                                       {arg(dense), build_.text("sum"), number(kRanks), build_.text("0")})
                            : dice_.one_in(4) ? call("_c10d_functional.all_gather_into_tensor.default",
                                                     {arg(dense), number(kRanks), build_.text("0")})
                                              : call("_c10d_functional.all_reduce.default",
                                                     {arg(dense), build_.text("sum"), build_.text("0")});
      gradient = call("_c10d_functional.wait_tensor.default", {arg(launch)});
    }
    results_.push_back({gradient, "grad", fmt::format("layers.{}.gradient{}", layer, results_.size())});
  }

  Dice dice_;
  StepBuilder build_;
  RowCode code_;
  TokenLayout layout_;
  GridCalls grid_;
  AttentionCalls attention_;
  bool attends_ = false;
  std::vector<std::optional<Attention>> attentions_;  // by layer
  std::size_t layers_ = 1;
  std::vector<bool> is_moe_;
  std::int64_t choices_ = 1;  // experts per token
  std::optional<std::size_t> odd_call_;
  bool counts_in_floats_ = false;  // no part of a sum of floats is an exact integer: refused
  std::vector<std::string> names_;
  NodeId embedding_, tokens_, stream_, loss_;
  std::vector<NodeId> counters_;
  std::vector<Routing> routings_;  // by layer
  std::vector<Rows> saved_;        // of the forward pass, by layer
  std::vector<StepBuilder::Result> results_;
};

}  // namespace

RandomStep make_random_step(std::uint64_t seed, std::optional<std::size_t> layers) {
  return StepGenerator(seed, layers).run();
}

}  // namespace epweave
