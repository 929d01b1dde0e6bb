#include "replay/kernels/host/attention_tiles.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "replay/kernels/host/elements.h"
#include "replay/kernels/host/product.h"
#include "replay/kernels/host/sum.h"
#include "replay/kernels/host/vector_math.h"

namespace epweave::replay::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// ---- rows of operands ---------------------------------------------------------------------

// Rows [first, first + count) of a head of a tensor [batch, head, row, depth].
struct HeadRows {
  std::int64_t batch, head, first, count;
};

std::byte* address(const Tensor& tensor, const HeadRows& rows) {
  const std::int64_t element =
      rows.batch * tensor.strides[0] + rows.head * tensor.strides[1] + rows.first * tensor.strides[2];
  return tensor.bytes() + element * static_cast<std::int64_t>(tensor.element_bytes());
}
// A matrix that C is multiplied by.
template <class C>
using Multiplied = std::conditional_t<std::is_same_v<C, double>, Matrix<double>, FloatMatrix>;
template <class C>
Multiplied<C> matrix_of(const Tensor& tensor, const HeadRows& rows) {
  const std::byte* data = address(tensor, rows);
  if constexpr (std::is_same_v<C, double>) {
    return {reinterpret_cast<const double*>(data), rows.count, tensor.sizes[3], tensor.strides[2],
            tensor.strides[3]};
  } else if (tensor.dtype == DType::kBfloat16) {
    return Matrix<Bfloat16>{reinterpret_cast<const Bfloat16*>(data), rows.count, tensor.sizes[3],
                            tensor.strides[2], tensor.strides[3]};
  } else {
    return Matrix<float>{reinterpret_cast<const float*>(data), rows.count, tensor.sizes[3], tensor.strides[2],
                         tensor.strides[3]};
  }
}
template <class C>
void load_rows(const Tensor& tensor, const HeadRows& rows, C* to) {
  const std::byte* data = address(tensor, rows);
  for (std::int64_t r = 0; r < rows.count; ++r)
    load<C>(data + r * tensor.strides[2] * static_cast<std::int64_t>(tensor.element_bytes()), tensor.dtype,
            tensor.strides[3], tensor.sizes[3], to + r * tensor.sizes[3]);
}
template <class C>
void store_rows(const C* from, const HeadRows& rows, const Tensor& tensor) {
  std::byte* data = address(tensor, rows);
  for (std::int64_t r = 0; r < rows.count; ++r)
    store<C>(from + r * tensor.sizes[3],
             data + r * tensor.strides[2] * static_cast<std::int64_t>(tensor.element_bytes()), tensor.dtype,
             tensor.strides[3], tensor.sizes[3]);
}

// A tensor that matrix_of can be taken of.
template <class C>
Tensor as_multiplied(KernelCall& call, const Tensor& tensor) {
  if (std::is_same_v<C, double>) return as_contiguous(call, tensor, DType::kFloat64);
  if (tensor.dtype == DType::kFloat32 || tensor.dtype == DType::kBfloat16) return tensor;
  return as_contiguous(call, tensor, DType::kFloat32);
}

HeadRows queries_of(const AttentionTile& t) {
  return {t.batch, t.head, t.q_first, t.rows};
}
HeadRows keys_of(const AttentionShape& p, const AttentionTile& t) {
  return {p.kv_batches == 1 ? 0 : t.batch, t.head / p.group(), t.k_first, t.width};
}

template <class C>
Matrix<C> dense_matrix(const Buffer<C>& values, const AttentionTile& t) {
  return {values.data(), t.rows, t.width, t.width, 1};
}

// ---- tiles --------------------------------------------------------------------------------

// Adds x[0..n) to 16 lanes by position.
using Lanes = std::array<float, kLanes>;
void add_to_lanes(Lanes& lanes, const float* x, std::int64_t n, std::int64_t position) {
  std::int64_t i = 0;
  if (position % kLanes == 0)
    for (; i + kLanes <= n; i += kLanes)
      for (std::int64_t l = 0; l < kLanes; ++l) lanes[at(l)] += x[i + l];
  for (; i < n; ++i) lanes[at((position + i) % kLanes)] += x[i];
}

