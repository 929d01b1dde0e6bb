// Scaled dot product attention.
#include <limits>
#include <optional>

#include "replay/kernels/host/attention_tiles.h"
#include "replay/kernels/host/elements.h"
#include "replay/kernels/host/kernels.h"
#include "replay/kernels/shared/attention_rows.h"

namespace epweave::replay::cpu {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Causal masks begin at the first query and the first key, as torch's do.
template <class C>
class DotProduct : public AttentionKind<C> {
 public:
  using typename AttentionKind<C>::Block;
  DotProduct(const AttentionShape& p, bool is_causal, const Value& bias) : p_(p), is_causal_(is_causal) {
    if (bias.is_none()) return;
    const Extents sizes{p.batches, p.heads, p.queries, p.keys};
    const Operand operand = broadcast_operand(bias.tensor(), sizes);
    const Tensor& tensor = bias.tensor();
    bias_ = {tensor.dtype, sizes, operand.strides, tensor.offset, tensor.storage};
  }
  std::vector<Block> blocks(std::int64_t, std::int64_t, std::int64_t q_block) override {
    std::vector<Block> all;
    const std::int64_t last_query = std::min((q_block + 1) * p_.q_block, p_.queries) - 1;
    for (std::int64_t k = 0; k * p_.k_block < p_.keys; ++k)
      if (!is_causal_ || k * p_.k_block <= last_query) all.push_back({k, false});
    return all;
  }
  void modify(const AttentionTile& t, Buffer<C>& scores) override {
    const Buffer<C> bias = bias_of(t);
    for (std::int64_t r = 0; r < t.rows; ++r)
      for (std::int64_t j = 0; j < t.width; ++j) {
        const std::int64_t q = t.q_first + r, k = t.k_first + j;
        C& score = scores[at(r * t.width + j)];
        if (bias_) score = score + bias[at(r * t.width + j)];
        if (is_causal_ && k > q) score = kMasked;
      }
  }
  bool modifies_gradient() const override { return false; }
  void modify_backward(const AttentionTile&, const Buffer<C>&, Buffer<C>&) override {}

 private:
  static constexpr C kMasked = -std::numeric_limits<C>::infinity();

  // The tile's part: a converted copy of the whole would be as large as all scores.
  Buffer<C> bias_of(const AttentionTile& t) const {
    if (!bias_) return {};
    const Extents& strides = bias_->strides;
    const std::int64_t first =
        t.batch * strides[0] + t.head * strides[1] + t.q_first * strides[2] + t.k_first * strides[3];
    Buffer<C> bias = dense<C>(
        {bias_->dtype, {t.rows, t.width}, {strides[2], strides[3]}, bias_->offset + first, bias_->storage});
    if (bias_->dtype == DType::kBool)
      for (C& x : bias) x = x != C(0) ? C(0) : kMasked;
    return bias;
  }

  const AttentionShape& p_;
  bool is_causal_;
  std::optional<Tensor> bias_;  // broadcast to [batch, head, query, key]
};

DotProductResult dot_product(KernelCall& call, const DotProductParams& at_param) {
  const DotProductCall c = read_dot_product(call, at_param);
  const auto p = read_attention_problem<float>(call, {c.query, c.key, c.value, c.scale});
  DotProduct<float> kind(p, c.is_causal, c.bias);
  Tensor out = call.make_result(0, c.query.dtype, {p.batches, p.heads, p.queries, p.value_depth});
  const AttentionSums sums = run_attention(p, kind, out);
  Tensor lse = call.make_result(1, DType::kFloat32, logsumexp_sizes(call, p));
  const auto rows = logsumexp_of_queries(lse, p);
  if (!rows || rows->numel() != lse.numel()) fill_elements(lse, Value(0.0));
  if (rows) store_dense(sums.lse, *rows);
  return {out, lse};
}

// grad_out, query, key, value come first everywhere.
std::vector<Value> dot_product_backward(KernelCall& call, const DotProductParams& at_param) {
  const DotProductCall c = read_dot_product(call, at_param);
  const AttentionGradients grads{call.make_result(0, c.query.dtype, c.query.sizes),
                                 call.make_result(1, c.key.dtype, c.key.sizes),
                                 call.make_result(2, c.value.dtype, c.value.sizes)};
  with_floating(c.query.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const auto p = read_attention_problem<C>(call, {c.query, c.key, c.value, c.scale});
    DotProduct<C> kind(p, c.is_causal, c.bias);
    const AttentionSaved<C> saved{call.tensor(at_param.out),
                                  call.tensor(0),
                                  dense<C>(require_logsumexp(call.tensor(at_param.lse), p)),
                                  {}};
    run_attention_backward(p, kind, saved, grads);
  });
  return {grads.query, grads.key, grads.value};
}

constexpr auto kRows = shared::attention_rows<dot_product, dot_product_backward>();

}  // namespace

std::span<const KernelRow> attention_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
