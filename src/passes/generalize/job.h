// The graphs of some ranks of one job, and whether they are one program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/world.h"
#include "ir/graph.h"

namespace epweave {

struct RankJob {
  const std::vector<Graph>& graphs;  // of `ranks`; they share a context
  std::vector<World> worlds;
  std::vector<Rank> ranks;

  Context& context() const { return *graphs[0].context; }
  std::uint32_t size() const { return worlds[0].size; }
};

// Throws InputError for graphs of different jobs, worlds, or of one rank twice.
RankJob read_job(const std::vector<Graph>& graphs);

// The first difference between the first graph and another that is none of arguments: counts of
// nodes, inputs and outputs, roles, symbols, and which call of which module stands where.
std::optional<std::string> find_structure_difference(const RankJob& job);

}  // namespace epweave
