// Indexing, gathering, scattering, joining, padding.
#include <algorithm>

#include "ir/types/promotion.h"
#include "ops/rules.h"

namespace epweave::rules {
namespace {

bool is_index(DType dtype) {
  return dtype == DType::kInt64 || dtype == DType::kInt32 || dtype == DType::kInt8 ||
         dtype == DType::kUint8 || dtype == DType::kBool;
}

bool is_mask(const TensorType* index) {
  return index != nullptr && (index->dtype == DType::kBool || index->dtype == DType::kUint8);
}

// Whether some index is a mask: it selects as many positions as it has ones, a number that depends
// on data.
bool has_mask(TypeRuleCall& call) {
  const auto indices = call.optional_tensors(1);
  return std::any_of(indices.begin(), indices.end(), is_mask);
}

// The index tensors of an advanced index, one per dimension of self, null where it takes all. A
// mask of r dimensions stands for r index tensors of type `selected`.
std::vector<const TensorType*> indices_of(TypeRuleCall& call, const TensorType& self,
                                          const TensorType* selected = nullptr) {
  std::vector<const TensorType*> indices;
  for (const TensorType* index : call.optional_tensors(1)) {
    if (index != nullptr && !is_index(index->dtype))
      call.mismatch("an index is {}", info(index->dtype).short_name);
    const bool masks = selected != nullptr && is_mask(index);
    indices.insert(indices.end(), masks ? index->rank() : 1, masks ? selected : index);
  }
  if (indices.size() > self.rank())
    call.mismatch("{} indices for {} dimensions", indices.size(), self.rank());
  indices.resize(self.rank(), nullptr);
  return indices;
}

// A mask has the extents of the dimensions that it stands for.
void check_masks(TypeRuleCall& call, const TensorType& self) {
  std::size_t at = 0;
  for (const TensorType* index : call.optional_tensors(1)) {
    const std::size_t rank = is_mask(index) ? index->rank() : 1;
    for (std::size_t i = 0; is_mask(index) && i < rank && at + i < self.rank(); ++i)
      call.check_equal(index->sizes[i], self.sizes[at + i], "sizes of a mask and of what it selects");
    at += rank;
  }
}

Dims index_sizes(TypeRuleCall& call, std::span<const TensorType* const> indices) {
  std::vector<std::span<const ExprId>> shapes;
  for (const TensorType* index : indices)
    if (index != nullptr) shapes.emplace_back(index->sizes);
  if (shapes.empty()) call.mismatch("no index is given");
  return broadcast_sizes(call, shapes);
}

// Whether the indexed dimensions are adjacent: then the result has the index's shape in their
// place.
bool is_adjacent(std::span<const TensorType* const> indices) {
  std::size_t runs = 0;
  for (std::size_t i = 0; i < indices.size(); ++i)
    if (indices[i] != nullptr && (i == 0 || indices[i - 1] == nullptr)) ++runs;
  return runs == 1;
}

// self seen with the result's shape, stride 0 along the index: its order of dimensions is the
// result's (meta_index_Tensor).
struct Indexed {
  Dims sizes, strides;
};

Indexed indexed_layout(const TensorType& self, std::span<const TensorType* const> indices,
                       const Dims& index_sizes, ExprId zero) {
  Indexed result;
  auto put_index = [&] {
    result.sizes.insert(result.sizes.end(), index_sizes.begin(), index_sizes.end());
    result.strides.insert(result.strides.end(), index_sizes.size(), zero);
  };
  const bool in_place = is_adjacent(indices);
  bool is_put = !in_place;
  if (!in_place) put_index();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] == nullptr) {
      result.sizes.push_back(self.sizes[i]);
      result.strides.push_back(self.strides[i]);
    } else if (!is_put) {
      put_index();
      is_put = true;
    }
  }
  return result;
}

// How a gather or scatter's index must fit: the same rank, and nowhere larger but along `dim`.
void check_gather(TypeRuleCall& call, const TensorType& self, const TensorType& index, std::size_t dim) {
  if (index.dtype != DType::kInt64 && index.dtype != DType::kInt32)
    call.mismatch("the index is {}", info(index.dtype).short_name);
  if (std::max<std::size_t>(self.rank(), 1) != std::max<std::size_t>(index.rank(), 1))
    call.mismatch("the index has {} dimensions, the tensor {}", index.rank(), self.rank());
  for (std::size_t i = 0; i < index.rank() && i < self.rank(); ++i) {
    const ExprId limit = call.exprs.add(self.sizes[i], call.number(1));
    if (i != dim && call.facts.at_least(index.sizes[i], limit))
      call.mismatch("the index has {} in dimension {}, the tensor {}", call.text(index.sizes[i]), i,
                    call.text(self.sizes[i]));
  }
}

