// Ops that pick, place or count elements, beside those of kernels_index.cc, kernels_copy.cc and
// kernels_slice.cc.
#include <algorithm>
#include <cstring>

#include "replay/kernels/host/kernels.h"
#include "replay/kernels/host/operands.h"
#include "replay/kernels/ops/index_call.h"
#include "replay/kernels/ops/parts.h"
#include "replay/kernels/ops/search_call.h"

namespace epweave::replay::cpu {
namespace {

// Elements on one side of a diagonal of the last two dimensions are kept, the others 0.
enum class Side { kLower, kUpper };
template <Side side>
Value triangle(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  if (self.rank() < 2) throw KernelError("tril and triu: two dimensions or more");
  const std::int64_t rows = self.sizes[self.rank() - 2], columns = self.sizes.back(),
                     diagonal = call.integer(1);
  const std::size_t bytes = self.element_bytes();
  std::vector<std::byte> elements(static_cast<std::size_t>(self.numel()) * bytes);
  gather_elements(self, elements.data());
  const auto clear = [&](std::int64_t row, std::int64_t first, std::int64_t end) {
    if (first < end)
      std::memset(elements.data() + static_cast<std::size_t>(row * columns + first) * bytes, 0,
                  static_cast<std::size_t>(end - first) * bytes);
  };
  const std::int64_t all_rows = columns == 0 ? 0 : self.numel() / columns;
  for (std::int64_t row = 0; row < all_rows; ++row) {
    const std::int64_t on = row % rows + diagonal;  // the diagonal's column
    if (side == Side::kLower)
      clear(row, std::clamp<std::int64_t>(on + 1, 0, columns), columns);
    else
      clear(row, 0, std::clamp<std::int64_t>(on, 0, columns));
  }
  const Tensor out = call.make_result(0, self.dtype, self.sizes);
  scatter_elements(elements.data(), out);
  return out;
}

// ---- rows by index ------------------------------------------------------------------------

// Row index[i] of `to` becomes row i of the source; of several the last stays.
Value index_copy_to(KernelCall& call, const Tensor& to) {
  const std::size_t dim = existing_dim(call.integer(1), to);
  const Buffer<std::int64_t> index = dense<std::int64_t>(call.tensor(2));
  const Tensor& source = call.tensor(3);
  check_source_rows(to, dim, static_cast<std::int64_t>(index.size()), source);
  for (std::size_t i = 0; i < index.size(); ++i)
    put(row_of(source, dim, static_cast<std::int64_t>(i)),
        row_of(to, dim, checked_row(index[i], to.sizes[dim])));
  return to;
}
Value index_copy(KernelCall& call) {
  return index_copy_to(call, copy_of(call));
}
Value index_copy_in_place(KernelCall& call) {
  return index_copy_to(call, call.tensor(0));
}
Value index_fill(KernelCall& call) {
  const Tensor out = copy_of(call);
  const std::size_t dim = existing_dim(call.integer(1), out);
  for (std::int64_t row : dense<std::int64_t>(call.tensor(2)))
    fill_elements(row_of(out, dim, checked_row(row, out.sizes[dim])), call[3]);
  return out;
}

// ---- where, in how many -------------------------------------------------------------------

// Row-major positions of the elements that are not 0.
Buffer<std::int64_t> find_nonzero(const Tensor& self) {
  return with_compute(self.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const Buffer<C> values = dense<C>(self);
    Buffer<std::int64_t> found;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] != C(0)) found.push_back(static_cast<std::int64_t>(i));
    return found;
  });
}
// [count, rank]; laid out by column where it is recorded so.
Value nonzero(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Buffer<std::int64_t> found = find_nonzero(self);
  const auto count = static_cast<std::int64_t>(found.size()), rank = static_cast<std::int64_t>(self.rank());
  Buffer<std::int64_t> coordinates(static_cast<std::size_t>(count * rank));
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = found[static_cast<std::size_t>(i)];
    for (std::int64_t d = rank; d-- > 0; rest /= self.sizes[static_cast<std::size_t>(d)])
      coordinates[static_cast<std::size_t>(i * rank + d)] = rest % self.sizes[static_cast<std::size_t>(d)];
  }
  const Tensor out = call.make_result(0, DType::kInt64, {count, rank});
  store_dense(coordinates, out);
  return out;
}
Value masked_select(KernelCall& call) {
  const Tensor &self = call.tensor(0), &mask = call.tensor(1);
  const Extents sizes = broadcast_sizes(std::vector<const Tensor*>{&self, &mask});
  const auto spread = [&](const Tensor& tensor) {
    return Tensor{tensor.dtype, sizes, broadcast_operand(tensor, sizes).strides, tensor.offset,
                  tensor.storage};
  };
  const Buffer<std::int64_t> found = find_nonzero(spread(mask));
  const std::size_t bytes = self.element_bytes();
  const Tensor all = call.make(self.dtype, sizes);
  gather_elements(spread(self), all.bytes());
  const Tensor out = call.make_result(0, self.dtype, {static_cast<std::int64_t>(found.size())});
  for (std::size_t i = 0; i < found.size(); ++i)
    std::memcpy(out.bytes() + i * bytes, all.bytes() + static_cast<std::size_t>(found[i]) * bytes, bytes);
  return out;
}

