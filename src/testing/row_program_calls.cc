#include <array>

#include "testing/row_programs.h"

namespace epweave {
namespace {

using Calls = std::span<const std::string_view>;

constexpr auto kLayouts = std::to_array<std::string_view>({
    "$ = aten.reshape.default({t}, [-1, 8])",
    "$ = aten.reshape.default({t}, [-1, 4])",
    "$ = aten.reshape.default({t}, [-1, 2])",
    "$ = aten.reshape.default({t}, [-1])",
    "$ = aten.reshape.default({t}, [4, -1, 8])",
    "$ = aten.reshape.default({t}, [-1, 4, 8])",
    "$ = aten.reshape.default({t}, [4, -1])",
    "$ = aten.reshape.default({t}, [2, -1])",
    "$ = aten.reshape.default({t}, [{n}, -1])",
    "$ = aten.view.default({t}, [-1])",
    "$ = aten.view.default({t}, [-1, 4])",
    "$ = aten.view.default({t}, [{n}, 8])",
    "$ = aten.transpose.int({t}, 0, 1)",
    "$ = aten.transpose.int({t}, 1, 2)",
    "$ = aten.transpose.int({t}, 0, 2)",
    "$ = aten.t.default({t})",
    "$ = aten.permute.default({t}, [2, 1, 0])",
    "$ = aten.permute.default({t}, [1, 2, 0])",
    "$ = aten.unsqueeze.default({t}, {d})",
    "$ = aten.unsqueeze.default({t}, -1)",
    "$ = aten.squeeze.dim({t}, {d})",
    "$a = aten.unsqueeze.default({t}, 1); $b = aten.expand.default($a, [-1, 4]); $ = "
    "aten.reshape.default($b, [-1])",
    "$a = aten.unsqueeze.default({t}, 1); $b = aten.expand.default($a, [-1, 4, -1]); $ = "
    "aten.reshape.default($b, [-1, 8])",
    "$a = aten.unsqueeze.default({t}, 0); $b = aten.expand.default($a, [4, -1, -1]); $ = "
    "aten.reshape.default($b, [-1, 8])",
    "$ = aten.expand.default({t}, [4, -1, -1])",
    "$ = aten.expand.default({t}, [{n}, -1])",
    "$ = aten.expand.default({t}, [{n}, 8])",
    "$ = aten.repeat.default({t}, [4])",
    "$ = aten.repeat.default({t}, [2])",
    "$ = aten.repeat.default({t}, [4, 1])",
    "$ = aten.repeat.default({t}, [1, 2])",
    "$ = aten.slice.Tensor({t}, {d}, 0, 4)",
    "$ = aten.slice.Tensor({t}, {d}, 4, 8)",
    "$ = aten.slice.Tensor({t}, {d}, 0, 2)",
    "$ = aten.slice.Tensor({t}, {d}, 0, 8)",
    "$ = aten.slice.Tensor({t}, {d}, 0, {n})",
    "$ = aten.slice.Tensor({t}, {d}, 0, 9223372036854775807, 2)",
    "$ = aten.slice.Tensor({t}, {d}, 1, 9223372036854775807, 2)",
    "$ = aten.slice.Tensor({t}, {d}, -4, 9223372036854775807)",
    "$ = aten.select.int({t}, {d}, 0)",
    "$ = aten.select.int({t}, {d}, 1)",
    "$ = aten.select.int({t}, {d}, -1)",
    "$ = aten.flip.default({t}, [{d}])",
    "$ = aten.roll.default({t}, [1], [{d}])",
    "$ = aten.cat.default([{t}, {t}], 0)",
    "$ = aten.cat.default([{t}, {t}], 1)",
    "$ = aten.stack.default([{t}, {t}], 0)",
    "$ = aten.stack.default([{t}, {t}], 1)",
    "$a = aten.stack.default([{f}, {f}], 1); $ = aten.reshape.default($a, [-1, 8])",
    "$a = aten.split.Tensor({t}, 4, {d}); $ = operator.getitem($a, 0)",
    "$a = aten.split.Tensor({t}, 4, {d}); $ = operator.getitem($a, 1)",
    "$a = aten.chunk.default({t}, 2, {d}); $ = operator.getitem($a, 1)",
    "$a = aten.unbind.int({t}, 0); $ = operator.getitem($a, 1)",
    "$ = aten.unfold.default({t}, {d}, 4, 4)",
    "$ = aten.unfold.default({t}, {d}, 2, 1)",
    "$ = aten.diagonal.default({t})",
    "$ = aten.tril.default({t})",
    "$ = aten.as_strided.default({t}, [8, 8], [8, 1])",
    "$ = aten.as_strided.default({t}, [{n}, 8], [8, 1])",
    "$ = aten.clone.default({t})",
    "$ = aten.detach.default({t})",
    "$ = aten.alias.default({t})",
    "$ = aten.constant_pad_nd.default({t}, [0, 1])",
    "$ = aten.constant_pad_nd.default({t}, [0, 0, 1, 0])",
    "$ = aten.slice_backward.default({f}, [8, 8], 1, 0, 4, 1)",
    "$ = aten.select_backward.default({f}, [8, 8], 0, 1)",
    "$ = aten.slice_scatter.default({t}, {t}, 1, 0, 4)",
    "$ = aten.select_scatter.default({t}, {t}, 1, 0)",
});

constexpr auto kElements = std::to_array<std::string_view>({
    "$ = aten.relu.default({f})",
    "$ = aten.neg.default({t})",
    "$ = aten.sigmoid.default({f})",
    "$ = aten.add.Tensor({t}, {t})",
    "$ = aten.add.Tensor({f}, {f})",
    "$ = aten.sub.Tensor({t}, {t})",
    "$ = aten.mul.Tensor({f}, {f})",
    "$ = aten.mul.Tensor({t}, {t})",
    "$ = aten.div.Tensor({f}, {f})",
    "$ = aten.maximum.default({f}, {f})",
    "$ = aten.where.self({b}, {f}, {f})",
    "$ = aten.masked_fill.Scalar({f}, {b}, 0)",
    "$ = aten.masked_fill.Scalar({f}, {b}, 2)",
    "$ = aten.gt.Scalar({f}, 0)",
    "$ = aten.lt.Tensor({f}, {f})",
    "$ = aten.eq.Scalar({i}, 3)",
    "$ = aten.eq.Tensor({i}, {i})",
    "$ = aten.logical_not.default({b})",
    "$ = aten.logical_or.default({b}, {b})",
    "$ = aten.add.Scalar({t}, 1)",
    "$ = aten.mul.Scalar({t}, 2)",
    "$ = aten.mul.Scalar({i}, 0)",
    "$ = aten.mul.Tensor({f}, {n})",
    "$ = aten.div.Tensor({f}, {n})",
    "$ = aten.add.Tensor({i}, {n})",
    "$ = aten.remainder.Scalar({i}, {n})",
    "$ = aten.pow.Tensor_Scalar({f}, 2)",
    "$ = aten._to_copy.default({f}, dtype=bf16)",
    "$ = aten._to_copy.default({t}, dtype=f32)",
    "$ = aten._to_copy.default({t}, dtype=f64)",
    "$ = aten._to_copy.default({f}, dtype=i64)",
    "$ = aten._to_copy.default({i}, dtype=i8)",
    "$ = aten._to_copy.default({t}, dtype=b8)",
    "$ = aten.floor_divide.default({i}, 2)",
    "$ = aten.floor_divide.default({i}, 4)",
    "$ = aten.remainder.Scalar({i}, 2)",
    "$ = aten.remainder.Scalar({i}, 4)",
    "$ = aten.remainder.Scalar({i}, 8)",
    "$ = aten.clamp.default({t}, 0, 1)",
    "$ = aten.lerp.Scalar({f}, {f}, 0.5)",
    "$ = aten.addcmul.default({f}, {f}, {f})",
    "$ = aten.one_hot.default({i}, 8)",
    "$ = aten.threshold_backward.default({f}, {f}, 0)",
    "$ = aten.silu_backward.default({f}, {f})",
});

constexpr auto kSums = std::to_array<std::string_view>({
    "$ = aten.sum.dim_IntList({t}, [{d}])",
    "$ = aten.sum.dim_IntList({t}, [0])",
    "$ = aten.sum.dim_IntList({t}, [{d}], True)",
    "$ = aten.sum.dim_IntList({t}, [0, 1])",
    "$ = aten.sum.dim_IntList({f}, [0], dtype=f64)",
    "$ = aten.sum.default({t})",
    "$ = aten.mean.dim({f}, [{d}])",
    "$ = aten.mean.default({f})",
    "$ = aten.amax.default({f}, [{d}])",
    "$ = aten.any.default({b})",
    "$ = aten.argmax.default({f}, {d})",
    "$a = aten.max.dim({f}, {d}); $ = operator.getitem($a, 1)",
    "$ = aten.linalg_vector_norm.default({f}, 2, [{d}])",
    "$ = aten._softmax.default({f}, {d}, False)",
    "$ = aten._log_softmax.default({f}, {d}, False)",
    "$ = aten.cumsum.default({t}, {d})",
    "$a = aten.mul.Tensor({f}, {f}); $ = aten.sum.dim_IntList($a, [0])",
    "$a = aten.mul.Tensor({f}, {f}); $ = aten.sum.dim_IntList($a, [0])",
    "$ = aten.mse_loss.default({f}, {f}, 2)",
    "$ = aten.mse_loss.default({f}, {f}, 1)",
    "$ = aten.mse_loss.default({f}, {f}, 0)",
    "$a = aten._log_softmax.default({f}, 1, False); $b = aten.nll_loss_forward.default($a, {i}, None, 2, "
    "-100); $ = operator.getitem($b, 0)",
    "$a = aten._log_softmax.default({f}, 1, False); $b = aten.nll_loss_forward.default($a, {i}, None, 2, 3); "
    "$ = operator.getitem($b, 1)",
    "$a = aten._log_softmax.default({f}, 1, False); $b = aten.nll_loss_forward.default($a, {i}, %b, 2, "
    "-100); $ = operator.getitem($b, 0)",
    "$a = aten._log_softmax.default({f}, 1, False); $b = aten.nll_loss_forward.default($a, {i}, %b, 1, 0); $ "
    "= operator.getitem($b, 0)",
    "$a = aten._log_softmax.default({f}, 1, False); $b = aten.nll_loss_forward.default($a, {i}, %b, 0, 3); $ "
    "= operator.getitem($b, 0)",
    "$ = aten.cross_entropy_loss.default({f}, {i}, None, 2)",
    "$ = aten.mm.default({f}, {f})",
    "$ = aten.mm.default({f}, %w)",
    "$a = aten.t.default({f}); $ = aten.mm.default($a, {f})",
    "$ = aten.addmm.default({f}, {f}, {f})",
    "$ = aten.addmm.default(%b, {f}, %w)",
    "$ = aten.bmm.default({f}, {f})",
    "$ = aten.mv.default({f}, {f})",
    "$ = aten.dot.default({f}, {f})",
    "$a = aten.native_layer_norm.default({f}, [8], %b, %b, 0.001); $ = operator.getitem($a, 0)",
});

constexpr auto kPicks = std::to_array<std::string_view>({
    "$ = aten.index.Tensor({t}, [{i}])",
    "$ = aten.index.Tensor({f}, [{i}])",
    "$ = aten.index.Tensor({f}, [{i}])",
    "$ = aten.index.Tensor({i}, [{i}])",
    "$ = aten.index.Tensor({f}, [None, {i}])",
    "$ = aten.index.Tensor({f}, [{i}, {i}])",
    "$ = aten.index.Tensor(%w, [{i}])",
    "$a = aten.floor_divide.default({i}, 4); $ = aten.index.Tensor({f}, [$a])",
    "$a = aten.remainder.Scalar({i}, 4); $ = aten.index.Tensor(%w, [$a])",
    "$ = aten.index_select.default({t}, {d}, {i})",
    "$ = aten.embedding.default({f}, {i})",
    "$ = aten.gather.default({f}, {d}, {i})",
    "$a = aten.unsqueeze.default({i}, 1); $ = aten.gather.default({f}, 1, $a)",
    "$a = aten.unsqueeze.default({i}, 1); $b = aten.expand.default($a, [-1, 8]); $ = "
    "aten.gather.default({f}, 0, $b)",
    "$ = aten.take_along_dim.default({f}, {i}, {d})",
    "$a = aten.zeros_like.default({f}); $ = aten.index_put.default($a, [{i}], {f})",
    "$a = aten.zeros_like.default({f}); $ = aten.index_add.default($a, 0, {i}, {f})",
    "$a = aten.empty_like.default({i}); $ = aten.index_put.default($a, [{i}], {i})",
    "$ = aten.index_put.default({f}, [{i}], {f})",
    "$ = aten.index_put.default({f}, [{i}], {f}, True)",
    "$ = aten.index_add.default({f}, 0, {i}, {f})",
    "$ = aten.index_copy.default({f}, 0, {i}, {f})",
    "$a = aten.unsqueeze.default({i}, 1); $b = aten.expand.default($a, [-1, 8]); $ = "
    "aten.scatter_add.default({f}, 0, $b, {f})",
    "$a = aten.unsqueeze.default({i}, 1); $ = aten.scatter.value({f}, 1, $a, 1.0)",
    "$ = aten.scatter_add.default({t}, 0, {i}, {t})",
    "$ = aten.embedding_dense_backward.default({f}, {i}, 8, -1, False)",
    "$ = aten.index_fill.int_Scalar({f}, 1, {i}, 0)",
    "$ = aten.searchsorted.Tensor({f}, {f})",
    "$ = aten.bucketize.Tensor({i}, {i})",
});

constexpr auto kOrders = std::to_array<std::string_view>({
    "$ = aten.argsort.stable({i}, stable=True)",
    "$ = aten.argsort.stable({i}, stable=True)",
    "$ = aten.argsort.stable({i}, stable=True, descending=True)",
    "$ = aten.argsort.default({i})",
    "$a = aten.sort.stable({i}, stable=True); $ = operator.getitem($a, 0)",
    "$a = aten.sort.stable({i}, stable=True); $ = operator.getitem($a, 1)",
    "$a = aten.argsort.stable({i}, stable=True); $ = aten.index.Tensor({f}, [$a])",
    "$a = aten.argsort.stable({i}, stable=True); $b = aten.argsort.default($a); $ = aten.index.Tensor({f}, "
    "[$b])",
    "$a = aten.topk.default({f}, 2, 1); $b = operator.getitem($a, 1); $ = aten.reshape.default($b, [-1])",
    "$a = aten.topk.default({f}, 2, 1); $ = operator.getitem($a, 0)",
    "$a = aten.reshape.default({i}, [-1, 4]); $b = aten.t.default($a); $ = aten.reshape.default($b, [-1])",
    "$a = aten.one_hot.default({i}, 8); $ = aten.sum.dim_IntList($a, [0])",
    "$a = aten.one_hot.default({i}, 8); $b = aten.sum.dim_IntList($a, [0]); $ = "
    "aten.repeat_interleave.Tensor($b, output_size={n})",
    "$a = aten.one_hot.default({i}, 8); $b = aten.sum.dim_IntList($a, [0]); $ = aten.cumsum.default($b, 0)",
    "$a = aten.mul.Scalar({i}, 0); $b = aten.add.Scalar($a, 1); $ = aten.repeat_interleave.Tensor($b, "
    "output_size={n})",
    "$ = aten.repeat_interleave.Tensor({i}, output_size={n})",
    "$ = aten.repeat_interleave.self_int({t}, 4, 0)",
    "$a = aten.one_hot.default({i}, 8); $b = aten.sum.dim_IntList($a, [0]); $c = aten.cumsum.default($b, 0, "
    "dtype=i32); $ = aten._grouped_mm.default({f}, %we, $c)",
});

// One of equal runs of rows, and what is put back there among zeros; pieces of rows.
constexpr auto kRuns = std::to_array<std::string_view>({
    "$ = aten.slice.Tensor({t}, 0, 0, {n})",
    "$ = aten.slice.Tensor({t}, {d}, {n}, 9223372036854775807)",
    "$h = operator.mul({n}, 2); $ = aten.slice.Tensor({t}, 0, {1}, $h)",
    "$h = operator.mul({n}, 2); $i = operator.mul({1}, 3); $ = aten.slice.Tensor({t}, 0, $h, $i)",
    "$h = operator.mul({n}, 3); $i = operator.mul({1}, 4); $ = aten.slice.Tensor({t}, 0, $h, $i)",
    "$h = operator.add({n}, 4); $ = aten.slice.Tensor({t}, 0, 4, $h)",
    "$s = aten.sym_size.int({t}, 0); $h = operator.floordiv($s, 2); $ = aten.slice.Tensor({1}, 0, 0, $h)",
    "$s = aten.sym_size.int({t}, 0); $h = operator.floordiv($s, 2); $ = aten.slice.Tensor({1}, 0, $h, $s)",
    "$s = aten.sym_size.int({t}, 0); $h = operator.floordiv($s, 4); $ = aten.slice.Tensor({1}, 0, 0, $h)",
    "$s = aten.sym_size.int({t}, {d}); $h = operator.mul($s, 2); $a = aten.cat.default([{1}, {1}], {2}); $ = "
    "aten.slice.Tensor($a, {2}, $s, $h)",
    "$a = aten.cat.default([{t}, {t}], 0); $s = aten.sym_size.int({1}, 0); $ = aten.slice.Tensor($a, 0, $s, "
    "9223372036854775807)",
    "$a = aten.cat.default([{f}, {1}], 0); $ = aten.index.Tensor($a, [{p}])",
    "$a = aten.cat.default([{f}, {1}, {1}, {1}], 0); $ = aten.index.Tensor($a, [{p}])",
    "$a = aten.cat.default([{i}, {1}], 0); $b = aten.argsort.stable($a, stable=True); $ = "
    "aten.index.Tensor({f}, [$b])",
    "$a = aten.cat.default([{f}, {1}], 0); $b = aten.cat.default([{i}, {2}], 0); $c = "
    "aten.argsort.stable($b, stable=True); $ = aten.index.Tensor($a, [$c])",
    "$a = aten.cat.default([{f}, {f}], 0); $b = aten.cat.default([{i}, {i}], 0); $c = "
    "aten.argsort.stable($b, stable=True); $ = aten.index.Tensor($a, [$c])",
    "$s = aten.sym_size.int({f}, 0); $m = operator.mul($s, 2); $ = aten.slice_backward.default({1}, [$m, 8], "
    "0, 0, $s, 1)",
    "$s = aten.sym_size.int({f}, 0); $m = operator.mul($s, 2); $ = aten.slice_backward.default({1}, [$m, 8], "
    "0, $s, 9223372036854775807, 1)",
    "$s = aten.sym_size.int({f}, 0); $m = operator.mul($s, 4); $h = operator.mul($s, 2); $ = "
    "aten.slice_backward.default({1}, [$m, 8], 0, $s, $h, 1)",
    "$s = aten.sym_size.int({f}, 0); $m = operator.mul($s, 2); $a = aten.slice_backward.default({1}, [$m, "
    "8], 0, 0, $s, 1); $b = aten.slice_backward.default({f}, [$m, 8], 0, $s, $m, 1); $ = "
    "aten.add.Tensor($a, $b)",
    "$s = aten.sym_size.int({f}, 0); $m = operator.mul($s, 2); $a = aten.ones_like.default({1}); $ = "
    "aten.slice_backward.default($a, [$m, 8], 0, $s, $m, 1)",
    "$s = aten.sym_size.int({f}, 0); $m = operator.mul($s, 2); $ = aten.slice_backward.default({1}, [$m], 0, "
    "0, $s, 1)",
    "$s = aten.sym_size.int({p}, 0); $m = operator.mul($s, 2); $ = aten.slice_backward.default({1}, [$m], 0, "
    "$s, $m, 1)",
    "$m = operator.mul({n}, 2); $ = aten.slice_backward.default({f}, [$m, 8], 0, 0, {1}, 1)",
    "$m = operator.mul({n}, 4); $h = operator.mul({1}, 2); $ = aten.slice_backward.default({f}, [$m, 8], 0, "
    "{1}, $h, 1)",
    "$ = aten.slice_backward.default({f}, [{n}, 8], 0, 0, 4, 1)",
    "$ = aten.slice_backward.default({f}, [{n}, 8], 0, 4, 9223372036854775807, 1)",
    "$ = aten.slice_backward.default({f}, [{n}, 8], 1, 0, 4, 1)",
    "$a = aten.split_with_sizes.default({t}, [{n}, {2}], 0); $ = operator.getitem($a, 1)",
    "$a = aten.split_with_sizes.default({t}, [{n}, {2}, {2}, {2}], 0); $ = operator.getitem($a, 2)",
    "$a = aten.split_with_sizes.default({t}, [{n}, {n}], 0); $ = operator.getitem($a, 0)",
    "$a = aten.split_with_sizes.default({t}, [4, 4], {d}); $ = operator.getitem($a, 0)",
    "$a = aten.split_with_sizes.default({t}, [2, 6], 1); $ = operator.getitem($a, 1)",
    "$s = aten.sym_size.int({t}, 0); $h = operator.floordiv($s, 2); $a = "
    "aten.split_with_sizes.default({1}, [$h, $h], 0); $ = operator.getitem($a, 1)",
    "$s = aten.sym_size.int({t}, 0); $h = operator.sub($s, 4); $a = aten.split_with_sizes.default({1}, [$h, "
    "4], 0); $ = operator.getitem($a, 0)",
    "$s = aten.sym_size.int({t}, 0); $h = operator.floordiv($s, 2); $a = "
    "aten.split_with_sizes.default({1}, [$h, $h], 0); $b = operator.getitem($a, 1); $c = "
    "operator.getitem($a, 0); $ = aten.cat.default([$b, $c], 0)",
    "$s = aten.sym_size.int({f}, 0); $h = operator.floordiv($s, 2); $a = "
    "aten.split_with_sizes.default({1}, [$h, $h], 0); $b = operator.getitem($a, 1); $c = "
    "operator.getitem($a, 0); $ = aten.mul.Tensor($b, $c)",
    "$a = aten.split.Tensor({t}, {n}, 0); $ = operator.getitem($a, 1)",
    "$ = aten.slice_scatter.default({t}, {t}, 0, 0, {n})",
});

// Numbers of rows that are sorted by, picked, moved and added to.
constexpr auto kPositions = std::to_array<std::string_view>({
    "$ = aten.add.Scalar({p}, 1)",
    "$ = aten.add.Scalar({p}, {n})",
    "$ = aten.sub.Scalar({p}, {n})",
    "$ = aten.mul.Scalar({p}, 2)",
    "$ = aten.mul.Scalar({p}, 4)",
    "$ = aten.mul.Scalar({p}, {n})",
    "$ = aten.remainder.Scalar({p}, {n})",
    "$ = aten.floor_divide.default({p}, 2)",
    "$ = aten.floor_divide.default({p}, {n})",
    "$ = aten.neg.default({p})",
    "$ = aten.clone.default({p})",
    "$ = aten.flip.default({p}, [0])",
    "$ = aten.argsort.stable({p}, stable=True)",
    "$a = aten.sort.stable({p}, stable=True); $ = operator.getitem($a, 0)",
    "$ = aten.index.Tensor({p}, [{p}])",
    "$ = aten.index.Tensor({i}, [{p}])",
    "$ = aten.index.Tensor({f}, [{p}])",
    "$ = aten.index.Tensor({f}, [{o}])",
    "$ = aten.index_select.default({f}, 0, {p})",
    "$a = aten.index.Tensor({f}, [{o}]); $b = aten.zeros_like.default($a); $ = "
    "aten.index_put.default($b, [{2}], $a)",
    "$a = aten.index.Tensor({f}, [{o}]); $b = aten.empty_like.default($a); $ = "
    "aten.index_put.default($b, [{2}], $a)",
    "$a = aten.index.Tensor({f}, [{o}]); $b = aten.empty_like.default($a); $c = "
    "aten.index_put.default($b, [{2}], $a); $ = aten.mul.Tensor($c, {f})",
    "$a = aten.index.Tensor({f}, [{o}]); $b = aten.empty_like.default($a); $c = "
    "aten.index_put_.default($b, [{o}], $a); $d = aten.reshape.default($c, [-1, 2, 4]); $ = "
    "aten.sum.dim_IntList($d, [1])",
    "$a = aten.empty_like.default({f}); $b = aten.index_put.default($a, [{o}], {f}); $ = "
    "aten.mul.Tensor($b, {f})",
    "$a = aten.zeros_like.default({f}); $b = aten.index_put_.default($a, [{o}], {f}); $ = "
    "aten.mul.Tensor($a, {f})",
    "$a = aten.empty_like.default({f}); $b = aten.index_put_.default($a, [{p}], {f}, True); $ = "
    "aten.mul.Tensor($b, {f})",
    "$a = aten.index.Tensor({f}, [{o}]); $ = aten.mul.Tensor($a, {f})",
    "$a = aten.index.Tensor({f}, [{o}]); $b = aten.index.Tensor({f}, [{2}]); $ = aten.mul.Tensor($a, $b)",
    "$a = aten.index.Tensor({f}, [{o}]); $b = aten.index.Tensor({f}, [{p}]); $ = aten.mul.Tensor($a, $b)",
    "$a = aten.arange.default({n}, device=@cpu, pin_memory=False); $b = aten.empty_like.default({o}); $ = "
    "aten.index_put.default($b, [{2}], $a)",
    "$a = aten.arange.default({n}, device=@cpu, pin_memory=False); $b = aten.empty_like.default({o}); $c = "
    "aten.index_put.default($b, [{2}], $a); $ = aten.index.Tensor({f}, [$c])",
    "$a = aten.arange.default({n}, device=@cpu, pin_memory=False); $b = aten.add.Scalar($a, {1}); $ = "
    "aten.index.Tensor({f}, [$b])",
    "$a = aten.add.Scalar({p}, {n}); $b = aten.cat.default([{f}, {3}], 0); $ = aten.index.Tensor($b, [$a])",
    "$a = aten.mul.Scalar({p}, 4); $b = aten.reshape.default({f}, [-1, 2]); $ = aten.index.Tensor($b, [$a])",
    "$a = aten.mul.Scalar({p}, 2); $b = aten.add.Scalar($a, 1); $c = aten.reshape.default({f}, [-1, 4]); $ = "
    "aten.index.Tensor($c, [$b])",
    "$a = aten.unsqueeze.default({p}, 1); $b = aten.expand.default($a, [-1, 2]); $c = "
    "aten.reshape.default($b, [-1]); $ = aten.index.Tensor({f}, [$c])",
    "$a = aten.repeat.default({p}, [2]); $ = aten.index.Tensor({f}, [$a])",
    "$a = aten.cat.default([{p}, {1}], 0); $ = aten.index.Tensor({f}, [$a])",
    "$a = aten.add.Scalar({p}, {n}); $b = aten.cat.default([{1}, $a], 0); $c = aten.repeat.default({f}, [2, "
    "1]); $ = aten.index.Tensor($c, [$b])",
    "$ = aten.add.Tensor({p}, {p})",
    "$ = aten.sub.Tensor({p}, {p})",
    "$a = aten.cumsum.default({c}, 0); $b = aten.sub.Tensor($a, {1}); $c = aten.index.Tensor($b, [{i}]); $ = "
    "aten.add.Tensor({p}, $c)",
    "$a = aten.cumsum.default({c}, 0); $b = aten.sub.Tensor($a, {1}); $c = aten.index.Tensor($b, [{i}]); $ = "
    "aten.sub.Tensor({p}, $c)",
    "$ = aten.index.Tensor({c}, [{i}])",
    "$ = aten.add.Scalar({c}, 1)",
    "$ = aten.add.Scalar({c}, {n})",
    "$ = aten.mul.Scalar({c}, 2)",
    "$ = aten.sub.Scalar({c}, {n})",
    "$a = aten.cumsum.default({c}, 0, dtype=i32); $ = aten._grouped_mm.default({f}, %we, $a)",
    "$ = aten.repeat_interleave.Tensor({c}, output_size={n})",
    "$a = aten.repeat_interleave.Tensor({c}, output_size={n}); $b = aten.index.Tensor({f}, [$a]); $ = "
    "aten.mul.Tensor($b, {f})",
    "$ = aten.index_put.default({f}, [{p}], {f}, True)",
    "$ = aten.index_add.default({f}, 0, {p}, {f})",
    "$ = aten.index_copy.default({f}, 0, {o}, {f})",
});

constexpr auto kFactories = std::to_array<std::string_view>({
    "$ = aten.arange.default({n}, device=@cpu, pin_memory=False)",
    "$ = aten.arange.default({n}, device=@cpu, pin_memory=False)",
    "$ = aten.arange.default(8, device=@cpu, pin_memory=False)",
    "$ = aten.arange.start({n}, 64, device=@cpu, pin_memory=False)",
    "$a = aten.arange.default({n}, device=@cpu, pin_memory=False); $ = aten.repeat.default($a, [4])",
    "$ = aten.zeros_like.default({t})",
    "$ = aten.rand_like.default({f})",
    "$ = aten.bernoulli.p({f}, 0.5)",
    "$ = aten.ones_like.default({f})",
    "$ = aten.new_zeros.default({f}, [8])",
    "$ = aten.new_zeros.default({f}, [8, 8])",
    "$ = aten.new_zeros.default({f}, [{n}, 8])",
    "$ = aten.new_ones.default({f}, [{n}])",
    "$ = aten.new_ones.default({f}, [8])",
    "$ = aten.full.default([{n}, 8], 1.0, dtype=f32, device=@cpu, pin_memory=False)",
    "$ = aten.scalar_tensor.default({n}, dtype=f32, device=@cpu, pin_memory=False)",
    "$ = operator.mul({n}, 4)",
    "$ = operator.mul({n}, 2)",
    "$ = operator.add({n}, 4)",
    "$ = operator.floordiv({n}, 2)",
    "$ = aten.sym_size.int({t}, {d})",
    "$ = aten.sym_numel.default({t})",
});

constexpr auto kWrites = std::to_array<std::string_view>({
    "$ = aten.add_.Tensor({t}, {t})",
    "$ = aten.add_.Tensor(%c, {f})",
    "$ = aten.add_.Tensor(%e, {f})",
    "$ = aten.copy_.default({t}, {t})",
    "$ = aten.copy_.default(%c, {f})",
    "$ = aten.mul_.Tensor({f}, {f})",
    "$ = aten.mul_.Scalar({f}, 2)",
    "$ = aten.zero_.default({t})",
    "$ = aten.fill_.Scalar({f}, 1)",
    "$ = aten.relu_.default({f})",
    "$ = aten.masked_fill_.Scalar({f}, {b}, 0)",
    "$ = aten.index_add_.default({f}, 0, {i}, {f})",
    "$ = aten.index_add_.default(%e, 0, {i}, {f})",
    "$ = aten.index_put_.default({f}, [{i}], {f})",
    "$ = aten.index_put_.default({f}, [{i}], {f}, True)",
    "$ = aten.index_put_.default({i}, [{i}], {i})",
    "$ = aten.index_copy_.default({f}, 0, {i}, {f})",
    "$ = aten.index_fill_.int_Scalar({t}, 0, {i}, 0)",
    "$a = aten.slice.Tensor({t}, {d}, 0, 4); $ = aten.copy_.default($a, {t})",
    "$a = aten.slice.Tensor({f}, {d}, 0, 4); $ = aten.zero_.default($a)",
    "$a = aten.select.int({f}, {d}, 0); $ = aten.add_.Tensor($a, {f})",
    "$a = aten.t.default({f}); $ = aten.mul_.Scalar($a, 2)",
    "$a = aten.reshape.default({f}, [-1]); $ = aten.mul_.Scalar($a, 2)",
    "$ = aten.addmm_.default(%e, {f}, {f})",
});

constexpr auto kExchanges = std::to_array<std::string_view>({
    "$a = _c10d_functional.all_reduce.default({f}, \"sum\", \"g\"); $ = "
    "_c10d_functional.wait_tensor.default($a)",
    "$a = _c10d_functional.all_reduce.default({t}, \"sum\", \"g\"); $ = "
    "_c10d_functional.wait_tensor.default($a)",
    "$a = _c10d_functional.all_reduce.default({f}, \"avg\", \"g\"); $ = "
    "_c10d_functional.wait_tensor.default($a)",
    "$a = _c10d_functional.all_reduce.default({f}, \"max\", \"g\"); $ = "
    "_c10d_functional.wait_tensor.default($a)",
    "$a = _c10d_functional.all_reduce_.default({f}, \"sum\", \"g\"); $ = "
    "_c10d_functional.wait_tensor.default($a)",
    "$a = _c10d_functional.all_gather_into_tensor.default({t}, 2, \"g\"); $ = "
    "_c10d_functional.wait_tensor.default($a)",
    "$a = _c10d_functional.reduce_scatter_tensor.default({f}, \"sum\", 2, \"g\"); $ = "
    "_c10d_functional.wait_tensor.default($a)",
    "$a = _c10d_functional.reduce_scatter_tensor.default({f}, \"avg\", 2, \"g\"); $ = "
    "_c10d_functional.wait_tensor.default($a)",
    "$a = _c10d_functional.all_to_all_single.default({t}, [], [], \"g\"); $ = "
    "_c10d_functional.wait_tensor.default($a)",
    "$a = _c10d_functional.all_to_all_single.default({f}, [], [], \"g\"); $ = "
    "_c10d_functional.wait_tensor.default($a)",
    "$h = operator.floordiv({n}, 2); $a = _c10d_functional.all_to_all_single.default({f}, [$h, $h], [$h, "
    "$h], \"g\"); $ = _c10d_functional.wait_tensor.default($a)",
    "$a = _c10d_functional.broadcast.default({t}, 0, \"g\"); $ = _c10d_functional.wait_tensor.default($a)",
});

constexpr std::array<Calls, 10> kGroups = {kLayouts,   kElements,  kSums,   kPicks, kOrders,
                                           kFactories, kPositions, kWrites, kRuns,  kExchanges};

}  // namespace

std::span<const std::span<const std::string_view>> row_program_calls() {
  return kGroups;
}

}  // namespace epweave
