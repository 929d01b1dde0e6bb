// Attention on the device: what kernels/host/kernels_attention.cc computes, element for element.
//
// Scores are made for a slab at a time: all queries of some heads of a batch, or some queries of
// one head. A query's row is independent of the others; the gradients of keys and values are chains
// over (query head of the group, query), and slabs go in that order, each adding to what the ones
// before left. So the slabs' extents change no bit, and memory for scores has a bound.
//
// A slab is a product of queries and keys, one kernel that makes weights of scores
// (tasks/attention_tasks.h), and a product of weights and values, which divides by the rows' sums;
// backward likewise. A multiply-add of portable math costs more than its share of moving the scores
// through memory, so none is made twice. Pairs of blocks that the tables leave out are not
// computed, read or written: the products leave their blocks out of the chains (matmul_task.h,
// Cover), as the CPU never visits them. Keys behind the last block that a causal slab looks at have
// no scores at all.
//
// In native math the same of 16-bit floats is fused (fused_attention.cc): slabs are of rows whose
// mask has a bit for each pair, and no score goes through memory. Where scores or their gradients
// are changed by a bias or a function of the graph, and of heads that are too wide, the kernels of
// portable math do it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "replay/kernels/device/launcher.h"
#include "replay/kernels/device/product.h"
#include "replay/kernels/ops/attention_call.h"

namespace epweave::replay::device {

enum class Pass : std::uint8_t { kForward, kBackward };

// Operands [batch, head, row, depth], as they are given.
struct AttentionProblem : cpu::AttentionShape {
  DType computed = DType::kFloat32;  // of scores and sums: float64 of float64 operands
  double scale = 1;
  Tensor query, key, value;
};

AttentionProblem read_problem(const std::array<const Tensor*, 3>& in, double scale, Pass pass);

// Bytes of all matrices of scores, weights and their gradients that a call holds at a time. A slab
// has at least one query, so that 33,554,432 keys are the most that they are enough for; what a
// score function of the graph computes is counted with four float32 matrices. A mask function that
// is no program of one kernel may hold as much again.
inline constexpr std::size_t kScoreBytes = std::size_t{1} << 30;

// Bytes of device memory that a call without functions of the graph holds at most beside its
// arguments and results: scores, float32 copies of operands, sums before they are rounded, tables
// of blocks, bits of masks. `shape` with the block sizes of the call. Not of float64 operands.
std::size_t most_scratch_bytes(const cpu::AttentionShape& shape, Pass pass);

// Another number of bytes in the place of kScoreBytes as long as it lives: tests make many slabs of
// small problems. One at a time.
std::size_t score_bytes();
class ScoreBytesForTest {
 public:
  explicit ScoreBytesForTest(std::size_t bytes);
  ~ScoreBytesForTest();
  ScoreBytesForTest(const ScoreBytesForTest&) = delete;
  ScoreBytesForTest& operator=(const ScoreBytesForTest&) = delete;
};

// Heads [head, head + heads) of a batch and of those queries [query, query + queries): all, or of
// one head some, which begin with a block of queries or lie inside one. They look at keys before
// `keys`. `share` heads in a row use the same head of keys; `heads` is a multiple of it.
struct Slab {
  std::int64_t batch = 0, head = 0, heads = 0, share = 0, query = 0, queries = 0, keys = 0;

  std::int64_t rows() const { return heads * queries; }
};

// Which pairs of a slab a mask keeps: a bit for each, 32 in a word, [head, query, word]; the
// strides in words. No bits: all.
struct PairBits {
  std::optional<Tensor> bits;
  std::int64_t of_head = 0, of_query = 0;
};

// What distinguishes the kinds of attention. Matrices are of the problem's `computed` and
// row-major, [1, slab.heads, slab.queries, slab.keys].
class AttentionKind {
 public:
  virtual ~AttentionKind() = default;
  // [batch, head, q block, k block] of 0, 1 (masked) and 2.
  virtual Tensor cover() = 0;
  // The queries before `query` look at no key from this one on.
  virtual std::int64_t keys_before(std::int64_t query) const = 0;
  // Whether scaled scores are not what the softmax sees; if they are, modify is not called.
  virtual bool modifies_scores() const = 0;
  // Changes scaled scores into what the softmax sees, before pairs are dropped.
  virtual void modify(const Slab& slab, const Tensor& scores) = 0;
  // Whether queries look at the keys up to their own position only.
  virtual bool is_causal() const = 0;
  // Which pairs count, in the blocks where the cover is 1.
  virtual PairBits mask(const Slab& slab) = 0;
  // Whether the gradient is another on its other side; if not, modify_backward is not called.
  virtual bool modifies_gradient() const = 0;
  // Changes the gradient of the modified scores into that of the scaled ones (`before`).
  virtual void modify_backward(const Slab& slab, const Tensor& before, const Tensor& grad) = 0;
};

// The problem in slabs whose masks have a bit for each pair: as many rows as kScoreBytes hold.
std::vector<Slab> find_fused_slabs(const AttentionProblem& p, const AttentionKind& kind);

// Forward and backward of one problem.
class Attention {
 public:
  Attention(Scratch& scratch, const AttentionProblem& problem, AttentionKind& kind)
      : scratch_(scratch), p_(problem), kind_(kind), cover_(kind.cover()) {}

