// Does graph B compute what graph A computes? Both are run on the same inputs; outputs, updated buffers and,
// by provenance, every node are compared.
//
// A node of B stands for a node of A of the first graph's name in its provenance (without provenance: of its
// own name; `mm_7_chunk1` is part 1 of mm_7): for all of it, or for part k of n. Per rank and node, the
// verdict is the first that holds:
//
//   equal       the bits are the same: of the value; of the parts laid end to end along the one dimension in
//               which they are smaller; of every part, or of the last where the op writes its argument (a
//               buffer updated part by part); or of numbers whose sum is the whole (only values of up to 4096
//               elements)
//   reordered   the parts' rows are the whole's rows in another order
//   sum-order   the value is a floating-point sum that was regrouped (parts of the whole's size that are not
//               equal), or is computed from one, and no element is further off than its summands allow: unit
//               roundoff times the sum of their magnitudes, followed from op to op (error_bounds.h)
//   library-kernel  in native math: a product for which the library took another algorithm than in A, as it may for
//               another number of rows, or what is computed from one (library_kernels.h)
//   unverified  nothing above can tell: integers (an index counts the rows of its part), other shapes, memory
//               that is not written yet, what an op without a bound makes of a regrouped sum
//   differs     everything else
//
// A view reads nothing, so it may stand on either side of a write to its storage: where it has other bits for that reason it is
// skipped, and those who read through it are compared.
//
// The verdict on B:
//
//   different      a node or an output differs
//   not verified   else, if an output is unverified or library-kernel, A does not give the same bits twice, or a device does not
//                  give the CPU's: nothing shows a
//                  difference, and nothing shows that there is none
//   same           else: every output is equal or sum-order
//
// In native math (--math native) bounds are not followed: what comes from a regrouped sum and differs is unverified.
// Both graphs run on the same device then; with pinned rows (cublas/products.h) B's products take A's algorithms.
//
// A reference C, such as another tool's rewrite of A, is run on the same inputs and its outputs are compared with those of A
// and B. It changes no verdict.
//
// Each graph is run on its device; bounds are made on the CPU, whose outputs must be the same bits then.
//
//   run A, run B        hashes of all values: verdicts but those on regrouped sums
//   run A, run B again  with bounds, where a sum was regrouped (without: A alone). A's values are kept until B's are made;
//                       where that is more than `kept_bytes`, once for each lot of values that fits
//   run A, run B again  for the one node that differs first, if one does: its index, bits and distance
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "replay/compare.h"
#include "replay/executor.h"
#include "replay/inputs.h"
#include "replay/library_kernels.h"
#include "replay/sum_check.h"
#include "replay/watch_values.h"

namespace epweave::replay {

struct OutputCheck {
  Rank rank = 0;
  std::string name;  // "loss", "grad layers.0.w", "buffer layers.0.count"
  Verdict verdict = Verdict::kEqual;
  TensorDifference difference;
  std::optional<BoundComparison> bound;  // where it comes from a regrouped sum
};

struct NodeCheck {
  Rank rank = 0;
  NodeId node;  // of B
  std::string origin;
  std::string reason;
  std::optional<TensorDifference> difference;  // none where the shapes tell already
};

// How many nodes of one rank have which verdict, and why some were not compared.
struct RankCheck {
  std::array<std::uint64_t, kVerdicts> nodes{};
  std::map<std::string, std::uint64_t> unverified, skipped;  // by reason
};

// How the outputs of a reference lie to those of A and B, over all ranks.
struct ReferenceCheck {
  std::size_t outputs = 0, equal_to_a = 0, equal_to_b = 0;  // bit for bit
  double largest_error = 0, largest_error_of_b = 0;         // relative to A: of the reference, of B
  std::string first_unlike_b;                               // "rank 0: grad layers.0.w: first at 17: ..."
};

struct CheckReport {
  bool baseline_is_deterministic = true;  // A gave the same bits twice
  std::vector<OutputCheck> outputs;       // every rank, every tensor
  std::vector<RankCheck> ranks;
  std::optional<NodeCheck> first;            // first node, in B's order, that differs
  std::vector<KernelChange> kernel_changes;  // of all ranks, each rank's in B's order
  std::optional<NodeCheck> first_change;     // the first of them
  double largest_share = 0;                  // of |a - b| / bound: sum-order outputs
  std::set<std::string> ops_without_bound;   // targets that regrouped sums went through
  std::optional<ReferenceCheck> reference;
  bool devices_agree = true;  // with the CPU, where bounds were made there
  // Outputs of A that hold NaN or infinity, behind which a fault can hide, and whether loss or gradients do.
  std::uint64_t outputs_not_finite = 0;
  bool step_is_finite = true;
  RunResult run_a, run_b;

  enum class Conclusion : std::uint8_t { kSame, kNotVerified, kDifferent };
  Conclusion conclusion() const;
  bool is_same() const { return conclusion() == Conclusion::kSame; }
};

// One rank after a run: what the graph returned and what it left in its buffers.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
std::vector<NamedTensor> list_results(const Graph& graph, const RankResult& result, const RankInputs& inputs);

std::string_view name_of(CheckReport::Conclusion conclusion);  // "same", "not verified", "different"

// What both graphs are run on.
struct CheckSetup {
  const KernelTable& kernels;
  std::uint32_t ranks = 0;  // 0: as the graphs say
  InputData data = 0;
  RunOptions options;
  const Graph* reference = nullptr;
  Device* device_a = nullptr;  // null: the CPU
  Device* device_b = nullptr;
  std::size_t kept_bytes = std::size_t{4} << 30;
};
// Throws InputError or UsageError if the graphs cannot be compared.
CheckReport check_graphs(const Graph& a, const Graph& b, const CheckSetup& setup);

}  // namespace epweave::replay
