#include "passes/chunk/enclosing_roots.h"

#include <fmt/format.h>

#include <algorithm>

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

}  // namespace

std::vector<std::string> list_enclosing_roots(std::string_view pattern) {
  std::vector<std::string> found;
  for (std::size_t dot = pattern.rfind('.'); dot != pattern.npos; dot = pattern.rfind('.')) {
    if (is_number_or_star(pattern.substr(dot + 1))) break;  // what is around a block are other blocks
    pattern = pattern.substr(0, dot);
    found.emplace_back(pattern);
  }
  return found;
}

PassError name_enclosing_root(const Graph& graph, const ChunkOptions& options, const PassError& error) {
  const auto declined = std::ranges::find_if(options.roots, [&](const ChunkRoot& root) {
    return !match_module(root.pattern, error.site().module).empty();
  });
  if (declined == options.roots.end()) return error;
  ChunkOptions wider = options;
  ChunkRoot& root = wider.roots[static_cast<std::size_t>(declined - options.roots.begin())];
  for (const std::string& pattern : list_enclosing_roots(declined->pattern)) {
    root.pattern = pattern;
    if (is_divided_by_chunk(graph, wider))
      return PassError(
          error.id(), error.problem(), error.site(),
          fmt::format("{}; {}, around it, can be divided: roots={}", error.remedy(), pattern, pattern));
  }
  return error;
}

}  // namespace epweave
