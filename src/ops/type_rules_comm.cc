// Collectives and the ops that fill their buckets.
#include <algorithm>

#include "ir/types/promotion.h"
#include "ops/rules.h"

namespace epweave::rules {
namespace {

TypeId gathered(TypeRuleCall& call, const TensorType& input, ExprId group_size) {
  if (input.rank() == 0) return call.contiguous(input.dtype, {group_size}, input.device);
  Dims sizes = input.sizes;
  sizes[0] = call.exprs.mul(sizes[0], group_size);
  return call.contiguous(input.dtype, std::move(sizes), input.device);
}

TypeId scattered(TypeRuleCall& call, const TensorType& input, ExprId group_size) {
  if (input.rank() == 0) call.mismatch("a 0-dimensional tensor cannot be scattered");
  const auto rows = call.exprs.constant(call.facts.normalize(input.sizes[0]));
  const auto ranks = call.exprs.constant(group_size);
  if (rows && ranks && *ranks > 0 && *rows % *ranks != 0)
    call.mismatch("{} rows are not divisible among {} ranks", *rows, *ranks);
  Dims sizes = input.sizes;
  sizes[0] = call.exprs.floordiv(sizes[0], group_size);
  return call.contiguous(input.dtype, std::move(sizes), input.device);
}

template <class Each>
TypeId each_tensor(TypeRuleCall& call, const Each& each) {
  std::vector<TypeId> results;
  for (const TensorType* tensor : call.tensors(0)) results.push_back(each(*tensor));
  return call.list_of(std::move(results));
}

// Of the group that the argument names, or that its node looked up.
std::int64_t ranks_of_group(TypeRuleCall& call, std::size_t param) {
  const StringId group = recorded_group(call.context, call.body, call.arg(param));
  if (!group) call.mismatch("{} names no process group", call.name_of(param));
  const ProcessGroup* row = call.graph.find_group(group);
  if (row == nullptr || row->ranks.empty())
    call.mismatch("the table of process groups has no ranks of '{}'", call.context.text(group));
  return static_cast<std::int64_t>(row->ranks.size());
}

// Torch refuses a negative one.
std::size_t plain_dim(TypeRuleCall& call, std::size_t param, const TensorType& tensor) {
  const std::int64_t dim = call.integer(param);
  if (dim < 0 || dim >= static_cast<std::int64_t>(tensor.rank()))
    call.mismatch("{} is {}, of {} dimensions", call.name_of(param), dim, tensor.rank());
  return static_cast<std::size_t>(dim);
}

// What a product on rows of any number of dimensions takes. Torch gives it the right factor's
// dtype; the two are one.
void check_factors(TypeRuleCall& call, const TensorType& rows, const TensorType& right) {
  if (rows.rank() < 2) call.mismatch("A has {} dimensions, not 2 or more", rows.rank());
  call.check_rank(right, 2, "B");
  if (rows.dtype != right.dtype)
    call.mismatch("dtypes {} and {} differ", info(rows.dtype).short_name, info(right.dtype).short_name);
  if (rows.device != right.device)
    call.mismatch("operands are on {} and {}", call.context.text(rows.device),
                  call.context.text(right.device));
}

// With dimension `first` outermost in memory, the others in order: what torch's kernels of fused
// gathers leave, who work on it as on dimension 0.
TypeId laid_out_by(TypeRuleCall& call, const TensorType& like, const Dims& sizes, std::size_t first) {
  Dims strides(sizes.size(), call.number(1));
  ExprId stride = call.number(1);
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (i == first) continue;
    strides[i] = stride;
    stride = call.exprs.mul(stride, sizes[i]);
  }
  strides[first] = stride;
  return call.result(like.dtype, sizes, std::move(strides), like.device);
}

// inductor's bucketing names a dtype by its position among the dtypes in dir(torch) (_ALL_DTYPES):
// for each position of torch 2.15, the bytes of an element.
std::int64_t bytes_of_bucket_dtype(TypeRuleCall& call, std::int64_t position) {
  static constexpr std::uint8_t kBytes[] = {4, 2, 1, 2, 1, 1, 1, 1, 1, 16, 8, 4, 16, 4, 8, 8, 4, 2, 4,
                                            1, 8, 1, 1, 1, 1, 1, 2, 4, 1,  2, 1, 1,  4, 1, 1, 1, 8, 1,
                                            1, 8, 4, 1, 1, 1, 1, 2, 1, 2,  1, 1, 4,  1, 1, 1, 8, 1, 1};
  if (position < 0 || static_cast<std::size_t>(position) >= std::size(kBytes))
    call.mismatch("bucket dtype {} is not known", position);
  return kBytes[position];
}

}  // namespace

// all_gather_into_tensor(input, group_size, group_name).
TypeId all_gather(TypeRuleCall& call) {
  return gathered(call, call.tensor(std::size_t{0}), call.extent(1));
}

