// The machine that a graph is priced for: one rank's GPU, and the links between ranks.
//
//   h100          built in: one H100 SXM for each rank, 8 in a node
//   h100-2x4      the same, 4 in a node
//   FILE.json     "epweave cluster 1": {"format": "epweave cluster 1", "base": "h100", "nic": 4e11}
//
// A file without "base" lists every parameter that describes hardware; those that have a neutral
// value (scales, switches, contention) may be left out. A text names a shape and changes parameters
// of it:
//
//   h100+nic=400e9+host_us=10
//
// Rates are bytes or operations in a second, `*_us` microseconds. Each parameter stands in
// cluster_parameters().
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace epweave {

struct Cluster {
  std::string name = "h100";

  // A GPU.
  double bf16_flops = 989e12, tf32_flops = 494.5e12, fp32_flops = 67e12, fp8_flops = 1979e12;
  double allow_tf32 = 1;  // products of float32 run as tf32
  double mm_eff = 0.70, grouped_eff = 0.70;
  double hbm = 3.35e12, hbm_eff = 0.80;
  double kernel_us = 2, mm_kernel_us = 2;
  double pcie = 50e9;
  double sort_passes = 8;
  double attn_fraction =
      -1;  // -1: causal inside documents of as many tokens as the trace's option `ctx` says
  double attn_block = 128;

  // Between GPUs.
  double gpus_per_node = 8;
  double nvlink = 370e9, nvlink_a2a = 370e9;
  double nic = 50e9, nic_eff = 0.85;
  double nic_rails = 1;  // a ring with g ranks in a node uses g NICs, else one
  double coll_us = 20, hop_us = 0;

  // How a step runs (cost/simulate.h).
  double host_us = 0;
  double host_sync = 1;
  double launch_joins = 1;
  double hold_inputs = 1;  // operands of a collective live until its wait

  // What if.
  double comm_scale = 1, compute_scale = 1;

  // Contention: the rate at which compute advances while communication runs, and the other way
  // round; whether groups that use the same kind of link at the same time share its bandwidth.
  double compute_rate = 1, comm_rate = 1;
  double share_links = 0;

  bool has_contention() const { return compute_rate != 1 || comm_rate != 1 || share_links != 0; }
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

enum class ParameterRange : unsigned char {
  kPositive,     // a rate
  kNotNegative,  // a time, a number of passes
  kShare,        // above 0, at most 1
  kCount,        // a whole number, at least 1
  kSwitch,       // 0 or 1
  kFraction,     // above 0, at most 1; or -1, for what the trace says
};

struct ClusterParameter {
  std::string_view name;
  double Cluster::*value;
  ParameterRange range;
  bool is_hardware;  // a file without "base" must have it
  std::string_view meaning;
};
std::span<const ClusterParameter> cluster_parameters();

std::span<const std::string_view> cluster_names();  // built in

// Throws UsageError where the name is not built in.
Cluster find_cluster(std::string_view name);
// Of a file's text; `path` is for messages. Throws InputError.
Cluster parse_cluster_file(std::string_view text, const std::string& path);
// "nic=400e9". Throws UsageError: no such parameter, no number, out of its range.
void set_parameter(Cluster& cluster, std::string_view assignment);
// The same for several; throws UsageError, too, where one parameter is given twice.
void set_parameters(Cluster& cluster, std::span<const std::string_view> assignments);
// "h100+nic=400e9". `read` gives the text of a file. Throws UsageError and InputError.
Cluster parse_cluster(std::string_view text, std::string (*read)(const std::string& path));

// Parameters in which the cluster differs from the built-in shape `h100`: "nic=4e+11 host_us=10",
// or "".
std::string changed_parameters(const Cluster& cluster);

}  // namespace epweave
