#include "replay/kernels/device/attention.h"

#include <algorithm>
#include <atomic>

#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {
namespace {

// Matrices that may live at a time where functions of the graph compute them: four here, and four
// of theirs.
constexpr std::size_t kMostMatrices = 8;
// Floats of a row beside its scores: the lanes of sums, and rows of operands.
constexpr std::int64_t kLeastWidth = 64;

std::atomic<std::size_t>& tested_score_bytes() {
  static std::atomic<std::size_t> bytes = kScoreBytes;
  return bytes;
}

// How many matrices of a slab's scores live at a time.
std::size_t count_matrices(const AttentionKind& kind, Pass pass) {
  if (kind.modifies_scores()) return kMostMatrices;
  if (pass == Pass::kForward) return 1;
  return kind.modifies_gradient() ? kMostMatrices : 2;
}

// The problem in slabs, in the order of the chains, for so many pairs at a time.
std::vector<Slab> find_slabs(const AttentionProblem& p, const AttentionKind& kind, std::int64_t pairs) {
  const std::int64_t width = std::max({p.keys, p.depth, p.value_depth, kLeastWidth});
  const std::int64_t most_rows = std::max<std::int64_t>(pairs / width, 1);
  const std::int64_t most_heads = std::max<std::int64_t>(most_rows / std::max<std::int64_t>(p.queries, 1), 1);
  std::vector<Slab> slabs;
  const auto add_queries = [&](Slab slab) {
    while (slab.query < p.queries) {
      const std::int64_t block_end = (slab.query / p.q_block + 1) * p.q_block;
      const std::int64_t whole_blocks = slab.query + most_rows / p.q_block * p.q_block;
      const std::int64_t end =
          most_rows >= p.q_block ? whole_blocks : std::min(slab.query + most_rows, block_end);
      slab.queries = std::min(end, p.queries) - slab.query;
      slab.keys = kind.keys_before(slab.query + slab.queries);
      slabs.push_back(slab);
      slab.query += slab.queries;
    }
  };
  for (std::int64_t b = 0; b < p.batches; ++b)
    for (std::int64_t head = 0; head < p.heads;) {
      // Whole groups of heads, or heads of one group.
      const std::int64_t rest = p.group() - head % p.group();
      std::int64_t heads = std::min(most_heads, rest), share = heads;
      if (most_heads >= p.group()) {
        heads = std::min(most_heads / p.group() * p.group(), p.heads - head);
        share = p.group();
      }
      if (most_rows >= p.queries)
        slabs.push_back({b, head, heads, share, 0, p.queries, kind.keys_before(p.queries)});
      else
        add_queries({b, head, heads, share, 0, 0, 0});
      head += heads;
    }
  return slabs;
}

Tensor transposed(Tensor tensor) {
  std::swap(tensor.sizes[1], tensor.sizes[2]);
  std::swap(tensor.strides[1], tensor.strides[2]);
  return tensor;
}
// [1, head, query, key] by head.
Tensor heads_of(Tensor scores) {
  scores.sizes.erase(scores.sizes.begin());
  scores.strides.erase(scores.strides.begin());
  return scores;
}
// Heads first, first + step, ...
Tensor every_head(Tensor tensor, std::int64_t first, std::int64_t step) {
  tensor.offset += first * tensor.strides[0];
  tensor.sizes[0] /= step;
  tensor.strides[0] *= step;
  return tensor;
}

bool has_rows(const Tensor& tensor, DType dtype) {
  return tensor.dtype == dtype && tensor.strides[3] == 1;
}
// The tensor as it lies where products can read it, else a copy in the problem's `computed`.
Tensor as_rows(Scratch& scratch, const Tensor& tensor, DType computed) {
  const bool is_read =
      has_rows(tensor, computed) || (computed == DType::kFloat32 && has_rows(tensor, DType::kBfloat16));
  return is_read ? tensor : scratch.dense(tensor, computed);
}

HeadRows rows_of(const Tensor& tensor) {
  HeadRows rows{tensor.bytes(), {}, stored_of(tensor.dtype)};
  std::copy(tensor.strides.begin(), tensor.strides.end(), rows.strides);
  return rows;
}

// What the forward call kept must be of the queries that are there now: a graph may name another
// call's.
void require_saved(const AttentionProblem& p, const Attention::Saved& saved) {
  const Extents rows{p.batches, p.heads, p.queries, p.value_depth};
  const std::int64_t queries = p.batches * p.heads * p.queries;
  const bool fits = saved.out.sizes == rows && saved.grad_out.sizes == rows && saved.lse.numel() == queries &&
                    (!saved.grad_lse || saved.grad_lse->numel() == queries);
  if (!fits)
    throw KernelError("attention backward: what the forward call kept has other sizes than the queries");
}

}  // namespace

