#include "compare/rewrite/verify_causal_mask.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>

#include "compare/rewrite/conditions.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/rebind.h"

namespace epweave {
namespace {

constexpr std::size_t kBatchDim = 0, kHeadDim = 1, kMaskedSequenceDim = 2;
constexpr std::string_view kAlignedKernel = "aten._scaled_dot_product_efficient_attention";
constexpr std::size_t kBiasGradient = 3;  // of grad_input_mask

Arg param_of(const Context& context, const Node& node, std::string_view name) {
  const auto position = node.op->find_param(name);
  return position ? arg_of(context, node, *position) : Arg::none();
}

Arg default_of(const OpParam& param) {
  if (!param.has_default) return Arg::none();
  if (param.type == "bool") return Arg::boolean(param.default_value == "True");
  if (param.type == "float") return Arg::real(std::strtod(std::string(param.default_value).c_str(), nullptr));
  return Arg::none();
}

// Gives `call` its arguments by position, by keyword or left out as `whole` has them, whatever they
// are.
void spell_like(Context& context, const Node& whole, Node& call) {
  const BoundArgs bound = bind_args(context, call);
  const auto& params = call.op->params;
  auto value = [&](std::size_t i) { return bound.is_given(i) ? bound.values[i] : default_of(params[i]); };
  std::vector<Arg> args, kwargs;
  std::uint32_t spelled = 0;
  for (std::size_t i = 0; i < whole.args.count; ++i) {
    args.push_back(value(i));
    spelled |= 1u << i;
  }
  auto add_keyword = [&](std::size_t i) {
    kwargs.insert(kwargs.end(), {Arg::text(context.strings.intern(params[i].name)), value(i)});
    spelled |= 1u << i;
  };
  const auto names = context.args[whole.kwargs];
  for (std::size_t k = 0; k + 1 < names.size(); k += 2)
    add_keyword(call.op->find_param(context.text(names[k].as_name())).value());
  for (std::size_t i = 0; i < params.size(); ++i)
    if (bound.is_given(i) && (spelled >> i & 1) == 0 && value(i) != default_of(params[i])) add_keyword(i);
  call.args = context.args.add(args);
  call.kwargs = context.args.add(kwargs);
}

// A whole call without a bias gives no gradient of one, whether it is asked for or not.
void restore_wanted_gradients(Context& context, const Node& whole, Node& call) {
  const auto param = call.op->find_param("grad_input_mask");
  if (!param) return;
  const Arg before = arg_of(context, whole, *param), after = arg_of(context, call, *param);
  if (!before.is_list() || !after.is_list()) return;
  const auto asked = context.args.children(before), given = context.args.children(after);
  if (asked.size() <= kBiasGradient || given.size() != asked.size()) return;
  if (given[kBiasGradient] != Arg::boolean(false)) return;
  std::vector<Arg> restored(given.begin(), given.end());
  restored[kBiasGradient] = asked[kBiasGradient];
  rebind(context, call, {.param = *param, .value = context.args.add_tree(ArgKind::kList, restored)});
}

}  // namespace

std::string CausalMaskCheck::restore(NodeId origin, std::span<const NodeId> parts, std::size_t part,
                                     Node& call) {
  const Node& whole = a_.step().nodes[origin];
  const auto queries_a = extent(a_, whole, "query"), queries = extent(b_, call, "query");
  const auto keys_a = extent(a_, whole, "key"), keys = extent(b_, call, "key");
  if (!queries_a || !queries || !keys_a || !keys) return {};
  const Share share{static_cast<std::uint32_t>(part), static_cast<std::uint32_t>(parts.size())};
  const Fraction asked = numbers_.match(*queries_a, *queries, share),
                 seen = numbers_.match(*keys_a, *keys, share);
  const bool has_all_queries = asked != Fraction::kPart && seen == Fraction::kPart && is_causal(whole);
  if (!holds(Condition::kCausalOfAllQueries, !has_all_queries))
    return "is_causal counts the keys of the part from 0, and it has all queries";
  if (asked != Fraction::kPart) return {};
  const bool has_prefix = prefix_calls_ != nullptr && prefix_calls_->contains(parts[part]);
  rests_on_own_keys_ = rests_on_own_keys_ || (seen == Fraction::kPart && !has_prefix);
  if (seen == Fraction::kPart && !holds(Condition::kCausalOfAllQueries, numbers_.is_same(*queries, *keys)))
    return "the queries and keys of the part are not as many, so they are not of the same tokens";
  // With keys of its own it is causal among these; undivided along the sequence it is the whole's.
  if (seen != Fraction::kAll || !is_causal(whole)) return {};
  ExprId first_row = context_.exprs.number(0);
  for (std::size_t k = 0; k < part; ++k) {
    const auto rows = extent(b_, b_.step().nodes[parts[k]], "query");
    if (!rows) return "the queries of the parts before it are not known";
    first_row = context_.exprs.add(first_row, *rows);
  }
  const std::string begin = fmt::format("row {}", context_.exprs.text(first_row));
  if (is_causal(call) && holds(Condition::kMasksFromItsRow, false)) return {};
  if (is_causal(call))
    return fmt::format("is_causal counts queries from 0, the part begins at {} and sees all keys", begin);
  if (std::string fault = find_fault(param_of(context_, call, "attn_bias"), first_row, call); !fault.empty())
    return fmt::format("its bias is not the causal mask of queries from {} on: {}", begin, fault);
  spell_like(context_, whole, call);
  restore_wanted_gradients(context_, whole, call);
  rebind(context_, call, {.param = call.op->find_param("attn_bias").value()});
  rebind(context_, call, {.param = call.op->find_param("is_causal").value(), .value = Arg::boolean(true)});
  return {};
}

std::string CausalMaskCheck::find_fault(Arg bias, ExprId first_row, const Node& call) const {
  const auto spread = call_args(bias, "aten.expand.default");
  if (spread.empty()) return "it is no expand";
  const TensorType* type = tensor_of(context_, b_.step().nodes[bias.as_node()].type);
  const bool fits = type != nullptr && type->rank() == 4 &&
                    numbers_.is_same(type->sizes[2], extent(b_, call, "query").value()) &&
                    numbers_.is_same(type->sizes[3], extent(b_, call, "key").value());
  if (!holds(Condition::kMasksTheKeys, fits))
    return "it has other rows than the queries, or other columns than the keys";
  if (std::string fault = find_kernel_fault(*type, call);
      !holds(Condition::kMasksAsKernelsRead, fault.empty()))
    return fault;
  // One row, or one column, would be spread over all. The first columns of a wider triangle are the
  // same.
  const ExprId rows = type->sizes[2], columns = type->sizes[3];
  Arg upper = spread[0];
  ExprId width = columns;
  if (const auto cut = call_args(upper, "aten.slice.Tensor"); cut.size() == 4) {
    const bool has_all = cut[1] == Arg::integer(1) && cut[2] == Arg::integer(0) && is_number(cut[3], columns);
    if (!holds(Condition::kMasksTheKeys, has_all))
      return "it does not have the keys from the first to the last";
    upper = cut[0];
    if (!is_matrix(upper, rows, columns)) width = rounded_up(columns);
  }
  if (!holds(Condition::kMasksTheKeys, is_matrix(upper, rows, width)))
    return "it is spread from other rows or columns than there are";
  const bool are_rows_aligned = !call.op->target.starts_with(kAlignedKernel) ||
                                numbers_.is_same(width, rounded_up(columns)) || is_aligned(width);
  if (!holds(Condition::kMasksAsKernelsRead, are_rows_aligned))
    return "its rows do not begin at multiples of 16 elements, as this kernel reads them";
  const auto triangle = call_args(upper, "aten.triu.default");
  if (triangle.size() != 2) return "it is no upper triangle";
  if (!holds(Condition::kMasksFromItsRow,
             is_number(triangle[1], context_.exprs.add(first_row, context_.exprs.number(1)))))
    return "its diagonal is another";
  const auto full = call_args(triangle[0], "aten.full.default");
  const bool is_infinite = full.size() == 2 && full[1] == Arg::real(-std::numeric_limits<double>::infinity());
  if (!holds(Condition::kMasksByInfinity, is_infinite)) return "it is not made of -inf";
  return {};
}

std::string CausalMaskCheck::find_kernel_fault(const TensorType& bias, const Node& call) const {
  const Arg arg = param_of(context_, call, "query");
  const TensorType& query = *tensor_of(context_, b_.step().nodes[arg.as_node()].type);
  if (bias.dtype != query.dtype)
    return fmt::format("it is {}, the queries are {}", info(bias.dtype).name, info(query.dtype).name);
  if (bias.device != query.device) return "it is on another device than the queries";
  const bool may_spread = !call.op->target.starts_with(kAlignedKernel);
  for (const std::size_t dim : {kBatchDim, kHeadDim}) {
    if (numbers_.is_same(bias.sizes[dim], query.sizes[dim])) continue;
    if (may_spread && context_.exprs.constant(bias.sizes[dim]) == 1) continue;
    return "it has other batches or heads than the queries";
  }
  return {};
}

// Whether the number is known to be a multiple of 16.
bool CausalMaskCheck::is_aligned(ExprId number) const {
  ExprPool& exprs = context_.exprs;
  const ExprId step = exprs.number(16);
  return numbers_.is_same(exprs.mul(exprs.floordiv(number, step), step), number);
}

// To a multiple of 16, as rows of a bias that must be aligned are.
ExprId CausalMaskCheck::rounded_up(ExprId number) const {
  ExprPool& exprs = context_.exprs;
  const ExprId step = exprs.number(16);
  return exprs.mul(exprs.floordiv(exprs.add(number, exprs.number(15)), step), step);
}

bool CausalMaskCheck::is_matrix(Arg value, ExprId rows, ExprId columns) const {
  const TensorType* type =
      value.is_node() ? tensor_of(context_, b_.step().nodes[value.as_node()].type) : nullptr;
  return type != nullptr && type->rank() == 2 && numbers_.is_same(type->sizes[0], rows) &&
         numbers_.is_same(type->sizes[1], columns);
}

bool CausalMaskCheck::is_causal(const Node& node) const {
  return param_of(context_, node, "is_causal") == Arg::boolean(true);
}

std::optional<ExprId> CausalMaskCheck::extent(const Graph& graph, const Node& node, std::string_view param) {
  const Arg arg = param_of(*graph.context, node, param);
  const TensorType* type =
      arg.is_node() ? tensor_of(*graph.context, graph.step().nodes[arg.as_node()].type) : nullptr;
  if (type == nullptr || type->rank() != 4) return std::nullopt;
  return type->sizes[kMaskedSequenceDim];
}

std::span<const Arg> CausalMaskCheck::call_args(Arg value, std::string_view target) const {
  if (!value.is_node()) return {};
  const Node& node = b_.step().nodes[value.as_node()];
  if (node.kind != NodeKind::kCall || context_.text(node.target) != target) return {};
  // What a factory makes and where shows in its type; else a keyword changes what the call does.
  const bool has_options = has_family(node, OpFamily::kFactory);
  if (node.kwargs.count > 0 && !has_options) return {};
  return context_.args[node.args];
}

bool CausalMaskCheck::is_number(Arg arg, ExprId number) const {
  if (arg.is_int()) return numbers_.is_same(context_.exprs.number(arg.as_int()), number);
  const TypeId type = arg.is_node() ? b_.step().nodes[arg.as_node()].type : TypeId();
  return type && context_.types[type].kind == TypeKind::kScalar &&
         numbers_.is_same(context_.types[type].expr, number);
}

}  // namespace epweave
