// Ops that only look at storage differently. Results share it. Where torch would copy because no
// view exists (reshape), so does this.
#include <algorithm>
#include <numeric>

#include "replay/kernels/host/elements.h"
#include "replay/kernels/host/kernels.h"

namespace epweave::replay::cpu {
namespace {

// -1 replaced by what is left.
Extents infer_sizes(Extents sizes, std::int64_t numel) {
  std::int64_t known = 1;
  std::size_t unknown = sizes.size();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == -1)
      unknown = d;
    else
      known *= sizes[d];
  }
  if (unknown < sizes.size()) {
    if (known == 0 || numel % known != 0) throw KernelError("the shape does not fit the number of elements");
    sizes[unknown] = numel / known;
    known *= sizes[unknown];
  }
  if (known != numel)
    throw KernelError("a shape of " + std::to_string(known) + " elements for a tensor of " +
                      std::to_string(numel));
  return sizes;
}

// The strides of the same elements under other sizes, or nothing where only a copy has them.
bool find_view_strides(const Tensor& from, const Extents& sizes, Extents& strides) {
  strides = contiguous_strides(sizes);
  if (from.numel() == 0 || sizes.empty()) return true;
  // Groups of dimensions of `from` that are contiguous among themselves must be cut into whole new
  // dimensions.
  std::size_t next = sizes.size();
  std::int64_t base = 1, group = 1;
  if (from.rank() > 0) base = from.strides.back();
  for (std::size_t d = from.rank(); d-- > 0;) {
    group *= from.sizes[d];
    const bool is_end = d == 0 || (from.sizes[d - 1] != 1 && from.strides[d - 1] != group * base);
    if (!is_end) continue;
    std::int64_t taken = 1;
    while (next > 0 && (taken < group || sizes[next - 1] == 1)) {
      strides[next - 1] = taken * base;
      taken *= sizes[next - 1];
      --next;
    }
    if (taken != group) return false;
    if (d > 0) base = from.strides[d - 1];
    group = 1;
  }
  if (from.rank() == 0)
    for (; next > 0; --next) strides[next - 1] = 1;
  return next == 0;
}

Tensor copied(KernelCall& call, const Tensor& from, const Extents& sizes) {
  Tensor whole = call.make(from.dtype, from.sizes);
  copy_elements(from, whole);
  return whole.view(sizes, contiguous_strides(sizes), 0);
}

Value view(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Extents sizes = infer_sizes(call[1].integers(), self.numel());
  Extents strides;
  if (!find_view_strides(self, sizes, strides))
    throw KernelError("the sizes are not compatible with the tensor's strides");
  return self.view(sizes, strides, self.offset);
}
// Whether a view would contradict the row-major copy that is recorded. An extent that happens to be
// 1 allows views that its other sizes do not: f32[u, 8]{1, 0} as f32[2*u, 4]. PyTorch records what
// holds for all sizes.
bool is_recorded_as_copy(const KernelCall& call, const Extents& sizes, const Extents& view_strides) {
  const ResultType* recorded = call.result(0);
  if (recorded == nullptr || recorded->sizes != sizes || recorded->strides != contiguous_strides(sizes))
    return false;
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] > 1 && view_strides[d] != recorded->strides[d]) return true;
  return false;
}

Value reshape(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Extents sizes = infer_sizes(call[1].integers(), self.numel());
  Extents strides;
  const bool has_unit = std::ranges::count(self.sizes, 1) > 0;
  if (find_view_strides(self, sizes, strides) && !(has_unit && is_recorded_as_copy(call, sizes, strides)))
    return self.view(sizes, strides, self.offset);
  return copied(call, self, sizes);
}
Value reshape_copy(KernelCall& call) {
  return copied(call, call.tensor(0), infer_sizes(call[1].integers(), call.tensor(0).numel()));
}

Value alias(KernelCall& call) {
  return call.tensor(0);
}

Value as_strided(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return self.view(call[1].integers(), call[2].integers(), call[3].is_none() ? self.offset : call.integer(3));
}