// The tiles of one block of queries, ascending by key.
template <class C>
std::vector<AttentionTile> tiles_of(const AttentionShape& p, AttentionKind<C>& kind, AttentionTile rows) {
  std::vector<AttentionTile> tiles;
  for (const auto& block : kind.blocks(rows.batch, rows.head, rows.q_first / p.q_block)) {
    rows.k_first = block.index * p.k_block;
    rows.width = std::min(p.k_block, p.keys - rows.k_first);
    rows.is_full = block.is_full;
    if (rows.width > 0) tiles.push_back(rows);
  }
  return tiles;
}

template <class C>
Buffer<C> scaled_scores(const AttentionProblem<C>& p, const AttentionTile& tile) {
  Buffer<C> scores(at(tile.rows * tile.width));
  multiply(matrix_of<C>(p.query, queries_of(tile)), transposed(matrix_of<C>(p.key, keys_of(p, tile))),
           Sums<C>{scores.data(), tile.width});
  for (C& score : scores) score = score * p.scale;
  return scores;
}

// Visits the blocks of queries of one head, large ones in parts: rows are independent of one
// another, and what is added up over them goes on in their order.
template <class Visit>
void for_each_query_block(const AttentionShape& p, std::int64_t batch, std::int64_t head,
                          const Visit& visit) {
  constexpr std::int64_t kMostRows = 128;
  std::int64_t rows = 0;
  for (std::int64_t q = 0; q < p.queries; q += rows) {
    const std::int64_t block_end = std::min((q / p.q_block + 1) * p.q_block, p.queries);
    rows = std::min(block_end - q, kMostRows);
    visit(AttentionTile{batch, head, q, rows, 0, 0, false});
  }
}

// ---- forward ------------------------------------------------------------------------------

// scores -> exp(score - the row's maximum), added to the rows' lanes.
void weigh(const AttentionTile& tile, const Buffer<float>& maximum, Buffer<float>& scores,
           std::vector<Lanes>& lanes) {
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    float* row = scores.data() + r * tile.width;
    if (maximum[at(r)] == -kInfinity)
      std::fill(row, row + tile.width, 0.0f);
    else
      exp_shifted_run(tile.width, row, row, maximum[at(r)]);
    add_to_lanes(lanes[at(r)], row, tile.width, tile.k_first);
  }
}

void run_block(const AttentionProblem<float>& p, AttentionKind<float>& kind, const AttentionTile& block,
               const Tensor& result, AttentionSums& sums) {
  const std::vector<AttentionTile> tiles = tiles_of(p, kind, block);
  std::vector<Buffer<float>> scores;
  Buffer<float> maximum(at(block.rows), -kInfinity);
  for (const AttentionTile& tile : tiles) {
    scores.push_back(scaled_scores(p, tile));
    kind.modify(tile, scores.back());
    for (std::int64_t r = 0; r < tile.rows; ++r)
      maximum[at(r)] = maximum_run(tile.width, scores.back().data() + r * tile.width, maximum[at(r)]);
  }
  Buffer<float> out(at(block.rows * p.value_depth), 0.0f);
  std::vector<Lanes> lanes(at(block.rows), Lanes{});
  for (std::size_t k = 0; k < tiles.size(); ++k) {
    weigh(tiles[k], maximum, scores[k], lanes);
    multiply(dense_matrix(scores[k], tiles[k]), matrix_of<float>(p.value, keys_of(p, tiles[k])),
             Sums<float>{out.data(), p.value_depth}, Start::kAccumulate);
  }
  const std::int64_t first = (block.batch * p.heads + block.head) * p.queries + block.q_first;
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const float total = math::add_lanes(lanes[at(r)].data());
    const float m = maximum[at(r)];
    sums.maximum[at(first + r)] = m;
    sums.lse[at(first + r)] = m == -kInfinity
                                  ? -static_cast<double>(kInfinity)
                                  : static_cast<double>(m) + math::log(static_cast<double>(total));
    if (m == -kInfinity) continue;
    float* row = out.data() + r * p.value_depth;
    for (std::int64_t e = 0; e < p.value_depth; ++e) row[e] = row[e] / total;
  }
  store_rows(out.data(), queries_of(block), result);
}

