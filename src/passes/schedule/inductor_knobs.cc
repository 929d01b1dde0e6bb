#include "passes/schedule/inductor_knobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/parse_number.h"

namespace epweave {
namespace {

// Knobs of the reference that mean what `schedule{like=inductor}` does not do, and what does.
struct ForeignKnob {
  std::string_view name, instead;
};
constexpr ForeignKnob kForeignKnobs[] = {
    {"bucket_exposed_first", "a bucket pass behind it: bucket{plan=overlap}"},
    {"bucket_mode", "a bucket pass behind it: bucket{plan=overlap}"},
    {"bucket_only_internode_comms", "a bucket pass behind it: bucket{plan=overlap}"},
    {"collective_bucketing", "a bucket pass behind it: bucket{plan=overlap}"},
    {"collective_estimator", "cluster= or costs="},
    {"compute_estimator", "cluster= or costs="},
    {"custom_runtime_estimation", "cluster= or costs="},
    {"enable_fusion_regions", "cluster= or costs="},
    {"insert_overlap_deps", "the order of the nodes, which is what the graph says"},
    {"log_final_collectives_estimations", "epweave simulate"},
    {"pge_profile_path", "costs="},
    {"pre_bucketing_fsdp_collectives", "a bucket pass in front of it: bucket"},
    {"pre_bucketing_fsdp_collectives_bucket_cap_mb", "a bucket pass in front of it: bucket"},
};

constexpr std::string_view kKnobNames =
    "max_in_flight_gb, max_compute_pre_fetch, max_coll_distance, compute_overlap_multipler, "
    "max_memory_increase_gb, max_memory_increase_ratio, max_off_bucket_gb, "
    "prioritize_bucketing_during_scheduling, assume_bucketing_reduces_latency, collective_bucketing, "
    "bucket_mode, bucket_exposed_first, bucket_only_internode_comms";

class KnobReader {
 public:
  explicit KnobReader(std::string_view element) : element_(element) {
    const std::size_t equals = element.find('=');
    if (equals == std::string_view::npos) fail("NAME=VALUE");
    name_ = element.substr(0, equals);
    value_ = element.substr(equals + 1);
  }

  std::string_view name() const { return name_; }

  void read_into(InductorKnobs& knobs) const {
    if (name_ == "max_in_flight_gb") {
      knobs.max_in_flight_bytes = gigabytes();
    } else if (name_ == "max_compute_pre_fetch") {
      knobs.max_compute_pre_fetch = whole_number();
    } else if (name_ == "max_coll_distance") {
      knobs.max_coll_distance = whole_number();
    } else if (name_ == "compute_overlap_multipler") {
      knobs.compute_overlap_multiplier = number();
    } else if (name_ == "max_memory_increase_gb") {
      knobs.max_memory_increase_bytes = unless_none(&KnobReader::gigabytes);
    } else if (name_ == "max_memory_increase_ratio") {
      knobs.max_memory_increase_ratio = unless_none(&KnobReader::number);
    } else if (name_ == "max_off_bucket_gb") {
      knobs.max_off_bucket_bytes = unless_none(&KnobReader::gigabytes);
    } else if (name_ == "prioritize_bucketing_during_scheduling") {
      knobs.groups_by_bucket = truth();
    } else if (name_ == "assume_bucketing_reduces_latency") {
      knobs.discounts_latency = truth();
    } else if (name_ == "collective_bucketing") {
      knobs.buckets = truth();
    } else if (name_ == "bucket_mode") {
      knobs.bucket_mode = bucket_mode();
    } else if (name_ == "bucket_exposed_first") {
      knobs.bucket_exposed_first = unless_none(&KnobReader::truth);
    } else if (name_ == "bucket_only_internode_comms") {
      knobs.bucket_only_internode = truth();
    } else {
      refuse_name();
    }
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    throw UsageError(fmt::format("option 'knobs': '{}'\n  expected {}", element_, expected));
  }
  [[noreturn]] void refuse_name() const {
    for (const ForeignKnob& knob : kForeignKnobs)
      if (knob.name == name_)
        throw UsageError(
            fmt::format("option 'knobs': like=inductor has no '{}'\n  expected {}", name_, knob.instead));
    fail(kKnobNames);
  }

  double number() const {
    const auto value = parse_number<double>(value_);
    if (!value || !(*value >= 0) || *value > 1e6) fail(fmt::format("{}=NUMBER, from 0 to 1000000", name_));
    return *value;
  }
  std::int64_t gigabytes() const {
    return static_cast<std::int64_t>(number() * static_cast<double>(kInductorGb));
  }
  std::int64_t whole_number() const {
    const double value = number();
    if (value != std::floor(value)) fail(fmt::format("{}=N, a whole number", name_));
    return static_cast<std::int64_t>(value);
  }
  bool truth() const {
    if (value_ != "true" && value_ != "false") fail(fmt::format("{0}=true or {0}=false", name_));
    return value_ == "true";
  }
  InductorBucketMode bucket_mode() const {
    if (value_ == "default") return InductorBucketMode::kDefault;
    if (value_ == "custom_ops") return InductorBucketMode::kCustomOps;
    if (value_ == "custom_ops_multidtype") return InductorBucketMode::kCustomOpsMultidtype;
    if (value_ == "coalesced") return InductorBucketMode::kCoalesced;
    fail(fmt::format("{0}=default, {0}=custom_ops, {0}=custom_ops_multidtype or {0}=coalesced", name_));
  }
  template <class T>
  std::optional<T> unless_none(T (KnobReader::*read)() const) const {
    return value_ == "none" ? std::nullopt : std::optional<T>((this->*read)());
  }

  std::string_view element_, name_, value_;
};

}  // namespace

InductorKnobs read_inductor_knobs(std::span<const std::string> elements) {
  InductorKnobs knobs;
  std::set<std::string_view> given;
  for (const std::string& element : elements) {
    const KnobReader reader(element);
    reader.read_into(knobs);
    if (!given.insert(reader.name()).second)
      throw UsageError(fmt::format("option 'knobs': '{}' is given twice", reader.name()));
  }
  return knobs;
}

}  // namespace epweave
