#include "testing/attention_calls.h"

#include <fmt/format.h>

#include <string>

namespace epweave {
namespace {

constexpr std::int64_t kTokens = 48, kHeads = 2, kHeadWidth = 4, kDocument = 8;
constexpr std::int64_t kOneBlock = 128;
constexpr double kScale = 0.5;

}  // namespace

std::vector<std::int64_t> grid_shape(TokenLayout layout, std::vector<std::int64_t> row) {
  std::vector<std::int64_t> shape = {-1};
  if (layout == TokenLayout::kBatch) shape = {-1, kGridExtent};
  if (layout == TokenLayout::kSequence) shape = {kGridExtent, -1};
  shape.insert(shape.end(), row.begin(), row.end());
  return shape;
}

Arg AttentionCalls::list(const std::vector<std::int64_t>& items) const {
  std::vector<Arg> args;
  for (std::int64_t each : items) args.push_back(number(each));
  return build_.list(args);
}

// Every block of queries sees every block of keys: what is masked is up to the function.
void AttentionCalls::make_masks(NodeId tokens) {
  const StepBuilder::Keywords as_int32 = {{"dtype", build_.dtype("torch.int32")},
                                          {"device", build_.device("cuda:0")}};
  const bool is_divided = layout_ != TokenLayout::kBatch;
  block_ = is_divided && !dice_.one_in(4) ? kDocument : kOneBlock;
  const std::int64_t count = block_ == kDocument ? kTokens / kDocument : 1;
  // A table for each row of the batch: of a number that does not count tokens.
  const std::int64_t tables = !is_divided && dice_.one_in(4) ? kTokens : 1;
  counts_ = call("aten.full.default", {list({tables, 1, count}), number(count)}, as_int32);
  const NodeId numbers = call("aten.arange.default", {number(count)}, as_int32);
  const NodeId wide = call("aten.expand.default", {arg(numbers), list({tables, 1, count, count})});
  blocks_ = call("aten.clone.default", {arg(wide)},
                 {{"memory_format", build_.memory_format("torch.contiguous_format")}});
  if (!is_divided) {
    length_ = number(kGridExtent);
    return;
  }
  const NodeId length =
      call("aten.sym_size.int", {arg(tokens), number(layout_ == TokenLayout::kSequence ? 1 : 0)});
  length_ = arg(length);
  const NodeId places = call("aten.arange.default", {arg(length)}, {{"device", build_.device("cuda:0")}});
  documents_ = call("aten.floor_divide.default", {arg(places), number(kDocument)});
}

Attention::Kernel AttentionCalls::pick_kernel() {
  using Kernel = Attention::Kernel;
  static constexpr Kernel kKernels[] = {Kernel::kCudnn, Kernel::kFlash, Kernel::kEfficient, Kernel::kFlex,
                                        Kernel::kFlex};
  return dice_.pick(std::span<const Kernel>(kKernels));
}

// [n, 8] to [batch, heads, length, width].
NodeId AttentionCalls::heads(NodeId rows) {
  const NodeId split =
      call("aten.reshape.default", {arg(rows), list(grid_shape(layout_, {kHeads, kHeadWidth}))});
  if (layout_ != TokenLayout::kFlat) return call("aten.transpose.int", {arg(split), number(1), number(2)});
  const NodeId turned = call("aten.transpose.int", {arg(split), number(0), number(1)});
  return call("aten.unsqueeze.default", {arg(turned), number(0)});
}

NodeId AttentionCalls::merged(NodeId heads) {
  NodeId turned = heads;
  if (layout_ == TokenLayout::kFlat) {
    turned = call("aten.squeeze.dim", {arg(heads), number(0)});
    turned = call("aten.transpose.int", {arg(turned), number(0), number(1)});
  } else {
    turned = call("aten.transpose.int", {arg(heads), number(1), number(2)});
  }
  return call("aten.reshape.default", {arg(turned), list({-1, kHeads * kHeadWidth})});
}

Attention AttentionCalls::forward(NodeId query, NodeId key, NodeId value) {
  const bool is_batch = layout_ == TokenLayout::kBatch;
  Attention a{.kernel = pick_kernel()};
  const bool is_flex = a.kernel == Attention::Kernel::kFlex;
  a.is_causal = dice_.one_in(a.kernel == Attention::Kernel::kFlash && !is_batch ? 8 : 2);
  a.drops = !is_flex && dice_.one_in(16);
  a.is_biased_by_place = is_flex && dice_.one_in(2);
  a.crosses_documents = !is_flex && !is_batch;
  a.query = heads(query);
  a.key = heads(key);
  a.value = heads(value);
  a.results = call_forward(a);
  a.rows = merged(item(a.results, 0));
  return a;
}

NodeId AttentionCalls::backward(const Attention& forward, NodeId gradient) {
  const NodeId gradients = call_backward(forward, heads(gradient));
  NodeId sum = merged(item(gradients, 0));
  for (std::int64_t i = 1; i < 3; ++i)
    sum = call("aten.add.Tensor", {arg(sum), arg(merged(item(gradients, i)))});
  return sum;
}

NodeId AttentionCalls::call_forward(const Attention& a) {
  const Arg q = arg(a.query), k = arg(a.key), v = arg(a.value);
  const Arg dropout = build_.arg(a.drops ? 0.5 : 0.0), causal = build_.flag(a.is_causal);
  const StepBuilder::Keywords scale = {{"scale", build_.arg(kScale)}};
  switch (a.kernel) {
    case Attention::Kernel::kCudnn:
      return call("aten._scaled_dot_product_cudnn_attention.default",
                  {q, k, v, Arg::none(), build_.flag(true), dropout, causal}, scale);
    case Attention::Kernel::kFlash:
      return call("aten._scaled_dot_product_flash_attention.default", {q, k, v, dropout, causal}, scale);
    case Attention::Kernel::kEfficient:
      return call("aten._scaled_dot_product_efficient_attention.default",
                  {q, k, v, Arg::none(), build_.flag(true), dropout, causal}, scale);
    case Attention::Kernel::kFlex:
      break;
  }
  const NodeId score = score_function(a), mask = mask_function(a);
  return call("higher_order.flex_attention", {q, k, v, arg(score), block_mask(mask), build_.arg(kScale),
                                              options(), build_.tuple({}), captured()});
}

NodeId AttentionCalls::call_backward(const Attention& a, NodeId gradient) {
  const Arg g = arg(gradient), q = arg(a.query), k = arg(a.key), v = arg(a.value);
  const Arg out = arg(item(a.results, 0)), sums = arg(item(a.results, 1));
  const Arg dropout = build_.arg(a.drops ? 0.5 : 0.0), causal = build_.flag(a.is_causal);
  const StepBuilder::Keywords scale = {{"scale", build_.arg(kScale)}};
  const auto kept = [&](std::int64_t i) { return arg(item(a.results, i)); };
  switch (a.kernel) {
    case Attention::Kernel::kCudnn:
      return call("aten._scaled_dot_product_cudnn_attention_backward.default",
                  {g, q, k, v, out, sums, kept(6), kept(7), Arg::none(), Arg::none(), Arg::none(), kept(4),
                   kept(5), dropout, causal},
                  scale);
    case Attention::Kernel::kFlash:
      return call("aten._scaled_dot_product_flash_attention_backward.default",
                  {g, q, k, v, out, sums, Arg::none(), Arg::none(), kept(4), kept(5), dropout, causal,
                   kept(6), kept(7)},
                  scale);
    case Attention::Kernel::kEfficient: {
      const Arg yes = build_.flag(true);
      return call("aten._scaled_dot_product_efficient_attention_backward.default",
                  {g, q, k, v, Arg::none(), out, sums, kept(2), kept(3), dropout,
                   build_.list({yes, yes, yes, build_.flag(false)}), causal},
                  scale);
    }
    case Attention::Kernel::kFlex:
      break;
  }
  const NodeId score = score_function(a), joint = joint_function(a), mask = mask_function(a);
  return call("higher_order.flex_attention_backward",
              {q, k, v, out, sums, g, Arg::none(), arg(score), arg(joint), block_mask(mask),
               build_.arg(kScale), options(), build_.tuple({}), captured()});
}

Arg AttentionCalls::block_mask(NodeId mask) const {
  const Arg none = Arg::none(), counts = arg(counts_), blocks = arg(blocks_);
  return build_.tuple({length_, length_, counts, blocks, none, none, counts, blocks, none, none, none, none,
                       none, none, number(block_), number(block_), arg(mask)});
}

// Batch, head, query, key.
std::vector<NodeId> AttentionCalls::indices() {
  std::vector<NodeId> made;
  for (int i = 0; i < 4; ++i) made.push_back(build_.parameter("torch.int32"));
  return made;
}

// The score, or less of it the farther the key is.
NodeId AttentionCalls::score_function(const Attention& a) {
  build_.begin_function(fmt::format("score_{}", functions_++));
  const NodeId score = build_.parameter("torch.float32");
  const std::vector<NodeId> at = indices();
  if (!a.is_biased_by_place) return build_.end_function(arg(score));
  const NodeId distance = call("aten.sub.Tensor", {arg(at[3]), arg(at[2])});
  const NodeId bias = call("aten.mul.Tensor", {arg(distance), build_.arg(0.0625)});
  return build_.end_function(arg(call("aten.add.Tensor", {arg(score), arg(bias)})));
}

NodeId AttentionCalls::joint_function(const Attention&) {
  build_.begin_function(fmt::format("joint_{}", functions_++));
  build_.parameter("torch.float32");
  indices();
  const NodeId gradient = build_.parameter("torch.float32");
  const Arg none = Arg::none();
  return build_.end_function(build_.list({arg(gradient), none, none, none, none}));
}

// Keys of the query's document, and none behind it where that is causal.
NodeId AttentionCalls::mask_function(const Attention& a) {
  build_.begin_function(fmt::format("mask_{}", functions_++));
  const std::vector<NodeId> at = indices();
  const NodeId documents = documents_ ? build_.parameter("torch.int64", {"u0"}) : NodeId();
  const NodeId is_before = call("aten.ge.Tensor", {arg(at[2]), arg(a.is_causal ? at[3] : at[2])});
  if (!documents_) return build_.end_function(arg(is_before));
  const auto document = [&](NodeId row) {
    return arg(call("aten.index.Tensor", {arg(documents), build_.list({arg(row)})}));
  };
  const NodeId is_same = call("aten.eq.Tensor", {document(at[2]), document(at[3])});
  return build_.end_function(arg(call("aten.bitwise_and.Tensor", {arg(is_before), arg(is_same)})));
}

}  // namespace epweave
