#include "replay/kernels/ops/attention_call.h"

#include <cmath>

#include "replay/kernels/host/elements.h"

namespace epweave::replay::cpu {
namespace {

const Value& param_or_none(const KernelCall& call, std::size_t param) {
  static const Value none;
  return param < call.size() ? call[param] : none;
}

// The state of a random number generator that nothing draws from.
Value seed(KernelCall& call, std::size_t i) {
  const ResultType* recorded = call.result(i);
  Tensor tensor = recorded != nullptr ? call.make_result(i, recorded->dtype, recorded->sizes)
                                      : call.make(DType::kInt64, {});
  Tensor bits = tensor;
  if (bits.dtype == DType::kUint64) bits.dtype = DType::kInt64;  // no kernel computes with the former
  fill_elements(bits, Value(std::int64_t{0}));
  return tensor;
}

}  // namespace

AttentionShape read_attention_shape(const Tensor& query, const Tensor& key, const Tensor& value,
                                    math::Compute computed) {
  if (query.rank() != 4 || key.rank() != 4 || value.rank() != 4)
    throw KernelError("attention: four dimensions");
  if (compute_of(query.dtype) != computed)
    throw KernelError("attention of " + std::string(info(query.dtype).name) + " is not supported here");
  AttentionShape shape;
  shape.batches = query.sizes[0];
  shape.heads = query.sizes[1];
  shape.queries = query.sizes[2];
  shape.depth = query.sizes[3];
  shape.kv_batches = key.sizes[0];
  shape.kv_heads = key.sizes[1];
  shape.keys = key.sizes[2];
  shape.value_depth = value.sizes[3];
  const bool fits = key.sizes[3] == shape.depth && value.sizes[0] == shape.kv_batches &&
                    value.sizes[1] == shape.kv_heads && value.sizes[2] == shape.keys &&
                    (shape.kv_batches == shape.batches || shape.kv_batches == 1) && shape.kv_heads > 0 &&
                    shape.heads % shape.kv_heads == 0;
  if (!fits) throw KernelError("attention: the sizes of query, key and value do not fit");
  return shape;
}

void read_block_sizes(const std::vector<Value>& block_mask, AttentionShape& shape) {
  if (block_mask.size() < 13) throw KernelError("flex_attention: the block mask has too few entries");
  shape.q_block = block_mask[block_mask.size() - 3].integer();
  shape.k_block = block_mask[block_mask.size() - 2].integer();
  if (shape.q_block <= 0 || shape.k_block <= 0)
    throw KernelError("flex_attention: block sizes must be positive");
}

void refuse_captured_gradients(const std::vector<Value>& grads) {
  for (std::size_t i = 5; i < grads.size(); ++i)
    if (!grads[i].is_none())
      throw KernelError("flex_attention_backward: gradients of captured tensors are not supported");
}

DotProductCall read_dot_product(const KernelCall& call, const DotProductParams& at) {
  if (call.real(at.dropout) != 0) throw KernelError("attention with dropout is random: not supported");
  const Tensor& query = call.tensor(at.query);
  const Value& scale = call[at.scale];
  return {query,
          call.tensor(at.query + 1),
          call.tensor(at.query + 2),
          param_or_none(call, at.bias),
          call.boolean(at.causal),
          scale.is_none() ? 1.0 / std::sqrt(static_cast<double>(query.sizes.back())) : scale.real()};
}

Extents logsumexp_sizes(const KernelCall& call, const AttentionShape& shape) {
  const ResultType* recorded = call.result(1);
  if (recorded != nullptr && !call.is_nested()) return recorded->sizes;
  return {shape.batches, shape.heads, shape.queries};
}

std::optional<Tensor> logsumexp_of_queries(const Tensor& lse, const AttentionShape& shape) {
  if (lse.numel() == shape.batches * shape.heads * shape.queries) return lse;
  const bool is_padded = lse.rank() == 3 && lse.sizes[0] == shape.batches && lse.sizes[1] == shape.heads &&
                         lse.sizes[2] > shape.queries;
  if (!is_padded) return std::nullopt;
  return lse.view({shape.batches, shape.heads, shape.queries}, lse.strides, lse.offset);
}

Tensor require_logsumexp(const Tensor& lse, const AttentionShape& shape) {
  const auto rows = logsumexp_of_queries(lse, shape);
  if (!rows) throw KernelError("attention backward: the logsumexp has another size than the queries");
  return *rows;
}

Value fused_attention_result(KernelCall& call, const DotProductResult& result) {
  const ResultType* debug_mask = call.result(8);  // flash: a tensor, cuDNN: none
  return Value::tuple({result.out, result.lse, Value(), Value(), call.tensor(0).sizes[2],
                       call.tensor(1).sizes[2], seed(call, 6), seed(call, 7),
                       debug_mask == nullptr ? Value() : Value(seed(call, 8))});
}

Value efficient_attention_result(KernelCall& call, const DotProductResult& result) {
  return Value::tuple({result.out, result.lse, seed(call, 2), seed(call, 3)});
}

Value gradients_and_bias(KernelCall& call, std::vector<Value> grads) {
  if (call[*call.op().find_param("grad_input_mask")].items()[3].boolean())
    throw KernelError("attention backward: the gradient of the bias is not supported");
  grads.emplace_back();
  return Value::tuple(std::move(grads));
}

}  // namespace epweave::replay::cpu
