// Attention on the device: what kernels/host/kernels_attention.cc computes, element for element.
//
// Scores are made for a slab at a time: all queries of some heads of a batch, or some queries of
// one head. A query's row is independent of the others; the gradients of keys and values are chains
// over (query head of the group, query), and slabs go in that order, each adding to what the ones
// before left. So the slabs' extents change no bit, and memory for scores has a bound.
//
// Pairs whose blocks the tables leave out have a score of -inf, so a weight of +0: the row's sum
// does not see them. The products skip their blocks (matmul_task.h, Cover), as the CPU never visits
// them. Keys behind the last block that a causal slab looks at have no scores at all.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "replay/kernels/device/launcher.h"
#include "replay/kernels/device/product.h"
#include "replay/kernels/ops/attention_call.h"

namespace epweave::replay::device {

// float32, row-major [batch, head, row, depth].
struct AttentionProblem : cpu::AttentionShape {
  double scale = 1;
  Tensor query, key, value;
};

AttentionProblem read_problem(Scratch& scratch, const std::array<const Tensor*, 3>& in, double scale);

// Bytes of all matrices of scores, weights and their gradients that a call holds at a time. A slab
// has at least one query, so that 8,388,608 keys are the most that they are enough for; what a
// function of the graph computes of scores is counted with four float32 matrices.
inline constexpr std::size_t kScoreBytes = std::size_t{256} << 20;

// Bytes of device memory that a call holds at most beside its arguments and results: scores,
// float32 copies of operands, results before they are rounded, tables of blocks. `shape` with the
// block sizes of the call.
enum class Pass : std::uint8_t { kForward, kBackward };
std::size_t most_scratch_bytes(const cpu::AttentionShape& shape, Pass pass);

// Another number of bytes in the place of kScoreBytes as long as it lives: tests make many slabs of
// small problems. One at a time.
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

// What distinguishes the kinds of attention. Matrices are float32 and row-major, [1, slab.heads,
// slab.queries, slab.keys].
class AttentionKind {
 public:
  virtual ~AttentionKind() = default;
  // [batch, head, q block, k block] of 0, 1 (masked) and 2.
  virtual Tensor cover() = 0;
  // The queries before `query` look at no key from this one on.
  virtual std::int64_t keys_before(std::int64_t query) const = 0;
  // Changes scaled scores into what the softmax sees, before pairs are dropped.
  virtual void modify(const Slab& slab, const Tensor& scores) = 0;
  // Drops pairs. `cover`: of the slab, its first element being that of the first head and query.
  virtual void mask(const Slab& slab, const Tensor& scores, const Tensor& cover) = 0;
  // Whether the gradient is another on its other side; if not, modify_backward is not called.
  virtual bool modifies_gradient() const = 0;
  // Changes the gradient of the modified scores into that of the scaled ones (`before`).
  virtual void modify_backward(const Slab& slab, const Tensor& before, const Tensor& grad) = 0;
};

// Forward and backward of one problem.
class Attention {
 public:
  Attention(Scratch& scratch, const AttentionProblem& problem, AttentionKind& kind);

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
  void forward_slab(const Slab& slab, const Forward& result);
  void backward_slab(const Slab& slab, const Saved& saved, const Gradients& grads);

  // Memory of a matrix of the largest slab.
  Tensor make_matrix();
  // [1, head, query, key], at the beginning of a matrix's memory.
  static Tensor scores_of(const Slab& slab, const Tensor& memory);
  // The slab's heads and queries of a tensor [batch, head, query, depth]: [head, query, depth].
  static Tensor queries_of(const Slab& slab, const Tensor& tensor);
  // Those of [batch, head, query] as a column.
  Tensor column_of(const Slab& slab, const Tensor& tensor) const;
  // The heads of keys that the slab uses, and the keys that it sees.
  Tensor keys_of(const Slab& slab, const Tensor& tensor) const;
  Tensor cover_of(const Slab& slab) const;

  void find_scaled_scores(const Slab& slab, const Tensor& scores);
  Tensor delta_of(const Slab& slab, const Saved& saved);

  // Which dimension of the scores is the product's rows; the other one is reduced.
  enum class Side { kQueries, kKeys };
  Cover cover_rows(const Slab& slab, Side side) const;

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
  void accumulate(const Slab& slab, const Tensor& left, const Tensor& right, const Tensor& to);

  Scratch& scratch_;
  const AttentionProblem& p_;
  AttentionKind& kind_;
  Tensor cover_;
  std::vector<Slab> slabs_;
  // Of all slabs; `before_` only where the kind modifies gradients.
  Tensor before_, scores_, weights_, grad_;
};

// Drops the pairs of a slab that the blocks or the mask leave out.
struct Dropped {
  const Tensor* mask = nullptr;  // bool, broadcastable to the scores
  bool is_causal = false;
};
void drop_pairs(Scratch& scratch, const AttentionProblem& p, const Slab& slab, const Tensor& scores,
                const Tensor& cover, const Dropped& dropped);

// The values as result `i`, of the sizes and dtype of `like`.
Tensor store_attention(KernelCall& call, std::size_t i, const Tensor& like, const Tensor& values);

}  // namespace epweave::replay::device
