// What became of a value that a chunk divided, read off the rewritten graph: its parts, what
// rejoined them, and how the whole relates to that of the graph before.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/users.h"
#include "common/report.h"
#include "ir/graph.h"

namespace epweave::cli {

struct ChunkFacts {
  std::string origin;  // the value in the graph before
  std::string region, direction;
  std::vector<NodeId> parts;
  NodeId whole;           // what rejoins it; none: nothing wants it whole
  std::string placement;  // "Split(0)", "Partial", "Carried"; empty: nothing in the graph shows it
  std::string why, numerics;
};

// Of the value that `name` had before it was divided; none if it was not.
std::optional<ChunkFacts> find_chunk_facts(const Graph& graph, const Body& body, std::string_view origin,
                                           const NodeLists& users);

// The value that a part, a cut or a join was made from; none: the node is none of these.
std::optional<std::string> divided_origin(const Graph& graph, const Node& node);

std::vector<std::string> print_chunk_facts(const Graph& graph, const Body& body, const ChunkFacts& facts);
Json chunk_facts_report(const Graph& graph, const Body& body, const ChunkFacts& facts);

}  // namespace epweave::cli
