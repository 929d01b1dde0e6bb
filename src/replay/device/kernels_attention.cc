// Attention on the device: what cpu/kernels_attention.cc computes, element for element, with whole matrices of
// scores for one batch at a time instead of tiles.
//
// Pairs whose blocks the tables leave out have a score of -inf, so a weight of +0: the row's sum does not see
// them. The products skip their blocks (matmul_task.h, Cover), as the CPU never visits them.
#include <algorithm>
#include <cmath>

#include "replay/cpu/attention_call.h"
#include "replay/cpu/elements.h"
#include "replay/device/kernels.h"
#include "replay/device/product.h"
#include "replay/device/scratch.h"

namespace epweave::replay::device {
namespace {

using cpu::AttentionShape, cpu::DotProductCall, cpu::DotProductParams, cpu::DotProductResult, cpu::kLn2;

// float32, row-major [batch, head, row, depth].
struct Problem : AttentionShape {
  double scale = 1;
  Tensor query, key, value;
};

Problem read_problem(Scratch& scratch, const std::array<const Tensor*, 3>& in, double scale) {
  Problem p{cpu::read_attention_shape(*in[0], *in[1], *in[2]),
            static_cast<double>(static_cast<float>(scale)),
            {},
            {},
            {}};
  p.query = scratch.dense(*in[0], DType::kFloat32);
  p.key = scratch.dense(*in[1], DType::kFloat32);
  p.value = scratch.dense(*in[2], DType::kFloat32);
  return p;
}

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

// What distinguishes the kinds of attention. Matrices are [1, head, query, key].
class Kind {
 public:
  virtual ~Kind() = default;
  // [batch, head, q block, k block] of 0, 1 (masked) and 2.
  virtual Tensor cover() = 0;
  // Scaled scores of a batch as the softmax sees them, before pairs are dropped.
  virtual Tensor modify(std::int64_t batch, const Tensor& scores) = 0;
  // Drops pairs.
  virtual void mask(std::int64_t batch, const Tensor& scores, const Tensor& cover) = 0;
  // The gradient of the scaled scores from that of the modified ones.
  virtual Tensor modify_backward(std::int64_t batch, const Tensor& before, const Tensor& grad) = 0;
};

class Attention {
 public:
  Attention(Scratch& scratch, const Problem& problem, Kind& kind)
      : scratch_(scratch), p_(problem), kind_(kind), cover_(kind.cover()) {}

