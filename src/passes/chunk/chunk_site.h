// How messages name calls of a chunked graph: by the user's call that they stand for.
//
//   %p_chunk0 = add(...)               "part 0 of 'p'"
//   %p_chunk_materialized = cat(...)   "'p', put together from its parts,"
#pragma once

#include <string>

#include "ir/graph.h"

namespace epweave {

std::string name_for_user(const Graph& chunked, const Node& node);
// Where the user's call stands.
Site site_for_user(const Graph& chunked, const Node& node);

}  // namespace epweave
