#include "passes/chunk/enclosing_roots.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "analysis/module_path.h"

namespace epweave {
namespace {

bool is_number_or_star(std::string_view component) {
  return component == "*" ||
         (!component.empty() && component.find_first_not_of("0123456789") == component.npos);
}

bool is_divided_by_chunk(const Graph& graph, const ChunkOptions& options) {
  try {
    chunk(graph, options);
    return true;
  } catch (const PassError&) {
    return false;
  }
}

// The patterns around one, the smallest first, up to that of a block: "layers.*.moe", "layers.*" of
// layers.*.moe.experts.
std::vector<std::string> list_enclosing_roots(std::string_view pattern) {
  std::vector<std::string> found;
  for (std::size_t dot = pattern.rfind('.'); dot != pattern.npos; dot = pattern.rfind('.')) {
    if (is_number_or_star(pattern.substr(dot + 1))) break;  // what is around a block are other blocks
    pattern = pattern.substr(0, dot);
    found.emplace_back(pattern);
  }
  return found;
}

}  // namespace

std::optional<std::string> find_enclosing_root(const Graph& graph, const ChunkOptions& options,
                                               std::size_t root) {
  ChunkOptions wider = options;
  for (const std::string& pattern : list_enclosing_roots(options.roots[root].pattern)) {
    wider.roots[root].pattern = pattern;
    if (is_divided_by_chunk(graph, wider)) return pattern;
  }
  return std::nullopt;
}

PassError name_enclosing_root(const Graph& graph, const ChunkOptions& options, const PassError& error) {
  const auto declined = std::ranges::find_if(options.roots, [&](const ChunkRoot& root) {
    return !match_module(root.pattern, error.site().module).empty();
  });
  if (declined == options.roots.end()) return error;
  const auto pattern =
      find_enclosing_root(graph, options, static_cast<std::size_t>(declined - options.roots.begin()));
  if (!pattern) return error;
  return PassError(
      error.id(), error.problem(), error.site(),
      fmt::format("{}; {}, around it, can be divided: roots={}", error.remedy(), *pattern, *pattern));
}

}  // namespace epweave