// ---- backward -----------------------------------------------------------------------------

// The gradients of the keys and values of one head of them.
template <class C>
struct KeyGradients {
  Buffer<C> key, value;
};

// delta of each row of a block of queries.
template <class C>
Buffer<C> find_deltas(const AttentionShape& p, const AttentionSaved<C>& saved, const AttentionTile& block,
                      const Buffer<C>& grad_out) {
  Buffer<C> products(grad_out.size()), deltas(at(block.rows));
  load_rows(saved.out, queries_of(block), products.data());
  for (std::size_t i = 0; i < products.size(); ++i) products[i] = products[i] * grad_out[i];
  const std::int64_t first = (block.batch * p.heads + block.head) * p.queries + block.q_first;
  for (std::int64_t r = 0; r < block.rows; ++r) {
    C& delta = deltas[at(r)];
    delta = ordered_sum(products.data() + r * p.value_depth, p.value_depth);
    if (!saved.grad_lse.empty()) delta = delta - saved.grad_lse[at(first + r)];
  }
  return deltas;
}

// scores -> exp(score - logsumexp). Returns which pairs are masked.
template <class C>
Buffer<char> weigh_backward(const AttentionTile& tile, const C* lse, Buffer<C>& scores) {
  constexpr C kMasked = -std::numeric_limits<C>::infinity();
  Buffer<char> is_masked(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) is_masked[i] = scores[i] == kMasked ? 1 : 0;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    C* row = scores.data() + r * tile.width;
    if (lse[r] == kMasked)
      std::fill(row, row + tile.width, C(0));
    else
      exp_shifted_run(tile.width, row, row, lse[r]);
  }
  return is_masked;
}

// grad, of the weights -> of the modified scores.
template <class C>
void through_softmax(const AttentionTile& tile, const Buffer<C>& weights, const Buffer<C>& deltas,
                     Buffer<C>& grad) {
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const C* weight = weights.data() + r * tile.width;
    C* to = grad.data() + r * tile.width;
    const C delta = deltas[at(r)];
    for (std::int64_t j = 0; j < tile.width; ++j) to[j] = weight[j] * (to[j] - delta);
  }
}

template <class C>
void run_block_backward(const AttentionProblem<C>& p, AttentionKind<C>& kind, const AttentionSaved<C>& saved,
                        const AttentionTile& block, const Tensor& query_grad, KeyGradients<C>& to) {
  Buffer<C> grad_out(at(block.rows * p.value_depth)), grad_query(at(block.rows * p.depth), C(0));
  load_rows(saved.grad_out, queries_of(block), grad_out.data());
  const Matrix<C> grad_rows{grad_out.data(), block.rows, p.value_depth, p.value_depth, 1};
  const Buffer<C> deltas = find_deltas(p, saved, block, grad_out);
  const std::int64_t first = (block.batch * p.heads + block.head) * p.queries + block.q_first;
  for (const AttentionTile& tile : tiles_of(p, kind, block)) {
    Buffer<C> weights = scaled_scores(p, tile);
    Buffer<C> before;
    if (kind.modifies_gradient()) before = weights;
    kind.modify(tile, weights);
    const Buffer<char> is_masked = weigh_backward(tile, saved.lse.data() + first, weights);
    multiply(dense_matrix(weights, tile).transposed(), grad_rows,
             Sums<C>{to.value.data() + tile.k_first * p.value_depth, p.value_depth}, Start::kAccumulate);
    Buffer<C> grad(weights.size());
    multiply(grad_rows, transposed(matrix_of<C>(p.value, keys_of(p, tile))),
             Sums<C>{grad.data(), tile.width});
    through_softmax(tile, weights, deltas, grad);
    if (kind.modifies_gradient()) kind.modify_backward(tile, before, grad);
    for (std::size_t i = 0; i < grad.size(); ++i) grad[i] = is_masked[i] != 0 ? C(0) : grad[i] * p.scale;
    multiply(dense_matrix(grad, tile), matrix_of<C>(p.key, keys_of(p, tile)),
             Sums<C>{grad_query.data(), p.depth}, Start::kAccumulate);
    multiply(dense_matrix(grad, tile).transposed(), matrix_of<C>(p.query, queries_of(tile)),
             Sums<C>{to.key.data() + tile.k_first * p.depth, p.depth}, Start::kAccumulate);
  }
  store_rows(grad_query.data(), queries_of(block), query_grad);
}

}  // namespace