AttentionProblem read_problem(const std::array<const Tensor*, 3>& in, double scale, Pass pass) {
  const bool is_double = pass == Pass::kBackward && compute_of(in[0]->dtype) == math::Compute::kDouble;
  AttentionProblem p{cpu::read_attention_shape(*in[0], *in[1], *in[2],
                                               is_double ? math::Compute::kDouble : math::Compute::kFloat),
                     is_double ? DType::kFloat64 : DType::kFloat32,
                     is_double ? scale : static_cast<double>(static_cast<float>(scale)),
                     *in[0],
                     *in[1],
                     *in[2]};
  if (p.keys > std::int64_t{1} << 30) throw KernelError("attention: on a device with at most 2^30 keys");
  return p;
}

std::size_t score_bytes() {
  return tested_score_bytes();
}
ScoreBytesForTest::ScoreBytesForTest(std::size_t bytes) {
  tested_score_bytes() = bytes;
}
ScoreBytesForTest::~ScoreBytesForTest() {
  tested_score_bytes() = kScoreBytes;
}

std::size_t most_scratch_bytes(const cpu::AttentionShape& shape, Pass pass) {
  const std::int64_t rows = shape.batches * shape.heads * shape.queries;
  const std::int64_t kv_rows = shape.kv_batches * shape.kv_heads * shape.keys;
  const std::int64_t operands = rows * shape.depth + kv_rows * (shape.depth + shape.value_depth);
  const std::int64_t outs = rows * shape.value_depth;
  const std::int64_t blocks = shape.batches * shape.heads * shape.q_blocks() * shape.k_blocks();
  // A byte a pair of blocks by query and one by key, and copies of lists of int64 of four tables.
  constexpr std::int64_t kBlockBytes = 2 + 4 * 8;
  constexpr std::int64_t kRowBytes = 64;  // logsumexp, maximum, sums, and copies of them
  const std::int64_t copies = pass == Pass::kForward ? operands : 2 * operands + 2 * outs;
  const std::int64_t mask_words = rows * ((shape.keys + 31) / 32);
  const auto bytes =
      static_cast<std::size_t>(copies * 4 + rows * kRowBytes + mask_words * 4 + blocks * kBlockBytes) +
      score_bytes();
  constexpr std::size_t kSmallTensors = std::size_t{64} << 10;
  return bytes + bytes / 8 + kSmallTensors;  // the pool rounds up by an eighth at most
}

std::vector<Slab> find_fused_slabs(const AttentionProblem& p, const AttentionKind& kind) {
  return find_slabs(p, kind, static_cast<std::int64_t>(score_bytes()) * 8);
}

void Attention::prepare(Pass pass) {
  slabs_ = find_slabs(
      p_, kind_,
      static_cast<std::int64_t>(score_bytes() / count_matrices(kind_, pass) / info(p_.computed).bytes));
  const bool is_bfloat16 = has_rows(p_.query, DType::kBfloat16) && has_rows(p_.key, DType::kBfloat16) &&
                           has_rows(p_.value, DType::kBfloat16);
  const auto read = [&](const Tensor& tensor) {
    return is_bfloat16 || has_rows(tensor, p_.computed) ? tensor : scratch_.dense(tensor, p_.computed);
  };
  query_ = read(p_.query);
  key_ = read(p_.key);
  value_ = read(p_.value);
}

Tensor Attention::make_matrix() {
  std::int64_t most = 0;
  for (const Slab& slab : slabs_) most = std::max(most, slab.rows() * slab.keys);
  return scratch_.make(p_.computed, {most});
}

void Attention::forward(const Forward& result) {
  if (is_fused(Pass::kForward)) return forward_fused(result);
  prepare(Pass::kForward);
  scores_ = make_matrix();
  for (const Slab& slab : slabs_) forward_slab(slab, result);
  scores_ = {};
}

