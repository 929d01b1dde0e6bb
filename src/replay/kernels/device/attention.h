// Attention on the device: what kernels/host/kernels_attention.cc computes, element for element,
// with whole matrices of scores for one batch at a time instead of tiles.
//
// Pairs whose blocks the tables leave out have a score of -inf, so a weight of +0: the row's sum
// does not see them. The products skip their blocks (matmul_task.h, Cover), as the CPU never visits
// them.
#pragma once

#include <array>
#include <optional>

#include "replay/kernels/device/product.h"
#include "replay/kernels/device/scratch.h"
#include "replay/kernels/ops/attention_call.h"

namespace epweave::replay::device {

// float32, row-major [batch, head, row, depth].
struct AttentionProblem : cpu::AttentionShape {
  double scale = 1;
  Tensor query, key, value;
};

AttentionProblem read_problem(Scratch& scratch, const std::array<const Tensor*, 3>& in, double scale);

// What distinguishes the kinds of attention. Matrices are [1, head, query, key].
class AttentionKind {
 public:
  virtual ~AttentionKind() = default;
  // [batch, head, q block, k block] of 0, 1 (masked) and 2.
  virtual Tensor cover() = 0;
  // Scaled scores of a batch as the softmax sees them, before pairs are dropped.
  virtual Tensor modify(std::int64_t batch, const Tensor& scores) = 0;
  // Drops pairs.
  virtual void mask(std::int64_t batch, const Tensor& scores, const Tensor& cover) = 0;
  // The gradient of the scaled scores from that of the modified ones.
  virtual Tensor modify_backward(std::int64_t batch, const Tensor& before, const Tensor& grad) = 0;
};

// Forward and backward of one problem.
class Attention {
 public:
  Attention(Scratch& scratch, const AttentionProblem& problem, AttentionKind& kind)
      : scratch_(scratch), p_(problem), kind_(kind), cover_(kind.cover()) {}

  struct Forward {
    Tensor out;      // float32 [batch, head, query, value_depth]
    Tensor lse;      // float64 [batch, head, query], natural
    Tensor maximum;  // float32
  };
  Forward forward();

  struct Saved {
    Tensor out, grad_out;  // float32, row-major
    Tensor lse;            // float32 [batch, head, query], natural
    std::optional<Tensor> grad_lse;
  };
  struct Gradients {
    Tensor query, key, value;
  };
  Gradients backward(const Saved& saved);

 private:
  Tensor keys(std::int64_t b) const;
  Tensor values(std::int64_t b) const;
  Tensor as_heads(const Tensor& scores) const;
  Tensor as_scores(const Tensor& scores) const;
  // A batch of [batch, head, query] as a column.
  Tensor as_column(const Tensor& tensor, std::int64_t b) const;

  // [1, head, query, key]
  Tensor scaled_scores(std::int64_t b);
  Tensor modified(std::int64_t b, const Tensor& scores);
  Tensor delta_of(const Saved& saved, std::int64_t b);

  // Which dimension of the scores is the product's rows; the other one is reduced.
  enum class Side { kQueries, kKeys };
  Cover cover_rows(std::int64_t b, Side side) const;

  // A new matrix; one that is added to; scores, of which the looked-at blocks matter.
  enum class Into { kNew, kSum, kScores };
  // c = a b by head; `share` heads of a use the same head of b.
  struct Product {
    const Tensor& a;
    const Tensor& b;
    const Tensor& c;
    std::int64_t share;
    Into into = Into::kNew;
    std::optional<Cover> wanted = {};
  };
  void multiply(const Product& product, const Cover& summed);
  // to[kv head] += left[head] right[head] for the heads of each group in order.
  void accumulate(const Tensor& left, const Tensor& right, const Tensor& to, std::int64_t b);

  Scratch& scratch_;
  const AttentionProblem& p_;
  AttentionKind& kind_;
  Tensor cover_;
};

// Drops the pairs of a batch that the blocks or the mask leave out.
struct Dropped {
  const Tensor* mask = nullptr;  // bool, broadcastable to [1, head, query, key]
  bool is_causal = false;
};
void drop_pairs(Scratch& scratch, const AttentionProblem& p, const Tensor& scores, const Tensor& cover,
                const Dropped& dropped);

// The values as result `i`, of the sizes and dtype of `like`.
Tensor store_attention(KernelCall& call, std::size_t i, const Tensor& like, const Tensor& values);

}  // namespace epweave::replay::device
