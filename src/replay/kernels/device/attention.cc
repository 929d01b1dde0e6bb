#include "replay/kernels/device/attention.h"

#include <algorithm>

#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {
namespace {

// Batch `b` of a row-major tensor: [heads, rows, depth].
Tensor of_batch(const Tensor& tensor, std::int64_t b) {
  Tensor part = tensor;
  part.offset += b * tensor.strides[0];
  part.sizes.erase(part.sizes.begin());
  part.strides.erase(part.strides.begin());
  return part;
}
Tensor transposed(Tensor tensor) {
  std::swap(tensor.sizes[1], tensor.sizes[2]);
  std::swap(tensor.strides[1], tensor.strides[2]);
  return tensor;
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

Tensor Attention::keys(std::int64_t b) const {
  return of_batch(p_.key, p_.kv_batches == 1 ? 0 : b);
}
Tensor Attention::values(std::int64_t b) const {
  return of_batch(p_.value, p_.kv_batches == 1 ? 0 : b);
}

Attention::Forward Attention::forward() {
  Forward result{scratch_.make(DType::kFloat32, {p_.batches, p_.heads, p_.queries, p_.value_depth}),
                 scratch_.make(DType::kFloat64, {p_.batches, p_.heads, p_.queries}),
                 scratch_.make(DType::kFloat32, {p_.batches, p_.heads, p_.queries})};
  for (std::int64_t b = 0; b < p_.batches; ++b) {
    const Tensor scores = modified(b, scaled_scores(b));
    const Tensor rows = as_matrix(scores, p_.heads * p_.queries, p_.keys);
    const Tensor maximum = scratch_.maximum_of_rows(rows, NanRule::kWins);
    const Tensor weights = scratch_.map(ElementOp::kShiftedExp, {&rows, &maximum});
    const Tensor total = scratch_.sum_rows(weights);
    const Tensor out = of_batch(result.out, b);
    multiply({as_heads(weights), values(b), out, p_.group()}, cover_rows(b, Side::kQueries));
    const Tensor out_rows = as_matrix(out, rows.sizes[0], p_.value_depth);
    scratch_.map_into(out_rows, ElementOp::kDivideRow, {&out_rows, &total, &maximum});
    MapRequest lse{
        ElementOp::kLogSumExp, DType::kFloat64, as_column(result.lse, b), {&maximum, &total}, 2, {}};
    scratch_.launcher().map(lse);
    cpu::copy_elements(maximum, as_column(result.maximum, b));
  }
  return result;
}

Attention::Gradients Attention::backward(const Saved& saved) {
  const auto zeros = [&](const Tensor& like) {
    return scratch_.filled(DType::kFloat32, like.sizes, Value(0.0));
  };
  Gradients grads{zeros(p_.query), zeros(p_.key), zeros(p_.value)};
  for (std::int64_t b = 0; b < p_.batches; ++b) {
    const std::int64_t rows = p_.heads * p_.queries;
    const Tensor grad_out = of_batch(saved.grad_out, b);
    const Tensor delta = delta_of(saved, b);
    const Tensor lse = as_column(saved.lse, b);
    const Tensor before = scaled_scores(b);
    const Tensor scores = modified(b, scratch_.copied(before, DType::kFloat32));
    const Tensor score_rows = as_matrix(scores, rows, p_.keys);
    const Tensor weights = scratch_.map(ElementOp::kShiftedExp, {&score_rows, &lse});
    const std::int64_t kv = p_.kv_batches == 1 ? 0 : b;
    accumulate(transposed(as_heads(weights)), grad_out, of_batch(grads.value, kv), b);
    const Tensor grad = scratch_.make(DType::kFloat32, {p_.heads, p_.queries, p_.keys});
    multiply(
        {grad_out, transposed(values(b)), grad, p_.group(), Into::kScores, cover_rows(b, Side::kQueries)},
        {});
    const Tensor grad_rows = as_matrix(grad, rows, p_.keys);
    const Tensor centred = scratch_.map(ElementOp::kSubScaled, {&grad_rows, &delta}, Value(1.0));
    const Tensor weighted = scratch_.map(ElementOp::kMul, {&weights, &centred});
    const Tensor through = kind_.modify_backward(b, before, as_scores(weighted));
    const Tensor grad_scores = scratch_.map(ElementOp::kKeepGradient, {&scores, &through}, Value(p_.scale));
    const Tensor by_head = as_heads(grad_scores);
    multiply({by_head, keys(b), of_batch(grads.query, b), p_.group()}, cover_rows(b, Side::kQueries));
    accumulate(transposed(by_head), of_batch(p_.query, b), of_batch(grads.key, kv), b);
  }
  return grads;
}

Tensor Attention::as_heads(const Tensor& scores) const {
  return scores.view({p_.heads, p_.queries, p_.keys}, {p_.queries * p_.keys, p_.keys, 1}, scores.offset);
}

Tensor Attention::as_scores(const Tensor& scores) const {
  return scores.view({1, p_.heads, p_.queries, p_.keys},
                     {p_.heads * p_.queries * p_.keys, p_.queries * p_.keys, p_.keys, 1}, scores.offset);
}

Tensor Attention::as_column(const Tensor& tensor, std::int64_t b) const {
  const std::int64_t rows = p_.heads * p_.queries;
  return tensor.view({rows, 1}, {1, 1}, tensor.offset + b * rows);
}

Tensor Attention::scaled_scores(std::int64_t b) {
  const Tensor scores = scratch_.make(DType::kFloat32, {1, p_.heads, p_.queries, p_.keys});
  multiply({of_batch(p_.query, b), transposed(keys(b)), as_heads(scores), p_.group(), Into::kScores,
            cover_rows(b, Side::kQueries)},
           {});
  const Tensor scale = scratch_.filled(DType::kFloat32, {}, Value(p_.scale));
  scratch_.map_into(scores, ElementOp::kMul, {&scores, &scale});
  return scores;
}

Tensor Attention::modified(std::int64_t b, const Tensor& scores) {
  const Tensor result = kind_.modify(b, scores);
  kind_.mask(b, result, of_batch(cover_, b));
  return result;
}

Tensor Attention::delta_of(const Saved& saved, std::int64_t b) {
  const std::int64_t rows = p_.heads * p_.queries;
  const Tensor out = as_matrix(of_batch(saved.out, b), rows, p_.value_depth);
  const Tensor grad = as_matrix(of_batch(saved.grad_out, b), rows, p_.value_depth);
  const Tensor products = scratch_.map(ElementOp::kMul, {&out, &grad});
  const Tensor delta = scratch_.sum_rows(products);
  if (!saved.grad_lse) return delta;
  const Tensor grad_lse = as_column(*saved.grad_lse, b);
  return scratch_.map(ElementOp::kSubScaled, {&delta, &grad_lse}, Value(1.0));
}

Cover Attention::cover_rows(std::int64_t b, Side side) const {
  const std::int64_t slab = p_.q_blocks() * p_.k_blocks();
  const auto* data = of_batch(cover_, b).data<std::uint8_t>();
  if (side == Side::kQueries) return {data, p_.q_block, p_.k_block, p_.k_blocks(), 1, slab};
  return {data, p_.k_block, p_.q_block, 1, p_.k_blocks(), slab};
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
  launch_product(scratch_.launcher(), task, product.a.sizes[0],
                 {&product.a, &product.b, &product.c, &cover_});
}

void Attention::accumulate(const Tensor& left, const Tensor& right, const Tensor& to, std::int64_t b) {
  for (std::int64_t g = 0; g < p_.group(); ++g) {
    Cover cover = cover_rows(b, Side::kKeys);
    cover.data += g * cover.batch_stride;
    cover.batch_stride *= p_.group();
    multiply({every_head(left, g, p_.group()), every_head(right, g, p_.group()), to, 1, Into::kSum}, cover);
  }
}

void drop_pairs(Scratch& scratch, const AttentionProblem& p, const Tensor& scores, const Tensor& cover,
                const Dropped& dropped) {
  MaskScoresTask task{};
  task.scores = scores.data<float>();
  task.queries = p.queries;
  task.keys = p.keys;
  task.heads = p.heads;
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
    std::copy(mask.strides, mask.strides + 4, task.mask_strides);
  }
  scratch.launcher().launch(task, scores.numel(), {&scores, &cover, dropped.mask});
}

Tensor store_attention(KernelCall& call, std::size_t i, const Tensor& like, const Tensor& values) {
  return store_result(call, i, like.dtype, like.sizes, values);
}

}  // namespace epweave::replay::device
