// specialize: turns a graph that holds for every rank into one rank's.
//
//   before  %ranks = get_attr tensor([0, 1, 2, 3])   %c = coordinate(%ranks, 1) : SymInt(u0)   %o = mul(%c, 1024)
//           %group = mesh_get_process_group(%mesh, 0)
//           %g = all_gather_into_tensor(%p, 2, %group)   %ge = ge(%ids, %o)
//   after   %g = all_gather_into_tensor(%p, 2, "24")     %ge = ge(%ids, 1024)          of rank 1
//
// Meshes become those through the rank, groups (named or looked up) get the rank's name and members
// (analysis/rank_view.h), coordinates become numbers in arguments and types, the looked-up device a
// literal. What only served to compute these goes. A slice by a coordinate becomes the element of
// the split that gives the same piece, where the graph has one. Nodes that changed say so (role
// specialized).
//
// A graph that holds for one rank is left alone for that rank and refused for others.
//
// Refusals: "specialize.rank" (no such rank), "specialize.one-rank", "specialize.group" and
// "specialize.mesh" (the members on that rank do not follow), "specialize.coordinate" (it is no
// number of a constant of ranks), "specialize.false-guard".
//
// Numerics: reorder (bitwise by construction).
#pragma once

#include "passes/pass.h"

namespace epweave {

// Numbers that are proved to be one rank's and stand in a graph for all ranks.
enum class BakedNumbers : std::uint8_t { kRefuse, kKeep };

struct SpecializeOptions {
  std::int64_t rank = 0;
  BakedNumbers baked = BakedNumbers::kRefuse;  // kKeep: to look at the rest of the graph, not to run it
};

PassResult specialize(const Graph& graph, const SpecializeOptions& options);

}  // namespace epweave