void check_scatter(TypeRuleCall& call, const TensorType& self) {
  check_gather(call, self, call.tensor(std::size_t{2}), call.dim_or_scalar(1, self.rank()));
  if (!call.arg(3).is_node() || tensor_of(call.context, call.type_of(call.arg(3))) == nullptr) return;
  const TensorType &index = call.tensor(std::size_t{2}), &source = call.tensor(std::size_t{3});
  if (source.dtype != self.dtype)
    call.mismatch("the source is {}, the tensor {}", info(source.dtype).short_name,
                  info(self.dtype).short_name);
  if (std::max<std::size_t>(source.rank(), 1) != std::max<std::size_t>(index.rank(), 1))
    call.mismatch("the index has {} dimensions, the source {}", index.rank(), source.rank());
  if (source.rank() == 0)
    call.check_equal(product(call.facts, index.sizes), call.number(1), "the elements of index and source");
  for (std::size_t i = 0; i < index.rank() && i < source.rank(); ++i)
    if (call.facts.at_least(index.sizes[i], call.exprs.add(source.sizes[i], call.number(1))))
      call.mismatch("the index has {} in dimension {}, the source {}", call.text(index.sizes[i]), i,
                    call.text(source.sizes[i]));
}

// The shape in which an advanced index stands for the indexed dimensions; a null extent depends on
// data.
Dims shape_of_index(TypeRuleCall& call, const TensorType& self, bool is_masked) {
  if (!is_masked) return index_sizes(call, indices_of(call, self));
  // A mask gives one dimension, with which the other indices broadcast.
  std::size_t rank = 1;
  for (const TensorType* index : call.optional_tensors(1))
    if (index != nullptr && !is_mask(index)) rank = std::max(rank, index->rank());
  return Dims(rank);
}

// What index_put writes broadcasts to the shape of self at these indices, and not the other way
// about.
void check_written(TypeRuleCall& call, const TensorType& values, const Dims& indexed) {
  if (values.rank() > indexed.size())
    call.mismatch("the values have {} dimensions, what is indexed {}", values.rank(), indexed.size());
  const std::size_t first = indexed.size() - values.rank();
  for (std::size_t i = 0; i < values.rank(); ++i) {
    const ExprId size = values.sizes[i], wanted = indexed[first + i];
    if (wanted && !is_one(call.facts, size) && call.facts.differ(size, wanted))
      call.mismatch("the values have {} in dimension {}, what is indexed {}", call.text(size), i,
                    call.text(wanted));
  }
}

void check_index_put(TypeRuleCall& call, const TensorType& self) {
  check_masks(call, self);
  const bool is_masked = has_mask(call);
  const TensorType selected = {};  // stands in place of a mask: only that a dimension is indexed counts
  const auto indices = indices_of(call, self, is_masked ? &selected : nullptr);
  const Indexed target = indexed_layout(self, indices, shape_of_index(call, self, is_masked), call.number(0));
  const TensorType& values = call.tensor(std::size_t{2});
  check_written(call, values, target.sizes);
  if (values.dtype != self.dtype)
    call.mismatch("the values are {}, the tensor {}", info(values.dtype).short_name,
                  info(self.dtype).short_name);
}

}  // namespace

TypeId index(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  TensorType selected;
  check_masks(call, self);
  if (has_mask(call)) {
    const ExprId count = call.bound_symbol();
    if (!count) return TypeId();
    selected.sizes = {count};
  }
  const auto indices = indices_of(call, self, selected.sizes.empty() ? nullptr : &selected);
  Indexed layout = indexed_layout(self, indices, index_sizes(call, indices), call.number(0));
  const Layout restrided{layout.sizes, layout.strides};
  Dims strides = elementwise_strides(call.facts, layout.sizes, std::span(&restrided, 1));
  return call.result(self.dtype, std::move(layout.sizes), std::move(strides), self.device);
}

TypeId index_put(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  check_index_put(call, self);
  return call.fresh_like(self);
}

TypeId index_put_in_place(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  check_index_put(call, self);
  return call.same(self);
}

