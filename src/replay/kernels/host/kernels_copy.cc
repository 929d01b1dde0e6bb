// Ops that move elements without computing: casts, copies, cat, pad, buckets.
#include <algorithm>

#include "ir/types/promotion.h"
#include "replay/kernels/host/elements.h"
#include "replay/kernels/host/kernels.h"

namespace epweave::replay::cpu {
namespace {

Tensor copied(KernelCall& call, std::size_t result, const Tensor& from, DType dtype) {
  Tensor out = call.make_result(result, dtype, from.sizes);
  copy_elements(from, out);
  return out;
}

Value to_copy(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  return copied(call, 0, self, call[1].is<DType>() ? call[1].as<DType>() : self.dtype);
}
Value clone(KernelCall& call) {
  return copied(call, 0, call.tensor(0), call.tensor(0).dtype);
}
// aten.copy: src broadcast to self's sizes, in self's dtype.
Value copy(KernelCall& call) {
  Tensor out = call.make_result(0, call.tensor(0).dtype, call.tensor(0).sizes);
  copy_elements(call.tensor(1), out);
  return out;
}
Value copy_in_place(KernelCall& call) {
  copy_elements(call.tensor(1), call.tensor(0));
  return call.tensor(0);
}
Value fill(KernelCall& call) {
  Tensor out = call.make_result(0, call.tensor(0).dtype, call.tensor(0).sizes);
  fill_elements(out, call[1]);
  return out;
}
Value fill_in_place(KernelCall& call) {
  fill_elements(call.tensor(0), call[1]);
  return call.tensor(0);
}
Value zero_in_place(KernelCall& call) {
  fill_elements(call.tensor(0), Value(std::int64_t{0}));
  return call.tensor(0);
}

Tensor part_of(const Tensor& whole, std::size_t dim, std::int64_t start, std::int64_t length) {
  Extents sizes = whole.sizes, strides = whole.strides;
  sizes[dim] = length;
  const std::int64_t offset = length == 0 ? whole.offset : whole.offset + start * whole.strides[dim];
  return whole.view(std::move(sizes), std::move(strides), offset);
}

// torch leaves out tensors of shape [0] whatever the rank of the others.
bool is_skipped(const Tensor& tensor) {
  return tensor.rank() == 1 && tensor.sizes[0] == 0;
}

DType promoted(const std::vector<Tensor>& tensors) {
  Promotion promotion;
  for (const Tensor& tensor : tensors) promotion.add_tensor(tensor.dtype, tensor.rank());
  return promotion.result();
}

Value cat(KernelCall& call) {
  const std::vector<Tensor> tensors = call[0].tensors();
  if (tensors.empty()) throw KernelError("cat of no tensors");
  const Tensor* shape = &tensors.front();
  for (const Tensor& tensor : tensors)
    if (!is_skipped(tensor)) {
      shape = &tensor;
      break;
    }
  const std::size_t dim = checked_dim(call.integer(1), shape->rank());
  Extents sizes = shape->sizes;
  sizes[dim] = 0;
  for (const Tensor& tensor : tensors) {
    if (is_skipped(tensor)) continue;
    if (tensor.rank() != sizes.size()) throw KernelError("cat: different numbers of dimensions");
    for (std::size_t d = 0; d < sizes.size(); ++d)
      if (d != dim && tensor.sizes[d] != shape->sizes[d])
        throw KernelError("cat: sizes differ outside the dimension");
    sizes[dim] += tensor.sizes[dim];
  }
  Tensor out = call.make_result(0, promoted(tensors), sizes);
  std::int64_t start = 0;
  for (const Tensor& tensor : tensors) {
    if (is_skipped(tensor)) continue;
    copy_elements(tensor, part_of(out, dim, start, tensor.sizes[dim]));
    start += tensor.sizes[dim];
  }
  return out;
}
Value stack(KernelCall& call) {
  const std::vector<Tensor> tensors = call[0].tensors();
  if (tensors.empty()) throw KernelError("stack of no tensors");
  const std::size_t dim = checked_dim(call.integer(1), tensors.front().rank() + 1);
  Extents sizes = tensors.front().sizes;
  sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(dim), static_cast<std::int64_t>(tensors.size()));
  Tensor out = call.make_result(0, promoted(tensors), sizes);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].sizes != tensors.front().sizes) throw KernelError("stack: sizes differ");
    Tensor slot = part_of(out, dim, static_cast<std::int64_t>(i), 1);
    slot.sizes.erase(slot.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
    slot.strides.erase(slot.strides.begin() + static_cast<std::ptrdiff_t>(dim));
    copy_elements(tensors[i], slot);
  }
  return out;
}

