// The modules that a graph's calls name, and what is said where a pattern (analysis/module_path.h)
// matches none.
//
//   nearest_module("layers.*.moee", list_module_paths(graph))     "layers.*.moe"
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace epweave {

// Remedies: for a pattern without a match, and for a graph that names no module.
inline constexpr std::string_view kCheckPattern =
    "check the pattern (components separated by dots, * is one component)";
inline constexpr std::string_view kNameModules =
    "trace with epweave.trace, or call epweave.annotate(graph_module) before epweave.export; "
    "`epweave doctor G` says what else is missing";

// The paths of the step's calls, each once, in execution order.
std::vector<std::string_view> list_module_paths(const Graph& graph);

// These paths, those of the modules that contain them, and each with numbers as "*": what a pattern
// may be; sorted.
std::set<std::string> list_module_patterns(const Graph& graph);

// The path that was probably meant, of these or of modules that contain them, or "". Numbers are
// "*", but where the pattern has a number: then it is one that there is.
std::string nearest_module(std::string_view pattern, const std::vector<std::string_view>& paths);

// "no module matches 'layers.*.moee', did you mean 'layers.*.moe'?"; `nearest` may be empty.
std::string describe_no_module(std::string_view pattern, std::string_view nearest);

// The same; where no path is near, what there is: "no module matches 'layers.*.ffn'; layers.* has
// attention, moe".
std::string describe_no_module(std::string_view pattern, const std::vector<std::string_view>& paths);

}  // namespace epweave