TypeId gather(TypeRuleCall& call) {
  const TensorType &self = call.tensor(std::size_t{0}), &index = call.tensor(std::size_t{2});
  check_gather(call, self, index, call.dim_or_scalar(1, self.rank()));
  return call.contiguous(self.dtype, index.sizes, self.device);
}

TypeId scatter(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  check_scatter(call, self);
  return call.contiguous(self.dtype, self.sizes, self.device);
}

TypeId scatter_in_place(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  check_scatter(call, self);
  return call.same(self);
}

// scatter_reduce(self, dim, index, src, reduce).
TypeId scatter_reduce(TypeRuleCall& call) {
  static constexpr std::string_view kReductions[] = {"sum", "prod", "mean", "amax", "amin"};
  const Arg reduction = call.arg(4);
  if (reduction.is(ArgKind::kText) &&
      std::ranges::find(kReductions, call.context.text(reduction.as_name())) == std::end(kReductions))
    call.mismatch("no reduction is called '{}'", call.context.text(reduction.as_name()));
  return scatter(call);
}

// torchtitan.deterministic_scatter_add(out, index, src): scatter_add along dimension 0. The index
// may have symbolic rows whose number equals the source's only when the program runs.
TypeId deterministic_scatter_add(TypeRuleCall& call) {
  const TensorType &out = call.tensor(std::size_t{0}), &index = call.tensor(std::size_t{1}),
                   &source = call.tensor(std::size_t{2});
  check_gather(call, out, index, 0);
  if (source.dtype != out.dtype)
    call.mismatch("the source is {}, the tensor {}", info(source.dtype).short_name,
                  info(out.dtype).short_name);
  return call.fresh_like(out);
}

namespace {

void require_numbers_of_rows(TypeRuleCall& call, const TensorType& index) {
  if (index.dtype != DType::kInt64 && index.dtype != DType::kInt32)
    call.mismatch("the index is {}", info(index.dtype).short_name);
  if (index.rank() > 1) call.mismatch("the index has {} dimensions", index.rank());
}

void require_int64(TypeRuleCall& call, const TensorType& index) {
  if (index.dtype != DType::kInt64) call.mismatch("the index is {}, not i64", info(index.dtype).short_name);
}

// Of index_add, index_copy (self, dim, index, source): as many rows in the source as the index has
// numbers, as large as those of self. A tensor of no dimension is one row.
void check_rows_written(TypeRuleCall& call) {
  const TensorType &self = call.tensor(std::size_t{0}), &index = call.tensor(std::size_t{2}),
                   &source = call.tensor(std::size_t{3});
  require_numbers_of_rows(call, index);
  const std::size_t dim = call.dim_or_scalar(1, self.rank());
  if (std::max<std::size_t>(source.rank(), 1) != std::max<std::size_t>(self.rank(), 1))
    call.mismatch("the source has {} dimensions, the tensor {}", source.rank(), self.rank());
  for (std::size_t i = 0; i < source.rank() && i < self.rank(); ++i)
    if (i != dim) call.check_equal(self.sizes[i], source.sizes[i], "sizes of the tensor and the source");
  call.check_equal(product(call.facts, index.sizes), source.rank() == 0 ? call.number(1) : source.sizes[dim],
                   "numbers in the index and rows of the source");
}
void check_rows_added(TypeRuleCall& call) {
  check_rows_written(call);
  if (call.tensor(std::size_t{0}).rank() == 0) call.check_rank(call.tensor(std::size_t{3}), 0, "the source");
}
void check_rows_copied(TypeRuleCall& call) {
  check_rows_written(call);
  require_int64(call, call.tensor(std::size_t{2}));
}

}  // namespace

TypeId index_add(TypeRuleCall& call) {
  check_rows_added(call);
  return contiguous_of_self(call);
}
TypeId index_add_in_place(TypeRuleCall& call) {
  check_rows_added(call);
  return call.same(call.tensor(std::size_t{0}));
}
TypeId index_copy(TypeRuleCall& call) {
  check_rows_copied(call);
  return contiguous_of_self(call);
}
TypeId index_copy_in_place(TypeRuleCall& call) {
  check_rows_copied(call);
  return call.same(call.tensor(std::size_t{0}));
}

// index_fill(self, dim, index, value).
TypeId index_fill(TypeRuleCall& call) {
  const TensorType &self = call.tensor(std::size_t{0}), &index = call.tensor(std::size_t{2});
  require_numbers_of_rows(call, index);
  require_int64(call, index);
  call.dim_or_scalar(1, self.rank());
  return copy_of_self(call);
}