// Pads are written for the last dimension first: left, right, left, right, ... Negative pads cut.
Value constant_pad(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Extents pad = call[1].integers();
  if (pad.size() % 2 != 0 || pad.size() / 2 > self.rank())
    throw KernelError("pad: two numbers per dimension");
  Extents sizes = self.sizes;
  for (std::size_t i = 0; i < pad.size() / 2; ++i) {
    std::int64_t& size = sizes[self.rank() - 1 - i];
    size += pad[2 * i] + pad[2 * i + 1];
    if (size < 0) throw KernelError("pad: a negative size results");
  }
  Tensor out = call.make_result(0, self.dtype, sizes);
  fill_elements(out, call[2]);
  Tensor from = self, to = out;
  for (std::size_t i = 0; i < pad.size() / 2; ++i) {
    const std::size_t d = self.rank() - 1 - i;
    const std::int64_t left = pad[2 * i], right = pad[2 * i + 1];
    const std::int64_t kept = std::max<std::int64_t>(
        self.sizes[d] + std::min<std::int64_t>(left, 0) + std::min<std::int64_t>(right, 0), 0);
    from = part_of(from, d, std::max<std::int64_t>(-left, 0), kept);
    to = part_of(to, d, std::max<std::int64_t>(left, 0), kept);
  }
  copy_elements(from, to);
  return out;
}

std::vector<Tensor> cut(const Tensor& self, const Extents& lengths, std::int64_t dim_arg) {
  const std::size_t dim = checked_dim(dim_arg, self.rank());
  std::vector<Tensor> parts;
  std::int64_t start = 0;
  for (std::int64_t length : lengths) {
    if (length < 0 || start + length > self.sizes[dim]) throw KernelError("split sizes exceed the dimension");
    parts.push_back(part_of(self, dim, start, length));
    start += length;
  }
  return parts;
}
Value split_copy(KernelCall& call) {
  std::vector<Value> copies;
  const std::vector<Tensor> parts = cut(call.tensor(0), call[1].integers(), call.integer(2));
  for (std::size_t i = 0; i < parts.size(); ++i) copies.push_back(copied(call, i, parts[i], parts[i].dtype));
  return Value::list(std::move(copies));
}
Value split_copy_out(KernelCall& call) {
  const std::vector<Tensor> parts = cut(call.tensor(0), call[1].integers(), call.integer(2));
  const std::vector<Tensor> out = call[3].tensors();
  if (out.size() != parts.size()) throw KernelError("split_with_sizes_copy: as many outputs as parts");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (out[i].sizes != parts[i].sizes)
      throw KernelError("split_with_sizes_copy: an output has other sizes than its part");
    copy_elements(parts[i], out[i]);
  }
  return Value();
}

Value repeat(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Extents times = call[1].integers();
  if (times.size() < self.rank()) throw KernelError("repeat: fewer numbers than dimensions");
  const std::size_t skip = times.size() - self.rank();
  Extents sizes = times, split_sizes, split_strides;
  for (std::size_t d = skip; d < times.size(); ++d) sizes[d] *= self.sizes[d - skip];
  Tensor out = make_tensor(call.memory(), self.dtype, sizes);
  // The result seen as [times, size] for every dimension.
  for (std::size_t d = 0; d < times.size(); ++d) {
    const std::int64_t size = d < skip ? 1 : self.sizes[d - skip];
    split_sizes.insert(split_sizes.end(), {times[d], size});
    split_strides.insert(split_strides.end(), {size * out.strides[d], out.strides[d]});
  }
  Tensor source = self;
  source.sizes.clear();
  source.strides.clear();
  for (std::size_t d = 0; d < times.size(); ++d) {
    source.sizes.insert(source.sizes.end(), {1, d < skip ? 1 : self.sizes[d - skip]});
    source.strides.insert(source.strides.end(), {0, d < skip ? 0 : self.strides[d - skip]});
  }
  if (out.numel() != 0) copy_elements(source, out.view(split_sizes, split_strides, 0));
  return out;
}

Value flip(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  Tensor from = self;
  if (self.numel() != 0)
    for (std::int64_t d : call[1].integers()) {
      const std::size_t dim = checked_dim(d, self.rank());
      if (dim >= self.rank()) continue;
      from.offset += (from.sizes[dim] - 1) * from.strides[dim];
      from.strides[dim] = -from.strides[dim];
    }
  return copied(call, 0, from, self.dtype);
}

// ---- buckets of FSDP's collectives --------------------------------------------------------

// torch's enumeration of its dtypes by name, as the bucketing pass writes them.
DType bucket_dtype(std::int64_t index) {
  switch (index) {
    case 1:
      return DType::kBfloat16;
    case 8:
      return DType::kBool;
    case 15:
    case 20:
      return DType::kFloat64;
    case 16:
    case 18:
      return DType::kFloat32;
    case 17:
    case 26:
      return DType::kFloat16;
    case 27:
    case 32:
      return DType::kInt32;
    case 36:
    case 39:
      return DType::kInt64;
    case 56:
      return DType::kUint8;
    default:
      break;
  }
  throw KernelError("bucket dtype " + std::to_string(index) + " is not known");
}

