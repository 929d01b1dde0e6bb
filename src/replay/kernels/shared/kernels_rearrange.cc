// Ops that find, place or count elements. Where the size of the result is what was found, the host
// waits for the device.
#include "replay/kernels/host/broadcast.h"
#include "replay/kernels/ops/search_call.h"
#include "replay/kernels/shared/blocks.h"
#include "replay/kernels/shared/kernels.h"

namespace epweave::replay::shared {
namespace {

using cpu::compute_of;

// One element, read by the host.
std::int64_t read_integer(Scratch& scratch, const Tensor& tensor, std::int64_t at) {
  return *scratch.download(tensor.view({}, {}, tensor.offset + at)).data<std::int64_t>();
}
// Partial sums in place.
void add_up(Scratch& scratch, const Tensor& counts) {
  scratch.scan_rows(as_matrix(counts, 1, counts.numel()), ScanOp::kSum);
}

// ---- triangles ----------------------------------------------------------------------------

enum class Side : std::uint8_t { kLower, kUpper };
template <Side side>
Value triangle(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  if (self.rank() < 2) throw KernelError("tril and triu: two dimensions or more");
  const Tensor out = call.make_result(0, self.dtype, self.sizes);
  Scratch(call).launch(
      tasks::TriangleTask{shape_of(self.sizes), strided(out, self.sizes), strided(self, self.sizes),
                          self.sizes[self.rank() - 2], self.sizes.back(), call.integer(1),
                          bytes_of_element(self), side == Side::kLower},
      self.numel(), {&out, &self});
  return out;
}

// ---- what is true -------------------------------------------------------------------------

// Row-major positions of the elements that are not 0, of the tensor broadcast to `sizes`.
Tensor find_true(Scratch& scratch, const Tensor& tensor, const Extents& sizes) {
  const Tensor flags = scratch.make(DType::kBool, sizes),
               zero = scratch.filled(tensor.dtype, {}, Value(std::int64_t{0}));
  scratch.map_into<math::NotEqual>(flags, Value(), tensor, zero);
  const std::int64_t count = flags.numel(), tiles = (count + tasks::kFlagsPerTile - 1) / tasks::kFlagsPerTile;
  if (count == 0) return scratch.make(DType::kInt64, {0});
  const tasks::Flags row{reinterpret_cast<const std::uint8_t*>(flags.bytes()), count};
  const Tensor ends = scratch.make(DType::kInt64, {tiles});
  scratch.launch(tasks::CountFlagsTask{row, ends.data<std::int64_t>()}, tiles, {&flags, &ends});
  add_up(scratch, ends);
  const Tensor found = scratch.make(DType::kInt64, {read_integer(scratch, ends, tiles - 1)});
  scratch.launch(tasks::FindFlagsTask{row, ends.data<std::int64_t>(), found.data<std::int64_t>()}, tiles,
                 {&flags, &ends, &found});
  return found;
}
// Laid out by column, as PyTorch does.
Value nonzero(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  Scratch scratch(call);
  const Tensor found = find_true(scratch, self, self.sizes);
  const auto rank = static_cast<std::int64_t>(self.rank());
  const Tensor out = make_tensor(call.memory(), DType::kInt64, {found.numel(), rank}, {1, found.numel()});
  scratch.launch(tasks::CoordinatesTask{shape_of(self.sizes), found.data<std::int64_t>(),
                                        out.data<std::int64_t>(), out.strides[0], out.strides[1]},
                 found.numel() * rank, {&found, &out});
  return out;
}
Value masked_select(KernelCall& call) {
  const Tensor &self = call.tensor(0), &mask = call.tensor(1);
  const Extents sizes = cpu::broadcast_sizes(std::vector<const Tensor*>{&self, &mask});
  Scratch scratch(call);
  const Tensor found = find_true(scratch, mask, sizes);
  const Tensor out = call.make_result(0, self.dtype, {found.numel()});
  scratch.launch(tasks::PickTask{shape_of(sizes), strided(self, sizes), found.data<std::int64_t>(),
                                 out.bytes(), out.strides[0], bytes_of_element(self)},
                 found.numel(), {&self, &found, &out});
  return out;
}

Tensor spread(const Tensor& tensor, const Extents& sizes) {
  Extents strides(sizes.size(), 0);
  cpu::broadcast_strides(tensor, sizes, strides);
  return tensor.view(sizes, std::move(strides), tensor.offset);
}
// Where the mask is true, the first elements of `source`, in order.
Value masked_scatter(KernelCall& call) {
  const Tensor &self = call.tensor(0), &mask = call.tensor(1), &source = call.tensor(2);
  if (mask.dtype != DType::kBool || source.dtype != self.dtype)
    throw KernelError("masked_scatter: a mask of bools, and two tensors of one dtype");
  const Extents sizes = cpu::broadcast_sizes(std::vector<const Tensor*>{&self, &mask});
  Scratch scratch(call);
  const Tensor found = find_true(scratch, mask, sizes), out = scratch.copied(spread(self, sizes), self.dtype);
  const std::int64_t count = found.numel();
  if (count > source.numel()) throw KernelError("masked_scatter: fewer elements than the mask has places");
  if (count != 0) {
    const Tensor flat = out.view({out.numel()}, {1}, out.offset), from = scratch.dense(source, source.dtype);
    write_blocks(scratch, flat, resolve(scratch, flat, {found}, Negative::kRefused),
                 from.view({count}, {1}, from.offset));
  }
  return store_result(call, 0, self.dtype, sizes, out);
}
// The gradient's elements where the mask is true, in front of zeros.
Value masked_scatter_backward(KernelCall& call) {
  const Tensor &grad = call.tensor(0), &mask = call.tensor(1);
  const Extents sizes = cpu::broadcast_sizes(std::vector<const Tensor*>{&grad, &mask});
  Scratch scratch(call);
  const Tensor found = find_true(scratch, mask, sizes),
               picked = scratch.filled(grad.dtype, call[2].integers(), Value(std::int64_t{0}));
  if (found.numel() > picked.numel())
    throw KernelError("masked_scatter_backward: fewer elements than the mask has places");
  scratch.launch(tasks::PickTask{shape_of(sizes), strided(grad, sizes), found.data<std::int64_t>(),
                                 picked.bytes(), 1, bytes_of_element(grad)},
                 found.numel(), {&grad, &found, &picked});
  return store_result(call, 0, grad.dtype, picked.sizes, picked);
}

// ---- how many -----------------------------------------------------------------------------

// One more than the largest element; 0 of no elements.
std::int64_t read_limit(Scratch& scratch, const Tensor& values) {
  if (values.numel() == 0) return 0;
  const Tensor all = as_matrix(values, 1, values.numel());
  return read_integer(scratch, scratch.find_in_rows(all, RowOp::kLargest).values, 0) + 1;
}
Value one_hot(KernelCall& call) {
  Scratch scratch(call);
  const Tensor classes = scratch.dense(call.tensor(0), DType::kInt64);
  if (call.integer(1) <= 0 && classes.numel() == 0)
    throw KernelError("one_hot: no class tells how many there are");
  const std::int64_t count = call.integer(1) < 0 ? read_limit(scratch, classes) : call.integer(1);
  if (count < 0) throw KernelError("one_hot: a class is negative");
  Extents sizes = classes.sizes;
  sizes.push_back(count);
  const Tensor ones = scratch.filled(DType::kInt64, sizes, Value(std::int64_t{0}));
  scratch.launch(
      tasks::OneHotTask{classes.data<std::int64_t>(), count, ones.data<std::int64_t>(), scratch.sink()},
      classes.numel(), {&classes, &ones});
  return store_result(call, 0, DType::kInt64, sizes, ones);
}

// Weights are added in ascending order, in double.
Value bincount(KernelCall& call) {
  Scratch scratch(call);
  const Tensor values = scratch.dense(call.tensor(0), DType::kInt64);
  const bool is_weighted = !call[1].is_none();
  if (is_weighted && call.tensor(1).numel() != values.numel())
    throw KernelError("bincount: a weight for each value");
  const std::int64_t bins = std::max(call.integer(2), read_limit(scratch, values));
  const DType weighted =
      is_weighted && call.tensor(1).dtype == DType::kFloat32 ? DType::kFloat32 : DType::kFloat64;
  const DType summed = is_weighted ? DType::kFloat64 : DType::kInt64;
  const Tensor sums = scratch.filled(summed, {bins}, Value(std::int64_t{0}));
  const Indexed indexed = resolve(scratch, sums, {values}, Negative::kRefused);
  if (bins != 0)
    add_blocks(scratch, sums, indexed,
               is_weighted ? scratch.dense(call.tensor(1), summed)
                           : scratch.filled(summed, values.sizes, Value(std::int64_t{1})));
  return store_result(call, 0, is_weighted ? weighted : DType::kInt64, {bins}, sums);
}

// Smallest and largest element as doubles.
Tensor range_of(Scratch& scratch, const Tensor& values) {
  const Tensor range = scratch.make(DType::kFloat64, {2});
  const Tensor all = as_matrix(values, 1, values.numel());
  for (const std::int64_t i : {0, 1})
    cpu::copy_elements(scratch.find_in_rows(all, i == 0 ? RowOp::kSmallest : RowOp::kLargest).values,
                       range.view({1, 1}, {1, 1}, i));
  return range;
}
// histc(self, bins, min, max): both 0: from the smallest to the largest element.
Value histc(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::int64_t bins = call.integer(1);
  const double low = call.real(2), high = call.real(3);
  if (bins <= 0 || low > high) throw KernelError("histc: bins and an interval");
  Scratch scratch(call);
  Tensor values = scratch.dense(self, DType::kFloat64);
  values = values.view({values.numel()}, {1}, values.offset);
  Tensor range;
  if (low == high && values.numel() != 0) {
    range = range_of(scratch, values);
  } else {
    range = scratch.make(DType::kFloat64, {2});
    cpu::fill_elements(range.view({1}, {1}, 0), Value(low));
    cpu::fill_elements(range.view({1}, {1}, 1), Value(high));
  }
  const Tensor counts = scratch.filled(DType::kInt64, {bins}, Value(std::int64_t{0}));
  scratch.launch(tasks::HistogramTask{values.data<double>(), range.data<double>(), bins,
                                      counts.data<std::int64_t>(), scratch.sink()},
                 values.numel(), {&values, &range, &counts});
  return store_result(call, 0, self.dtype, {bins}, counts);
}

Value repeat_interleave(KernelCall& call) {
  Scratch scratch(call);
  const Tensor& self = call.tensor(0);
  const Tensor ends = scratch.copied(self, DType::kInt64);
  const std::int64_t rows = ends.numel();
  add_up(scratch, ends.view({rows}, {1}, ends.offset));
  std::int64_t count = 0;
  if (!call[1].is_none()) {
    count = call.integer(1);
  } else if (rows != 0) {  // the host must know the size
    const Tensor last = scratch.download(ends.view({}, {}, rows - 1));
    count = *last.data<std::int64_t>();
    if (count < 0) throw KernelError("the counts add up to " + std::to_string(count));
  }
  scratch.launch(tasks::CheckCountsTask{ends.data<std::int64_t>(), rows, count, scratch.sink()}, 1, {&ends});
  const Tensor out = scratch.make(DType::kInt64, {count});
  scratch.launch(tasks::RepeatTask{ends.data<std::int64_t>(), rows, out.data<std::int64_t>()}, count,
                 {&ends, &out});
  return store_result(call, 0, self.dtype, {count}, out);
}

// ---- search -------------------------------------------------------------------------------

Value search(KernelCall& call, const cpu::Search& s) {
  Scratch scratch(call);
  const bool is_whole =
      compute_of(s.boundaries.dtype) == Compute::kInt && compute_of(s.values.dtype) == Compute::kInt;
  const DType dtype = is_whole ? DType::kInt64 : DType::kFloat64;
  const Tensor boundaries = scratch.dense(s.boundaries, dtype), values = scratch.dense(s.values, dtype);
  const std::int64_t length = boundaries.sizes.back();
  const std::int64_t rows =
      boundaries.rank() == 1 ? 1 : boundaries.numel() / std::max<std::int64_t>(length, 1);
  if (rows == 0 || values.numel() % rows != 0)
    throw KernelError("searchsorted: rows of values and boundaries");
  const Tensor places = scratch.make(DType::kInt64, values.sizes);
  with_real(dtype, [&](auto zero) {
    using C = decltype(zero);
    if constexpr (!std::is_same_v<C, float>)
      scratch.launch(tasks::SearchTask<C>{boundaries.data<C>(), values.data<C>(), length,
                                          values.numel() / rows, places.data<std::int64_t>(), s.is_right},
                     values.numel(), {&boundaries, &values, &places});
  });
  return store_result(call, 0, s.is_int32 ? DType::kInt32 : DType::kInt64, s.values.sizes, places);
}
Value searchsorted(KernelCall& call) {
  return search(call, cpu::read_searchsorted(call));
}
Value bucketize(KernelCall& call) {
  return search(call, cpu::read_bucketize(call));
}

Value linspace(KernelCall& call) {
  const std::int64_t steps = call.integer(2);
  const DType asked = call[3].is<DType>() ? call[3].as<DType>() : call.result_dtype(0, DType::kFloat32);
  const Tensor out = call.make_result(0, asked, {steps});
  // Integers are steps of a double, cut.
  with_float(is_floating(out.dtype) ? out.dtype : DType::kFloat64, [&](auto zero) {
    using C = decltype(zero);
    const C start = cpu::number_as<C>(call[0]), end = cpu::number_as<C>(call[1]);
    const C step = steps > 1 ? (end - start) / static_cast<C>(steps - 1) : C(0);
    tasks::Strided to = strided(out, out.sizes);
    to.stored = stored_of(out.dtype);
    Scratch(call).launch(tasks::LinspaceTask<C>{to, start, end, step, steps}, steps, {&out});
  });
  return out;
}

constexpr KernelRow kRows[] = {
    {"aten.bincount.default", bincount},
    {"aten.bucketize.Tensor", bucketize},
    {"aten.histc.default", histc},
    {"aten.linspace.default", linspace},
    {"aten.masked_scatter.default", masked_scatter},
    {"aten.masked_scatter_backward.default", masked_scatter_backward},
    {"aten.masked_select.default", masked_select},
    {"aten.nonzero.default", nonzero},
    {"aten.one_hot.default", one_hot},
    {"aten.repeat_interleave.Tensor", repeat_interleave},
    {"aten.searchsorted.Tensor", searchsorted},
    {"aten.tril.default", triangle<Side::kLower>},
    {"aten.triu.default", triangle<Side::kUpper>},
};

}  // namespace

std::span<const KernelRow> rearrange_rows() {
  return kRows;
}

}  // namespace epweave::replay::shared
