#include "pipeline/presets.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "pipeline/pipeline.h"
#include "pipeline/rows/chunk_row.h"
#include "pipeline/rows/schedule_rows.h"
#include "pipeline/rows/shared_options.h"

namespace epweave {
namespace {

// The pass symbolize in front of what divides, where it is asked for.
std::string symbolize_first(const Options& options) {
  const std::vector<std::string>& inputs = options.list("symbolize");
  if (inputs.empty() || inputs == std::vector<std::string>{"no"}) return "";
  if (inputs == std::vector<std::string>{"yes"}) return "symbolize,";
  for (const std::string& input : inputs)
    if (input.find(':') == input.npos)
      throw UsageError(
          fmt::format("'{}' is not a value of option 'symbolize'\n"
                      "  expected yes, no, or inputs and dimensions: [tokens:0,labels:0]",
                      input));
  return fmt::format("symbolize{{inputs={}}},", print_value(inputs));
}

// Normalise, chunk, give the exchanges their own group, drop what chunking left dead, schedule, and
// only then make symbols numbers: the schedule needs no numbers, but the chunk's symbols tell its
// parts apart.
std::string expand_ep_overlap(const Options& options) {
  std::vector<std::string> patterns;
  for (const ChunkRoot& root : read_roots(options)) patterns.push_back(root.pattern);
  std::string optional =
      options.has("sizes") ? fmt::format(",sizes={}", print_value(options.list("sizes"))) : "";
  if (options.has("dense") && options.flag("dense")) optional += ",dense=true";
  for (const char* name : {"cast", "grad-accumulation", "join", "attention", "contract"})
    if (options.has(name)) optional += fmt::format(",{}={}", name, options.text(name));
  return fmt::format(
      "dce,canonicalize,dedup-unshard,{}chunk{{roots={},dim={},parts={}{}}},isolate-ep-pg,dce,"
      "overlap-ep{{roots={}}},concretize",
      symbolize_first(options), print_value(options.list("roots")), options.text("dim"), read_parts(options),
      optional, print_value(patterns));
}

// A share is of what the preset is given, once: what a choice needs more is not added to by the
// schedule.
std::string memory_of_run(const std::string& memory) {
  return memory.ends_with('%') && !memory.starts_with("run+") ? "run+" + memory : memory;
}

// What is given is handed on; the rest is left to the passes.
std::string expand_overlap(const Options& options) {
  std::string choice = fmt::format("parts={}", print_value(options.text("parts")));
  if (options.has("roots")) choice += fmt::format(",roots={}", print_value(options.list("roots")));
  if (options.has("dim")) choice += fmt::format(",dim={}", options.text("dim"));
  if (options.has("dense")) choice += fmt::format(",dense={}", options.flag("dense"));
  if (options.has("attention")) choice += fmt::format(",attention={}", options.text("attention"));
  std::string machine =
      fmt::format("memory={},cluster={}", print_value(memory_of_run(options.text("memory"))),
                  print_value(options.text("cluster")));
  if (options.has("costs")) machine += fmt::format(",costs={}", print_value(options.text("costs")));
  if (options.has("unpriced")) machine += fmt::format(",unpriced={}", options.text("unpriced"));
  return fmt::format(
      "dce,canonicalize,dedup-unshard,{}choose-chunks{{{},{}}},schedule{{{},effort={}}},concretize",
      symbolize_first(options), choice, machine, machine, options.text("effort"));
}

}  // namespace

std::vector<PresetInfo> make_presets() {
  return {
      {.name = "overlap",
       .summary = "divide, isolate and schedule as is predicted to take least",
       .options = {left_out(chunk_option::kRoots), left_out(chunk_option::kDim), kAutoParts,
                   chunk_option::kDense, chunk_option::kAttention, kMemory, kEffort, kCluster, kCosts,
                   kUnpriced, kSymbolize},
       .expand = expand_overlap},
      {.name = "ep-overlap",
       .summary = "chunk MoE modules and hide each part's token exchange behind the others' compute",
       .options = {chunk_option::kRoots, chunk_option::kDim, chunk_option::kParts, chunk_option::kSizes,
                   chunk_option::kDense, left_out(chunk_option::kCast), chunk_option::kGradAccumulation,
                   chunk_option::kJoin, chunk_option::kAttention, chunk_option::kContract, kSymbolize},
       .expand = expand_ep_overlap},
  };
}

}  // namespace epweave
