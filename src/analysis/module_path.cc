#include "analysis/module_path.h"

namespace epweave {

std::string_view match_module(std::string_view pattern, std::string_view path) {
  std::size_t p = 0, end = 0;  // `end`: how much of `path` is matched
  for (;;) {
    const std::size_t pattern_end = std::min(pattern.find('.', p), pattern.size());
    const std::size_t path_end = std::min(path.find('.', end), path.size());
    const std::string_view want = pattern.substr(p, pattern_end - p);
    const std::string_view have = path.substr(end, path_end - end);
    if (have.empty() || (want != "*" && want != have)) return {};
    if (pattern_end == pattern.size()) return path.substr(0, path_end);
    if (path_end == path.size()) return {};
    p = pattern_end + 1;
    end = path_end + 1;
  }
}

StringId ModuleMatcher::root_of(StringId path) {
  if (!path) return StringId();
  if (matched_.insert(path)) {
    for (const std::string& pattern : patterns_) {
      const std::string_view root = match_module(pattern, strings_[path]);
      if (root.empty()) continue;
      const StringId id = strings_.intern(root), first = roots_[path];
      if (!first) roots_.at(path) = id;
      if (first && first != id && !overlap_) overlap_ = {first, id};
    }
  }
  return roots_[path];
}

std::string_view cut_module(std::string_view path) {
  std::size_t end = 0;
  for (int i = 0; i < 3 && end != path.npos; ++i) end = path.find('.', end == 0 ? 0 : end + 1);
  return path.substr(0, end);
}

std::string generic_module(std::string_view path) {
  std::string text;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('.', at), path.size());
    const std::string_view element = path.substr(at, end - at);
    if (!text.empty()) text += '.';
    text += element.find_first_not_of("0123456789") == element.npos ? "*" : element;
    at = end + 1;
  }
  return text;
}

}  // namespace epweave
