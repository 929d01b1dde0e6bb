#include "random_pipelines.h"

#include <fmt/format.h>

#include <sstream>

#include "ir/text/text.h"

namespace epweave {
namespace {

std::string chunk_of(const RandomStep& step, std::string_view division) {
  return fmt::format(
      "dce,canonicalize,chunk{{roots=[layers.*.moe,layers.*.feed_forward],require-exchange={},dim={},{}}}",
      step.has_exchange, step.divides_sequence ? "seq" : "batch", division);
}

}  // namespace

std::vector<RandomPipeline> list_pipelines(const RandomStep& step) {
  const bool moe = step.has_exchange;
  const auto chunk = [&](std::string_view division) { return chunk_of(step, division); };
  const std::string schedule =
      moe ? ",bypass-joins,isolate-ep-pg,dce,overlap-ep,concretize" : ",bypass-joins,concretize";
  // 48 tokens: equal parts, uneven ones, and sizes as given; gradients and joins in both orders.
  std::vector<RandomPipeline> all = {
      {chunk("parts=2") + schedule},
      {chunk("parts=3,grad-accumulation=eager") + schedule},
      {chunk("parts=5,cast=exact") + (moe ? ",overlap-ep{pair-first=no}" : ",concretize")},
      {chunk("sizes=[7,1,40],join=regions") + (moe ? ",overlap-ep{movement=minimal}" : "")}};
  // Parts of whole documents.
  if (step.has_attention) {
    all.push_back({chunk("parts=2,attention=independent") + schedule, !step.crosses_documents});
    all.push_back({chunk("sizes=[8,16,24],attention=independent"), !step.crosses_documents});
  }
  return all;
}

Graph with_seed(const Graph& graph) {
  std::istringstream given(print_text(graph));
  std::string text, line;
  bool has_loss = false, has_first = false;
  while (std::getline(given, line)) {
    const std::size_t is = line.find(" = "), type = line.find(" : ", is), bwd = line.find(" @loss bwd");
    const std::string name = line.substr(0, is);  // "  %sum_88"
    if (!has_loss && line.find(" = aten.sum.default(") == is && line.find(" : f32[] @loss") != line.npos) {
      has_loss = true;
      line += fmt::format("\n  %seed = aten.ones_like.default({}, pin_memory=False) : f32[] @loss",
                          name.substr(2));
    } else if (!has_first && type < bwd && bwd != line.npos) {
      has_first = true;
      line = fmt::format("{}_unscaled{}\n{} = aten.mul.Tensor({}_unscaled, %seed){}", name, line.substr(is),
                         name, name.substr(2), line.substr(type));
    }
    text += line + "\n";
  }
  return parse_text(text, "random step");
}

std::optional<RandomStep> shard_parameters(const RandomStep& step, std::uint64_t seed) {
  if (step.world != 2) return std::nullopt;
  const bool has_groups = seed % 3 > 0, has_dtypes = seed % 3 == 2;
  std::istringstream given(print_text(step.graph));
  std::string text, line, gathers;
  std::uint64_t sharded_count = 0;
  // "  %w = placeholder : f32[12, 8] role=parameter fqn=layers.0.w0.weight"
  const std::string_view is = " = placeholder : f32[", role = "] role=parameter fqn=", weight = ".weight";
  while (std::getline(given, line)) {
    const std::size_t type = line.find(is), end = line.find(role), comma = line.find(", ", type);
    if (line.find(" = placeholder") == line.npos && line.find(" = ") != line.npos) {
      text += gathers;  // in front of the first call
      gathers.clear();
    }
    if (type != line.npos && end != line.npos && comma < end && line.ends_with(weight)) {
      const std::string name = line.substr(2, type - 2), columns = line.substr(comma, end - comma);
      const int rows = std::stoi(line.substr(type + is.size()));
      const std::string fqn = line.substr(end + role.size());
      const std::string module = fqn.substr(0, fqn.size() - weight.size());
      if (rows % 2 != 0) return std::nullopt;
      line = fmt::format("  {}_shard{}{}{}{}{}", name, is, rows / 2, columns, role, fqn);
      const std::uint64_t kind = seed >> (2 * (sharded_count++ % 3));
      const int group = has_groups && kind % 2 == 1 ? 1 : 0;
      const bool is_cast = has_dtypes && kind / 2 % 2 == 1;
      const std::string_view sent = is_cast ? "bf16" : "f32", suffix = is_cast ? "_bf16" : "";
      if (is_cast)
        gathers += fmt::format(
            "  {0}_shard_bf16 = aten._to_copy.default({0}_shard, dtype=bf16) : bf16[{1}{2}] @{3}\n", name,
            rows / 2, columns, module);
      gathers += fmt::format(
          "  {0}_gathered = _c10d_functional.all_gather_into_tensor.default({0}_shard{4}, 2, \"{5}\") : "
          "{6}[{1}{2}] @{3}\n"
          "  {0}{4} = _c10d_functional.wait_tensor.default({0}_gathered) : {6}[{1}{2}] @{3}\n",
          name, rows, columns, module, suffix, group, sent);
      if (is_cast)
        gathers += fmt::format("  {0} = aten._to_copy.default({0}_bf16, dtype=f32) : f32[{1}{2}] @{3}\n",
                               name, rows, columns, module);
    }
    text += line + "\n";
  }
  RandomStep sharded = step;
  sharded.graph = parse_text(text, "random step");
  return sharded;
}

std::string pick_bucket_pipeline(const RandomStep& step, std::uint64_t seed) {
  switch (seed % 4) {
    case 0:
      return "bucket{plan=blocks}";
    case 1:
      return "bucket{plan=overlap}";
    case 2:
      return chunk_of(step, "parts=2") + ",bucket{plan=blocks}";
    default:
      return chunk_of(step, "parts=3") + (step.has_exchange
                                              ? ",isolate-ep-pg,dce,bucket,overlap-ep,concretize"
                                              : ",bucket{plan=overlap},concretize");
  }
}

std::string pick_memory_pipeline(const RandomStep& step, std::uint64_t seed) {
  static constexpr std::string_view kPipelines[] = {
      "memory-policy,recompute",
      "memory-policy{policy=eager,reshard=always},recompute",
      "memory-policy{policy=full},recompute",
      "memory-policy{policy=full,save=[layers.*::aten.mm.default]},recompute",
      "memory-policy{policy=none,reshard=never},recompute",
      "memory-policy{policy=budget,recompute-ms=0.01},recompute",
      "memory-policy{policy=budget,recompute-ms=100},recompute",
      "memory-policy{policy=sac-and-offload},cpu-offload,recompute",
  };
  const std::string memory(kPipelines[seed % std::size(kPipelines)]);
  switch (seed / std::size(kPipelines) % 3) {
    case 0:
      return memory;
    case 1:
      return memory + "," + chunk_of(step, "parts=2");
    default:
      // Policies that treat all parts of a call alike: `verify A B` does not prove others.
      return chunk_of(step, "parts=3") + (seed % 2 == 0 ? ",memory-policy{policy=full}" : ",memory-policy") +
             ",recompute";
  }
}

std::string pick_odd_memory_pipeline(std::uint64_t seed) {
  return seed % 2 == 0 ? "memory-policy{policy=budget,peak-mib=0}"
                       : "memory-policy{policy=full,save=[layers.*.nosuch::aten.mm.default]}";
}

std::string pick_odd_pipeline(std::uint64_t seed) {
  static constexpr std::string_view kPipelines[] = {
      "chunk{roots=nosuch}",
      "chunk{roots=[layers.*,layers.*.moe],dense=true}",
      "chunk{roots=layers.*.moe,parts=100,dense=true}",
      "chunk{roots=layers.*.moe,sizes=[1,2],dense=true}",
      "chunk{roots=layers.*.moe,dense=true},chunk{roots=layers.*.moe,dense=true}",
      "chunk{roots=layers.*.feed_forward}",
      "concretize,chunk{roots=layers.*.moe,dense=true}",
  };
  return std::string(kPipelines[seed % std::size(kPipelines)]);
}

}  // namespace epweave