void Attention::forward_slab(const Slab& slab, const Forward& result) {
  const Tensor scores = scores_of(slab, scores_);
  const Tensor divisors = scratch_.make(DType::kFloat32, {slab.rows()});
  const double scale = find_scores(slab, scores);
  const PairBits bits = kind_.mask(slab);
  WeighTask task{};
  task.rules = rules_of(slab, bits);
  task.scores = scores.data<float>();
  task.rows = slab.rows();
  task.scale = static_cast<float>(scale);
  task.unit = result.unit;
  task.divisors = divisors.data<float>();
  task.lse = result.lse.data<float>() + first_row(slab);
  if (result.maximum) task.maximum = result.maximum->data<float>() + first_row(slab);
  launcher_of(scratch_).launch(
      task, LaneBlocks::count_blocks(task.rows),
      {&scores, &divisors, &result.lse, &cover_, result.maximum ? &*result.maximum : nullptr,
       bits.bits ? &*bits.bits : nullptr});
  multiply({heads_of(scores),
            keys_of(slab, value_),
            queries_of(slab, result.out),
            slab.share,
            Into::kNew,
            {},
            &divisors},
           cover_rows(slab, Side::kQueries));
}

bool Attention::has_whole_slabs() const {
  return p_.group() == 1 && p_.kv_batches == p_.batches &&
         std::all_of(slabs_.begin(), slabs_.end(),
                     [&](const Slab& slab) { return slab.queries == p_.queries && slab.keys == p_.keys; });
}

void Attention::backward(const Saved& saved, const Gradients& grads) {
  require_saved(p_, saved);
  if (is_fused(Pass::kBackward, &saved.grad_out)) return backward_fused(saved, grads);
  prepare(Pass::kBackward);
  const bool is_double = p_.computed == DType::kFloat64;
  delta_ = is_double ? find_delta<double>(saved) : find_delta<float>(saved);
  scores_ = make_matrix();
  grad_ = make_matrix();
  if (kind_.modifies_gradient()) {
    weights_ = make_matrix();
    before_ = make_matrix();
  }
  Saved read = saved;
  read.grad_out = as_rows(scratch_, saved.grad_out, p_.computed);
  const bool is_summed = !has_whole_slabs();
  const Into into = is_summed ? Into::kSum : Into::kNew;
  const auto sums_of = [&](const Tensor& grad) {
    return is_summed ? scratch_.filled(p_.computed, grad.sizes, Value(0.0)) : grad;
  };
  const Gradients sums{grads.query, sums_of(grads.key), sums_of(grads.value)};
  for (const Slab& slab : slabs_) backward_slab(slab, read, sums, into);
  before_ = scores_ = weights_ = grad_ = {};
  if (!is_summed) return;
  cpu::copy_elements(sums.key, grads.key);
  cpu::copy_elements(sums.value, grads.value);
}

void Attention::backward_slab(const Slab& slab, const Saved& saved, const Gradients& grads, Into into) {
  const Tensor grad_out = queries_of(slab, saved.grad_out);
  const Tensor grad = heads_of(scores_of(slab, grad_));
  const Cover cover = cover_rows(slab, Side::kQueries);
  multiply({grad_out, transposed(keys_of(slab, value_)), grad, slab.share, Into::kScores, cover}, {});
  if (kind_.modifies_gradient())
    weigh_modified_backward(slab, saved);
  else if (p_.computed == DType::kFloat64)
    weigh_backward<double>(slab, saved);
  else
    weigh_backward<float>(slab, saved);
  const Tensor weights = heads_of(scores_of(slab, kind_.modifies_gradient() ? weights_ : scores_));
  accumulate(slab, {transposed(weights), grad_out, keys_of(slab, grads.value)}, into);
  multiply({grad, keys_of(slab, key_), queries_of(slab, grads.query), slab.share}, cover);
  accumulate(slab, {transposed(grad), queries_of(slab, query_), keys_of(slab, grads.key)}, into);
}

