// isolate-ep-pg: moves token exchanges off a process group that other collectives use too.
//
// A communicator runs one collective at a time, in launch order; a token exchange behind a
// parameter gather on the same group waits for it. The extra group has the same members on every
// rank, and a high-priority stream.
//
//   before  all_to_all_single(%x, %o, %i, "0")   all_gather_into_tensor(%p, 4, "0")
//   after   all_to_all_single(%x, %o, %i, "0_ep_extra")   all_gather_into_tensor(%p, 4, "0")
//           group 0_ep_extra ranks=[0, 1, 2, 3] "ep_extra" priority=high split_from=0
//
// A token exchange is an all-to-all with an expert-parallel label ("EP" and its kin), counts and
// tokens alike; other all-to-alls (context parallel) are left where they are. Running it again
// changes nothing. Graphs that hold for every rank look their groups up in a mesh; what is recorded
// of a lookup says which row it is (passes/extra_group.h).
//
// counts=own: the exchanges of token counts get a group of their own, too. A dispatch takes its
// sizes from the counts, through the host; on the exchanges' group the counts of one part queue
// behind the tokens of another.
//
//   after   all_to_all_single(%n, %e, %e, "0_ep_counts")   all_to_all_single(%x, %o, %i, "0_ep_extra")
//
// Numerics: reorder (bitwise by construction).
#pragma once

#include "passes/pass.h"

namespace epweave {

enum class CountGroup : std::uint8_t { kShared, kOwn };

PassResult isolate_ep_pg(const Graph& graph, CountGroup counts = CountGroup::kShared);

}  // namespace epweave
