#include "cost/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/parse_number.h"
#include "cost/unique_json.h"

namespace epweave {
namespace {

using enum ParameterRange;

constexpr std::array kParameters = std::to_array<ClusterParameter>({
    {"bf16_flops", &Cluster::bf16_flops, kPositive, true, "peak of products of 16-bit floats"},
    {"tf32_flops", &Cluster::tf32_flops, kPositive, true, "peak of products of float32 as tf32"},
    {"fp32_flops", &Cluster::fp32_flops, kPositive, true, "peak of products of float32"},
    {"fp8_flops", &Cluster::fp8_flops, kPositive, true, "peak of products of 8-bit floats"},
    {"allow_tf32", &Cluster::allow_tf32, kSwitch, false, "products of float32 run as tf32"},
    {"mm_eff", &Cluster::mm_eff, kShare, true, "share of the peak that products and attention reach"},
    {"grouped_eff", &Cluster::grouped_eff, kShare, true, "share of the peak that grouped products reach"},
    {"hbm", &Cluster::hbm, kPositive, true, "memory, bytes/s"},
    {"hbm_eff", &Cluster::hbm_eff, kShare, true, "share of it that kernels reach"},
    {"kernel_us", &Cluster::kernel_us, kNotNegative, true, "fixed part of a kernel"},
    {"mm_kernel_us", &Cluster::mm_kernel_us, kNotNegative, true, "fixed part of a product or attention"},
    {"pcie", &Cluster::pcie, kPositive, true, "between host and device, bytes/s"},
    {"sort_passes", &Cluster::sort_passes, kNotNegative, false, "passes of sort and topk over their data"},
    {"attn_fraction", &Cluster::attn_fraction, kFraction, false,
     "share of the score matrix that attention computes; -1: causal inside documents"},
    {"attn_block", &Cluster::attn_block, kCount, false, "rows of a block of scores"},
    {"gpus_per_node", &Cluster::gpus_per_node, kCount, true, "rank r is on node r // gpus_per_node"},
    {"nvlink", &Cluster::nvlink, kPositive, true, "rings in a node, bytes/s for each GPU"},
    {"nvlink_a2a", &Cluster::nvlink_a2a, kPositive, true, "all-to-all in a node, bytes/s for each GPU"},
    {"nic", &Cluster::nic, kPositive, true, "between nodes, bytes/s for each GPU"},
    {"nic_eff", &Cluster::nic_eff, kShare, true, "share of it that collectives reach"},
    {"nic_rails", &Cluster::nic_rails, kSwitch, false, "a ring with g ranks in a node uses g NICs, else one"},
    {"coll_us", &Cluster::coll_us, kNotNegative, true, "latency of a collective"},
    {"hop_us", &Cluster::hop_us, kNotNegative, false, "more latency for each other rank of the group"},
    {"host_us", &Cluster::host_us, kNotNegative, false, "the host's time for a launch"},
    {"host_sync", &Cluster::host_sync, kSwitch, false, "the host stops for numbers that it reads"},
    {"launch_joins", &Cluster::launch_joins, kSwitch, false,
     "a collective starts after all compute launched before it"},
    {"hold_inputs", &Cluster::hold_inputs, kSwitch, false, "operands of a collective live until its wait"},
    {"comm_scale", &Cluster::comm_scale, kPositive, false, "factor of every collective's time"},
    {"compute_scale", &Cluster::compute_scale, kPositive, false, "factor of every kernel's time"},
    {"compute_rate", &Cluster::compute_rate, kShare, false, "rate of compute while communication runs"},
    {"comm_rate", &Cluster::comm_rate, kShare, false, "rate of communication while compute runs"},
    {"share_links", &Cluster::share_links, kSwitch, false, "groups on the same links share their bandwidth"},
});

constexpr std::array<std::string_view, 2> kNames = {"h100", "h100-2x4"};

const ClusterParameter* find_parameter(std::string_view name) {
  const auto found = std::ranges::find(kParameters, name, &ClusterParameter::name);
  return found == kParameters.end() ? nullptr : &*found;
}

std::string unknown_parameter(std::string_view name) {
  std::vector<std::string_view> known;
  for (const ClusterParameter& parameter : kParameters) known.push_back(parameter.name);
  const std::string_view nearest = nearest_name(name, known);
  return fmt::format(
      "no parameter of a cluster is called '{}'; {}", name,
      nearest.empty() ? fmt::format("they are {}", fmt::join(known, ", ")) : fmt::format("'{}' is", nearest));
}

constexpr double kLargestParameter = 1e18;

// Why the value cannot be the parameter's, or "".
std::string_view find_range_problem(ParameterRange range, double value) {
  if (!std::isfinite(value)) return "is not a finite number";
  if (std::abs(value) > kLargestParameter || (value != 0 && std::abs(value) < 1 / kLargestParameter))
    return "is beyond what times can be computed with (1e-18 to 1e18)";
  switch (range) {
    case kPositive:
      return value > 0 ? "" : "must be above 0";
    case kNotNegative:
      return value >= 0 ? "" : "must not be negative";
    case kShare:
      return value > 0 && value <= 1 ? "" : "must be above 0 and at most 1";
    case kCount:
      return value >= 1 && value <= 1e9 && value == std::floor(value) ? ""
                                                                      : "must be a whole number, at least 1";
    case kSwitch:
      return value == 0 || value == 1 ? "" : "must be 0 or 1";
    case kFraction:
      return value == -1 || (value > 0 && value <= 1) ? "" : "must be above 0 and at most 1, or -1";
  }
  return "";
}

std::optional<Cluster> find_built_in(std::string_view name) {
  Cluster cluster;
  if (name == kNames[0]) return cluster;
  if (name != kNames[1]) return std::nullopt;
  cluster.name = name;
  cluster.gpus_per_node = 4;
  return cluster;
}

// "h100+nic=4e+11+host_us=10" at each plus that a name and an equals sign follow.
std::vector<std::string_view> split_changes(std::string_view text) {
  std::vector<std::string_view> pieces;
  std::size_t begin = 0;
  for (std::size_t plus = text.find('+'); plus != text.npos; plus = text.find('+', plus + 1)) {
    const std::size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_", plus + 1);
    if (end == text.npos || end == plus + 1 || text[end] != '=') continue;
    pieces.push_back(text.substr(begin, plus - begin));
    begin = plus + 1;
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

std::string known_clusters() {
  return fmt::format("built in are {}", fmt::join(kNames, ", "));
}

}  // namespace

std::span<const ClusterParameter> cluster_parameters() {
  return kParameters;
}

std::span<const std::string_view> cluster_names() {
  return kNames;
}

Cluster find_cluster(std::string_view name) {
  if (auto cluster = find_built_in(name)) return *cluster;
  throw UsageError(
      fmt::format("no cluster is called '{}': {}; the name of a file ends in .json or has a slash", name,
                  known_clusters()));
}

void set_parameter(Cluster& cluster, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  const std::string_view name = assignment.substr(0, equals);
  if (equals == assignment.npos)
    throw UsageError(fmt::format("'{}' gives no value: write {}=NUMBER", assignment, name));
  const ClusterParameter* parameter = find_parameter(name);
  if (parameter == nullptr) throw UsageError(unknown_parameter(name));
  const std::string_view text = assignment.substr(equals + 1);
  const std::optional<double> value = parse_number<double>(text);
  if (!value) throw UsageError(fmt::format("{}: '{}' is not a number", name, text));
  if (const std::string_view problem = find_range_problem(parameter->range, *value); !problem.empty())
    throw UsageError(fmt::format("{}={} {}", name, text, problem));
  cluster.*parameter->value = *value;
}

Cluster parse_cluster_file(std::string_view text, const std::string& path) {
  const auto fail = [&](std::string_view what) { throw InputError(fmt::format("{}: {}", path, what)); };
  const Json file = parse_unique_json(text, path);
  if (!file.is_object()) fail("a cluster is an object of JSON");
  constexpr std::string_view kFormat = "epweave cluster 1";
  if (!file.contains("format") || file["format"] != kFormat)
    fail(fmt::format("no cluster: its \"format\" is not \"{}\"", kFormat));
  const bool has_base = file.contains("base");
  Cluster cluster;
  if (has_base) {
    const auto base =
        file["base"].is_string() ? find_built_in(file["base"].get<std::string>()) : std::nullopt;
    if (!base) fail(fmt::format("\"base\": no such cluster; {}", known_clusters()));
    cluster = *base;
  }
  cluster.name = path;
  for (const auto& [key, value] : file.items()) {
    if (key == "format" || key == "base") continue;
    if (key == "name") {
      if (!value.is_string() || value.get<std::string>().empty()) fail("\"name\": no text");
      cluster.name = value.get<std::string>();
      continue;
    }
    const ClusterParameter* parameter = find_parameter(key);
    if (parameter == nullptr) fail(unknown_parameter(key));
    if (!value.is_number()) fail(fmt::format("\"{}\": {} is not a number", key, value.dump()));
    if (const std::string_view problem = find_range_problem(parameter->range, value.get<double>());
        !problem.empty())
      fail(fmt::format("\"{}\": {} {}", key, value.dump(), problem));
    cluster.*parameter->value = value.get<double>();
  }
  std::vector<std::string_view> missing;
  for (const ClusterParameter& parameter : kParameters)
    if (parameter.is_hardware && !has_base && !file.contains(parameter.name))
      missing.push_back(parameter.name);
  if (!missing.empty())
    fail(fmt::format("without {}: give {}, or a \"base\" that has the rest ({})", fmt::join(missing, ", "),
                     missing.size() == 1 ? "it" : "them", known_clusters()));
  return cluster;
}

Cluster parse_cluster(std::string_view text, std::string (*read)(const std::string& path)) {
  const std::vector<std::string_view> pieces = split_changes(text);
  const std::string_view shape = pieces.front();
  const bool is_path = !find_built_in(shape) && (shape.ends_with(".json") || shape.find('/') != shape.npos);
  Cluster cluster =
      is_path ? parse_cluster_file(read(std::string(shape)), std::string(shape)) : find_cluster(shape);
  set_parameters(cluster, std::span(pieces).subspan(1));
  return cluster;
}

void set_parameters(Cluster& cluster, std::span<const std::string_view> assignments) {
  std::vector<std::string_view> names;
  for (const std::string_view assignment : assignments) {
    const std::string_view name = assignment.substr(0, assignment.find('='));
    if (std::ranges::find(names, name) != names.end())
      throw UsageError(fmt::format("{} is given twice", name));
    names.push_back(name);
    set_parameter(cluster, assignment);
  }
}

std::string changed_parameters(const Cluster& cluster) {
  static const Cluster plain;
  std::string text;
  for (const ClusterParameter& parameter : kParameters)
    if (cluster.*parameter.value != plain.*parameter.value)
      text += fmt::format("{}{}={}", text.empty() ? "" : " ", parameter.name, cluster.*parameter.value);
  return text;
}

}  // namespace epweave