Value one_hot(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Buffer<std::int64_t> classes = dense<std::int64_t>(self);
  std::int64_t count = call.integer(1);
  if (count <= 0 && classes.empty()) throw KernelError("one_hot: no class tells how many there are");
  if (count < 0) count = *std::max_element(classes.begin(), classes.end()) + 1;
  Buffer<std::int64_t> ones(classes.size() * static_cast<std::size_t>(count), 0);
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (classes[i] < 0) throw KernelError("one_hot: a class is negative");
    ones[i * static_cast<std::size_t>(count) + static_cast<std::size_t>(checked_row(classes[i], count))] = 1;
  }
  Extents sizes = self.sizes;
  sizes.push_back(count);
  const Tensor out = call.make_result(0, DType::kInt64, std::move(sizes));
  store_dense(ones, out);
  return out;
}

// Weights are added in ascending order, in double.
Value bincount(KernelCall& call) {
  const Buffer<std::int64_t> values = dense<std::int64_t>(call.tensor(0));
  std::int64_t bins = call.integer(2);
  for (std::int64_t value : values) {
    if (value < 0) throw KernelError("bincount: a value is negative");
    bins = std::max(bins, value + 1);
  }
  const DType weighted =
      call[1].is_none() || call.tensor(1).dtype == DType::kFloat32 ? DType::kFloat32 : DType::kFloat64;
  const Tensor out = call.make_result(0, call[1].is_none() ? DType::kInt64 : weighted, {bins});
  Buffer<double> counts(static_cast<std::size_t>(bins), 0.0);
  const Buffer<double> weights =
      call[1].is_none() ? Buffer<double>(values.size(), 1.0) : dense<double>(call.tensor(1));
  if (weights.size() != values.size()) throw KernelError("bincount: a weight for each value");
  for (std::size_t i = 0; i < values.size(); ++i) counts[static_cast<std::size_t>(values[i])] += weights[i];
  store_dense(counts, out);
  return out;
}

// Bins of equal width over [min, max], the last closed; both 0: from the smallest to the largest
// element.
Value histc(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::int64_t bins = call.integer(1);
  const Buffer<double> values = dense<double>(self);
  double low = call.real(2), high = call.real(3);
  if (low == high && !values.empty()) {
    low = *std::min_element(values.begin(), values.end());
    high = *std::max_element(values.begin(), values.end());
  }
  if (low == high) {
    low -= 1;
    high += 1;
  }
  if (bins <= 0 || !(low < high)) throw KernelError("histc: bins and an interval");
  Buffer<double> counts(static_cast<std::size_t>(bins), 0.0);
  for (double value : values) {
    if (!(value >= low && value <= high)) continue;
    const auto bin = static_cast<std::int64_t>((value - low) / (high - low) * static_cast<double>(bins));
    counts[static_cast<std::size_t>(std::min(bin, bins - 1))] += 1;
  }
  const Tensor out = call.make_result(0, self.dtype, {bins});
  store_dense(counts, out);
  return out;
}

