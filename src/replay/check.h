// Does graph B compute what graph A computes? Both are run on the same inputs; outputs, updated buffers and,
// by provenance, every node are compared.
//
// A node of B stands for a node of A of the first graph's name in its provenance (without provenance: of its
// own name): for all of it, or for part k of n. Per rank and node, the verdict is the first that holds:
//
//   equal       the bits are the same: of the value; of the parts laid end to end along the one dimension in
//   which
//               they are smaller; of every part, or of the last where the op writes its argument
//               (a buffer updated part by part); or of
//               numbers whose sum is the whole (only values of up to 4096 elements)
//   reordered   the parts' rows are the whole's rows in another order
//   sum-order   the value comes from a floating-point sum that was regrouped: parts of the whole's size that
//   are not
//               verified as above, and all that is computed from them, where the bits differ
//   unverified  nothing above can tell: integers (an index counts the rows of its part), other shapes,
//               memory that is not written yet
//   differs     everything else
//
// An output that is sum-order is accepted if its relative error (Euclidean) is within the bound that the
// caller gives. The bound is the caller's: it is not derived from the summands yet.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "replay/compare.h"
#include "replay/executor.h"

namespace epweave::replay {

enum class Verdict : std::uint8_t { kEqual, kReordered, kSumOrder, kUnverified, kDiffers };
inline constexpr std::size_t kVerdicts = 5;
std::string_view name_of(Verdict verdict);

struct OutputCheck {
  Rank rank = 0;
  std::string name;  // "loss", "grad layers.0.w", "buffer layers.0.count"
  Verdict verdict = Verdict::kEqual;
  TensorDifference difference;
};

struct NodeCheck {
  Rank rank = 0;
  NodeId node;  // of B
  std::string origin;
  std::string reason;
};

struct CheckReport {
  bool baseline_is_deterministic = true;  // A gave the same bits twice
  std::vector<OutputCheck> outputs;       // every rank, every tensor
  std::array<std::uint64_t, kVerdicts> nodes{};
  std::uint64_t skipped = 0;       // nodes without a counterpart, tuples, launches not waited for yet
  std::optional<NodeCheck> first;  // first node, in B's order, that differs
  double largest_sum_error = 0;    // of the sum-order outputs
  RunResult run_a, run_b;

  bool is_same(double sum_bound) const;
};

// One rank after a run: what the graph returned and what it left in its buffers.
struct NamedTensor {
  std::string name;
  Tensor tensor;
  NodeId node;  // the returned node; none for a buffer
};
std::vector<NamedTensor> list_results(const Graph& graph, const RankResult& result, const RankInputs& inputs);

CheckReport check_graphs(const Graph& a, const Graph& b, const KernelTable& kernels, std::uint32_t ranks,
                         std::uint64_t seed, const RunOptions& options);

}  // namespace epweave::replay
