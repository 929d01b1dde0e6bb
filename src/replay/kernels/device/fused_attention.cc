// Attention of native math (attention.h): one kernel forward, two backward, by tensor cores
// (tasks/fused_attention_task.h).
#include <algorithm>
#include <type_traits>

#include "base/error.h"
#include "replay/kernels/device/attention.h"
#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {
namespace {

// The widths that kernels are made for, narrowest first: of queries and keys, of values.
template <int kDepth, int kValueDepth>
struct Widths {
  static constexpr int depth = kDepth, value_depth = kValueDepth;
};
using Widest = Widths<192, 128>;

template <Stored kStored>
using Is = std::integral_constant<Stored, kStored>;

// Those of float16 have one width, for the sake of the time that they take to compile.
template <class Use>
void with_kernels(const AttentionProblem& p, const Use& use) {
  constexpr Is<Stored::kBfloat16> bfloat16;
  if (p.query.dtype == DType::kFloat16) return use(Is<Stored::kFloat16>{}, Widest{});
  if (p.depth <= 64 && p.value_depth <= 64) return use(bfloat16, Widths<64, 64>{});
  if (p.depth <= 128) return use(bfloat16, Widths<128, 128>{});
  use(bfloat16, Widest{});
}

bool is_whole_vectors(const HeadRows& rows, std::int64_t width) {
  constexpr std::int64_t kElements = 8;
  return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && rows.strides[1] % kElements == 0 &&
         rows.strides[2] % kElements == 0 && width % kElements == 0;
}

// Of a batch, from a head on.
HeadRows rows_from(const Tensor& tensor, std::int64_t batch, std::int64_t head) {
  const Extents& strides = tensor.strides;
  const std::int64_t first = tensor.offset + batch * strides[0] + head * strides[1];
  HeadRows rows{tensor.storage->data() + first * static_cast<std::int64_t>(tensor.element_bytes()),
                {},
                stored_of(tensor.dtype)};
  std::copy(strides.begin(), strides.end(), rows.strides);
  return rows;
}

}  // namespace

bool Attention::is_fused(Pass pass, const Tensor* grad_out) const {
  if (!launcher_of(scratch_).has_tensor_cores() || kind_.modifies_scores()) return false;
  const DType dtype = p_.query.dtype;
  if ((dtype != DType::kBfloat16 && dtype != DType::kFloat16) || p_.key.dtype != dtype ||
      p_.value.dtype != dtype || p_.depth > Widest::depth || p_.value_depth > Widest::value_depth)
    return false;
  if (pass == Pass::kForward) return true;
  const std::vector<Slab> slabs = find_fused_slabs(p_, kind_);
  return grad_out->dtype == dtype && !kind_.modifies_gradient() && p_.kv_batches == p_.batches &&
         std::all_of(slabs.begin(), slabs.end(), [&](const Slab& slab) {
           return slab.queries == p_.queries && slab.share == p_.group();
         });
}

FusedAttention Attention::fused_problem(const Slab& slab, const FusedOperands& in,
                                        const PairBits& bits) const {
  FusedAttention problem{};
  problem.rules = rules_of(slab, bits);
  const std::int64_t kv_batch = p_.kv_batches == 1 ? 0 : slab.batch, kv_head = slab.head / p_.group();
  problem.query = rows_from(in.query, slab.batch, slab.head);
  problem.query.data =
      static_cast<const std::uint16_t*>(problem.query.data) + slab.query * in.query.strides[2];
  problem.key = rows_from(in.key, kv_batch, kv_head);
  problem.value = rows_from(in.value, kv_batch, kv_head);
  problem.heads = slab.heads;
  problem.share = slab.share;
  problem.depth = p_.depth;
  problem.value_depth = p_.value_depth;
  problem.scale = static_cast<float>(p_.scale);
  problem.has_vectors = is_whole_vectors(problem.query, p_.depth) &&
                        is_whole_vectors(problem.key, p_.depth) &&
                        is_whole_vectors(problem.value, p_.value_depth);
  return problem;
}

