#include "replay/kernels/device/attention.h"

#include <algorithm>
#include <atomic>

#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {
namespace {

// Matrices that may live at a time: four here, and four of a function of the graph.
constexpr std::size_t kMatrices = 8;
// Floats of a row beside its scores: the lanes of sums, and rows of operands.
constexpr std::int64_t kLeastWidth = 64;

std::atomic<std::size_t>& score_bytes() {
  static std::atomic<std::size_t> bytes = kScoreBytes;
  return bytes;
}

// The problem in slabs, in the order of the chains.
std::vector<Slab> cut_into_slabs(const AttentionProblem& p, const AttentionKind& kind) {
  const auto floats = static_cast<std::int64_t>(score_bytes() / kMatrices / sizeof(float));
  const std::int64_t width = std::max({p.keys, p.depth, p.value_depth, kLeastWidth});
  const std::int64_t most_rows = std::max<std::int64_t>(floats / width, 1);
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

}  // namespace

AttentionProblem read_problem(Scratch& scratch, const std::array<const Tensor*, 3>& in, double scale) {
  AttentionProblem p{cpu::read_attention_shape(*in[0], *in[1], *in[2]),
                     static_cast<double>(static_cast<float>(scale)),
                     {},
                     {},
                     {}};
  p.query = scratch.dense(*in[0], DType::kFloat32);
  p.key = scratch.dense(*in[1], DType::kFloat32);
  p.value = scratch.dense(*in[2], DType::kFloat32);
  return p;
}

ScoreBytesForTest::ScoreBytesForTest(std::size_t bytes) {
  score_bytes() = bytes;
}
ScoreBytesForTest::~ScoreBytesForTest() {
  score_bytes() = kScoreBytes;
}

std::size_t most_scratch_bytes(const cpu::AttentionShape& shape, Pass pass) {
  const std::int64_t rows = shape.batches * shape.heads * shape.queries;
  const std::int64_t kv_rows = shape.kv_batches * shape.kv_heads * shape.keys;
  const std::int64_t operands = rows * shape.depth + kv_rows * (shape.depth + shape.value_depth);
  const std::int64_t outs = rows * shape.value_depth;
  const std::int64_t blocks = shape.batches * shape.heads * shape.q_blocks() * shape.k_blocks();
  // A byte a pair of blocks by query and one by key, and lists of int64 of four tables.
  constexpr std::int64_t kBlockBytes = 2 + 4 * 8;
  constexpr std::int64_t kRowBytes = 64;  // logsumexp, maximum, and their float64 copies
  const std::int64_t copies = pass == Pass::kForward ? operands + outs : 2 * operands + 2 * outs;
  const auto bytes =
      static_cast<std::size_t>(copies * 4 + rows * kRowBytes + blocks * kBlockBytes) + score_bytes();
  constexpr std::size_t kSmallTensors = std::size_t{64} << 10;
  return bytes + bytes / 8 + kSmallTensors;  // the pool rounds up by an eighth at most
}

Attention::Attention(Scratch& scratch, const AttentionProblem& problem, AttentionKind& kind)
    : scratch_(scratch),
      p_(problem),
      kind_(kind),
      cover_(kind.cover()),
      slabs_(cut_into_slabs(problem, kind)) {}

Tensor Attention::make_matrix() {
  std::int64_t most = 0;
  for (const Slab& slab : slabs_) most = std::max(most, slab.rows() * slab.keys);
  return scratch_.make(DType::kFloat32, {most});
}

Attention::Forward Attention::forward() {
  const Forward result{scratch_.make(DType::kFloat32, {p_.batches, p_.heads, p_.queries, p_.value_depth}),
                       scratch_.make(DType::kFloat64, {p_.batches, p_.heads, p_.queries}),
                       scratch_.make(DType::kFloat32, {p_.batches, p_.heads, p_.queries})};
  scores_ = make_matrix();
  for (const Slab& slab : slabs_) forward_slab(slab, result);
  scores_ = {};
  return result;
}

void Attention::forward_slab(const Slab& slab, const Forward& result) {
  const Tensor scores = scores_of(slab, scores_);
  find_scaled_scores(slab, scores);
  kind_.modify(slab, scores);
  kind_.mask(slab, scores, cover_of(slab));
  const Tensor rows = as_matrix(scores, slab.rows(), slab.keys);
  const Tensor maximum = scratch_.maximum_of_rows(rows, NanRule::kWins);
  scratch_.map_into<math::ShiftedExp>(rows, Value(), rows, maximum);
  const Tensor total = scratch_.sum_rows(rows);
  const Tensor out = queries_of(slab, result.out);
  multiply({heads_of(scores), keys_of(slab, p_.value), out, slab.share}, cover_rows(slab, Side::kQueries));
  const Tensor out_rows = as_matrix(out, slab.rows(), p_.value_depth);
  scratch_.map_into<math::DivideRow>(out_rows, Value(), out_rows, total, maximum);
  const Tensor lse = column_of(slab, result.lse);
  launcher_of(scratch_).map({ElementOp::kLogSumExp, DType::kFloat64, lse, {&maximum, &total}, 2, {}});
  cpu::copy_elements(maximum, column_of(slab, result.maximum));
}

Attention::Gradients Attention::backward(const Saved& saved) {
  const auto zeros = [&](const Tensor& like) {
    return scratch_.filled(DType::kFloat32, like.sizes, Value(0.0));
  };
  Gradients grads{zeros(p_.query), zeros(p_.key), zeros(p_.value)};
  scores_ = make_matrix();
  weights_ = make_matrix();
  grad_ = make_matrix();
  if (kind_.modifies_gradient()) before_ = make_matrix();
  for (const Slab& slab : slabs_) backward_slab(slab, saved, grads);
  before_ = scores_ = weights_ = grad_ = {};
  return grads;
}

void Attention::backward_slab(const Slab& slab, const Saved& saved, const Gradients& grads) {
  const Tensor grad_out = queries_of(slab, saved.grad_out);
  const Tensor delta = delta_of(slab, saved);
  const Tensor lse = column_of(slab, saved.lse);
  const Tensor scores = scores_of(slab, scores_), weights = scores_of(slab, weights_);
  const Tensor grad = scores_of(slab, grad_);
  const auto as_rows = [&](const Tensor& matrix) { return as_matrix(matrix, slab.rows(), slab.keys); };
  const Tensor score_rows = as_rows(scores), weight_rows = as_rows(weights), grad_rows = as_rows(grad);

  find_scaled_scores(slab, scores);
  if (kind_.modifies_gradient()) cpu::copy_elements(scores, scores_of(slab, before_));
  kind_.modify(slab, scores);
  kind_.mask(slab, scores, cover_of(slab));
  scratch_.map_into<math::ShiftedExp>(weight_rows, Value(), score_rows, lse);
  accumulate(slab, transposed(heads_of(weights)), grad_out, keys_of(slab, grads.value));

  const Tensor by_head = heads_of(grad);
  const Cover cover = cover_rows(slab, Side::kQueries);
  multiply({grad_out, transposed(keys_of(slab, p_.value)), by_head, slab.share, Into::kScores, cover}, {});
  scratch_.map_into<math::Difference>(grad_rows, Value(), grad_rows, delta);
  scratch_.map_into<math::Mul>(grad_rows, Value(), weight_rows, grad_rows);
  if (kind_.modifies_gradient()) kind_.modify_backward(slab, scores_of(slab, before_), grad);
  scratch_.map_into<math::KeepGradient>(grad, Value(p_.scale), scores, grad);
  multiply({by_head, keys_of(slab, p_.key), queries_of(slab, grads.query), slab.share}, cover);
  accumulate(slab, transposed(by_head), queries_of(slab, p_.query), keys_of(slab, grads.key));
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

Tensor Attention::column_of(const Slab& slab, const Tensor& tensor) const {
  const std::int64_t first = (slab.batch * p_.heads + slab.head) * p_.queries + slab.query;
  return tensor.view({slab.rows(), 1}, {1, 1}, tensor.offset + first);
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

void Attention::find_scaled_scores(const Slab& slab, const Tensor& scores) {
  multiply({queries_of(slab, p_.query), transposed(keys_of(slab, p_.key)), heads_of(scores), slab.share,
            Into::kScores, cover_rows(slab, Side::kQueries)},
           {});
  const Tensor scale = scratch_.filled(DType::kFloat32, {}, Value(p_.scale));
  scratch_.map_into<math::Mul>(scores, Value(), scores, scale);
}

Tensor Attention::delta_of(const Slab& slab, const Saved& saved) {
  const Tensor out = as_matrix(queries_of(slab, saved.out), slab.rows(), p_.value_depth);
  const Tensor grad = as_matrix(queries_of(slab, saved.grad_out), slab.rows(), p_.value_depth);
  const Tensor products = scratch_.map<math::Mul>(out, grad);
  const Tensor delta = scratch_.sum_rows(products);
  if (!saved.grad_lse) return delta;
  const Tensor grad_lse = column_of(slab, *saved.grad_lse);
  return scratch_.map<math::Difference>(delta, grad_lse);
}

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
  task.rows = product.a.sizes[1];
  task.columns = product.b.sizes[2];
  task.depth = product.a.sizes[2];
  task.summed = summed;
  if (product.into == Into::kScores) task.wanted = *product.wanted;
  task.accumulates = product.into == Into::kSum;
  launch_product(launcher_of(scratch_), task, product.a.sizes[0],
                 {&product.a, &product.b, &product.c, &cover_});
}

void Attention::accumulate(const Slab& slab, const Tensor& left, const Tensor& right, const Tensor& to) {
  for (std::int64_t g = 0; g < slab.share; ++g) {
    Cover cover = cover_rows(slab, Side::kKeys);
    cover.data += g * cover.batch_stride;
    cover.batch_stride *= slab.share;
    multiply({every_head(left, g, slab.share), every_head(right, g, slab.share), to, 1, Into::kSum}, cover);
  }
}

void drop_pairs(Scratch& scratch, const AttentionProblem& p, const Slab& slab, const Tensor& scores,
                const Tensor& cover, const Dropped& dropped) {
  MaskScoresTask task{};
  task.scores = scores.data<float>();
  task.queries = slab.queries;
  task.keys = slab.keys;
  task.first_query = slab.query;
  task.cover = cover.data<std::uint8_t>();
  task.q_block = p.q_block;
  task.k_block = p.k_block;
  task.q_blocks = p.q_blocks();
  task.k_blocks = p.k_blocks();
  task.is_causal = dropped.is_causal;
  if (dropped.mask != nullptr) {
    if (dropped.mask->dtype != DType::kBool) throw KernelError("flex_attention: the mask is not of bool");
    const Strided mask = strided(*dropped.mask, scores.sizes);
    task.mask = mask.data;
    std::copy(mask.strides + 1, mask.strides + 4, task.mask_strides);
  }
  launcher_of(scratch).launch(task, scores.numel(), {&scores, &cover, dropped.mask});
}

Tensor store_attention(KernelCall& call, std::size_t i, const Tensor& like, const Tensor& values) {
  return store_result(call, i, like.dtype, like.sizes, values);
}

}  // namespace epweave::replay::device
