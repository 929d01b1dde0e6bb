#include "resize/remedies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "resize/token_size.h"

namespace epweave {
namespace {

std::vector<std::string_view> list_passes(const Graph& graph) {
  std::vector<std::string_view> names;
  for (const PassRun& run : graph.passes)
    if (std::ranges::find(names, std::string_view(run.name)) == names.end()) names.emplace_back(run.name);
  return names;
}

// Extents that are a number times a symbol do not say how they follow a size that is a number.
bool has_sizes_in_symbols(const Graph& graph) {
  return std::ranges::any_of(find_token_dims(graph), [](const TokenDim& dim) { return bool(dim.symbol); });
}

}  // namespace

std::string resize_before_passes(const Graph& graph) {
  const auto passes = list_passes(graph);
  if (passes.empty()) return "resize the graph as it was traced, before what joins layers";
  return fmt::format("resize the graph before its passes ({})", fmt::join(passes, ", "));
}

std::string find_other_way(const Graph& graph) {
  std::string way;
  if (has_sizes_in_symbols(graph))
    way = "make its symbols numbers first (epweave rewrite -p concretize); or ";
  else if (!list_passes(graph).empty())
    way = resize_before_passes(graph) + "; or ";
  return way + "trace the model with symbolic sizes, or at the size itself";
}

}  // namespace epweave
