// Attention tile by tile: a block of queries against a block of keys. What distinguishes
// FlexAttention (flex_attention.cc) from scaled dot product attention (kernels_attention.cc) is in
// an AttentionKind; the order of sums is the same.
//
// For each query row, in float32:
//   score(j)  = (chain of fused multiply-adds over the head dimension) * scale, then the score
//             function; a
//               masked pair has -inf
//   weight(j) = exp(score(j) - the row's maximum)
//   total     = the sum of all weights by ascending key: 16 lanes by key position modulo 16, as in
//             sum.h
//   out       = (chain over ascending keys of weight(j) * value(j)) / total
// A row without any key gives 0 and a logsumexp of -inf. A masked pair adds exactly 0, so it does
// not matter whether its block is visited; but what the block tables leave out is never looked at,
// whatever the mask function says there, and a full block is not masked.
//
// Backward, of operands in float64 in float64, with weight(j) = exp(score(j) - logsumexp) and
// delta = ordered_sum(out * grad_out):
//   d score        = weight * (grad_out . value - delta + d logsumexp), through the score function's
//                    derivative, * scale
//   d query        = chain over ascending keys
//   d key, d value = chains over (query head of the group, query), ascending
// Nothing but the results is rounded to 16 bits.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "replay/kernels/ops/attention_call.h"
#include "replay/values/block_cache.h"

namespace epweave::replay::cpu {

// Rows [q_first, q_first + rows) of queries against keys [k_first, k_first + width).
struct AttentionTile {
  std::int64_t batch = 0, head = 0;
  std::int64_t q_first = 0, rows = 0;
  std::int64_t k_first = 0, width = 0;
  bool is_full = false;  // no mask
};

// Matrices are row-major [rows, width], of what is computed in: C is float or double.
template <class C>
class AttentionKind {
 public:
  virtual ~AttentionKind() = default;
  // The blocks of keys that queries of block `q_block` look at, ascending.
  struct Block {
    std::int64_t index = 0;
    bool is_full = false;
    friend auto operator<=>(const Block&, const Block&) = default;
  };
  virtual std::vector<Block> blocks(std::int64_t batch, std::int64_t head, std::int64_t q_block) = 0;
  // Changes scaled scores into what the softmax sees.
  virtual void modify(const AttentionTile& tile, Buffer<C>& scores) = 0;
  // Whether the gradient is another on its other side; if not, modify_backward is not called.
  virtual bool modifies_gradient() const = 0;
  // Changes the gradient of those into the gradient of the scaled scores (`before`: scores before
  // modify).
  virtual void modify_backward(const AttentionTile& tile, const Buffer<C>& before, Buffer<C>& grad) = 0;
};

struct AttentionOperands {
  const Tensor &query, &key, &value;
  double scale;
};
// Query, key and value as they lie in memory, float32 or bfloat16: what is read is converted tile
// by tile. Computed in float64 they are float64, row-major.
template <class C>
struct AttentionProblem : AttentionShape {
  C scale = 1;
  Tensor query, key, value;
};
// Elements of another dtype are copied.
template <class C>
AttentionProblem<C> read_attention_problem(KernelCall& call, const AttentionOperands& operands);

// Of each query, [batch, head, query]: the logarithm (natural) of the sum of exp(score), the
// largest score.
struct AttentionSums {
  Buffer<double> lse;
  Buffer<float> maximum;
};
AttentionSums run_attention(const AttentionProblem<float>& p, AttentionKind<float>& kind, const Tensor& out);

template <class C>
struct AttentionSaved {
  Tensor out, grad_out;  // [batch, head, query, value depth]
  Buffer<C> lse;         // natural
  Buffer<C> grad_lse;    // natural; empty: none
};
struct AttentionGradients {
  Tensor query, key, value;
};
// Writes the gradients.
template <class C>
void run_attention_backward(const AttentionProblem<C>& p, AttentionKind<C>& kind,
                            const AttentionSaved<C>& saved, const AttentionGradients& grads);

}  // namespace epweave::replay::cpu
