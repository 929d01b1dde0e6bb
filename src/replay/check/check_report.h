// What a check (check.h) finds: of each rank, and of all together.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "replay/check/bound_comparison.h"
#include "replay/check/library_kernels.h"
#include "replay/collectives/groups.h"
#include "replay/run/watch_values.h"
#include "replay/values/compare.h"

namespace epweave::replay {

// Where bounds of regrouped sums are made: on the CPU, or on the one device of both graphs, which
// may be the CPU. kNone makes none, and what comes from a regrouped sum and differs is unverified.
enum class Bounds : std::uint8_t { kCpu, kDevice, kNone };

struct OutputCheck {
  Rank rank = 0;
  std::string name;  // "loss", "grad layers.0.w", "buffer layers.0.count"
  Verdict verdict = Verdict::kEqual;
  TensorDifference difference;
  std::optional<BoundComparison> bound;  // where it comes from a regrouped sum
};

struct NodeCheck {
  Rank rank = 0;
  NodeId node;  // of B; of several parts, the one that differs
  std::string origin;
  std::string reason;
  std::optional<TensorDifference> difference;  // none where the shapes tell already
  std::uint64_t position = 0;                  // in B's order, of the node or of its first part
};

// How many nodes of one rank have which verdict, and why some were not compared.
struct RankCheck {
  std::array<std::uint64_t, kVerdicts> nodes{};
  std::map<std::string, std::uint64_t> unverified, skipped;  // by reason
};

// How the outputs of a reference lie to those of A and B.
struct ReferenceCheck {
  std::uint64_t outputs = 0, equal_to_a = 0, equal_to_b = 0;  // bit for bit
  double largest_error = 0, largest_error_of_b = 0;           // relative to A: of the reference, of B
  std::string first_unlike_b;                                 // "rank 0: grad layers.0.w: first at 17: ..."
};

// The first run of a graph.
struct FirstRun {
  double seconds = 0;
  std::uint64_t contradictions = 0;  // values that are not what is recorded
  std::string first_contradiction;
};

// What was found of one rank, or of several together.
struct CheckReport {
  bool baseline_is_deterministic = true;  // A gave the same bits each time
  bool rewrite_is_deterministic = true;   // B gave the same bits each time, where it ran more than once
  std::vector<OutputCheck> outputs;       // every tensor of each rank
  std::vector<RankCheck> ranks;
  std::optional<NodeCheck> first;            // first node, in B's order, that differs
  std::vector<KernelChange> kernel_changes;  // each rank's in B's order
  std::optional<NodeCheck> first_change;     // the first of them
  double largest_share = 0;                  // of |a - b| / bound: sum-order outputs
  std::set<std::string> ops_without_bound;   // targets that regrouped sums went through
  std::set<std::string> added_roundings;     // casts by which B alone loses precision, in words
  std::optional<ReferenceCheck> reference;
  // Where they were made: not kDevice if that is the CPU; kNone: none were.
  Bounds bounds = Bounds::kNone;
  bool devices_agree = true;  // with the CPU, where bounds were made there
  // Outputs of A that hold NaN or infinity, behind which a fault can hide, and whether loss or
  // gradients do.
  std::uint64_t outputs_not_finite = 0;
  bool step_is_finite = true;
  FirstRun run_a, run_b;

  // The worst of all ranks is that of all.
  enum class Conclusion : std::uint8_t { kSame, kNotVerified, kDifferent };
  Conclusion conclusion() const;
  bool is_same() const { return conclusion() == Conclusion::kSame; }
};
std::string_view name_of(CheckReport::Conclusion conclusion);  // "same", "not verified", "different"

// The reports of ranks, in their order, as one. Where several ranks differ first at one node, the
// lowest is named.
CheckReport merge(const std::vector<CheckReport>& ranks);

// For another process that has read the same graphs.
std::string encode(const CheckReport& report);
CheckReport decode_check_report(std::string_view text);  // throws WireError

}  // namespace epweave::replay
