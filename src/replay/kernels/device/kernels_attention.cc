// Scaled dot product attention on the device (attention.h).
#include "replay/kernels/device/attention.h"
#include "replay/kernels/device/kernels.h"
#include "replay/kernels/host/elements.h"

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
  const AttentionProblem& p_;
  bool is_causal_;
  std::optional<Tensor> bias_;
};

DotProductResult dot_product(KernelCall& call, const DotProductParams& at) {
  const DotProductCall c = cpu::read_dot_product(call, at);
  Scratch scratch(call);
  const AttentionProblem p = read_problem(scratch, {&c.query, &c.key, &c.value}, c.scale);
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
  const AttentionProblem p = read_problem(scratch, {&c.query, &c.key, &c.value}, c.scale);
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
  return cpu::gradients_and_bias(call, dot_product_backward(call, cpu::kEfficientBackward));
}

Value cpu_attention(KernelCall& call) {
  const DotProductResult result = dot_product(call, cpu::kCpu);
  return Value::tuple({result.out, result.lse});
}
Value cpu_attention_backward(KernelCall& call) {
  return Value::tuple(dot_product_backward(call, cpu::kCpuBackward));
}
Value overrideable_attention(KernelCall& call) {
  return cpu::fused_attention_result(call, dot_product(call, cpu::kOverrideable));
}
Value overrideable_attention_backward(KernelCall& call) {
  return cpu::gradients_and_bias(call, dot_product_backward(call, cpu::kOverrideableBackward));
}

constexpr KernelRow kRows[] = {
    {"aten._scaled_dot_product_cudnn_attention.default", cudnn_attention},
    {"aten._scaled_dot_product_cudnn_attention_backward.default", cudnn_attention_backward},
    {"aten._scaled_dot_product_efficient_attention.default", efficient_attention},
    {"aten._scaled_dot_product_efficient_attention_backward.default", efficient_attention_backward},
    {"aten._scaled_dot_product_flash_attention.default", flash_attention},
    {"aten._scaled_dot_product_flash_attention_backward.default", flash_attention_backward},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", cpu_attention},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default", cpu_attention_backward},
    {"aten._scaled_dot_product_fused_attention_overrideable.default", overrideable_attention},
    {"aten._scaled_dot_product_fused_attention_overrideable_backward.default",
     overrideable_attention_backward},
};

}  // namespace

std::span<const KernelRow> attention_rows() {
  return kRows;
}

}  // namespace epweave::replay::device
