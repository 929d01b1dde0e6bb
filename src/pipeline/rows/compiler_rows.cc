#include "pipeline/rows/compiler_rows.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "passes/async_tp/async_tp.h"
#include "passes/tag_regional.h"
#include "pipeline/rows/shared_options.h"

namespace epweave {
namespace {

std::optional<Json> read_inductor_configs(const Options& options, std::string_view name) {
  if (!options.has(name)) return std::nullopt;
  const std::string& path = options.text(name);
  return parse_inductor_configs(read_option_file(name, path), path);
}
TagRegionalOptions read_tag_regional_options(const Options& options) {
  const bool is_flex = options.text("op") == "flex-attention";
  if (!is_flex && options.has("function-configs"))
    throw UsageError(
        fmt::format("option 'function-configs': calls of op '{}' name no functions\n  expected "
                    "op=flex-attention beside it",
                    options.text("op")));
  return {.op = is_flex ? RegionalOp::kFlexAttention : RegionalOp::kRmsNorm,
          .configs = read_inductor_configs(options, "configs"),
          .function_configs = read_inductor_configs(options, "function-configs")};
}
void check_tag_regional_options(Options& options) {
  read_tag_regional_options(options);
}
PassResult run_tag_regional(const Graph& graph, const Options& options) {
  return tag_regional(graph, read_tag_regional_options(options));
}

AsyncTpOptions read_async_tp_options(const Options& options) {
  if (options.list("axes").empty())
    throw UsageError("option 'axes': there is no axis\n  expected as in axes=[tp]");
  return {.axes = options.list("axes")};
}
void check_async_tp_options(Options& options) {
  read_async_tp_options(options);
}
PassResult run_async_tp(const Graph& graph, const Options& options) {
  return async_tp(graph, read_async_tp_options(options));
}

}  // namespace

PassInfo async_tp_row() {
  return {.name = "async-tp",
          .summary = "fuse collectives of tensor parallelism with products, over symmetric memory",
          .options = {{"axes", OptionKind::kList, "[tp]", "axes of the mesh whose process groups are fused"}},
          .run = run_async_tp,
          .settle = check_async_tp_options};
}

PassInfo tag_regional_row() {
  return {
      .name = "tag-regional",
      .summary = "tag the calls that torch's regional_inductor shall compile",
      .options = {{"op",
                   OptionKind::kChoice,
                   "flex-attention",
                   "which calls, with the functions that they name and the elements taken of their results",
                   {"flex-attention", "rms-norm"}},
                  {.name = "configs",
                   .kind = OptionKind::kText,
                   .help = "a JSON file of Inductor's options for them: {\"max_autotune\": true}",
                   .is_optional = true},
                  {.name = "function-configs",
                   .kind = OptionKind::kText,
                   .help = "with op=flex-attention: the same for the nodes of the functions",
                   .is_optional = true}},
      .run = run_tag_regional,
      .settle = check_tag_regional_options};
}

}  // namespace epweave
