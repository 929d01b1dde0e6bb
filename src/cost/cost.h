// What one call asks of the machine, from its types: for reports, not for decisions.
//
//   mm(bf16[512, 256], bf16[256, 64])          2*512*256*64 flops, (512*256 + 256*64 + 512*64)*2 bytes
//   all_to_all_single(f32[512, 256]) : f32[640, 256]      a message of 640*256*4 bytes
//
//   flops     of matrix products 2 m n k, grouped ones included; of attention 2 q k (d_qk + d_v)
//             per head, masks ignored, and 2.5 times that backward; of nothing else.
//             torch.utils.flop_counter has the same, but leaves grouped products out and weighs
//             d_qk and d_v 3 : 2 in the backward
//   bytes     read and written by kernels: each operand whole, as often as it is taken, and each result whole;
//             views and waits move none
//   message   bytes of a collective: the larger of what it takes and what it gives, on this rank; of a product
//             that is fused with one, what that one takes or gives
//
// Extents are numbers as cost/extents.h has them. Nested graphs are not counted: they run inside a
// kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "cost/extents.h"
#include "ir/graph.h"
#include "ops/op.h"

namespace epweave {

inline constexpr std::size_t kCostClasses = static_cast<std::size_t>(CostClass::kHostSync) + 1;

struct Cost {
  std::int64_t flops = 0, bytes = 0;  // of a kernel
  std::int64_t message = 0;           // of a launch
};

class CostModel {
 public:
  // Both live as long as the model.
  CostModel(const Graph& graph, Extents& extents)
      : context_(*graph.context), body_(graph.step()), extents_(extents) {}

  // Of a call of the step. None where the op is not known or an extent that counts has no number.
  std::optional<Cost> cost_of(NodeId call);
  // Of a call that is launch and wait in one, on a group of so many ranks; cost_of has its kernels.
  Count message_within(NodeId call, std::size_t ranks);

 private:
  std::optional<Cost> cost_of_launch(const Node& node);
  Count bytes_of(TypeId id);
  Count operand_bytes(const Node& node);
  Count flops_of(const Node& node);
  Count matmul_flops(const Node& node);
  Count gather_matmul_flops(const Node& node);
  Count solve_flops(const Node& node);
  Count convolution_flops(const Node& node);
  Count attention_flops(const Node& node);
  const TensorType* operand(const Node& node, std::string_view param) const;
  const TensorType* first_operand(const Node& node, std::initializer_list<std::string_view> params) const;

  const Context& context_;
  const Body& body_;
  Extents& extents_;
};

// Kernels, added up.
struct Work {
  std::size_t kernels = 0;
  std::int64_t flops = 0, bytes = 0;
  std::size_t unknown = 0;  // kernels whose cost is not known; they count 0

  void add(const std::optional<Cost>& cost);
  Work& operator+=(const Work& other);
};

// Whether a call runs something on the compute stream: not free, not communication, not a read by
// the host.
bool is_kernel(const Node& node);

}  // namespace epweave