template <class C>
void Attention::weigh_backward(const Slab& slab, const Saved& saved) {
  const Tensor scores = scores_of(slab, scores_);
  const double scale = find_scores(slab, scores);
  const PairBits bits = kind_.mask(slab);
  WeighBackwardTask<C> task{};
  task.rules = rules_of(slab, bits);
  task.scores = scores.data<C>();
  task.grad = grad_.data<C>();
  task.rows = slab.rows();
  task.score_scale = static_cast<C>(scale);
  task.grad_scale = static_cast<C>(p_.scale);
  task.unit = saved.unit;
  task.lse = saved.lse.data<C>() + first_row(slab);
  task.delta = delta_.data<C>() + first_row(slab);
  launcher_of(scratch_).launch(
      task, LaneBlocks::count_blocks(task.rows),
      {&scores, &grad_, &saved.lse, &delta_, &cover_, bits.bits ? &*bits.bits : nullptr});
}

// The function of the graph is between the steps.
void Attention::weigh_modified_backward(const Slab& slab, const Saved& saved) {
  const auto as_rows = [&](const Tensor& memory) {
    return as_matrix(scores_of(slab, memory), slab.rows(), slab.keys);
  };
  const auto column = [&](const Tensor& tensor) {
    return tensor.view({slab.rows(), 1}, {1, 1}, tensor.offset + first_row(slab));
  };
  const Tensor scores = scores_of(slab, scores_), grad = scores_of(slab, grad_);
  const double scale = find_scores(slab, scores);
  if (!kind_.modifies_scores()) {
    const Tensor factor = scratch_.filled(p_.computed, {}, Value(scale));
    scratch_.map_into<math::Mul>(scores, Value(), scores, factor);
    cpu::copy_elements(scores, scores_of(slab, before_));
  }
  const PairBits bits = kind_.mask(slab);
  launcher_of(scratch_).launch(MaskScoresTask{rules_of(slab, bits), scores.bytes(), stored_of(scores.dtype)},
                               scores.numel(), {&scores, &cover_, bits.bits ? &*bits.bits : nullptr});
  const Tensor unit = scratch_.filled(DType::kFloat64, {}, Value(saved.unit));
  const Tensor lse = scratch_.copied(
      scratch_.map<math::Mul>(scratch_.copied(column(saved.lse), DType::kFloat64), unit), p_.computed);
  const Tensor grad_rows = as_rows(grad_), weight_rows = as_rows(weights_);
  scratch_.map_into<math::ShiftedExp>(weight_rows, Value(), as_rows(scores_), lse);
  scratch_.map_into<math::Difference>(grad_rows, Value(), grad_rows, column(delta_));
  scratch_.map_into<math::Mul>(grad_rows, Value(), weight_rows, grad_rows);
  kind_.modify_backward(slab, scores_of(slab, before_), grad);
  scratch_.map_into<math::KeepGradient>(grad, Value(p_.scale), scores, grad);
}

Tensor Attention::scores_of(const Slab& slab, const Tensor& memory) {
  const Extents sizes{1, slab.heads, slab.queries, slab.keys};
  return memory.view(sizes, contiguous_strides(sizes), 0);
}

Tensor Attention::queries_of(const Slab& slab, const Tensor& tensor) {
  const Extents& strides = tensor.strides;
  return tensor.view(
      {slab.heads, slab.queries, tensor.sizes[3]}, {strides[1], strides[2], strides[3]},
      tensor.offset + slab.batch * strides[0] + slab.head * strides[1] + slab.query * strides[2]);
}

std::int64_t Attention::first_row(const Slab& slab) const {
  return (slab.batch * p_.heads + slab.head) * p_.queries + slab.query;
}

Tensor Attention::keys_of(const Slab& slab, const Tensor& tensor) const {
  const Extents& strides = tensor.strides;
  const std::int64_t batch = p_.kv_batches == 1 ? 0 : slab.batch;
  return tensor.view({slab.heads / slab.share, slab.keys, tensor.sizes[3]},
                     {strides[1], strides[2], strides[3]},
                     tensor.offset + batch * strides[0] + slab.head / p_.group() * strides[1]);
}

Tensor Attention::cover_of(const Slab& slab) const {
  Tensor cover = cover_;
  const Extents& strides = cover.strides;
  cover.offset += slab.batch * strides[0] + slab.head * strides[1] + slab.query / p_.q_block * strides[2];
  return cover;
}

