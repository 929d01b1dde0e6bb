#include "testing/row_code.h"

#include <array>
#include <span>

#include "testing/elementwise_calls.h"

namespace epweave {

NodeId RowCode::folded(const RowPool& rows) {
  const NodeId a = any(rows);
  const NodeId b = call("aten.reshape.default", {arg(a), list({-1, 2, width(a) / 2})});
  const NodeId c = dice_.one_in(2) ? call("aten.transpose.int",
                                          {arg(b), build_.arg(std::int64_t{1}), build_.arg(std::int64_t{2})})
                                   : call("aten.neg.default", {arg(b)});
  return call("aten.reshape.default", {arg(c), list({-1, width(a)})});
}

NodeId RowCode::permuted(const RowPool& rows) {
  const NodeId a = any(rows);
  const NodeId b = call("aten.reshape.default", {arg(a), list({-1, 2, width(a) / 2})});
  const NodeId c = call("aten.permute.default", {arg(b), list({1, 0, 2})});
  const NodeId d = call("aten.sigmoid.default", {arg(c)});
  return widened_even(call("aten.sum.dim_IntList", {arg(d), list({0})}));
}

NodeId RowCode::transposed(const RowPool& rows) {
  const NodeId b = call("aten.t.default", {arg(any(rows))});
  const NodeId c = call("aten.silu.default", {arg(b)});
  const NodeId d = call("aten.t.default", {arg(c)});
  if (!dice_.one_in(2)) return d;
  return call("aten.clone.default", {arg(d)}, {{"memory_format", contiguous()}});
}

NodeId RowCode::cut(const RowPool& rows) {
  const NodeId a = any(rows);
  const std::int64_t half = width(a) / 2;
  auto slice = [&](std::int64_t from, std::int64_t to) {
    return arg(
        call("aten.slice.Tensor", {arg(a), build_.arg(std::int64_t{1}), build_.arg(from), build_.arg(to)}));
  };
  return call("aten.cat.default",
              {build_.list({slice(half, width(a)), slice(0, half)}), build_.arg(std::int64_t{1})});
}

NodeId RowCode::split(const RowPool& rows) {
  const NodeId a = any(rows);
  const NodeId pieces =
      call("aten.split_with_sizes.default", {arg(a), list({2, width(a) - 2}), build_.arg(std::int64_t{1})});
  const NodeId sum = call("aten.sum.dim_IntList", {arg(item(pieces, 0)), list({1}), build_.flag(true)});
  return widened_even(call("aten.mul.Tensor", {arg(item(pieces, 1)), arg(sum)}));
}

NodeId RowCode::selected(const RowPool& rows) {
  const NodeId a = any(rows);
  const NodeId column =
      call("aten.select.int", {arg(a), build_.arg(std::int64_t{1}), build_.arg(std::int64_t{1})});
  const NodeId b = call("aten.unsqueeze.default", {arg(column), build_.arg(std::int64_t{1})});
  return call("aten.mul.Tensor", {arg(a), arg(b)});
}

NodeId RowCode::squeezed(const RowPool& rows) {
  const NodeId b = call("aten.unsqueeze.default", {arg(any(rows)), build_.arg(std::int64_t{1})});
  const NodeId c = call("aten.relu.default", {arg(b)});
  return call("aten.squeeze.dim", {arg(c), build_.arg(std::int64_t{1})});
}

NodeId RowCode::made(const RowPool& rows) {
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

NodeId RowCode::padded(const RowPool& rows) {
  const NodeId a = any(rows);
  const NodeId b = call("aten.constant_pad_nd.default", {arg(a), list({0, 2}), build_.arg(1.0)});
  return call("aten.slice.Tensor",
              {arg(b), build_.arg(std::int64_t{1}), build_.arg(std::int64_t{2}), build_.arg(width(a) + 2)});
}

NodeId RowCode::by_size(const RowPool& rows) {
  const NodeId a = any(rows);
  const NodeId n = call("aten.sym_size.int", {arg(a), build_.arg(std::int64_t{0})});
  const NodeId m = call("operator.mul", {arg(n), build_.arg(std::int64_t{2})});
  const NodeId b = call("aten.reshape.default", {arg(a), build_.list({arg(m), build_.arg(width(a) / 2)})});
  const NodeId c = call("aten.abs.default", {arg(b)});
  return call("aten.reshape.default", {arg(c), build_.list({arg(n), build_.arg(width(a))})});
}

NodeId RowCode::filled(const RowPool& rows) {
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
    const NodeId always = call("aten.ge.Scalar", {arg(call("aten.abs.default", {arg(a)})), build_.arg(-1.0)});
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

NodeId RowCode::shaped(const RowPool& rows) {
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
      const NodeId gain = call("aten.select.int", {arg(weight_for(width(a), width(a))),
                                                   build_.arg(std::int64_t{0}), build_.arg(std::int64_t{1})});
      const NodeId norm =
          call("aten._fused_rms_norm.default", {arg(a), list({width(a)}), arg(gain), build_.arg(1e-5)});
      const NodeId back = call("aten._fused_rms_norm_backward.default",
                               {arg(like(rows, a)), arg(a), list({width(a)}), arg(item(norm, 1)), arg(gain),
                                build_.list({build_.flag(true), build_.flag(true)})});
      return item(back, 0);
    }
  }
}

NodeId RowCode::scaled(NodeId a, NodeId n) {
  const NodeId number = call("aten.scalar_tensor.default", {arg(n)},
                             {{"dtype", build_.dtype(kF32)}, {"device", build_.device("cuda:0")}});
  return call("aten.div.Tensor", {arg(a), arg(number)});
}

NodeId RowCode::by_number(const RowPool& rows) {
  const NodeId a = any(rows);
  const NodeId n = call("aten.sym_size.int", {arg(a), build_.arg(std::int64_t{0})});
  const NodeId twice = call("operator.add", {arg(n), arg(n)});
  switch (dice_.below(6)) {
    case 4:
      return scaled(a, call("operator.add", {arg(call("operator.mod", {arg(n), build_.arg(std::int64_t{7})})),
                                             build_.arg(std::int64_t{1})}));
    case 5:
      return scaled(a, dice_.one_in(2) ? n : call("operator.truediv", {arg(n), build_.arg(std::int64_t{4})}));
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

}  // namespace epweave
