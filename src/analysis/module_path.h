// Selecting modules of the model by path.
//
// A pattern is compared with a path component by component; `*` matches exactly one component. It
// selects the module whose path has as many components as the pattern, and all modules below it:
//
//   layers.*.moe   matches   layers.3.moe.router.gate   with root   layers.3.moe
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/id.h"
#include "base/interner.h"

namespace epweave {

// The root that `pattern` selects on `path`, or an empty view.
std::string_view match_module(std::string_view pattern, std::string_view path);

// For tables: the first three elements of the path, and the path with numbers as "*"
// ("layers.*.moe").
std::string_view cut_module(std::string_view path);
std::string generic_module(std::string_view path);

// Roots of many paths under several patterns; each path is matched once. The first pattern that
// matches wins.
class ModuleMatcher {
 public:
  ModuleMatcher(std::vector<std::string> patterns, StringTable& strings)
      : patterns_(std::move(patterns)), strings_(strings) {}

  // None if no pattern matches, or `path` is none.
  StringId root_of(StringId path);

  // Two roots that patterns selected on one path, if that happened: one is inside the other.
  const std::optional<std::pair<StringId, StringId>>& overlap() const { return overlap_; }

 private:
  std::vector<std::string> patterns_;
  StringTable& strings_;
  SideTable<StringId, StringId> roots_;
  IdSet<StringId> matched_;
  std::optional<std::pair<StringId, StringId>> overlap_;
};

}  // namespace epweave
