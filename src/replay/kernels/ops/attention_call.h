// What a call of attention says, for every device that computes it: sizes, and where the arguments
// are.
//
//   AttentionShape shape = read_attention_shape(query, key, value, Compute::kFloat);   // KernelError if they do not fit
//   DotProductCall c = read_dot_product(call, kCudnn);                 // _scaled_dot_product_cudnn_attention
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "replay/kernels/kernel.h"
#include "replay/kernels/math/elements.h"

namespace epweave::replay::cpu {

inline constexpr double kLn2 = 0.693147180559945309417;

// Query [batch, head, query, depth], key [kv batch, kv head, key, depth], value [.., key, value
// depth]; one batch of keys may serve all, and each head of keys `group()` heads of queries.
struct AttentionShape {
  std::int64_t batches = 0, heads = 0, kv_batches = 0, kv_heads = 0;
  std::int64_t queries = 0, keys = 0, depth = 0, value_depth = 0;
  std::int64_t q_block = 128, k_block = 128;

  std::int64_t q_blocks() const { return (queries + q_block - 1) / q_block; }
  std::int64_t k_blocks() const { return (keys + k_block - 1) / k_block; }
  std::int64_t group() const { return heads / kv_heads; }
};
// Of operands that are computed in `computed`: float64, or float32 and the 16-bit floats.
AttentionShape read_attention_shape(const Tensor& query, const Tensor& key, const Tensor& value,
                                    math::Compute computed);

// The block sizes of FlexAttention's block mask.
void read_block_sizes(const std::vector<Value>& block_mask, AttentionShape& shape);

// FlexAttention's score function may capture tensors, but none that needs a gradient.
void refuse_captured_gradients(const std::vector<Value>& grads);

// Where the parameters of one entry point of scaled dot product attention are. Query, key and value
// stand next to each other.
struct DotProductParams {
  std::size_t query = 0, bias = SIZE_MAX, dropout = 0, causal = 0, scale = 0;
  std::size_t out = 0, lse = 0;  // backward
};
inline constexpr DotProductParams kCudnn{0, 3, 5, 6, 8, 0, 0};
inline constexpr DotProductParams kFlash{0, SIZE_MAX, 3, 4, 6, 0, 0};
inline constexpr DotProductParams kEfficient{0, 3, 5, 6, 7, 0, 0};
inline constexpr DotProductParams kCpu{0, 5, 3, 4, 6, 0, 0};
inline constexpr DotProductParams kOverrideable{0, 3, 4, 5, 7, 0, 0};
inline constexpr DotProductParams kCudnnBackward{1, 8, 13, 14, 15, 4, 5};
inline constexpr DotProductParams kFlashBackward{1, SIZE_MAX, 10, 11, 14, 4, 5};
inline constexpr DotProductParams kEfficientBackward{1, 4, 9, 11, 12, 5, 6};
inline constexpr DotProductParams kCpuBackward{1, 8, 6, 7, 9, 4, 5};
inline constexpr DotProductParams kOverrideableBackward{1, 4, 12, 13, 16, 6, 7};

struct DotProductCall {
  const Tensor &query, &key, &value;
  const Value& bias;  // None: none
  bool is_causal;
  double scale;
};
// Dropout is random: refused.
DotProductCall read_dot_product(const KernelCall& call, const DotProductParams& at);

// Of result 1, as recorded where that is known: empty or padded where the call does not ask for it
// (compute_log_sumexp=False).
Extents logsumexp_sizes(const KernelCall& call, const AttentionShape& shape);
// Without the rows that the memory-efficient kernel pads those of the queries with, to a multiple
// of 32. None if it has fewer than the queries.
std::optional<Tensor> logsumexp_of_queries(const Tensor& lse, const AttentionShape& shape);
Tensor require_logsumexp(const Tensor& lse, const AttentionShape& shape);

// The tuples that the entry points return.
struct DotProductResult {
  Tensor out, lse;
};
Value fused_attention_result(KernelCall& call,
                             const DotProductResult& result);  // all but the others
Value efficient_attention_result(KernelCall& call, const DotProductResult& result);
// With the gradient of the bias, which is refused where it is wanted.
Value gradients_and_bias(KernelCall& call, std::vector<Value> grads);

}  // namespace epweave::replay::cpu
