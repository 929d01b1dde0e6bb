// What `epweave overlap` says of a graph, for other commands.
#pragma once

#include <string>

#include "ir/graph.h"

namespace epweave::cli {

// What runs under each token exchange, for a file of that name: as JSON if `path` ends in .json,
// else as text. `name` is what the report calls the graph.
std::string overlap_report_for(const std::string& path, const Graph& graph, const std::string& file);

}  // namespace epweave::cli
