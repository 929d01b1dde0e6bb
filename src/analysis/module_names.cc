#include "analysis/module_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/module_path.h"
#include "base/nearest_name.h"

namespace epweave {

std::vector<std::string_view> list_module_paths(const Graph& graph) {
  std::vector<std::string_view> paths;
  IdSet<StringId> seen;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind == NodeKind::kCall && node.module && seen.insert(node.module))
      paths.push_back(graph.text(node.module));
  }
  return paths;
}

std::set<std::string> list_module_patterns(const Graph& graph) {
  std::set<std::string> patterns;
  for (std::string_view path : list_module_paths(graph))
    for (std::size_t end = 0; end != path.npos;) {
      end = path.find('.', end == 0 ? 0 : end + 1);
      patterns.emplace(path.substr(0, end));
      patterns.insert(generic_module(path.substr(0, end)));
    }
  return patterns;
}

namespace {

// Those of the paths, and of modules that contain them, that read so with numbers as "*".
std::vector<std::string_view> find_modules(std::string_view generic,
                                           const std::vector<std::string_view>& paths) {
  std::vector<std::string_view> found;
  for (std::string_view path : paths)
    for (std::size_t end = 0; end != path.npos;) {
      end = path.find('.', end == 0 ? 0 : end + 1);
      if (generic_module(path.substr(0, end)) == generic) found.push_back(path.substr(0, end));
    }
  return found;
}

// The names right below what the pattern selects, with numbers as "*"; of the model's outermost
// modules for "".
std::set<std::string> list_below(std::string_view pattern, const std::vector<std::string_view>& paths) {
  std::set<std::string> names;
  for (std::string_view path : paths) {
    const std::string_view root = match_module(pattern, path);
    if (!pattern.empty() && (root.empty() || root.size() == path.size())) continue;
    const std::string_view below = path.substr(pattern.empty() ? 0 : root.size() + 1);
    names.insert(generic_module(below.substr(0, below.find('.'))));
  }
  return names;
}

}  // namespace

std::string nearest_module(std::string_view pattern, const std::vector<std::string_view>& paths) {
  std::set<std::string> generic;
  for (std::string_view path : paths)
    for (std::size_t end = 0; end != path.npos;) {
      end = path.find('.', end == 0 ? 0 : end + 1);
      generic.insert(generic_module(path.substr(0, end)));
    }
  const std::string_view nearest = nearest_name(pattern, {generic.begin(), generic.end()});
  if (nearest.empty() || generic_module(pattern) == pattern) return std::string(nearest);
  // The pattern has a number: one that there is.
  const std::vector<std::string_view> modules = find_modules(nearest, paths);
  const std::string_view numbered = nearest_name(pattern, modules);
  return std::string(numbered.empty() ? modules.front() : numbered);
}

std::string describe_no_module(std::string_view pattern, std::string_view nearest) {
  std::string text = fmt::format("no module matches '{}'", pattern);
  if (!nearest.empty()) text += fmt::format(", did you mean '{}'?", nearest);
  return text;
}

std::string describe_no_module(std::string_view pattern, const std::vector<std::string_view>& paths) {
  const std::string nearest = nearest_module(pattern, paths);
  if (!nearest.empty()) return describe_no_module(pattern, nearest);
  std::string_view beginning = pattern;
  std::set<std::string> names;
  while (names.empty() && !beginning.empty()) {
    const std::size_t dot = beginning.rfind('.');
    beginning = beginning.substr(0, dot == beginning.npos ? 0 : dot);
    names = list_below(beginning, paths);
  }
  return fmt::format("no module matches '{}'; {} has {}", pattern,
                     beginning.empty() ? "the model" : beginning, fmt::join(names, ", "));
}

}  // namespace epweave