template <class C>
AttentionProblem<C> read_attention_problem(KernelCall& call, const AttentionOperands& operands) {
  AttentionProblem<C> p;
  constexpr Compute kComputed = std::is_same_v<C, double> ? Compute::kDouble : Compute::kFloat;
  static_cast<AttentionShape&>(p) =
      read_attention_shape(operands.query, operands.key, operands.value, kComputed);
  p.scale = static_cast<C>(operands.scale);
  p.query = as_multiplied<C>(call, operands.query);
  p.key = as_multiplied<C>(call, operands.key);
  p.value = as_multiplied<C>(call, operands.value);
  return p;
}

template AttentionProblem<float> read_attention_problem(KernelCall&, const AttentionOperands&);
template AttentionProblem<double> read_attention_problem(KernelCall&, const AttentionOperands&);

AttentionSums run_attention(const AttentionProblem<float>& p, AttentionKind<float>& kind, const Tensor& out) {
  const std::int64_t rows = p.batches * p.heads * p.queries;
  AttentionSums sums{Buffer<double>(at(rows)), Buffer<float>(at(rows))};
  for (std::int64_t b = 0; b < p.batches; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for_each_query_block(p, b, h,
                           [&](const AttentionTile& block) { run_block(p, kind, block, out, sums); });
  return sums;
}

namespace {

// What the forward call kept must be of the queries that are there now: a graph may name another
// call's.
template <class C>
void require_saved(const AttentionShape& p, const AttentionSaved<C>& saved) {
  const Extents rows = {p.batches, p.heads, p.queries, p.value_depth};
  const std::size_t queries = at(p.batches * p.heads * p.queries);
  const bool fits = saved.out.sizes == rows && saved.grad_out.sizes == rows && saved.lse.size() == queries &&
                    (saved.grad_lse.empty() || saved.grad_lse.size() == queries);
  if (!fits)
    throw KernelError("attention backward: what the forward call kept has other sizes than the queries");
}

}  // namespace

// A head of keys after the other, so that only its gradients are summed at a time.
template <class C>
void run_attention_backward(const AttentionProblem<C>& p, AttentionKind<C>& kind,
                            const AttentionSaved<C>& saved, const AttentionGradients& grads) {
  require_saved(p, saved);
  const bool is_shared = p.kv_batches == 1;
  for (std::int64_t kv_batch = 0; kv_batch < p.kv_batches; ++kv_batch)
    for (std::int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
      KeyGradients<C> sums{Buffer<C>(at(p.keys * p.depth), C(0)),
                           Buffer<C>(at(p.keys * p.value_depth), C(0))};
      for (std::int64_t b = is_shared ? 0 : kv_batch; b < (is_shared ? p.batches : kv_batch + 1); ++b)
        for (std::int64_t h = kv_head * p.group(); h < (kv_head + 1) * p.group(); ++h)
          for_each_query_block(p, b, h, [&](const AttentionTile& block) {
            run_block_backward(p, kind, saved, block, grads.query, sums);
          });
      store_rows(sums.key.data(), {kv_batch, kv_head, 0, p.keys}, grads.key);
      store_rows(sums.value.data(), {kv_batch, kv_head, 0, p.keys}, grads.value);
    }
}
template void run_attention_backward(const AttentionProblem<float>&, AttentionKind<float>&,
                                     const AttentionSaved<float>&, const AttentionGradients&);
template void run_attention_backward(const AttentionProblem<double>&, AttentionKind<double>&,
                                     const AttentionSaved<double>&, const AttentionGradients&);

}  // namespace epweave::replay::cpu
