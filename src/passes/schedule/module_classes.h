// Modules that a pattern selects, those that do the same together.
//
//   layers.*   of DeepSeek-V3 16B     layers.0 (dense)   layers.{1..25}   layers.26 (recomputes less)
//
// Two modules do the same if their calls have the same targets and directions and take the same
// time: what is decided for one holds for the other.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/schedule/schedule.h"

namespace epweave {

struct ModuleClass {
  std::vector<std::string> modules;  // in the order of their first calls
  bool exchanges = false;            // tokens
};

// Of modules whose path one of the patterns matches (analysis/module_path.h), in the order of their
// first calls. `times`: of the graph's nodes. Calls that take no time do not count.
std::vector<ModuleClass> list_module_classes(const Graph& graph, const std::vector<std::string>& patterns,
                                             const NodeTimes& times);

// "layers.0", "layers.{1..25}", "layers.{1..3}.moe, layers.5.moe"
std::string print_modules(const std::vector<std::string>& modules);

}  // namespace epweave