TypeId index_select(TypeRuleCall& call) {
  const TensorType &self = call.tensor(std::size_t{0}), &index = call.tensor(std::size_t{2});
  require_numbers_of_rows(call, index);
  Dims sizes = self.sizes;
  const std::size_t dim = call.dim_or_scalar(1, self.rank());
  const ExprId count = product(call.facts, index.sizes);
  if (self.rank() > 0)
    sizes[dim] = count;
  else
    call.check_equal(count, call.number(1), "numbers in the index and elements of a scalar");
  return call.contiguous(self.dtype, std::move(sizes), self.device);
}

TypeId embedding(TypeRuleCall& call) {
  const TensorType &weight = call.tensor(std::size_t{0}), &indices = call.tensor(std::size_t{1});
  call.check_rank(weight, 2, "the weight");
  if (indices.dtype != DType::kInt64 && indices.dtype != DType::kInt32)
    call.mismatch("the indices are {}", info(indices.dtype).short_name);
  Dims sizes = indices.sizes;
  sizes.push_back(weight.sizes[1]);
  return call.contiguous(weight.dtype, std::move(sizes), weight.device);
}

// embedding_dense_backward(grad_output, indices, num_weights, ...).
TypeId embedding_backward(TypeRuleCall& call) {
  const TensorType &grad = call.tensor(std::size_t{0}), &indices = call.tensor(std::size_t{1});
  if (indices.dtype != DType::kInt64 && indices.dtype != DType::kInt32)
    call.mismatch("the indices are {}", info(indices.dtype).short_name);
  call.check_rank(grad, indices.rank() + 1, "the gradient");
  for (std::size_t i = 0; i < indices.rank(); ++i) call.check_equal(grad.sizes[i], indices.sizes[i], "sizes");
  return call.contiguous(grad.dtype, {call.extent(2), grad.sizes.back()}, grad.device);
}

// repeat_interleave(repeats, *, output_size): without the size the extent depends on data.
TypeId repeat_interleave(TypeRuleCall& call) {
  const TensorType& repeats = call.tensor(std::size_t{0});
  if (!call.has(1)) return bound_rows(call);
  return call.contiguous(repeats.dtype, {call.extent(1)}, repeats.device);
}

TypeId cat(TypeRuleCall& call) {
  const auto tensors = call.tensors(0);
  if (tensors.empty()) call.mismatch("no tensors");
  const TensorType* example = tensors.front();
  for (const TensorType* tensor : tensors)
    if (tensor->rank() != 1 && example->rank() == 1) example = tensor;
  const std::size_t dim = call.dim(1, example->rank());
  Dims sizes = example->sizes;
  Dims lengths;
  Promotion promotion;
  for (const TensorType* tensor : tensors) {
    promotion.add_tensor(tensor->dtype, tensor->rank());
    if (tensor->device != example->device) call.mismatch("the tensors are on different devices");
    // A 1-dimensional tensor of no elements goes with any shape.
    if (tensor->rank() == 1 && example->rank() != 1 && is_zero(call.facts, tensor->sizes[0])) continue;
    call.check_rank(*tensor, sizes.size(), "a tensor");
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (i != dim) call.check_equal(sizes[i], tensor->sizes[i], "sizes");
    lengths.push_back(tensor->sizes[dim]);
  }
  sizes[dim] = sum(call.facts, lengths);
  return call.contiguous(promotion.result(), std::move(sizes), example->device);
}

TypeId stack(TypeRuleCall& call) {
  const auto tensors = call.tensors(0);
  if (tensors.empty()) call.mismatch("no tensors");
  const TensorType& first = *tensors.front();
  Promotion promotion;
  for (const TensorType* tensor : tensors) {
    promotion.add_tensor(tensor->dtype, tensor->rank());
    call.check_rank(*tensor, first.rank(), "a tensor");
    for (std::size_t i = 0; i < first.rank(); ++i)
      call.check_equal(first.sizes[i], tensor->sizes[i], "sizes");
  }
  Dims sizes = first.sizes;
  const auto at = static_cast<std::ptrdiff_t>(call.dim_or_scalar(1, first.rank() + 1));
  sizes.insert(sizes.begin() + at, call.number(static_cast<std::int64_t>(tensors.size())));
  return call.contiguous(promotion.result(), std::move(sizes), first.device);
}

