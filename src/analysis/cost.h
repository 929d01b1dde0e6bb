// How much a call computes and moves, from its types: for reports, not for decisions.
//
//   mm(f32[512, 256], f32[256, 64])      2*512*256*64 operations, (512*256 + 256*64 + 512*64)*4 bytes
//
// Extents with symbols count as what they were when the graph was traced; one that the device computes (rows
// received) has no number. Operations are those of matrix
// products and attention (masks not considered: an upper bound; backward 2.5 times forward); other kernels
// are bound by memory and count bytes only. Bytes are those of all tensors taken and made, each once.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "ir/facts.h"
#include "ir/graph.h"
#include "ir/op.h"

namespace epweave {

inline constexpr std::size_t kCostClasses = static_cast<std::size_t>(CostClass::kHostSync) + 1;

struct Cost {
  std::uint64_t operations = 0, bytes = 0;
  bool is_known = true;  // every extent has a number
};

// Kernels, added up.
struct Work {
  std::size_t kernels = 0;
  std::uint64_t operations = 0, bytes = 0;
  std::size_t unknown = 0;  // kernels whose cost is not known; they count 0

  void add(const Cost& cost);
};

class CostModel {
 public:
  explicit CostModel(const Graph& graph) : graph_(graph), facts_(graph) {}

  Cost cost_of(const Body& body, NodeId call) const;
  // Of the tensor that a node yields; none for other types and unknown extents.
  std::optional<std::uint64_t> bytes_of(const Node& node) const;

 private:
  std::optional<std::uint64_t> elements_of(const TensorType& tensor) const;
  std::optional<std::uint64_t> bytes_of(TypeId type) const;
  std::optional<std::uint64_t> operations_of(const Body& body, const Node& node) const;
  const TensorType* operand(const Body& body, const Node& node, std::string_view param) const;

  const Graph& graph_;
  mutable Facts facts_;  // keeps what it worked out
};

// Whether a call runs something on the compute stream: not free, not communication.
bool is_kernel(const Node& node);

}  // namespace epweave
