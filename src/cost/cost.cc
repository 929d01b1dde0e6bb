#include "cost/cost.h"

#include <algorithm>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/fused_products.h"
#include "ops/bind.h"
#include "ops/named_arg.h"

namespace epweave {

bool is_kernel(const Node& node) {
  if (node.kind != NodeKind::kCall) return false;
  if (node.op == nullptr) return true;  // not known: a kernel, to be safe
  return node.op->cost != CostClass::kFree && node.op->cost != CostClass::kHostSync && !is_launch(node) &&
         !is_wait(node);
}

void Work::add(const std::optional<Cost>& cost) {
  ++kernels;
  if (!cost) {
    ++unknown;
    return;
  }
  flops += cost->flops;
  bytes += cost->bytes;
}

Work& Work::operator+=(const Work& other) {
  kernels += other.kernels;
  flops += other.flops;
  bytes += other.bytes;
  unknown += other.unknown;
  return *this;
}

std::optional<Cost> CostModel::cost_of(NodeId call) {
  const Node& node = body_.nodes[call];
  if (node.op == nullptr) return std::nullopt;
  if (is_launch(node)) return cost_of_launch(node);
  if (is_wait(node) || node.op->cost == CostClass::kFree) return Cost{};
  const Count flops = flops_of(node);
  const Count read = reads_elements(node) ? operand_bytes(node) : Count(0);
  const Count written = node.op->is_view ? Count(0) : bytes_of(node.type);
  const Count bytes = plus(read, written);
  return flops && bytes ? std::optional(Cost{.flops = *flops, .bytes = *bytes}) : std::nullopt;
}

std::optional<Cost> CostModel::cost_of_launch(const Node& node) {
  const Count taken = operand_bytes(node), given = bytes_of(node.type);
  return taken && given ? std::optional(Cost{.message = std::max(*taken, *given)}) : std::nullopt;
}

Count CostModel::message_within(NodeId call, std::size_t ranks) {
  const Node& node = body_.nodes[call];
  const auto of_all = [&](Count of_rank) { return times(of_rank, static_cast<std::int64_t>(ranks)); };
  if (is_fused_product(node)) {
    const TypeId block = block_of_rank(context_, body_, node);
    return block ? of_all(bytes_of(block)) : std::nullopt;
  }
  const std::optional<Cost> whole = cost_of_launch(node);
  return whole ? Count(whole->message) : std::nullopt;
}

// --------------------------------------------------------------------------- bytes

Count CostModel::bytes_of(TypeId id) {
  if (!id) return 0;
  const Type& type = context_.types[id];
  if (type.kind == TypeKind::kTensor)
    return times(extents_.elements(type.tensor), info(type.tensor.dtype).bytes);
  Count sum = 0;
  for (TypeId element : type.elements) sum = plus(sum, bytes_of(element));
  return sum;
}

Count CostModel::operand_bytes(const Node& node) {
  Count sum = 0;
  for_each_input(context_, node, [&](NodeId input) { sum = plus(sum, bytes_of(body_.nodes[input].type)); });
  return sum;
}

// --------------------------------------------------------------------------- flops

Count CostModel::flops_of(const Node& node) {
  if (node.op->family == OpFamily::kGatherMatmul) return gather_matmul_flops(node);
  if (node.op->family == OpFamily::kConvolution || node.op->family == OpFamily::kConvolutionBackward)
    return convolution_flops(node);
  if (node.op->family == OpFamily::kSolve) return solve_flops(node);
  if (node.op->cost == CostClass::kMatmul) return matmul_flops(node);
  if (node.op->cost == CostClass::kAttention) return attention_flops(node);
  return 0;
}

const TensorType* CostModel::operand(const Node& node, std::string_view param) const {
  const auto position = node.op->find_param(param);
  if (!position) return nullptr;
  const Arg* arg = find_arg(context_, node, *position, param);
  return arg != nullptr && arg->is_node() ? tensor_of(context_, body_.nodes[arg->as_node()].type) : nullptr;
}

const TensorType* CostModel::first_operand(const Node& node,
                                           std::initializer_list<std::string_view> params) const {
  for (std::string_view param : params)
    if (const TensorType* found = operand(node, param)) return found;
  return nullptr;
}

// Each element of the left factor meets one row of the right one; of a stack of right factors with
// one left factor for each (or of one right factor cut into groups) only its own.
Count CostModel::matmul_flops(const Node& node) {
  const TensorType* left = first_operand(node, {"batch1", "mat1", "self", "mat_a", "A"});
  const TensorType* right = first_operand(node, {"batch2", "mat2", "mat_b", "vec", "tensor", "B"});
  if (left == nullptr || right == nullptr || left->sizes.empty() || right->sizes.empty()) return std::nullopt;
  Count flops = times(2, extents_.elements(*left));
  if (right->rank() == 1) return flops;
  flops = times(flops, extents_.number(right->sizes.back()));
  const bool is_cut = node.op->family == OpFamily::kGroupedMatmul && left->rank() == 3 &&
                      right->rank() == 2;  // columns by group
  if (!is_cut) return flops;
  const Count groups = extents_.number(left->sizes[0]);
  return flops && groups && *groups > 0 ? Count(*flops / *groups) : std::nullopt;
}

// Each element of the result meets half a row of the triangular matrix.
Count CostModel::solve_flops(const Node& node) {
  const TensorType* square = operand(node, "self");
  const TensorType* result = tensor_of(context_, node.type);
  if (square == nullptr || result == nullptr || square->sizes.empty()) return std::nullopt;
  return times(extents_.elements(*result), extents_.number(square->sizes.back()));
}

// Each window meets every element of the weight; of a transposed one, each element of the input
// does.
Count CostModel::convolution_flops(const Node& node) {
  const bool is_backward = node.op->family == OpFamily::kConvolutionBackward;
  const bool is_transposed = named_arg(context_, node, "transposed") == Arg::boolean(true);
  const TensorType* weight = operand(node, "weight");
  const TensorType* made = is_transposed ? operand(node, "input")
                           : is_backward ? operand(node, "grad_output")
                                         : tensor_of(context_, node.type);
  if (weight == nullptr || made == nullptr || made->rank() < 3) return std::nullopt;
  Count windows = extents_.number(made->sizes[0]);
  for (std::size_t d = 2; d < made->rank(); ++d) windows = times(windows, extents_.number(made->sizes[d]));
  const Count flops = times(times(2, windows), extents_.elements(*weight));
  if (!is_backward) return flops;
  const Arg mask = named_arg(context_, node, "output_mask");
  std::int64_t products = 0;  // of the bias there is none
  if (mask.is_list())
    for (const Arg wanted : context_.args.children(mask).first(2)) products += wanted == Arg::boolean(true);
  return times(flops, products);
}

// Each element of a product is a sum over the rows of its right factor.
Count CostModel::gather_matmul_flops(const Node& node) {
  const Type* result = node.type ? &context_.types[node.type] : nullptr;
  if (result == nullptr || result->elements.size() != 2) return std::nullopt;
  const auto products = context_.types[result->elements[1]].elements;
  const Arg factors = arg_of(context_, node, *node.op->find_param("Bs"));
  std::size_t next = 0;
  Count flops = 0;
  context_.args.for_each_node(factors, [&](NodeId id) {
    const TensorType* factor = tensor_of(context_, body_.nodes[id].type);
    const TensorType* product = next < products.size() ? tensor_of(context_, products[next]) : nullptr;
    ++next;
    const bool is_known = factor != nullptr && product != nullptr && !factor->sizes.empty();
    flops = !is_known ? std::nullopt
                      : plus(flops,
                             times(times(2, extents_.elements(*product)), extents_.number(factor->sizes[0])));
  });
  return flops;
}

Count CostModel::attention_flops(const Node& node) {
  const TensorType* query = operand(node, "query");
  const TensorType* key = operand(node, "key");
  const TensorType* value = operand(node, "value");
  if (query == nullptr || key == nullptr || value == nullptr) return std::nullopt;
  if (query->rank() != 4 || key->rank() != 4 || value->rank() != 4) return std::nullopt;
  Count flops = 2;  // [batch, heads, length, dim]
  for (std::size_t i = 0; i < 3; ++i) flops = times(flops, extents_.number(query->sizes[i]));
  flops = times(flops, extents_.number(key->sizes[2]));
  flops = times(flops, plus(extents_.number(query->sizes[3]), extents_.number(value->sizes[3])));
  const bool is_backward = context_.text(node.target).find("backward") != std::string_view::npos;
  return flops && is_backward ? Count(*flops / 2 * 5) : flops;
}

}  // namespace epweave
