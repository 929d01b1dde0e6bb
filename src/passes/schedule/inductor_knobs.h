// The knobs of PyTorch's overlap scheduler (torch 2.15,
// torch/_inductor/fx_passes/overlap_scheduling.py), under its own names and with its function's
// defaults.
//
//   knobs=[max_in_flight_gb=2,max_compute_pre_fetch=50,max_off_bucket_gb=none]
//
// "gb" is 2^30 bytes, as there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace epweave {

inline constexpr std::int64_t kInductorGb = std::int64_t{1} << 30;

// How merged collectives are packed: with calls of torch.ops.bucketing, gathers of one dtype
// together or of any; kDefault: with plain calls, which has the keys of kCustomOps; kCoalesced: the
// same, but reduce-scatters are launched with a list of tensors.
enum class InductorBucketMode : std::uint8_t { kDefault, kCustomOps, kCustomOpsMultidtype, kCoalesced };

struct InductorKnobs {
  // Of what collectives in flight take and give: at most so much is started ahead, and at so much
  // the oldest is waited for.
  std::int64_t max_in_flight_bytes = 5 * kInductorGb;
  std::int64_t max_compute_pre_fetch = 200;  // compute nodes between here and what needs the collective
  std::int64_t max_coll_distance = 200;      // candidates that are looked at for one node
  double compute_overlap_multiplier = 1;     // how much of a node's time hides communication
  // What the peak may grow by: the larger of the two; none of them: no limit.
  std::optional<std::int64_t> max_memory_increase_bytes = kInductorGb;
  std::optional<double> max_memory_increase_ratio = 0.05;
  // Collectives that no compute needs are held back until those of one key are so large; none: they
  // are not.
  std::optional<std::int64_t> max_off_bucket_bytes = kInductorGb / 2;
  bool groups_by_bucket = true;   // prioritize_bucketing_during_scheduling
  bool discounts_latency = true;  // assume_bucketing_reduces_latency

  // The bucketer behind it (inductor_buckets.h).
  bool buckets = false;  // collective_bucketing
  InductorBucketMode bucket_mode = InductorBucketMode::kDefault;
  std::optional<bool> bucket_exposed_first;  // none: of groups between nodes
  bool bucket_only_internode = false;        // bucket_only_internode_comms
};

// Of elements NAME=VALUE. Throws UsageError: an unknown name, a value out of its range, a name
// given twice, or a knob of pinning or estimation, which this scheduler does not have.
InductorKnobs read_inductor_knobs(std::span<const std::string> elements);

}  // namespace epweave
