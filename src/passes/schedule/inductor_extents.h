// Numbers for extents that the graph does not know, as PyTorch guesses them (torch 2.15,
// ShapeEnv.optimization_hint): each symbol without a number that it had when traced is a fallback,
// or the end of its range that is nearer.
//
//   symbol u4 in [0, 3072]    symbol u6 in [0, int_oo]
//   bf16[u4 + u6, 256]        fallback 4096 * 4096: (3072 + 16777216) * 256 elements
//
// What runtime assertions say of a symbol beyond its range is not used.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "ir/graph.h"

namespace epweave {

class InductorExtents {
 public:
  InductorExtents(const Graph& graph, std::int64_t fallback);

  // Of all elements; a number that is too large for arithmetic is kMost.
  std::int64_t bytes(const TensorType& tensor);

  static constexpr std::int64_t kMost = std::int64_t{1} << 50;

 private:
  std::int64_t number(ExprId extent);
  std::int64_t value_of(StringId symbol);

  const Context& context_;
  std::int64_t fallback_;
  std::unordered_map<StringId, const Symbol*> symbols_;
  std::unordered_map<ExprId, std::int64_t> numbers_;
};

// Fallbacks: of the elements that a collective moves, and of a storage's bytes.
inline constexpr std::int64_t kElementsUnknown = 4096 * 4096;
inline constexpr std::int64_t kExtentUnknown = 8192;

}  // namespace epweave