// all_gather_into_tensor_out(input, group_size, group_name, *, out).
TypeId all_gather_out(TypeRuleCall& call) {
  const TensorType &input = call.tensor(std::size_t{0}), &out = call.tensor(std::size_t{3});
  const TypeId expected = gathered(call, input, call.extent(1));
  const TensorType& wanted = *tensor_of(call.context, expected);
  if (out.dtype != wanted.dtype) call.mismatch("out is {}", info(out.dtype).short_name);
  call.check_equal(product(call.facts, out.sizes), product(call.facts, wanted.sizes), "numbers of elements");
  return call.same(out);
}

TypeId all_gather_each(TypeRuleCall& call) {
  const ExprId ranks = call.extent(1);
  return each_tensor(call, [&](const TensorType& tensor) { return gathered(call, tensor, ranks); });
}

// reduce_scatter_tensor(input, reduce_op, group_size, group_name).
TypeId reduce_scatter(TypeRuleCall& call) {
  return scattered(call, call.tensor(std::size_t{0}), call.extent(2));
}

TypeId reduce_scatter_out(TypeRuleCall& call) {
  return call.same(call.tensor(*call.node.op->find_param("out")));
}

TypeId reduce_scatter_each(TypeRuleCall& call) {
  const ExprId ranks = call.extent(2);
  return each_tensor(call, [&](const TensorType& tensor) { return scattered(call, tensor, ranks); });
}

// all_reduce, broadcast: new storage of the same layout.
TypeId all_reduce(TypeRuleCall& call) {
  return call.fresh_like(call.tensor(std::size_t{0}));
}

TypeId all_reduce_each(TypeRuleCall& call) {
  return each_tensor(call, [&](const TensorType& tensor) { return call.fresh_like(tensor); });
}

TypeId same_each(TypeRuleCall& call) {
  return each_tensor(call, [&](const TensorType& tensor) { return call.same(tensor); });
}

// all_to_all_single(input, output_split_sizes, input_split_sizes, group_name): rows are the output
// splits' sum, or those of the input where there are none (collective_arguments.h).
TypeId all_to_all(TypeRuleCall& call) {
  const TensorType& input = call.tensor(std::size_t{0});
  const Dims received = call.extents(1), sent = call.extents(2);
  if (input.rank() == 0) call.mismatch("a 0-dimensional tensor has no rows to exchange");
  if (!sent.empty()) {
    const ExprId total = sum(call.facts, sent);
    if (call.facts.differ(total, input.sizes[0]))
      call.mismatch("the input splits sum to {}, the input has {} rows", call.text(total),
                    call.text(input.sizes[0]));
  }
  Dims sizes = input.sizes;
  if (!received.empty()) sizes[0] = sum(call.facts, received);
  return call.contiguous(input.dtype, std::move(sizes), input.device);
}

// fused_all_gather_matmul(A, Bs, gather_dim, group_name, *, return_A): what is gathered, or None,
// and the products.
TypeId all_gather_matmul(TypeRuleCall& call) {
  const TensorType& shard = call.tensor(std::size_t{0});
  const auto factors = call.tensors(1);
  if (factors.empty()) call.mismatch("Bs is empty");
  const std::size_t dim = plain_dim(call, 2, shard);
  Dims sizes = shard.sizes;
  sizes[dim] = call.exprs.mul(sizes[dim], call.number(ranks_of_group(call, 3)));
  const auto laid_out = [&](const Dims& of) {
    return dim + 1 == of.size() ? call.contiguous(shard.dtype, of, shard.device)
                                : laid_out_by(call, shard, of, dim);
  };
  std::vector<TypeId> products;
  for (const TensorType* factor : factors) {
    check_factors(call, shard, *factor);
    call.check_equal(sizes.back(), factor->sizes[0], "inner sizes");
    Dims of_product = sizes;
    of_product.back() = factor->sizes[1];
    products.push_back(laid_out(of_product));
  }
  const TypeId gathered_type = call.boolean(4) ? laid_out(sizes) : call.none();
  return call.tuple({gathered_type, call.list_of(std::move(products))});
}

// fused_matmul_reduce_scatter(A, B, reduce_op, scatter_dim, group_name).
TypeId matmul_reduce_scatter(TypeRuleCall& call) {
  const TensorType &rows = call.tensor(std::size_t{0}), &factor = call.tensor(std::size_t{1});
  check_factors(call, rows, factor);
  call.check_equal(rows.sizes.back(), factor.sizes[0], "inner sizes");
  const std::size_t dim = plain_dim(call, 3, rows);
  const std::int64_t ranks = ranks_of_group(call, 4);
  Dims sizes = rows.sizes;
  sizes.back() = factor.sizes[1];
  const auto extent = call.exprs.constant(call.facts.normalize(sizes[dim]));
  if (extent && *extent % ranks != 0)
    call.mismatch("{} rows are not divisible among {} ranks", *extent, ranks);
  sizes[dim] = call.exprs.floordiv(sizes[dim], call.number(ranks));
  return call.contiguous(rows.dtype, std::move(sizes), rows.device);
}