// How many boundaries of an ascending row lie before each value; `right`: those equal to it count
// too. What does not compare (a NaN on either side) lies before, as torch has it: then the row is
// not partitioned, and the place depends on the order in which torch looks at it.
template <class C>
std::int64_t place_of(C value, std::span<const C> row, bool right) {
  std::size_t low = 0, high = row.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    const bool is_behind = right ? row[middle] > value : row[middle] >= value;
    if (is_behind)
      high = middle;
    else
      low = middle + 1;
  }
  return static_cast<std::int64_t>(low);
}
Value search(KernelCall& call, const Search& s) {
  const Tensor out = call.make_result(0, s.is_int32 ? DType::kInt32 : DType::kInt64, s.values.sizes);
  const auto run = [&](auto tag) {
    using C = typename decltype(tag)::type;
    const Buffer<C> boundaries = dense<C>(s.boundaries), values = dense<C>(s.values);
    const auto length = static_cast<std::size_t>(s.boundaries.sizes.back());
    const std::size_t rows =
        s.boundaries.rank() == 1 ? 1 : boundaries.size() / std::max<std::size_t>(length, 1);
    if (rows == 0 || values.size() % rows != 0)
      throw KernelError("searchsorted: rows of values and boundaries");
    Buffer<std::int64_t> places;
    for (std::size_t i = 0; i < values.size(); ++i)
      places.push_back(place_of<C>(
          values[i], std::span(boundaries).subspan(i / (values.size() / rows) * length, length), s.is_right));
    store_dense(places, out);
  };
  if (compute_of(s.boundaries.dtype) == Compute::kInt && compute_of(s.values.dtype) == Compute::kInt)
    run(TypeTag<std::int64_t>{});
  else
    run(TypeTag<double>{});
  return out;
}
Value searchsorted(KernelCall& call) {
  return search(call, read_searchsorted(call));
}
Value bucketize(KernelCall& call) {
  return search(call, read_bucketize(call));
}

// From both ends, as torch does: start + i step in the first half, end - (steps - 1 - i) step in
// the second.
Value linspace(KernelCall& call) {
  const std::int64_t steps = call.integer(2);
  const Tensor out = call.make_result(0, call.result_dtype(0, DType::kFloat32), {steps});
  with_floating(out.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const C start = number_as<C>(call[0]), end = number_as<C>(call[1]);
    const C step = steps > 1 ? (end - start) / static_cast<C>(steps - 1) : C(0);
    Buffer<C> values;
    for (std::int64_t i = 0; i < steps; ++i)
      values.push_back(i < steps / 2 || steps == 1 ? math::fma(step, static_cast<C>(i), start)
                                                   : math::fma(-step, static_cast<C>(steps - 1 - i), end));
    store_dense(values, out);
  });
  return out;
}

constexpr KernelRow kRows[] = {
    {"aten.bincount.default", bincount},
    {"aten.bucketize.Tensor", bucketize},
    {"aten.histc.default", histc},
    {"aten.index_copy.default", index_copy},
    {"aten.index_copy_.default", index_copy_in_place},
    {"aten.index_fill.int_Scalar", index_fill},
    {"aten.linspace.default", linspace},
    {"aten.masked_select.default", masked_select},
    {"aten.nonzero.default", nonzero},
    {"aten.one_hot.default", one_hot},
    {"aten.searchsorted.Tensor", searchsorted},
    {"aten.tril.default", triangle<Side::kLower>},
    {"aten.triu.default", triangle<Side::kUpper>},
};

}  // namespace

std::span<const KernelRow> rearrange_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
