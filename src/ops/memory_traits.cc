#include "ops/memory_traits.h"

#include <algorithm>
#include <iterator>

#include "ir/graph.h"
#include "ops/op.h"
#include "ops/op_table.h"

namespace epweave {
namespace {

// All overloads of each name, unless the overload is said.

// PyTorch's allow-list beside what is pointwise: reductions, views, casts, factories, indexing,
// numbers of the host.
constexpr std::string_view kRecomputable[] = {"aten.__and__",
                                              "aten.__or__",
                                              "aten._grad_sum_to_size",
                                              "aten._to_copy",
                                              "aten._unsafe_view",
                                              "aten.alias",
                                              "aten.amax",
                                              "aten.any",
                                              "aten.arange",
                                              "aten.argmax",
                                              "aten.as_strided",
                                              "aten.broadcast_tensors",
                                              "aten.empty",
                                              "aten.empty_like",
                                              "aten.expand",
                                              "aten.full",
                                              "aten.full_like",
                                              "aten.gather",
                                              "aten.index",
                                              "aten.lift_fresh_copy",
                                              "aten.mean",
                                              "aten.new_zeros",
                                              "aten.ones",
                                              "aten.permute",
                                              "aten.reshape",
                                              "aten.scalar_tensor",
                                              "aten.select",
                                              "aten.slice",
                                              "aten.split",
                                              "aten.squeeze",
                                              "aten.std",
                                              "aten.sum",
                                              "aten.sum_to_size",
                                              "aten.t",
                                              "aten.to",
                                              "aten.triu",
                                              "aten.type_as",
                                              "aten.unsqueeze",
                                              "aten.var",
                                              "aten.var_mean",
                                              "aten.view",
                                              "aten.zeros",
                                              "aten.zeros_like",
                                              "operator.abs",
                                              "operator.add",
                                              "operator.and_",
                                              "math.ceil",
                                              "operator.eq",
                                              "math.floor",
                                              "operator.floordiv",
                                              "operator.ge",
                                              "operator.getitem",
                                              "operator.gt",
                                              "operator.le",
                                              "operator.lshift",
                                              "operator.lt",
                                              "operator.mod",
                                              "operator.mul",
                                              "operator.ne",
                                              "operator.neg",
                                              "operator.or_",
                                              "operator.pos",
                                              "operator.pow",
                                              "builtins.round",
                                              "operator.rshift",
                                              "operator.sub",
                                              "operator.truediv",
                                              "math.trunc",
                                              "operator.xor",
                                              "prims._low_memory_max_pool_offsets_to_indices",
                                              "prims.broadcast_in_dim",
                                              "prims.convert_element_type",
                                              "prims.div",
                                              "prims.iota",
                                              "prims.prepare_softmax_online",
                                              "prims.sum",
                                              "prims.var",
                                              "torch._sym_acos",
                                              "torch._sym_asin",
                                              "torch._sym_atan",
                                              "torch._sym_cos",
                                              "torch._sym_cosh",
                                              "torch._sym_log2",
                                              "torch._sym_sin",
                                              "torch._sym_sinh",
                                              "torch._sym_sqrt",
                                              "torch._sym_tan",
                                              "torch._sym_tanh",
                                              "torch.sym_float",
                                              "torch.sym_ite",
                                              "torch.sym_max",
                                              "torch.sym_min",
                                              "torch.sym_not"};

constexpr std::string_view kTorchViews[] = {"aten.alias",     "aten.as_strided", "aten.expand",
                                            "aten.permute",   "aten.select",     "aten.slice",
                                            "aten.split",     "aten.squeeze",    "aten.t",
                                            "aten.unsqueeze", "aten.view",       "prims.broadcast_in_dim"};

constexpr std::string_view kTorchRandom[] = {"aten.native_dropout", "aten.rand_like", "aten.randn_like"};

constexpr std::string_view kComputeIntensive[] = {"aten._efficient_attention_forward",
                                                  "aten._flash_attention_forward",
                                                  "aten._scaled_dot_product_efficient_attention",
                                                  "aten._scaled_dot_product_flash_attention",
                                                  "aten._scaled_mm",
                                                  "aten.addmm",
                                                  "aten.bmm",
                                                  "aten.convolution",
                                                  "aten.convolution_backward",
                                                  "aten.mm",
                                                  "aten.upsample_bilinear2d"};

// torchtitan's, beside the `default` overloads of those above.
constexpr std::string_view kSavedByDefault[] = {
    "_c10d_functional.all_to_all_single.default",
    "_c10d_functional.reduce_scatter_tensor.default",
    "aten._scaled_dot_product_attention_math.default",
    "aten._scaled_dot_product_cudnn_attention.default",
    "aten._scaled_dot_product_fused_attention_overrideable.default",
    "aten.linear.default",
    "aten.max.default",
    "aten.topk.default",
    "deepep.combine.default",
    "deepep.dispatch.default",
    "higher_order.flex_attention",
    "higher_order.inductor_compiled_code",
    "hybridep.combine.default",
    "hybridep.dispatch.default",
    "torch_attn._varlen_attn.default"};

constexpr std::string_view kAliasOps[] = {
    "aten._unsafe_view", "aten.alias",   "aten.as_strided", "aten.detach",    "aten.expand",
    "aten.narrow",       "aten.permute", "aten.reshape",    "aten.select",    "aten.slice",
    "aten.split",        "aten.squeeze", "aten.t",          "aten.transpose", "aten.unfold",
    "aten.unsqueeze",    "aten.view"};

constexpr std::string_view kAlternated[] = {"aten.linear.default", "aten.mm.default"};
constexpr std::string_view kSending[] = {"ao.offload.default"};
constexpr std::string_view kLoading[] = {"ao.reload.default"};

// torch.utils.flop_counter's registry, torch 2.15: grouped products are not in it.
constexpr std::string_view kCountingFlops[] = {"aten._convolution",
                                               "aten._efficient_attention_backward",
                                               "aten._efficient_attention_forward",
                                               "aten._flash_attention_backward",
                                               "aten._flash_attention_forward",
                                               "aten._scaled_dot_product_cudnn_attention",
                                               "aten._scaled_dot_product_cudnn_attention_backward",
                                               "aten._scaled_dot_product_efficient_attention",
                                               "aten._scaled_dot_product_efficient_attention_backward",
                                               "aten._scaled_dot_product_flash_attention",
                                               "aten._scaled_dot_product_flash_attention_backward",
                                               "aten._scaled_dot_product_flash_attention_for_cpu",
                                               "aten._scaled_dot_product_flash_attention_for_cpu_backward",
                                               "aten._scaled_mm",
                                               "aten._slow_conv2d_forward",
                                               "aten.addmm",
                                               "aten.baddbmm",
                                               "aten.bmm",
                                               "aten.convolution",
                                               "aten.convolution_backward",
                                               "aten.convolution_overrideable",
                                               "aten.cudnn_convolution",
                                               "aten.mm",
                                               "higher_order.flex_attention",
                                               "higher_order.flex_attention_backward"};

// Tagged `pointwise` by torch, but no elementwise op of the table.
constexpr std::string_view kPointwiseBeside[] = {"aten.clone.default", "prims.convert_element_type.default"};

// Of no overload that torch tags has the table a row.
constexpr std::string_view kPointwiseUnknown[] = {"aten.__ilshift__",
                                                  "aten.__ixor__",
                                                  "aten.__xor__",
                                                  "aten.acos_",
                                                  "aten.acosh_",
                                                  "aten.angle",
                                                  "aten.asin_",
                                                  "aten.asinh_",
                                                  "aten.atan2_",
                                                  "aten.atan_",
                                                  "aten.atanh_",
                                                  "aten.bitwise_left_shift_",
                                                  "aten.bitwise_not_",
                                                  "aten.bitwise_right_shift_",
                                                  "aten.bitwise_xor_",
                                                  "aten.celu",
                                                  "aten.celu_",
                                                  "aten.clip",
                                                  "aten.clip_",
                                                  "aten.conj_physical_",
                                                  "aten.cosh_",
                                                  "aten.deg2rad",
                                                  "aten.deg2rad_",
                                                  "aten.digamma_",
                                                  "aten.elu_",
                                                  "aten.equal",
                                                  "aten.erf_",
                                                  "aten.erfc",
                                                  "aten.erfc_",
                                                  "aten.erfinv_",
                                                  "aten.exp2_",
                                                  "aten.expm1_",
                                                  "aten.float_power",
                                                  "aten.float_power_",
                                                  "aten.fmod_",
                                                  "aten.frac_",
                                                  "aten.frexp",
                                                  "aten.hardshrink",
                                                  "aten.hardsigmoid_",
                                                  "aten.heaviside",
                                                  "aten.hypot_",
                                                  "aten.i0_",
                                                  "aten.igamma",
                                                  "aten.igamma_",
                                                  "aten.igammac",
                                                  "aten.igammac_",
                                                  "aten.isfinite",
                                                  "aten.isneginf",
                                                  "aten.isposinf",
                                                  "aten.ldexp",
                                                  "aten.ldexp_",
                                                  "aten.lgamma_",
                                                  "aten.log10_",
                                                  "aten.log1p_",
                                                  "aten.log2_",
                                                  "aten.logaddexp2",
                                                  "aten.logical_xor_",
                                                  "aten.logit",
                                                  "aten.logit_",
                                                  "aten.logit_backward",
                                                  "aten.max",
                                                  "aten.min",
                                                  "aten.mvlgamma",
                                                  "aten.mvlgamma_",
                                                  "aten.nan_to_num_",
                                                  "aten.nextafter_",
                                                  "aten.polygamma",
                                                  "aten.polygamma_",
                                                  "aten.positive",
                                                  "aten.rad2deg",
                                                  "aten.rad2deg_",
                                                  "aten.relu6",
                                                  "aten.remainder_",
                                                  "aten.rrelu",
                                                  "aten.selu",
                                                  "aten.selu_",
                                                  "aten.sgn_",
                                                  "aten.sign_",
                                                  "aten.sinc",
                                                  "aten.sinc_",
                                                  "aten.sinh_",
                                                  "aten.softshrink",
                                                  "aten.special_airy_ai",
                                                  "aten.special_bessel_j0",
                                                  "aten.special_bessel_j1",
                                                  "aten.special_bessel_y0",
                                                  "aten.special_bessel_y1",
                                                  "aten.special_chebyshev_polynomial_t",
                                                  "aten.special_chebyshev_polynomial_u",
                                                  "aten.special_chebyshev_polynomial_v",
                                                  "aten.special_chebyshev_polynomial_w",
                                                  "aten.special_entr",
                                                  "aten.special_hermite_polynomial_h",
                                                  "aten.special_hermite_polynomial_he",
                                                  "aten.special_laguerre_polynomial_l",
                                                  "aten.special_legendre_polynomial_p",
                                                  "aten.special_modified_bessel_i0",
                                                  "aten.special_modified_bessel_i1",
                                                  "aten.special_modified_bessel_k0",
                                                  "aten.special_modified_bessel_k1",
                                                  "aten.special_scaled_modified_bessel_k0",
                                                  "aten.special_scaled_modified_bessel_k1",
                                                  "aten.special_shifted_chebyshev_polynomial_t",
                                                  "aten.special_shifted_chebyshev_polynomial_u",
                                                  "aten.special_shifted_chebyshev_polynomial_v",
                                                  "aten.special_shifted_chebyshev_polynomial_w",
                                                  "aten.special_spherical_bessel_j0",
                                                  "aten.special_xlog1py",
                                                  "aten.special_zeta",
                                                  "aten.square_",
                                                  "aten.tan_",
                                                  "aten.threshold",
                                                  "aten.true_divide",
                                                  "aten.trunc_",
                                                  "aten.xlogy_"};

struct TraitList {
  std::span<const std::string_view> names;
  unsigned traits;
};

const TraitList kLists[] = {
    {kRecomputable, kIsRecomputable | kIsFusible},
    {kTorchViews, kIsTorchView},
    {kTorchRandom, kIsTorchRandom | kIsFusible},
    {kComputeIntensive, kIsComputeIntensive},
    {kSavedByDefault, kIsSavedByDefault},
    {kAliasOps, kIsAliasOp},
    {kAlternated, kIsAlternated},
    {kSending, kSendsToHost},
    {kLoading, kLoadsFromHost},
    {kCountingFlops, kCountsFlops},
};

unsigned find_listed(std::string_view name) {
  unsigned traits = 0;
  for (const TraitList& list : kLists)
    if (std::ranges::find(list.names, name) != list.names.end()) traits |= list.traits;
  return traits;
}

// "aten.add" of "aten.add.Tensor"; a target without an overload is its own.
std::string_view packet_of(std::string_view target) {
  const std::size_t dot = target.rfind('.');
  const bool has_overload = dot != std::string_view::npos && target.find('.') != dot;
  return has_overload ? target.substr(0, dot) : target;
}

// Torch tags elementwise ops, but for rows that say otherwise.
bool is_pointwise(std::string_view target) {
  if (std::ranges::find(kPointwiseBeside, target) != std::end(kPointwiseBeside)) return true;
  if (const OpInfo* op = find_op(target))
    return op->family == OpFamily::kElementwise && !has_flag(*op, kUntagged);
  return std::ranges::find(kPointwiseUnknown, packet_of(target)) != std::end(kPointwiseUnknown);
}

// Where one overload is pointwise, PyTorch computes all of them again.
bool has_pointwise_overload(std::string_view packet) {
  if (std::ranges::find(kPointwiseUnknown, packet) != std::end(kPointwiseUnknown)) return true;
  const auto is_before = [](const OpInfo& op, std::string_view name) { return op.target < name; };
  const auto rows = ops();
  auto row = std::lower_bound(rows.begin(), rows.end(), packet, is_before);  // overloads lie side by side
  for (; row != rows.end() && row->target.starts_with(packet); ++row)
    if (packet_of(row->target) == packet && is_pointwise(row->target)) return true;
  return false;
}

// `_unsafe_view` shows its operand, too, but does not say so.
bool is_declared_view(std::string_view target) {
  const OpInfo* op = find_op(target);
  return op != nullptr && op->is_view && !op->writes && op->schema.find("(a") != std::string_view::npos;
}

}  // namespace

unsigned memory_traits_of(std::string_view target) {
  const std::string_view packet = packet_of(target);
  unsigned traits = find_listed(target);
  if (packet != target) traits |= find_listed(packet);
  if (is_pointwise(target)) traits |= kIsPointwise;
  if (has_pointwise_overload(packet)) traits |= kIsRecomputable | kIsFusible;
  if ((traits & kIsComputeIntensive) != 0 && target.ends_with(".default")) traits |= kIsSavedByDefault;
  if (is_declared_view(target)) traits |= kIsDeclaredView;
  return traits;
}

unsigned MemoryTraits::of(const Node& node) {
  if (node.kind != NodeKind::kCall) return 0;
  constexpr unsigned kKnown = 1U << 31;
  unsigned& traits = traits_.at(node.target);
  if (traits == 0) traits = kKnown | memory_traits_of(context_.text(node.target));
  return traits & ~kKnown;
}

}  // namespace epweave
