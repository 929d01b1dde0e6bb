// What torchtitan's eager chunker noted about a node when it was traced, in meta "custom":
//
//   custom{chunk_id=0, chunked_region_fqn="layers.1.moe", chunked_region_role="body"}
//
// Backward nodes have the notes of the forward node that they belong to. The pass mark-eager-chunks
// makes them chunk fields, which is what all else reads.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace epweave {

// The chunk fields that the notes stand for, those that are there; none: the eager chunker did not
// see the node.
std::optional<ChunkInfo> find_eager_notes(const Context& context, const Node& node);

}  // namespace epweave