// Tensors are copied in groups, with -1 between two; one that is in none would stay uninitialised.
void check_groups(const Extents& groups, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (std::ranges::find(groups, static_cast<std::int64_t>(i)) == groups.end())
      throw KernelError("tensor " + std::to_string(i) + " of a bucket is in no group and is not copied");
}

// A buffer for all ranks; this rank's part holds the inputs, cast, one after another. The rest
// stays uninitialised.
Value pre_bucket_all_gather(KernelCall& call) {
  const std::vector<Tensor> inputs = call[0].tensors();
  const std::int64_t ranks = call.integer(1), rank = call.integer(4);
  const DType dtype = call[2].as<DType>();
  const Extents dtypes = call[3].integers();
  if (dtypes.size() != inputs.size()) throw KernelError("as many dtypes as tensors");
  if (!call[5].is<None>()) check_groups(call[5].integers(), inputs.size());
  Buffer<std::int64_t> lengths;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    lengths.push_back(inputs[i].numel() * info(bucket_dtype(dtypes[i])).bytes / info(dtype).bytes);
    total += lengths.back();
  }
  if (rank < 0 || rank >= ranks) throw KernelError("the rank is outside of the group");
  Tensor out = call.make_result(0, dtype, {total * ranks});
  std::int64_t start = total * rank;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const DType cast = bucket_dtype(dtypes[i]);
    const std::int64_t offset = start * info(dtype).bytes / info(cast).bytes;
    Tensor slot{cast, inputs[i].sizes, contiguous_strides(inputs[i].sizes), offset, out.storage};
    check_bounds(slot);
    copy_elements(inputs[i], slot);
    start += lengths[i];
  }
  return out;
}

// Each input's rows cut into `ranks` equal blocks (padded with zeros); block r of every input, then
// r + 1.
Value pre_bucket_reduce_scatter(KernelCall& call) {
  std::vector<Tensor> inputs = call[0].tensors();
  const std::int64_t ranks = call.integer(1);
  if (inputs.empty()) throw KernelError("a bucket of no tensors");
  const DType dtype = inputs.front().dtype;
  std::erase_if(inputs, [](const Tensor& tensor) { return tensor.numel() == 0; });
  std::int64_t total = 0;
  Buffer<std::int64_t> blocks;  // elements per rank
  for (const Tensor& input : inputs) {
    if (input.rank() == 0) throw KernelError("a bucket of tensors with dimensions");
    const std::int64_t rows = (input.sizes[0] + ranks - 1) / ranks;
    blocks.push_back(rows * (input.numel() / input.sizes[0]));
    total += blocks.back();
  }
  Tensor out = call.make_result(0, dtype, {total * ranks});
  std::int64_t start = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& input = inputs[i];
      const std::int64_t rows = (input.sizes[0] + ranks - 1) / ranks;
      const std::int64_t first = std::min(rank * rows, input.sizes[0]);
      const std::int64_t count = std::min(rows, input.sizes[0] - first);
      fill_elements(out.view({blocks[i]}, {1}, start), Value(std::int64_t{0}));
      const Tensor block = part_of(input, 0, first, count);
      copy_elements(block, out.view(block.sizes, contiguous_strides(block.sizes), start));
      start += blocks[i];
    }
  return out;
}

constexpr KernelRow kRows[] = {
    {"ao.offload.default", clone},
    {"ao.reload.default", clone},
    {"ao.wait_tensor.default", [](KernelCall& call) -> Value { return call.tensor(0); }},
    {"aten._to_copy.default", to_copy},
    {"aten.cat.default", cat},
    {"aten.clone.default", clone},
    {"aten.constant_pad_nd.default", constant_pad},
    {"aten.copy.default", copy},
    {"aten.copy_.default", copy_in_place},
    {"aten.fill.Scalar", fill},
    {"aten.fill_.Scalar", fill_in_place},
    {"aten.fill_.Tensor", copy_in_place},
    {"aten.flip.default", flip},
    {"aten.lift_fresh_copy.default", clone},
    {"aten.repeat.default", repeat},
    {"aten.split_with_sizes_copy.default", split_copy},
    {"aten.split_with_sizes_copy.out", split_copy_out},
    {"aten.stack.default", stack},
    {"aten.zero_.default", zero_in_place},
    {"bucketing._pre_bucket_all_gather.default", pre_bucket_all_gather},
    {"bucketing._pre_bucket_reduce_scatter.default", pre_bucket_reduce_scatter},
    {"prims.convert_element_type.default", to_copy},
};

}  // namespace

std::span<const KernelRow> copy_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
