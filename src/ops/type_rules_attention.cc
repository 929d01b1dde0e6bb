// Attention kernels: outputs laid out as the query, statistics contiguous float32.
#include <algorithm>

#include "ir/types/promotion.h"
#include "ops/rules.h"

namespace epweave::rules {
namespace {

// query, key, value, checked against each other: [batch, heads, length, head dimension].
struct Heads {
  const TensorType &query, &key, &value;
};

Heads heads_of(TypeRuleCall& call, std::size_t first) {
  Heads h{call.tensor(first), call.tensor(first + 1), call.tensor(first + 2)};
  for (const TensorType* tensor : {&h.query, &h.key, &h.value}) call.check_rank(*tensor, 4, "an operand");
  if (h.query.dtype != h.key.dtype || h.query.dtype != h.value.dtype)
    call.mismatch("dtypes {}, {} and {} differ", info(h.query.dtype).short_name, info(h.key.dtype).short_name,
                  info(h.value.dtype).short_name);
  call.check_equal(h.query.sizes[3], h.key.sizes[3], "head dimensions");
  call.check_equal(h.key.sizes[2], h.value.sizes[2], "lengths of key and value");
  for (const TensorType* tensor : {&h.key, &h.value})
    if (!is_one(call.facts, tensor->sizes[0]))
      call.check_equal(h.query.sizes[0], tensor->sizes[0], "batch sizes of query, key and value");
  return h;
}

Dims output_sizes(const Heads& h) {
  return {h.query.sizes[0], h.query.sizes[1], h.query.sizes[2], h.value.sizes[3]};
}

// The query's order of dimensions (alloc_with_matching_layout): broadcast dimensions outermost.
TypeId matching_layout(TypeRuleCall& call, const TensorType& query, Dims sizes) {
  if (std::equal(sizes.begin(), sizes.end(), query.sizes.begin(), query.sizes.end(),
                 [&](ExprId a, ExprId b) { return call.facts.equal(a, b); }))
    return call.fresh_like(query);
  std::vector<std::size_t> fill = fill_order(call.facts, query.strides, Ties::kFirstInside);
  std::stable_partition(fill.begin(), fill.end(),
                        [&](std::size_t dim) { return !is_zero(call.facts, query.strides[dim]); });
  Dims strides = filled_strides(call.facts, sizes, fill);
  return call.result(query.dtype, std::move(sizes), std::move(strides), query.device);
}

// The order of dimensions of `like`, the last one innermost (flex_attention._permute_strides).
TypeId permuted_like(TypeRuleCall& call, const TensorType& like, Dims sizes) {
  std::vector<std::size_t> fill = fill_order(call.facts, like.strides, Ties::kLastInside);
  const std::size_t last = sizes.size() - 1;
  Dims strides = filled_strides(call.facts, sizes, fill);
  if (!is_one(call.facts, strides[last])) {
    fill.erase(std::find(fill.begin(), fill.end(), last));
    fill.insert(fill.begin(), last);
    strides = filled_strides(call.facts, sizes, fill);
  }
  return call.result(like.dtype, std::move(sizes), std::move(strides), like.device);
}

TypeId scalar_state(TypeRuleCall& call, const TensorType& query, DType dtype) {
  return call.contiguous(dtype, {}, query.device);
}

TypeId length(TypeRuleCall& call, ExprId extent) {
  if (auto number = call.exprs.constant(extent)) return call.value(Arg::integer(*number));
  return call.scalar(extent);
}

TypeId gradients(TypeRuleCall& call, const Heads& h) {
  return call.tuple({call.fresh_like(h.query), call.fresh_like(h.key), call.fresh_like(h.value)});
}

// Laid out [batch, length, heads, head dimension].
TypeId by_length(TypeRuleCall& call, const TensorType& like, Dims sizes) {
  constexpr std::size_t kFill[] = {3, 1, 2, 0};
  Dims strides = filled_strides(call.facts, sizes, kFill);
  return call.result(like.dtype, std::move(sizes), std::move(strides), like.device);
}

// The first columns of rows of a multiple of 16 elements.
TypeId aligned_rows(TypeRuleCall& call, const TensorType& like) {
  Dims padded = like.sizes;
  padded.back() = call.exprs.mul(ceil_div(call.facts, padded.back(), 16), call.number(16));
  return call.result(like.dtype, like.sizes, contiguous_strides(call.facts, padded), like.device);
}

// Which captured buffers of a score function get a gradient: those for which the joint graph
// returns a value behind the gradients of score, batch, head, query and key index.
std::vector<bool> captured_gradients(TypeRuleCall& call, Arg joint, std::size_t count) {
  std::vector<bool> result(count, false);
  if (!joint.is_node()) return result;
  const Node& source = call.body.nodes[joint.as_node()];
  if (!source.attr.is(ArgKind::kGraph)) return result;
  const Body* graph = call.graph.find_body(source.attr.as_name());
  if (graph == nullptr || graph->order.empty()) return result;
  const auto returned = call.context.args[graph->nodes[graph->order.back()].args];
  if (returned.empty() || !returned[0].is_list()) return result;
  const auto values = call.context.args.children(returned[0]);
  constexpr std::size_t kIndexGradients = 5;
  for (std::size_t i = 0; i < count && kIndexGradients + i < values.size(); ++i)
    result[i] = !values[kIndexGradients + i].is_none();
  return result;
}

}  // namespace

// (output, logsumexp, None, None, max_q, max_k, seed, offset, None).
TypeId cudnn_attention(TypeRuleCall& call) {
  const Heads h = heads_of(call, 0);
  Dims statistics(h.query.sizes.begin(), h.query.sizes.begin() + 3);
  statistics.push_back(call.number(1));
  const TypeId state = scalar_state(call, h.query, DType::kInt64), none = call.none();
  return call.tuple({matching_layout(call, h.query, output_sizes(h)),
                     call.contiguous(DType::kFloat32, std::move(statistics), h.query.device), none, none,
                     length(call, h.query.sizes[2]), length(call, h.key.sizes[2]), state, state, none});
}

// (output, logsumexp, None, None, max_q, max_k, rng_state, unused, debug_attn_mask).
TypeId flash_attention(TypeRuleCall& call) {
  const Heads h = heads_of(call, 0);
  Dims statistics(h.query.sizes.begin(), h.query.sizes.begin() + 3);
  const TypeId none = call.none();
  return call.tuple({matching_layout(call, h.query, output_sizes(h)),
                     call.contiguous(DType::kFloat32, std::move(statistics), h.query.device), none, none,
                     length(call, h.query.sizes[2]), length(call, h.key.sizes[2]),
                     call.contiguous(DType::kUint64, {call.number(2)}, h.query.device),
                     scalar_state(call, h.query, DType::kUint64),
                     call.contiguous(h.query.dtype, {call.number(0)}, h.query.device)});
}

// (output, logsumexp, seed, offset); logsumexp's rows are padded to 32.
TypeId efficient_attention(TypeRuleCall& call) {
  const Heads h = heads_of(call, 0);
  const ExprId padded = call.exprs.mul(ceil_div(call.facts, h.query.sizes[2], 32), call.number(32));
  const Dims statistics = {h.query.sizes[0], h.query.sizes[1], call.boolean(4) ? padded : call.number(0)};
  const TypeId state = scalar_state(call, h.query, DType::kInt64);
  return call.tuple({by_length(call, h.query, output_sizes(h)),
                     call.contiguous(DType::kFloat32, statistics, h.query.device), state, state});
}

// (output, logsumexp): the statistics are laid out [batch, length, heads].
TypeId cpu_attention(TypeRuleCall& call) {
  const Heads h = heads_of(call, 0);
  const Dims statistics(h.query.sizes.begin(), h.query.sizes.begin() + 3);
  constexpr std::size_t kFill[] = {1, 2, 0};
  Dims strides = filled_strides(call.facts, statistics, kFill);
  return call.tuple({matching_layout(call, h.query, output_sizes(h)),
                     call.result(DType::kFloat32, statistics, std::move(strides), h.query.device)});
}
TypeId cpu_attention_backward(TypeRuleCall& call) {
  const Heads h = heads_of(call, 1);
  return call.tuple({by_length(call, h.query, h.query.sizes), by_length(call, h.key, h.key.sizes),
                     by_length(call, h.value, h.value.sizes)});
}

// As cudnn_attention, with statistics of three dimensions.
TypeId overrideable_attention(TypeRuleCall& call) {
  const Heads h = heads_of(call, 0);
  const Dims statistics(h.query.sizes.begin(), h.query.sizes.begin() + 3);
  const TypeId state = scalar_state(call, h.query, DType::kInt64), none = call.none();
  return call.tuple({matching_layout(call, h.query, output_sizes(h)),
                     call.contiguous(DType::kFloat32, statistics, h.query.device), none, none,
                     length(call, h.query.sizes[2]), length(call, h.key.sizes[2]), state, state, none});
}
// (grad_out, query, key, value, attn_bias, grad_input_mask, ...).
TypeId overrideable_attention_backward(TypeRuleCall& call) {
  const Heads h = heads_of(call, 1);
  const TensorType* bias = call.optional_tensor(4);
  const auto wanted = call.list(call.arg(5));
  const bool is_wanted = bias != nullptr && wanted.size() == 4 && wanted[3] == Arg::boolean(true);
  return call.tuple({call.fresh_like(h.query), call.fresh_like(h.key), call.fresh_like(h.value),
                     is_wanted ? call.fresh_like(*bias) : call.none()});
}

// cudnn, flash: (grad_out, query, key, value, ...).
TypeId attention_backward(TypeRuleCall& call) {
  return gradients(call, heads_of(call, 1));
}

// (grad_out, query, key, value, attn_bias, out, ..., grad_input_mask, ...).
TypeId efficient_attention_backward(TypeRuleCall& call) {
  const Heads h = heads_of(call, 1);
  const TensorType* bias = call.optional_tensor(4);
  const Arg wanted = call.arg(10);
  const bool is_wanted =
      wanted.is_list() && call.list(wanted).size() == 4 && call.list(wanted)[3] == Arg::boolean(true);
  return call.tuple({by_length(call, h.query, h.query.sizes), by_length(call, h.key, h.key.sizes),
                     by_length(call, h.value, h.value.sizes),
                     bias == nullptr || !is_wanted ? call.none() : aligned_rows(call, *bias)});
}

// (output, logsumexp, max scores) (flex_attention_fake_impl).
TypeId flex_attention(TypeRuleCall& call) {
  const Heads h = heads_of(call, 0);
  const TypeId statistics = call.contiguous(
      DType::kFloat32, Dims(h.query.sizes.begin(), h.query.sizes.begin() + 3), h.query.device);
  return call.tuple({permuted_like(call, h.query, output_sizes(h)), statistics, statistics});
}

// (grad query, grad key, grad value, grads of captured buffers)
// (flex_attention_backward_fake_tensor_mode).
TypeId flex_attention_backward(TypeRuleCall& call) {
  const Heads h = heads_of(call, 0);
  std::vector<TypeId> captured;
  const Arg buffers = call.arg(12);
  if (buffers.is_list()) {
    const std::size_t count = call.list(buffers).size();
    const std::vector<bool> wanted = captured_gradients(call, call.arg(8), count);
    for (std::size_t i = 0; i < count; ++i) {
      const Arg buffer = call.list(buffers)[i];
      const TensorType* tensor = wanted[i] ? tensor_of(call.context, call.type_of(buffer)) : nullptr;
      captured.push_back(tensor == nullptr ? call.none()
                                           : call.contiguous(tensor->dtype, tensor->sizes, tensor->device));
    }
  }
  return call.tuple({permuted_like(call, h.query, h.query.sizes), permuted_like(call, h.key, h.key.sizes),
                     permuted_like(call, h.value, h.value.sizes), call.tuple(std::move(captured))});
}

}  // namespace epweave::rules