Value expand(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  Extents sizes = call[1].integers();
  if (sizes.size() < self.rank()) throw KernelError("expand to fewer dimensions");
  const std::size_t skip = sizes.size() - self.rank();
  Extents strides(sizes.size(), 0);
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const bool is_new = d < skip;
    if (sizes[d] == -1) {
      if (is_new) throw KernelError("expand: -1 in a new dimension");
      sizes[d] = self.sizes[d - skip];
    }
    if (is_new) continue;
    if (self.sizes[d - skip] == sizes[d])
      strides[d] = self.strides[d - skip];
    else if (self.sizes[d - skip] != 1)
      throw KernelError("expand: sizes do not fit");
  }
  // As torch computes the strides of new dimensions: 0 for those of a number.
  if (self.rank() > 0)
    for (std::size_t d = skip; d-- > 0;) strides[d] = sizes[d] == 1 ? sizes[d + 1] * strides[d + 1] : 0;
  return self.view(sizes, strides, self.offset);
}

Tensor permuted(const Tensor& self, const std::vector<std::size_t>& order) {
  Extents sizes, strides;
  for (std::size_t d : order) {
    sizes.push_back(self.sizes[d]);
    strides.push_back(self.strides[d]);
  }
  return self.view(sizes, strides, self.offset);
}
Value swap_dims(const Tensor& self, std::int64_t a, std::int64_t b) {
  if (self.rank() == 0) return self;
  std::vector<std::size_t> order(self.rank());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::swap(order[checked_dim(a, self.rank())], order[checked_dim(b, self.rank())]);
  return permuted(self, order);
}
Value transpose(KernelCall& call) {
  return swap_dims(call.tensor(0), call.integer(1), call.integer(2));
}
Value t(KernelCall& call) {
  if (call.tensor(0).rank() < 2) return call.tensor(0);
  if (call.tensor(0).rank() > 2) throw KernelError("t: at most two dimensions");
  return swap_dims(call.tensor(0), 0, 1);
}
Value permute(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  std::vector<std::size_t> order;
  for (std::int64_t d : call[1].integers()) order.push_back(checked_dim(d, self.rank()));
  if (order.size() != self.rank()) throw KernelError("permute: as many dimensions as the tensor has");
  return permuted(self, order);
}

Tensor without(const Tensor& self, const std::vector<bool>& drop) {
  Extents sizes, strides;
  for (std::size_t d = 0; d < self.rank(); ++d) {
    if (drop[d] && self.sizes[d] == 1) continue;
    sizes.push_back(self.sizes[d]);
    strides.push_back(self.strides[d]);
  }
  return self.view(sizes, strides, self.offset);
}
Value squeeze(KernelCall& call) {
  return without(call.tensor(0), std::vector<bool>(call.tensor(0).rank(), true));
}
Value squeeze_dims(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  std::vector<bool> drop(self.rank(), false);
  for (std::int64_t d : call[1].integers())
    if (const std::size_t dim = checked_dim(d, self.rank()); dim < drop.size()) drop[dim] = true;
  return without(self, drop);
}
Value unsqueeze(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::size_t dim = checked_dim(call.integer(1), self.rank() + 1);
  Extents sizes = self.sizes, strides = self.strides;
  const std::int64_t stride = dim < self.rank() ? self.sizes[dim] * self.strides[dim] : 1;
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(dim), 1);
  strides.insert(strides.begin() + static_cast<std::ptrdiff_t>(dim), stride);
  return self.view(sizes, strides, self.offset);
}

