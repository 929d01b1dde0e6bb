// Which modules chunk divides, of those that its patterns select.
//
//   roots=[layers.*.moe,layers.*.norm,layers.*.moee]
//     layers.0.moe, layers.1.moe      exchange tokens: divided
//     layers.*.norm                   exchanges none: unused
//     layers.*.moee                   no module has such a path: unmatched, near layers.*.moe
#pragma once

#include <string>
#include <vector>

#include "analysis/module_path.h"
#include "placement/placement.h"

namespace epweave {

struct ChunkRoots {
  IdSet<StringId> modules;
  SideTable<StringId, std::uint32_t> division;       // of a module
  std::vector<std::string> unused_patterns;          // that match modules, none of which is divided
  std::vector<UnmatchedPattern> unmatched_patterns;  // that match no module
  std::vector<NodeId> noted;  // calls of selected modules that belong to a part already
};

// Modules that exchange tokens, or all (dense); with require_exchange off, those that carry
// expert-parallel labels if none exchanges. Throws PassError where there are none, or one is inside
// another.
ChunkRoots select_roots(const Graph& graph, const PlacementOptions& options, ModuleMatcher& matcher);

// Throws PassError if one of the modules is already divided: parts of parts have no names.
void require_unchunked(const Graph& graph, const ChunkRoots& roots, ModuleMatcher& matcher);

}  // namespace epweave
