// Process groups that a pass asks for: a row of the group table, with the ranks of another group.
// The loader makes them (create_process_groups in scripts/epweave_fx.py).
//
// In a graph that holds for every rank the row is the file's own rank's, as all rows are;
// specialize gives the others theirs (analysis/rank_view.h), and a launch names the extra group
// where it looked its own up.
//
//   group 0 ranks=[0, 1]   ->   group 0_ep_extra ranks=[0, 1] description=ep_extra priority=high split_from=0
#pragma once

#include <string_view>

#include "ir/graph.h"

namespace epweave {

// The row of the group that `user` launches on. Throws PassError "PASS.group" (G-1) where the table
// does not say one thing about it.
const ProcessGroup& find_group(const Graph& graph, std::string_view pass, const Node& user, StringId name);

struct ExtraGroup {
  std::string_view description;  // also in the name: 0_ep_extra
  std::string_view priority;     // empty: normal
};

// The group split from `source` with this description; made if there is none yet.
StringId provide_extra_group(Graph& graph, const ProcessGroup& source, const ExtraGroup& extra);

// The group of a launch by name: of one that is looked up in a mesh, the name that is recorded of
// it. The node, where none is.
Arg named_group(const Graph& graph, Arg group);

// Lets a launch use another group.
void set_group(Context& context, Node& launch, StringId name);

}  // namespace epweave