Tensor narrowed(const Tensor& self, std::size_t dim, std::int64_t start, std::int64_t length,
                std::int64_t step = 1) {
  Extents sizes = self.sizes, strides = self.strides;
  sizes[dim] = length;
  const std::int64_t offset = self.offset + start * strides[dim];
  strides[dim] *= step;
  return self.view(sizes, strides, offset);
}
// start, end, step of Python's slices; None is open.
Value slice(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::size_t dim = checked_dim(call.integer(1), self.rank());
  const std::int64_t size = self.sizes[dim];
  const auto bound = [&](std::size_t param, std::int64_t otherwise) {
    std::int64_t at = call[param].is_none() ? otherwise : call.integer(param);
    if (at < 0) at += size;
    return std::clamp<std::int64_t>(at, 0, size);
  };
  const std::int64_t start = bound(2, 0), step = call.integer(4);
  const std::int64_t end = std::max(bound(3, size), start);
  if (step <= 0) throw KernelError("slice: the step must be positive");
  return narrowed(self, dim, start, (end - start + step - 1) / step, step);
}
Value narrow(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::size_t dim = checked_dim(call.integer(1), self.rank());
  const std::int64_t start = call.integer(2) < 0 ? call.integer(2) + self.sizes[dim] : call.integer(2);
  if (start < 0 || call.integer(3) < 0 || start + call.integer(3) > self.sizes[dim])
    throw KernelError("narrow: out of range");
  return narrowed(self, dim, start, call.integer(3));
}
Tensor selected(const Tensor& self, std::size_t dim, std::int64_t index) {
  if (index < 0) index += self.sizes[dim];
  if (index < 0 || index >= self.sizes[dim]) throw KernelError("select: index out of range");
  Extents sizes = self.sizes, strides = self.strides;
  const std::int64_t offset = self.offset + index * strides[dim];
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(dim));
  return self.view(sizes, strides, offset);
}
Value select(KernelCall& call) {
  return selected(call.tensor(0), checked_dim(call.integer(1), call.tensor(0).rank()), call.integer(2));
}
Value unbind(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::size_t dim = checked_dim(call.integer(1), self.rank());
  std::vector<Value> parts;
  for (std::int64_t i = 0; i < self.sizes[dim]; ++i) parts.push_back(selected(self, dim, i));
  return Value::list(std::move(parts));
}

Value split_into(const Tensor& self, const Extents& lengths, std::int64_t dim_arg) {
  const std::size_t dim = checked_dim(dim_arg, self.rank());
  std::vector<Value> parts;
  std::int64_t start = 0;
  for (std::int64_t length : lengths) {
    if (length < 0 || start + length > self.sizes[dim]) throw KernelError("split sizes exceed the dimension");
    parts.push_back(narrowed(self, dim, start, length));
    start += length;
  }
  if (start != self.sizes[dim])
    throw KernelError("split sizes add up to " + std::to_string(start) + ", not " +
                      std::to_string(self.sizes[dim]));
  return Value::list(std::move(parts));
}
Value split_with_sizes(KernelCall& call) {
  return split_into(call.tensor(0), call[1].integers(), call.integer(2));
}
Extents equal_lengths(std::int64_t size, std::int64_t length) {
  if (length <= 0) throw KernelError("split: the length must be positive");
  Extents lengths;
  for (std::int64_t start = 0; start < size || lengths.empty(); start += length)
    lengths.push_back(std::min(length, size - start));
  return lengths;
}
Value split(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::int64_t size = self.sizes[checked_dim(call.integer(2), self.rank())];
  return split_into(self, equal_lengths(size, call.integer(1)), call.integer(2));
}
Value chunk(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::int64_t size = self.sizes[checked_dim(call.integer(2), self.rank())], count = call.integer(1);
  if (count <= 0) throw KernelError("chunk: the count must be positive");
  if (size == 0) return split_into(self, Extents(static_cast<std::size_t>(count), 0), call.integer(2));
  return split_into(self, equal_lengths(size, (size + count - 1) / count), call.integer(2));
}

Value view_dtype(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const DType dtype = call[1].as<DType>();
  const std::int64_t from = info(self.dtype).bytes, to = info(dtype).bytes;
  Tensor result{dtype, self.sizes, self.strides, self.offset, self.storage};
  if (from != to) {
    if (self.rank() == 0 || self.strides.back() != 1)
      throw KernelError("view as another dtype: last stride is not 1");
    const auto rescale = [&](std::int64_t n) {
      if (n * from % to != 0) throw KernelError("view as another dtype: sizes do not divide");
      return n * from / to;
    };
    result.offset = rescale(self.offset);
    result.sizes.back() = rescale(self.sizes.back());
    for (std::size_t d = 0; d + 1 < self.rank(); ++d) result.strides[d] = rescale(self.strides[d]);
  }
  check_bounds(result);
  return result;
}