  struct Forward {
    Tensor out;      // float32 [batch, head, query, value_depth]
    Tensor lse;      // float64 [batch, head, query], natural
    Tensor maximum;  // float32
  };
  Forward forward() {
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

  struct Saved {
    Tensor out, grad_out;  // float32, row-major
    Tensor lse;            // float32 [batch, head, query], natural
    std::optional<Tensor> grad_lse;
  };
  struct Gradients {
    Tensor query, key, value;
  };
  Gradients backward(const Saved& saved) {
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

 private:
  Tensor keys(std::int64_t b) const { return of_batch(p_.key, p_.kv_batches == 1 ? 0 : b); }
  Tensor values(std::int64_t b) const { return of_batch(p_.value, p_.kv_batches == 1 ? 0 : b); }
  Tensor as_heads(const Tensor& scores) const {
    return scores.view({p_.heads, p_.queries, p_.keys}, {p_.queries * p_.keys, p_.keys, 1}, scores.offset);
  }
  Tensor as_scores(const Tensor& scores) const {
    return scores.view({1, p_.heads, p_.queries, p_.keys},
                       {p_.heads * p_.queries * p_.keys, p_.queries * p_.keys, p_.keys, 1}, scores.offset);
  }
  // A batch of [batch, head, query] as a column.
  Tensor as_column(const Tensor& tensor, std::int64_t b) const {
    const std::int64_t rows = p_.heads * p_.queries;
    return tensor.view({rows, 1}, {1, 1}, tensor.offset + b * rows);
  }

  // [1, head, query, key]
  Tensor scaled_scores(std::int64_t b) {
    const Tensor scores = scratch_.make(DType::kFloat32, {1, p_.heads, p_.queries, p_.keys});
    multiply({of_batch(p_.query, b), transposed(keys(b)), as_heads(scores), p_.group(), Into::kScores,
              cover_rows(b, Side::kQueries)},
             {});
    const Tensor scale = scratch_.filled(DType::kFloat32, {}, Value(p_.scale));
    scratch_.map_into(scores, ElementOp::kMul, {&scores, &scale});
    return scores;
  }
  Tensor modified(std::int64_t b, const Tensor& scores) {
    const Tensor result = kind_.modify(b, scores);
    kind_.mask(b, result, of_batch(cover_, b));
    return result;
  }
  Tensor delta_of(const Saved& saved, std::int64_t b) {
    const std::int64_t rows = p_.heads * p_.queries;
    const Tensor out = as_matrix(of_batch(saved.out, b), rows, p_.value_depth);
    const Tensor grad = as_matrix(of_batch(saved.grad_out, b), rows, p_.value_depth);
    const Tensor products = scratch_.map(ElementOp::kMul, {&out, &grad});
    const Tensor delta = scratch_.sum_rows(products);
    if (!saved.grad_lse) return delta;
    const Tensor grad_lse = as_column(*saved.grad_lse, b);
    return scratch_.map(ElementOp::kSubScaled, {&delta, &grad_lse}, Value(1.0));
  }

  // Which dimension of the scores is the product's rows; the other one is reduced.
  enum class Side { kQueries, kKeys };
  Cover cover_rows(std::int64_t b, Side side) const {
    const std::int64_t slab = p_.q_blocks() * p_.k_blocks();
    const auto* data = of_batch(cover_, b).data<std::uint8_t>();
    if (side == Side::kQueries) return {data, p_.q_block, p_.k_block, p_.k_blocks(), 1, slab};
    return {data, p_.k_block, p_.q_block, 1, p_.k_blocks(), slab};
  }

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
  void multiply(const Product& product, const Cover& summed) {
    MatmulTask task{};
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
  // to[kv head] += left[head] right[head] for the heads of each group in order.
  void accumulate(const Tensor& left, const Tensor& right, const Tensor& to, std::int64_t b) {
    for (std::int64_t g = 0; g < p_.group(); ++g) {
      Cover cover = cover_rows(b, Side::kKeys);
      cover.data += g * cover.batch_stride;
      cover.batch_stride *= p_.group();
      multiply({every_head(left, g, p_.group()), every_head(right, g, p_.group()), to, 1, Into::kSum}, cover);
    }
  }

  Scratch& scratch_;
  const Problem& p_;
  Kind& kind_;
  Tensor cover_;
};

// Drops the pairs of a batch that the blocks or the mask leave out.
struct Dropped {
  const Tensor* mask = nullptr;  // bool, broadcastable to [1, head, query, key]
  bool is_causal = false;
};
void drop_pairs(Scratch& scratch, const Problem& p, const Tensor& scores, const Tensor& cover,
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

// ---- scaled dot product -------------------------------------------------------------------

// Causal masks begin at the first query and the first key, as torch's do.
class DotProduct : public Kind {
 public:
  DotProduct(Scratch& scratch, const Problem& p, bool is_causal, const Value& bias)
      : scratch_(scratch), p_(p), is_causal_(is_causal) {
    if (bias.is_none()) return;
    const Tensor& tensor = bias.tensor();
    const Strided full = strided(tensor, Extents{p.batches, p.heads, p.queries, p.keys});
    const Extents strides(full.strides, full.strides + 4);
    bias_ = scratch.copied(
        {tensor.dtype, {p.batches, p.heads, p.queries, p.keys}, strides, tensor.offset, tensor.storage},
        DType::kFloat32);
    if (tensor.dtype != DType::kBool) return;
    const Tensor zero = scratch.filled(DType::kFloat32, {}, Value(0.0));
    scratch.map_into(*bias_, ElementOp::kKeepScore, {&*bias_, &zero});
  }
  Tensor cover() override {
    const Tensor cover = scratch_.make(DType::kUint8, {p_.batches, p_.heads, p_.q_blocks(), p_.k_blocks()});
    if (is_causal_)
      scratch_.launcher().launch(CausalCoverTask{p_.q_blocks(), p_.k_blocks(), p_.q_block, p_.k_block,
                                                 p_.queries, cover.data<std::uint8_t>()},
                                 cover.numel(), {&cover});
    else
      cpu::fill_elements(cover, Value(std::int64_t{2}));
    return cover;
  }
  Tensor modify(std::int64_t batch, const Tensor& scores) override {
    if (!bias_) return scores;
    Tensor bias = *bias_;
    bias.offset += batch * bias.strides[0];
    bias.sizes[0] = 1;
    scratch_.map_into(scores, ElementOp::kAddScaled, {&scores, &bias}, Value(1.0));
    return scores;
  }
  void mask(std::int64_t, const Tensor& scores, const Tensor& cover) override {
    drop_pairs(scratch_, p_, scores, cover, {nullptr, is_causal_});
  }
  Tensor modify_backward(std::int64_t, const Tensor&, const Tensor& grad) override { return grad; }

 private:
  Scratch& scratch_;
  const Problem& p_;
  bool is_causal_;
  std::optional<Tensor> bias_;
};

DotProductResult dot_product(KernelCall& call, const DotProductParams& at) {
  const DotProductCall c = cpu::read_dot_product(call, at);
  Scratch scratch(call);
  const Problem p = read_problem(scratch, {&c.query, &c.key, &c.value}, c.scale);
  DotProduct kind(scratch, p, c.is_causal, c.bias);
  const Attention::Forward forward = Attention(scratch, p, kind).forward();
  Tensor out = store_result(call, 0, c.query.dtype, forward.out.sizes, forward.out);
  const Extents lse_sizes = cpu::logsumexp_sizes(call, p);
  if (count_elements(lse_sizes) == forward.lse.numel())
    return {out, store_result(call, 1, DType::kFloat32, lse_sizes, forward.lse)};
  Tensor lse = call.make_result(1, DType::kFloat32, lse_sizes);
  cpu::fill_elements(lse, Value(0.0));
  if (const auto rows = cpu::logsumexp_of_queries(lse, p)) {
    Tensor shaped = forward.lse;
    shaped.sizes = rows->sizes;
    shaped.strides = contiguous_strides(shaped.sizes);
    cpu::copy_elements(shaped, *rows);
  }
  return {out, lse};
}
Value cudnn_attention(KernelCall& call) {
  return cpu::fused_attention_result(call, dot_product(call, cpu::kCudnn));
}
Value flash_attention(KernelCall& call) {
  return cpu::fused_attention_result(call, dot_product(call, cpu::kFlash));
}
Value efficient_attention(KernelCall& call) {
  return cpu::efficient_attention_result(call, dot_product(call, cpu::kEfficient));
}

// grad_out, query, key, value come first everywhere.
std::vector<Value> dot_product_backward(KernelCall& call, const DotProductParams& at) {
  const DotProductCall c = cpu::read_dot_product(call, at);
  Scratch scratch(call);
  const Problem p = read_problem(scratch, {&c.query, &c.key, &c.value}, c.scale);
  const Tensor lse = cpu::require_logsumexp(call.tensor(at.lse), p);
  DotProduct kind(scratch, p, c.is_causal, c.bias);
  const auto dense = [&](std::size_t param) { return scratch.dense(call.tensor(param), DType::kFloat32); };
  const Attention::Gradients grads =
      Attention(scratch, p, kind)
          .backward({dense(at.out), dense(0), scratch.dense(lse, DType::kFloat32), std::nullopt});
  return {store_attention(call, 0, c.query, grads.query), store_attention(call, 1, c.key, grads.key),
          store_attention(call, 2, c.value, grads.value)};
}
Value cudnn_attention_backward(KernelCall& call) {
  return Value::tuple(dot_product_backward(call, cpu::kCudnnBackward));
}
Value flash_attention_backward(KernelCall& call) {
  return Value::tuple(dot_product_backward(call, cpu::kFlashBackward));
}
Value efficient_attention_backward(KernelCall& call) {
  return cpu::efficient_backward_result(call, dot_product_backward(call, cpu::kEfficientBackward));
}

// ---- FlexAttention ------------------------------------------------------------------------

class Flex : public Kind {
 public:
  // `joint`: the score function's derivative, none in the forward direction.
  struct Functions {
    const Value* score = nullptr;
    const Value* joint = nullptr;
    const Value* score_captured = nullptr;
    const Value* mask_captured = nullptr;
  };
  Flex(Scratch& scratch, Problem& p, const std::vector<Value>& block_mask, Functions functions)
      : scratch_(scratch), p_(p), tables_(block_mask), functions_(functions) {
    cpu::read_block_sizes(block_mask, p);
  }

  Tensor cover() override {
    const Tensor by_query = cover_of(2, {p_.q_blocks(), p_.k_blocks()});
    if (functions_.joint != nullptr && !tables_[6].is_none()) {
      // The backward kernels of others find the queries of a key in tables of their own.
      const Tensor by_key = cover_of(6, {p_.k_blocks(), p_.q_blocks()});
      scratch_.launcher().launch(CompareCoverTask{by_query.data<std::uint8_t>(), by_key.data<std::uint8_t>(),
                                                  p_.q_blocks(), p_.k_blocks(), scratch_.launcher().sink()},
                                 by_query.numel(), {&by_query, &by_key});
    }
    return by_query;
  }
  Tensor modify(std::int64_t batch, const Tensor& scores) override {
    std::vector<Value> args = positions(batch);
    args.insert(args.begin(), scores);
    append(args, *functions_.score_captured);
    return scores_of(functions_.score->as<Function>().call(args));
  }
  void mask(std::int64_t batch, const Tensor& scores, const Tensor& cover) override {
    std::vector<Value> args = positions(batch);
    append(args, *functions_.mask_captured);
    const Value kept = tables_.back().as<Function>().call(args);
    const Tensor mask = kept.is<List>() ? kept.items().at(0).tensor() : kept.tensor();
    drop_pairs(scratch_, p_, scores, cover, {&mask, false});
  }
  Tensor modify_backward(std::int64_t batch, const Tensor& before, const Tensor& grad) override {
    std::vector<Value> args = positions(batch);
    args.insert(args.begin(), before);
    args.emplace_back(grad);
    append(args, *functions_.score_captured);
    const Value result = functions_.joint->as<Function>().call(args);
    const std::vector<Value>& grads = result.items();
    cpu::refuse_captured_gradients(grads);
    return scores_of(grads[0]);
  }

 private:
  // The pairs of blocks that the tables at `first` (masked, then full) name: [batch, head, row, column].
  struct Blocks {
    std::int64_t rows, columns;
  };
  Tensor cover_of(std::size_t first, const Blocks& blocks) {
    const Tensor cover = scratch_.filled(DType::kUint8, {p_.batches, p_.heads, blocks.rows, blocks.columns},
                                         Value(std::int64_t{0}));
    for (const std::size_t table : {first, first + 2}) {
      if (tables_[table].is_none()) continue;
      const Tensor counts = scratch_.dense(tables_[table].tensor(), DType::kInt64);
      const Tensor indices = scratch_.dense(tables_[table + 1].tensor(), DType::kInt64);
      const Extents& sizes = indices.sizes;
      if (sizes.size() != 4 || counts.numel() != sizes[0] * sizes[1] * sizes[2])
        throw KernelError("flex_attention: a block table has other sizes than its counts");
      if (blocks.rows > sizes[2] || (sizes[0] != 1 && sizes[0] < p_.batches) ||
          (sizes[1] != 1 && sizes[1] < p_.heads))
        throw KernelError("flex_attention: the block tables are too small for the queries and keys");
      scratch_.launcher().launch(
          CoverTask{counts.data<std::int64_t>(), indices.data<std::int64_t>(), sizes[0], sizes[1], sizes[2],
                    sizes[3], p_.heads, blocks.rows, blocks.columns, cover.data<std::uint8_t>(),
                    static_cast<std::uint8_t>(table == first ? 1 : 2), scratch_.launcher().sink()},
          p_.batches * p_.heads * blocks.rows, {&counts, &indices, &cover});
    }
    return cover;
  }
  // A function's result as a matrix of its own.
  Tensor scores_of(const Value& value) {
    const Tensor& tensor = value.is<List>() ? value.items().at(0).tensor() : value.tensor();
    const Extents sizes{1, p_.heads, p_.queries, p_.keys};
    const Strided full = strided(tensor, sizes);
    return scratch_.copied(
        {tensor.dtype, sizes, Extents(full.strides, full.strides + 4), tensor.offset, tensor.storage},
        DType::kFloat32);
  }
  Tensor range(std::int64_t first, std::int64_t count, Extents sizes) {
    const Tensor tensor = scratch_.make(DType::kInt32, std::move(sizes));
    scratch_.launcher().progress(tensor.view({count}, {1}, 0), first, std::int64_t{1});
    return tensor;
  }
  std::vector<Value> positions(std::int64_t batch) {
    return {range(batch, 1, {1, 1, 1, 1}), range(0, p_.heads, {1, p_.heads, 1, 1}),
            range(0, p_.queries, {1, 1, p_.queries, 1}), range(0, p_.keys, {1, 1, 1, p_.keys})};
  }
  static void append(std::vector<Value>& args, const Value& captured) {
    for (const Value& item : captured.items()) args.push_back(item);
  }

  Scratch& scratch_;
  const Problem& p_;
  const std::vector<Value>& tables_;
  Functions functions_;
};

// query, key, value, score_mod, block_mask, scale, kernel_options, score captured, mask captured
// -> out, logsumexp and maximum in units of log 2
Value flex_attention(KernelCall& call) {
  const Tensor& query = call.tensor(0);
  Scratch scratch(call);
  Problem p = read_problem(scratch, {&query, &call.tensor(1), &call.tensor(2)}, call.real(5));
  Flex kind(scratch, p, call[4].items(), {&call[3], nullptr, &call[7], &call[8]});
  const Attention::Forward forward = Attention(scratch, p, kind).forward();
  Tensor out = store_result(call, 0, query.dtype, forward.out.sizes, forward.out);
  const Tensor ln2 = scratch.filled(DType::kFloat64, {}, Value(kLn2));
  const Tensor lse = scratch.map(ElementOp::kDiv, {&forward.lse, &ln2});
  const Tensor wide = scratch.copied(forward.maximum, DType::kFloat64);
  const Tensor maximum = scratch.map(ElementOp::kDiv, {&wide, &ln2});
  const Extents sizes{p.batches, p.heads, p.queries};
  Tensor lse_out = store_result(call, 1, DType::kFloat32, sizes, lse);
  Tensor maximum_out = store_result(call, 2, DType::kFloat32, sizes, maximum);
  return Value::tuple({out, lse_out, maximum_out});
}

// query, key, value, out, logsumexp, grad_out, grad_logsumexp, fw_graph, joint_graph, block_mask, scale,
// kernel_options, score captured, mask captured -> grads of query, key, value and of what the score function
// captured
Value flex_attention_backward(KernelCall& call) {
  const Tensor& query = call.tensor(0);
  Scratch scratch(call);
  Problem p = read_problem(scratch, {&query, &call.tensor(1), &call.tensor(2)}, call.real(10));
  Flex kind(scratch, p, call[9].items(), {&call[7], &call[8], &call[12], &call[13]});
  const Tensor ln2 = scratch.filled(DType::kFloat64, {}, Value(kLn2));
  // log 2 units to natural ones, in float64, rounded to float32.
  const auto rescaled = [&](const Tensor& tensor, ElementOp op) {
    const Tensor wide = scratch.copied(tensor, DType::kFloat64);
    const Tensor natural = scratch.map(op, {&wide, &ln2});
    return scratch.copied(natural, DType::kFloat32);
  };
  Attention::Saved saved;
  saved.out = scratch.dense(call.tensor(3), DType::kFloat32);
  saved.lse = rescaled(scratch.dense(call.tensor(4), DType::kFloat32), ElementOp::kMul);
  saved.grad_out = call[5].is_none() ? scratch.filled(DType::kFloat32, saved.out.sizes, Value(0.0))
                                     : scratch.dense(call.tensor(5), DType::kFloat32);
  if (!call[6].is_none())
    saved.grad_lse = rescaled(scratch.dense(call.tensor(6), DType::kFloat32), ElementOp::kDiv);
  const Attention::Gradients grads = Attention(scratch, p, kind).backward(saved);
  return Value::tuple({store_attention(call, 0, query, grads.query),
                       store_attention(call, 1, call.tensor(1), grads.key),
                       store_attention(call, 2, call.tensor(2), grads.value),
                       Value::tuple(std::vector<Value>(call[12].items().size()))});
}

constexpr KernelRow kRows[] = {
    {"aten._scaled_dot_product_cudnn_attention.default", cudnn_attention},
    {"aten._scaled_dot_product_cudnn_attention_backward.default", cudnn_attention_backward},
    {"aten._scaled_dot_product_efficient_attention.default", efficient_attention},
    {"aten._scaled_dot_product_efficient_attention_backward.default", efficient_attention_backward},
    {"aten._scaled_dot_product_flash_attention.default", flash_attention},
    {"aten._scaled_dot_product_flash_attention_backward.default", flash_attention_backward},
    {"higher_order.flex_attention", flex_attention},
    {"higher_order.flex_attention_backward", flex_attention_backward},
};

}  // namespace

std::span<const KernelRow> attention_rows() {
  return kRows;
}

}  // namespace epweave::replay::device
