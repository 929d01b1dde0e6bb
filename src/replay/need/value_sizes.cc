#include "replay/need/value_sizes.h"

#include <algorithm>

#include "ops/op.h"
#include "replay/bounds/error_bounds.h"
#include "replay/kernels/device/pool.h"
#include "replay/run/call_values.h"
#include "replay/values/block_cache.h"

namespace epweave::replay {
namespace {

std::uint64_t count_places(const ResultType& tensor) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
    if (tensor.sizes[d] <= 0) return 0;
    last += (tensor.sizes[d] - 1) * (d < tensor.strides.size() ? tensor.strides[d] : 0);
  }
  return static_cast<std::uint64_t>(tensor.strides.empty() ? count_elements(tensor.sizes) : last + 1);
}

}  // namespace

std::vector<ResultType> ValueSizes::results_of(NodeId id) const {
  return evaluate_results(graph_, symbols_, graph_.step().nodes[id].type);
}

std::uint64_t ValueSizes::bytes_of(const ResultType& tensor, NodeId maker) const {
  std::uint64_t width = info(tensor.dtype).bytes;
  if (is_bounded(maker)) width += bytes_of_bounds(tensor.dtype);
  return count_places(tensor) * width;
}

std::uint64_t ValueSizes::bytes_of(NodeId id) const {
  std::uint64_t bytes = 0;
  for (const ResultType& type : results_of(id))
    if (type.is_tensor) bytes += bytes_of(type, id);
  return bytes;
}

std::uint64_t ValueSizes::bytes_of_all_bounds(NodeId id) const {
  std::uint64_t bytes = 0;
  for (const ResultType& type : results_of(id))
    if (type.is_tensor) bytes += count_places(type) * bytes_of_bounds(type.dtype);
  return bytes;
}

std::uint64_t ValueSizes::block_of(std::uint64_t bytes) const {
  return is_on_device() ? device::pool_block_bytes(bytes) : block_bytes(bytes);
}

std::uint64_t ValueSizes::scratch_of(NodeId call, std::uint64_t of_kernel) const {
  // Random numbers are made by the same calls on the CPU as on a device.
  const bool is_of_kernel = is_on_device() || graph_.step().nodes[call].op->is_random;
  const std::uint64_t scratch = is_of_kernel ? of_kernel : host_scratch(call);
  return is_bounded(call) ? bounded_scratch(call, scratch) : scratch;
}

// Operands and results in the type that the CPU computes in.
std::uint64_t ValueSizes::host_scratch(NodeId call) const {
  const Node& node = graph_.step().nodes[call];
  if (node.op->family == OpFamily::kElementwise || node.op->cost == CostClass::kFree) return 0;
  std::uint64_t bytes = 0;
  const auto add = [&](NodeId id) {
    for (const ResultType& type : results_of(id))
      if (type.is_tensor)
        bytes += static_cast<std::uint64_t>(count_elements(type.sizes)) *
                 std::max<std::size_t>(info(type.dtype).bytes, sizeof(float));
  };
  add(call);
  // Attention reads its operands tile by tile.
  if (node.op->cost != CostClass::kAttention) for_each_input(*graph_.context, node, add);
  return bytes;
}

std::uint64_t ValueSizes::bounded_scratch(NodeId call, std::uint64_t of_kernel) const {
  constexpr std::uint64_t kKernels = 4, kNumbers = 4 * sizeof(float) + 2 * sizeof(double);
  std::int64_t elements = 0;
  const auto add = [&](NodeId id) {
    for (const ResultType& type : results_of(id))
      if (type.is_tensor && is_inexact(type.dtype))
        elements += count_elements(type.sizes) * (is_complex(type.dtype) ? 2 : 1);
  };
  add(call);
  for_each_input(*graph_.context, graph_.step().nodes[call], add);
  return kKernels * of_kernel + kNumbers * static_cast<std::uint64_t>(elements);
}

}  // namespace epweave::replay