PairRules Attention::rules_of(const Slab& slab, const PairBits& bits) const {
  PairRules rules{};
  rules.queries = slab.queries;
  rules.keys = slab.keys;
  rules.first_query = slab.query;
  rules.cover = cover_of(slab).data<std::uint8_t>();
  rules.q_block = p_.q_block;
  rules.k_block = p_.k_block;
  rules.q_blocks = p_.q_blocks();
  rules.k_blocks = p_.k_blocks();
  rules.is_causal = kind_.is_causal();
  if (!bits.bits) return rules;
  rules.mask = reinterpret_cast<const std::uint32_t*>(bits.bits->bytes());
  rules.mask_of_head = bits.of_head;
  rules.mask_of_query = bits.of_query;
  return rules;
}

double Attention::find_scores(const Slab& slab, const Tensor& scores) {
  multiply({queries_of(slab, query_), transposed(keys_of(slab, key_)), heads_of(scores), slab.share,
            Into::kScores, cover_rows(slab, Side::kQueries)},
           {});
  if (!kind_.modifies_scores()) return p_.scale;
  const Tensor scale = scratch_.filled(p_.computed, {}, Value(p_.scale));
  scratch_.map_into<math::Mul>(scores, Value(), scores, scale);
  if (before_.storage != nullptr) cpu::copy_elements(scores, scores_of(slab, before_));
  kind_.modify(slab, scores);
  return 1;
}

template <class C>
Tensor Attention::find_delta(const Saved& saved) {
  const Tensor delta = scratch_.make(p_.computed, {p_.batches, p_.heads, p_.queries});
  DeltaTask<C> task{};
  task.out = rows_of(saved.out);
  task.grad_out = rows_of(saved.grad_out);
  task.rows = delta.numel();
  task.heads = p_.heads;
  task.queries = p_.queries;
  task.length = p_.value_depth;
  task.unit = saved.unit;
  if (saved.grad_lse) task.grad_lse = saved.grad_lse->data<C>();
  task.delta = delta.data<C>();
  launcher_of(scratch_).launch(
      task, LaneBlocks::count_blocks(task.rows),
      {&saved.out, &saved.grad_out, &delta, saved.grad_lse ? &*saved.grad_lse : nullptr});
  return delta;
}

template Tensor Attention::find_delta<float>(const Saved& saved);

Cover Attention::cover_rows(const Slab& slab, Side side) const {
  const std::int64_t of_head = p_.q_blocks() * p_.k_blocks();
  const auto* data = cover_of(slab).data<std::uint8_t>();
  if (side == Side::kQueries) return {data, p_.q_block, p_.k_block, p_.k_blocks(), 1, of_head};
  return {data, p_.k_block, p_.q_block, 1, p_.k_blocks(), of_head};
}

void Attention::multiply(const Product& product, const Cover& summed) {
  MatmulProblem task{};
  task.a = matrix_place(product.a);
  task.b = matrix_place(product.b, product.share);
  task.c = matrix_place(product.c);
  task.batches = product.a.sizes[0];
  task.rows = product.a.sizes[1];
  task.columns = product.b.sizes[2];
  task.depth = product.a.sizes[2];
  task.summed = summed;
  if (product.into == Into::kScores) task.wanted = *product.wanted;
  task.accumulates = product.into == Into::kSum;
  if (product.divisors != nullptr) task.divisors = product.divisors->data<float>();
  launch_product(launcher_of(scratch_), task,
                 {&product.a, &product.b, &product.c, &cover_, product.divisors});
}

void Attention::accumulate(const Slab& slab, const Accumulated& product, Into into) {
  for (std::int64_t g = 0; g < slab.share; ++g) {
    Cover cover = cover_rows(slab, Side::kKeys);
    cover.data += g * cover.batch_stride;
    cover.batch_stride *= slab.share;
    multiply({every_head(product.left, g, slab.share), every_head(product.right, g, slab.share), product.to,
              1, into},
             cover);
  }
}

RowsResult::RowsResult(Scratch& scratch, const Tensor& result) : result_(result), rows_(result) {
  if (result.dtype != DType::kFloat32 || result.strides != contiguous_strides(result.sizes))
    rows_ = scratch.make(DType::kFloat32, result.sizes);
}
void RowsResult::finish() const {
  if (rows_.storage != result_.storage) cpu::copy_elements(rows_, result_);
}

}  // namespace epweave::replay::device