// constant_pad_nd(self, pad, value): pad lists (before, after) from the last dimension on. Where
// nothing is added, it is a clone of what is left, with the order of its strides; else it is in
// self's memory format.
TypeId pad(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const Dims pads = call.extents(1);
  if (pads.size() % 2 != 0 || pads.size() / 2 > self.rank())
    call.mismatch("{} paddings for {} dimensions", pads.size(), self.rank());
  Dims sizes = self.sizes;
  bool adds_nothing = true;
  for (std::size_t i = 0; i < pads.size(); i += 2) {
    ExprId& size = sizes[self.rank() - 1 - i / 2];
    size = call.exprs.add(size, call.exprs.add(pads[i], pads[i + 1]));
    for (const ExprId added : {pads[i], pads[i + 1]})
      adds_nothing &= call.facts.at_least(call.number(0), added);
  }
  if (adds_nothing) {
    TensorType left = self;
    left.sizes = std::move(sizes);
    return call.fresh_like(left);
  }
  return call.has_channels_last(self.sizes, self.strides)
             ? call.channels_last(self.dtype, std::move(sizes), self.device)
             : call.contiguous(self.dtype, std::move(sizes), self.device);
}

// slice_backward, select_backward (grad_output, input_sizes, ...).
TypeId zeros_of_input(TypeRuleCall& call) {
  const TensorType& grad = call.tensor(std::size_t{0});
  return call.contiguous(grad.dtype, call.extents(1), grad.device);
}

// A copy of self, changed.
TypeId copy_of_self(TypeRuleCall& call) {
  return call.fresh_like(call.tensor(std::size_t{0}));
}
// slice_scatter, select_scatter: strides kept as they are, unless elements overlap.
TypeId scatter_view(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  for (std::size_t i = 0; i < self.rank(); ++i)
    if (is_zero(call.facts, self.strides[i]) && !is_one(call.facts, self.sizes[i]))
      return call.fresh_like(self);
  return call.same(self);
}
// masked_scatter_backward(grad_output, mask, sizes).
TypeId masked_scatter_backward(TypeRuleCall& call) {
  const TensorType &grad = call.tensor(std::size_t{0}), &mask = call.tensor(1);
  if (mask.dtype != DType::kBool) call.mismatch("the mask is {}, not bool", info(mask.dtype).short_name);
  return call.contiguous(grad.dtype, call.extents(2), grad.device);
}
TypeId flip(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.laid_out_like(self, self.dtype);
}
TypeId contiguous_of_self(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(self.dtype, self.sizes, self.device);
}

TypeId repeat(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  Dims sizes = call.extents(1);
  if (sizes.size() < self.rank()) call.mismatch("{} repeats for {} dimensions", sizes.size(), self.rank());
  const std::size_t added = sizes.size() - self.rank();
  for (std::size_t i = 0; i < self.rank(); ++i)
    sizes[added + i] = call.exprs.mul(sizes[added + i], self.sizes[i]);
  return call.contiguous(self.dtype, std::move(sizes), self.device);
}

// one_hot(self, num_classes): -1 takes the number from the data.
TypeId one_hot(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const ExprId classes = call.extent(1);
  if (classes == call.number(-1)) call.mismatch("the number of classes depends on data");
  Dims sizes = self.sizes;
  sizes.push_back(classes);
  return call.contiguous(DType::kInt64, std::move(sizes), self.device);
}

// searchsorted(sorted_sequence, self, *, out_int32, ...), bucketize(self, boundaries, *, out_int32,
// ...). The boundaries are one row for all values, or one for each row of them.
TypeId searchsorted(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{1});
  const Dims& boundaries = call.tensor(std::size_t{0}).sizes;
  if (boundaries.size() != 1 && boundaries.size() != std::max<std::size_t>(self.sizes.size(), 1))
    call.mismatch("boundaries have one dimension, or {} as the values have", self.sizes.size());
  for (std::size_t d = 0; d + 1 < boundaries.size(); ++d)
    call.check_equal(boundaries[d], self.sizes[d], "rows of boundaries and values");
  return call.contiguous(call.boolean(2) ? DType::kInt32 : DType::kInt64, self.sizes, self.device);
}

TypeId bucketize(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(call.boolean(2) ? DType::kInt32 : DType::kInt64, self.sizes, self.device);
}

}  // namespace epweave::rules
