// mark-eager-chunks: reads what torchtitan's eager chunker noted while the step was traced
// (analysis/ eager_chunks.h) into the fields that say which part of which module a node computes,
// as torchtitan's populate_eager_chunk_metadata_pass does. After that the parts can be scheduled
// and told apart.
//
//   before  %mm = mm(..) custom{chunk_id=0, chunked_region_fqn="layers.1.moe", chunked_region_role="body"}
//   after   the same, and chunk(@layers.1.moe body 0 by=eager)
//
// Running it again changes nothing. Declined where a note lacks its module, its role or its part.
//
// Numerics: none; no call changes.
#pragma once

#include "passes/pass.h"

namespace epweave {

PassResult mark_eager_chunks(const Graph& graph);

}  // namespace epweave
