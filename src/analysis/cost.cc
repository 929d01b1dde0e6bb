#include "analysis/cost.h"

#include <algorithm>
#include <array>

#include "analysis/collectives.h"

namespace epweave {

void Work::add(const Cost& cost) {
  ++kernels;
  if (!cost.is_known) ++unknown;
  operations += cost.operations;
  bytes += cost.bytes;
}

bool is_kernel(const Node& node) {
  if (node.kind != NodeKind::kCall) return false;
  if (node.op == nullptr) return true;  // not known: a kernel, to be safe
  return node.op->cost != CostClass::kFree && node.op->cost != CostClass::kHostSync && !is_launch(node) &&
         !is_wait(node);
}

std::optional<std::uint64_t> CostModel::elements_of(const TensorType& tensor) const {
  std::uint64_t elements = 1;
  for (ExprId size : tensor.sizes) {
    const auto extent = facts_.hint(facts_.normalize(size));
    if (!extent || *extent < 0) return std::nullopt;
    elements *= static_cast<std::uint64_t>(*extent);
  }
  return elements;
}

std::optional<std::uint64_t> CostModel::bytes_of(TypeId id) const {
  if (!id) return 0;
  const Type& type = graph_.context->types[id];
  if (type.kind == TypeKind::kTensor) {
    const auto elements = elements_of(type.tensor);
    return elements ? std::optional(*elements * info(type.tensor.dtype).bytes) : std::nullopt;
  }
  std::uint64_t sum = 0;
  for (TypeId element : type.elements) {
    const auto bytes = bytes_of(element);
    if (!bytes) return std::nullopt;
    sum += *bytes;
  }
  return sum;
}

std::optional<std::uint64_t> CostModel::bytes_of(const Node& node) const {
  return tensor_of(*graph_.context, node.type) != nullptr ? bytes_of(node.type) : std::nullopt;
}

const TensorType* CostModel::operand(const Body& body, const Node& node, std::string_view param) const {
  const auto position = node.op->find_param(param);
  const Arg* arg =
      position ? find_arg(*graph_.context, node, *position, node.op->params[*position].name) : nullptr;
  return arg != nullptr && arg->is_node() ? tensor_of(*graph_.context, body.nodes[arg->as_node()].type)
                                          : nullptr;
}

// Of a product [.., m, k] x [.., k, n]: 2*m*k*n per matrix, also where one operand is in groups of rows; of
// attention two products of queries with keys or values.
std::optional<std::uint64_t> CostModel::operations_of(const Body& body, const Node& node) const {
  struct Operands {
    const char *left, *right;
  };
  static constexpr std::array<Operands, 6> kProducts = {{{"mat1", "mat2"},
                                                         {"batch1", "batch2"},
                                                         {"mat_a", "mat_b"},
                                                         {"self", "mat2"},
                                                         {"self", "vec"},
                                                         {"self", "tensor"}}};
  const auto extent = [&](const TensorType& tensor, std::size_t from_end) -> std::optional<std::uint64_t> {
    if (tensor.rank() < from_end) return 1;
    const auto size = facts_.hint(facts_.normalize(tensor.sizes[tensor.rank() - from_end]));
    return size ? std::optional(static_cast<std::uint64_t>(*size)) : std::nullopt;
  };
  const auto product = [](std::uint64_t factor, std::optional<std::uint64_t> a,
                          std::optional<std::uint64_t> b) -> std::optional<std::uint64_t> {
    return a && b ? std::optional(factor * *a * *b) : std::nullopt;
  };
  if (node.op->cost == CostClass::kAttention) {
    const TensorType* query = operand(body, node, "query");
    const TensorType* key = operand(body, node, "key");
    if (query == nullptr || key == nullptr) return std::nullopt;
    const bool is_backward = node.op->find_param("grad_out") || node.op->find_param("grad_out_");
    return product(is_backward ? 10 : 4, elements_of(*query), extent(*key, 2));
  }
  if (node.op->cost != CostClass::kMatmul) return 0;
  for (const auto& [left, right] : kProducts) {
    const TensorType* a = operand(body, node, left);
    const TensorType* b = operand(body, node, right);
    // A vector has no columns.
    if (a != nullptr && b != nullptr)
      return product(2, elements_of(*a), b->rank() < 2 ? std::optional<std::uint64_t>(1) : extent(*b, 1));
  }
  return std::nullopt;
}

Cost CostModel::cost_of(const Body& body, NodeId call) const {
  const Node& node = body.nodes[call];
  if (node.op == nullptr) return {.is_known = false};
  Cost cost;
  if (const auto operations = operations_of(body, node)) {
    cost.operations = *operations;
  } else {
    cost.is_known = false;
  }
  const auto add_bytes = [&](TypeId type) {
    const auto bytes = bytes_of(type);
    cost.bytes += bytes.value_or(0);
    cost.is_known &= bytes.has_value();
  };
  std::vector<NodeId> taken;
  for_each_input(*graph_.context, node, [&](NodeId input) {
    if (std::find(taken.begin(), taken.end(), input) != taken.end()) return;
    taken.push_back(input);
    add_bytes(body.nodes[input].type);
  });
  add_bytes(node.type);
  return cost;
}

}  // namespace epweave