  // What is written.
  struct Forward {
    Tensor out;                     // [batch, head, query, value_depth], any float
    Tensor lse;                     // float32, row-major [batch, head, query]
    std::optional<Tensor> maximum;  // the same
    double unit = 1;                // of both, the natural logarithm having 1
  };
  void forward(const Forward& result);

  struct Saved {
    Tensor out, grad_out;            // [batch, head, query, value_depth]
    Tensor lse;                      // of p.computed, row-major [batch, head, query]
    std::optional<Tensor> grad_lse;  // the same
    double unit = 1;                 // of both
  };
  // What is written: as query, key and value, of any float.
  struct Gradients {
    Tensor query, key, value;
  };
  void backward(const Saved& saved, const Gradients& grads);

 private:
  // A new matrix; one that is added to; scores, of which the looked-at blocks matter.
  enum class Into { kNew, kSum, kScores };
  void forward_slab(const Slab& slab, const Forward& result);
  // `into`: the gradients of keys and values.
  void backward_slab(const Slab& slab, const Saved& saved, const Gradients& grads, Into into);
  // Scores and gradients of the weights -> weights and gradients of the scores.
  template <class C>
  void weigh_backward(const Slab& slab, const Saved& saved);
  void weigh_modified_backward(const Slab& slab, const Saved& saved);

  // Slabs, and operands as products take them: the elements of a row side by side, all of one
  // dtype: float32, bfloat16, or, backward, float64.
  void prepare(Pass pass);
  // Whether one product makes the gradient of a head's keys.
  bool has_whole_slabs() const;

  // Memory of a matrix of the largest slab.
  Tensor make_matrix();
  // [1, head, query, key], at the beginning of a matrix's memory.
  static Tensor scores_of(const Slab& slab, const Tensor& memory);
  // The slab's heads and queries of a tensor [batch, head, query, depth]: [head, query, depth].
  static Tensor queries_of(const Slab& slab, const Tensor& tensor);
  // The slab's first row in tensors of a number for each query.
  std::int64_t first_row(const Slab& slab) const;
  // The heads of keys that the slab uses, and the keys that it sees.
  Tensor keys_of(const Slab& slab, const Tensor& tensor) const;
  Tensor cover_of(const Slab& slab) const;
  PairRules rules_of(const Slab& slab, const PairBits& bits) const;

  // Products of queries and keys, scaled and modified where the kind modifies them. What they have
  // to be multiplied by.
  double find_scores(const Slab& slab, const Tensor& scores);
  template <class C>
  Tensor find_delta(const Saved& saved);

  // Which dimension of the scores is the product's rows; the other one is reduced.
  enum class Side { kQueries, kKeys };
  Cover cover_rows(const Slab& slab, Side side) const;

  // c = a b by head; `share` heads of a use the same head of b.
  struct Product {
    const Tensor& a;
    const Tensor& b;
    const Tensor& c;
    std::int64_t share;
    Into into = Into::kNew;
    std::optional<Cover> wanted = {};
    const Tensor* divisors = nullptr;  // of the rows
  };
  void multiply(const Product& product, const Cover& summed);
  // to[kv head] (+)= left[head] right[head] for the heads of each group in order.
  struct Accumulated {
    const Tensor& left;
    const Tensor& right;
    const Tensor& to;
  };
  void accumulate(const Slab& slab, const Accumulated& product, Into into);

  // Whether one kernel does it without scores in memory; and that (fused_attention.cc).
  bool is_fused(Pass pass, const Tensor* grad_out = nullptr) const;
  struct FusedOperands {
    Tensor query, key, value;  // the elements of a row side by side
  };
  FusedOperands fused_operands() const;
  FusedAttention fused_problem(const Slab& slab, const FusedOperands& in, const PairBits& bits) const;
  void forward_fused(const Forward& result);
  void backward_fused(const Saved& saved, const Gradients& grads);

  Scratch& scratch_;
  const AttentionProblem& p_;
  AttentionKind& kind_;
  Tensor cover_;
  Tensor query_, key_, value_;
  std::vector<Slab> slabs_;
  // Of all slabs; the last two only where the kind modifies gradients.
  Tensor scores_, grad_, weights_, before_;
  Tensor delta_;  // of p.computed, [batch, head, query]
};

// A result of float32, row-major: it itself, or memory to be copied into it.
class RowsResult {
 public:
  RowsResult(Scratch& scratch, const Tensor& result);
  const Tensor& rows() const { return rows_; }
  void finish() const;

 private:
  Tensor result_, rows_;
};

}  // namespace epweave::replay::device
