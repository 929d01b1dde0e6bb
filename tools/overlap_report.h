// What `epweave overlap` says of a graph, for other commands.
#pragma once

#include <string>

#include "ir/graph.h"

namespace epweave::cli {

// Writes what runs under each token exchange to a file, `-` for standard output: as JSON if its name ends in
// .json, else as text. `name` is what the report calls the graph.
void write_overlap_report(const Graph& graph, const std::string& name, const std::string& path);

}  // namespace epweave::cli
