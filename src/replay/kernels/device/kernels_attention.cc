// Scaled dot product attention on the device (attention.h).
#include <algorithm>

#include "replay/kernels/device/attention.h"
#include "replay/kernels/device/kernels.h"
#include "replay/kernels/host/elements.h"
#include "replay/kernels/shared/attention_rows.h"

namespace epweave::replay::device {
namespace {

using cpu::DotProductCall, cpu::DotProductParams, cpu::DotProductResult;

// Causal masks begin at the first query and the first key, as torch's do.
class DotProduct : public AttentionKind {
 public:
  DotProduct(Scratch& scratch, const AttentionProblem& p, bool is_causal, const Value& bias)
      : scratch_(scratch), p_(p), is_causal_(is_causal) {
    if (bias.is_none()) return;
    const Tensor& tensor = bias.tensor();
    const Strided full = strided(tensor, Extents{p.batches, p.heads, p.queries, p.keys});
    const Extents strides(full.strides, full.strides + 4);
    bias_ = {tensor.dtype, {p.batches, p.heads, p.queries, p.keys}, strides, tensor.offset, tensor.storage};
  }
  Tensor cover() override {
    const Tensor cover = scratch_.make(DType::kUint8, {p_.batches, p_.heads, p_.q_blocks(), p_.k_blocks()});
    if (is_causal_)
      launcher_of(scratch_).launch(CausalCoverTask{p_.q_blocks(), p_.k_blocks(), p_.q_block, p_.k_block,
                                                   p_.queries, cover.data<std::uint8_t>()},
                                   cover.numel(), {&cover});
    else
      cpu::fill_elements(cover, Value(std::int64_t{2}));
    return cover;
  }
  // All keys of the blocks that the last of the queries' block looks at, as the products take them.
  std::int64_t keys_before(std::int64_t query) const override {
    if (!is_causal_) return p_.keys;
    const std::int64_t end = std::min((query + p_.q_block - 1) / p_.q_block * p_.q_block, p_.queries);
    return std::min((end + p_.k_block - 1) / p_.k_block * p_.k_block, p_.keys);
  }
  bool modifies_scores() const override { return bias_.has_value(); }
  void modify(const Slab& slab, const Tensor& scores) override {
    const Extents& strides = bias_->strides;
    Tensor part = *bias_;
    part.sizes = scores.sizes;
    part.offset += slab.batch * strides[0] + slab.head * strides[1] + slab.query * strides[2];
    const Tensor bias = scratch_.copied(part, scores.dtype);
    if (part.dtype == DType::kBool) {
      const Tensor zero = scratch_.filled(scores.dtype, {}, Value(0.0));
      scratch_.map_into<math::KeepScore>(bias, Value(), bias, zero);
    }
    scratch_.map_into<math::AddScaled>(scores, Value(1.0), scores, bias);
  }
  bool is_causal() const override { return is_causal_; }
  PairBits mask(const Slab&) override { return {}; }
  bool modifies_gradient() const override { return false; }
  void modify_backward(const Slab&, const Tensor&, const Tensor&) override {}

 private:
  Scratch& scratch_;
  const AttentionProblem& p_;
  bool is_causal_;
  std::optional<Tensor> bias_;  // broadcast to [batch, head, query, key], as it lies in memory
};

DotProductResult dot_product(KernelCall& call, const DotProductParams& at) {
  const DotProductCall c = cpu::read_dot_product(call, at);
  Scratch scratch(call);
  const AttentionProblem p = read_problem({&c.query, &c.key, &c.value}, c.scale, Pass::kForward);
  DotProduct kind(scratch, p, c.is_causal, c.bias);
  const Extents lse_sizes = cpu::logsumexp_sizes(call, p);
  const Tensor out = call.make_result(0, c.query.dtype, {p.batches, p.heads, p.queries, p.value_depth});
  Tensor lse = call.make_result(1, DType::kFloat32, lse_sizes);
  const auto shaped = cpu::logsumexp_of_queries(lse, p);
  if (!shaped || shaped->numel() != lse.numel()) cpu::fill_elements(lse, Value(0.0));
  const RowsResult rows(scratch,
                        shaped ? *shaped : scratch.make(DType::kFloat32, {p.batches, p.heads, p.queries}));
  Attention(scratch, p, kind).forward({out, rows.rows(), std::nullopt});
  rows.finish();
  return {out, lse};
}

// grad_out, query, key, value come first everywhere.
std::vector<Value> dot_product_backward(KernelCall& call, const DotProductParams& at) {
  const DotProductCall c = cpu::read_dot_product(call, at);
  Scratch scratch(call);
  const AttentionProblem p = read_problem({&c.query, &c.key, &c.value}, c.scale, Pass::kBackward);
  const Tensor lse = cpu::require_logsumexp(call.tensor(at.lse), p);
  DotProduct kind(scratch, p, c.is_causal, c.bias);
  const Attention::Gradients grads{call.make_result(0, c.query.dtype, c.query.sizes),
                                   call.make_result(1, c.key.dtype, c.key.sizes),
                                   call.make_result(2, c.value.dtype, c.value.sizes)};
  Attention(scratch, p, kind)
      .backward({call.tensor(at.out), call.tensor(0), scratch.dense(lse, p.computed), std::nullopt}, grads);
  return {grads.query, grads.key, grads.value};
}

constexpr auto kRows = shared::attention_rows<dot_product, dot_product_backward>();

}  // namespace

std::span<const KernelRow> attention_rows() {
  return kRows;
}

}  // namespace epweave::replay::device