Attention::FusedOperands Attention::fused_operands() const {
  const auto read = [&](const Tensor& tensor) {
    return tensor.strides[3] == 1 ? tensor : scratch_.dense(tensor, tensor.dtype);
  };
  return {read(p_.query), read(p_.key), read(p_.value)};
}

void Attention::forward_fused(const Forward& result) {
  EPWEAVE_CHECK(result.out.dtype == p_.query.dtype);
  slabs_ = find_fused_slabs(p_, kind_);
  const FusedOperands in = fused_operands();
  for (const Slab& slab : slabs_) {
    if (slab.rows() == 0) continue;
    const PairBits bits = kind_.mask(slab);
    FusedAttention problem = fused_problem(slab, in, bits);
    problem.unit = result.unit;
    with_kernels(p_, [&](auto stored, auto widths) {
      using W = decltype(widths);
      FusedForwardTask<decltype(stored)::value, W::depth, W::value_depth> task{};
      task.problem = problem;
      task.out = rows_from(result.out, slab.batch, slab.head);
      task.out.data =
          static_cast<const std::byte*>(task.out.data) +
          slab.query * result.out.strides[2] * static_cast<std::int64_t>(result.out.element_bytes());
      task.lse = result.lse.data<float>() + first_row(slab);
      if (result.maximum) task.maximum = result.maximum->data<float>() + first_row(slab);
      launcher_of(scratch_).launch(task, task.blocks(),
                                   {&in.query, &in.key, &in.value, &cover_, bits.bits ? &*bits.bits : nullptr,
                                    &result.out, &result.lse, result.maximum ? &*result.maximum : nullptr});
    });
  }
}

void Attention::backward_fused(const Saved& saved, const Gradients& grads) {
  for (const Tensor* grad : {&grads.query, &grads.key, &grads.value})
    EPWEAVE_CHECK(grad->dtype == p_.query.dtype);
  slabs_ = find_fused_slabs(p_, kind_);
  delta_ = find_delta<float>(saved);
  const FusedOperands in = fused_operands();
  const Tensor grad_out =
      saved.grad_out.strides[3] == 1 ? saved.grad_out : scratch_.dense(saved.grad_out, saved.grad_out.dtype);
  for (Slab slab : slabs_) {
    slab.keys = p_.keys;  // those that no query looks at have gradients of 0
    const PairBits bits = kind_.mask(slab);
    FusedAttention problem = fused_problem(slab, in, bits);
    problem.unit = saved.unit;
    const std::int64_t kv_head = slab.head / p_.group();
    const HeadRows of_out = rows_from(grad_out, slab.batch, slab.head);
    problem.has_vectors = problem.has_vectors && is_whole_vectors(of_out, p_.value_depth);
    with_kernels(p_, [&](auto stored, auto widths) {
      using W = decltype(widths);
      const auto launch = [&](auto task) {
        task.problem = problem;
        task.grad_out = of_out;
        task.lse = saved.lse.data<float>() + first_row(slab);
        task.delta = delta_.data<float>() + first_row(slab);
        if constexpr (decltype(task)::kOfKeys) {
          task.first = rows_from(grads.key, slab.batch, kv_head);
          task.second = rows_from(grads.value, slab.batch, kv_head);
        } else {
          task.first = rows_from(grads.query, slab.batch, slab.head);
        }
        launcher_of(scratch_).launch(
            task, task.blocks(),
            {&in.query, &in.key, &in.value, &grad_out, &saved.lse, &delta_, &cover_,
             bits.bits ? &*bits.bits : nullptr, &grads.query, &grads.key, &grads.value});
      };
      constexpr Stored kStored = decltype(stored)::value;
      launch(FusedGradientTask<kStored, W::depth, W::value_depth, GradientsOf::kQueries>{});
      launch(FusedGradientTask<kStored, W::depth, W::value_depth, GradientsOf::kKeys>{});
    });
  }
}

}  // namespace epweave::replay::device