Value view_as_complex(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  if (self.dtype != DType::kFloat32 || self.rank() == 0 || self.sizes.back() != 2 || self.strides.back() != 1)
    throw KernelError("view_as_complex: float32 with a last dimension of 2 and stride 1");
  Tensor result{DType::kComplex64, self.sizes, self.strides, self.offset / 2, self.storage};
  result.sizes.pop_back();
  result.strides.pop_back();
  bool is_even = self.offset % 2 == 0;
  for (std::int64_t& stride : result.strides) {
    is_even = is_even && stride % 2 == 0;
    stride /= 2;
  }
  if (!is_even) throw KernelError("view_as_complex: strides and offset must be even");
  check_bounds(result);
  return result;
}
Value view_as_real(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  if (self.dtype != DType::kComplex64) throw KernelError("view_as_real: complex64 only");
  Tensor result{DType::kFloat32, self.sizes, self.strides, self.offset * 2, self.storage};
  for (std::int64_t& stride : result.strides) stride *= 2;
  result.sizes.push_back(2);
  result.strides.push_back(1);
  check_bounds(result);
  return result;
}
Value part_of_complex(KernelCall& call, std::int64_t part) {
  const Tensor& self = call.tensor(0);
  if (self.dtype != DType::kComplex64) {
    if (part == 0) return self;
    throw KernelError("imag: complex64 only");
  }
  Tensor result{DType::kFloat32, self.sizes, self.strides, self.offset * 2 + part, self.storage};
  for (std::int64_t& stride : result.strides) stride *= 2;
  check_bounds(result);
  return result;
}
Value real(KernelCall& call) {
  return part_of_complex(call, 0);
}
Value imag(KernelCall& call) {
  return part_of_complex(call, 1);
}

Value diagonal(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::int64_t shift = call.integer(1);
  const std::size_t a = checked_dim(call.integer(2), self.rank()),
                    b = checked_dim(call.integer(3), self.rank());
  if (a == b) throw KernelError("diagonal: two different dimensions");
  const std::int64_t length =
      std::max<std::int64_t>(shift >= 0 ? std::min(self.sizes[a], self.sizes[b] - shift)
                                        : std::min(self.sizes[a] + shift, self.sizes[b]),
                             0);
  Extents sizes, strides;
  for (std::size_t d = 0; d < self.rank(); ++d) {
    if (d == a || d == b) continue;
    sizes.push_back(self.sizes[d]);
    strides.push_back(self.strides[d]);
  }
  sizes.push_back(length);
  strides.push_back(self.strides[a] + self.strides[b]);
  const std::int64_t start = length == 0  ? 0
                             : shift >= 0 ? shift * self.strides[b]
                                          : -shift * self.strides[a];
  return self.view(sizes, strides, self.offset + start);
}

constexpr KernelRow kRows[] = {
    {"aten._reshape_copy.default", reshape_copy},
    {"aten._unsafe_view.default", view},
    {"aten.alias.default", alias},
    {"aten.as_strided.default", as_strided},
    {"aten.chunk.default", chunk},
    {"aten.detach.default", alias},
    {"aten.detach_.default", alias},
    {"aten.diagonal.default", diagonal},
    {"aten.expand.default", expand},
    {"aten.imag.default", imag},
    {"aten.lift.default", alias},
    {"aten.lift_fresh.default", alias},
    {"aten.narrow.default", narrow},
    {"aten.permute.default", permute},
    {"aten.real.default", real},
    {"aten.reshape.default", reshape},
    {"aten.resolve_conj.default", alias},
    {"aten.select.int", select},
    {"aten.slice.Tensor", slice},
    {"aten.split.Tensor", split},
    {"aten.split.sizes", split_with_sizes},
    {"aten.split_with_sizes.default", split_with_sizes},
    {"aten.squeeze.default", squeeze},
    {"aten.squeeze.dim", squeeze_dims},
    {"aten.squeeze.dims", squeeze_dims},
    {"aten.t.default", t},
    {"aten.transpose.int", transpose},
    {"aten.unbind.int", unbind},
    {"aten.unsafe_chunk.default", chunk},
    {"aten.unsafe_split.Tensor", split},
    {"aten.unsafe_split_with_sizes.default", split_with_sizes},
    {"aten.unsqueeze.default", unsqueeze},
    {"aten.view.default", view},
    {"aten.view.dtype", view_dtype},
    {"aten.view_as_complex.default", view_as_complex},
    {"aten.view_as_real.default", view_as_real},
    {"aten.view_copy.default", reshape_copy},
};

}  // namespace

std::span<const KernelRow> view_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