// flex_cp_allgather(k, v, seq_dim, pg_name): both with the rows of all ranks.
TypeId gather_pair(TypeRuleCall& call) {
  const ExprId ranks = call.number(ranks_of_group(call, 3));
  std::vector<TypeId> results;
  for (const std::size_t param : {std::size_t{0}, std::size_t{1}}) {
    const TensorType& rows = call.tensor(param);
    Dims sizes = rows.sizes;
    ExprId& extent = sizes[call.dim(2, rows.rank())];
    extent = call.exprs.mul(extent, ranks);
    results.push_back(call.contiguous(rows.dtype, std::move(sizes), rows.device));
  }
  return call.tuple(std::move(results));
}

// flex_cp_allgather_backward(grad_full_k, grad_full_v, seq_dim, pg_name): this rank's share of
// either.
TypeId scatter_pair(TypeRuleCall& call) {
  const std::int64_t ranks = ranks_of_group(call, 3);
  std::vector<TypeId> results;
  for (const std::size_t param : {std::size_t{0}, std::size_t{1}}) {
    const TensorType& rows = call.tensor(param);
    Dims sizes = rows.sizes;
    ExprId& extent = sizes[call.dim(2, rows.rank())];
    const auto number = call.exprs.constant(call.facts.normalize(extent));
    if (number && *number % ranks != 0)
      call.mismatch("{} rows are not divisible among {} ranks", *number, ranks);
    extent = call.exprs.floordiv(extent, call.number(ranks));
    results.push_back(call.contiguous(rows.dtype, std::move(sizes), rows.device));
  }
  return call.tuple(std::move(results));
}

// _pre_bucket_all_gather(ag_ins, group_size, dtype, out_dtype_ints, rank, ...): one flat buffer of
// all ranks.
TypeId bucket_all_gather(TypeRuleCall& call) {
  const auto inputs = call.tensors(0);
  const auto dtypes = call.integers(3);
  if (inputs.empty() || inputs.size() != dtypes.size())
    call.mismatch("{} tensors and {} dtypes", inputs.size(), dtypes.size());
  const DType dtype = call.dtype_or(2, inputs.front()->dtype);
  ExprId total = call.number(0);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ExprId bytes = call.exprs.mul(product(call.facts, inputs[i]->sizes),
                                        call.number(bytes_of_bucket_dtype(call, dtypes[i])));
    total = call.exprs.add(total, call.exprs.floordiv(bytes, call.number(info(dtype).bytes)));
  }
  return call.contiguous(dtype, {call.exprs.mul(total, call.extent(1))}, inputs.front()->device);
}

// _pre_bucket_reduce_scatter(rs_ins, group_size, unpadded_input_indices): one flat buffer. Inputs
// whose padding was taken off are padded again to a multiple of the group.
TypeId bucket_reduce_scatter(TypeRuleCall& call) {
  const auto inputs = call.tensors(0);
  if (inputs.empty()) call.mismatch("no tensors");
  const std::int64_t ranks = call.integer(1);
  if (ranks <= 0) call.mismatch("a group of {} ranks", ranks);
  const std::vector<std::int64_t> unpadded = call.integers(2);
  Dims lengths;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]->dtype != inputs.front()->dtype) call.mismatch("the tensors have different dtypes");
    Dims sizes = inputs[i]->sizes;
    const bool is_padded =
        std::find(unpadded.begin(), unpadded.end(), static_cast<std::int64_t>(i)) != unpadded.end();
    if (is_padded && !sizes.empty())
      sizes[0] = call.exprs.mul(ceil_div(call.facts, sizes[0], ranks), call.number(ranks));
    lengths.push_back(product(call.facts, sizes));
  }
  return call.contiguous(inputs.front()->dtype, {sum(call.facts, lengths)}, inputs.front()->device);
}

// ao.offload(tensor): a host copy.
TypeId offload(TypeRuleCall& call) {
  const TensorType& tensor = call.tensor(std::size_t{0});
  return call.contiguous(tensor.dtype, tensor.sizes, call.context.strings.intern("cpu"));
}

// ao.reload(tensor, device, original_size, original_stride).
TypeId reload(TypeRuleCall& call) {
  const TensorType& tensor = call.tensor(std::size_t{0});
  Dims sizes = call.has(2) ? call.extents(2) : tensor.sizes;
  Dims strides = call.has(3) ? call.extents(3) : tensor.strides;
  if (sizes.size() != strides.size()) call.mismatch("{} sizes and {} strides", sizes.size(), strides.size());
  return call.result(tensor.dtype, std::move(sizes), std::move(strides), call.device_or(1, tensor.device));
}

}  // namespace epweave::rules
