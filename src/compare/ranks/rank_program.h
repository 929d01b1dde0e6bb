// What a graph asks of the other ranks: its collectives and waits in execution order, without the
// rest.
//
//   %a = all_to_all_single(%x, [s0, s1], [r0, r1], "35")     launch on group 35, ranks 0 and 1
//   %w = wait_tensor(%a)                                     wait for it
//   %y = symm_mem.one_shot_all_reduce(%w, "sum", "35")       launch and wait in one
//
// A nested graph that a call runs once (invoke_subgraph, wrap) stands where it is called. Calls
// that may communicate in ways that cannot be read off them are listed as unknown.
//
// Strings and numbers are copied, so that the graphs of many ranks need not be in memory at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace epweave {

// A number, or none where it is symbolic and not recorded.
using Extent = std::optional<std::int64_t>;

// Of a tensor, or none where its type is not recorded.
using Sizes = std::optional<std::vector<Extent>>;

// Ranks of a job at most: a larger number in a file is no rank.
inline constexpr std::uint64_t kMostRanks = 1 << 16;

struct RankGroup {
  std::string name;
  std::vector<std::uint32_t> members;  // in the order of their positions in the group
};

// One launch of a collective.
struct RankLaunch {
  std::string node;
  std::string kind;       // "all_to_all_single": in-place and out variants are the same to the other ranks
  std::string agreement;  // what all ranks must say alike: dtypes, reduction, source
  bool is_as_traced = false;  // some size is a symbol: its number when the graph was traced
  std::uint32_t group = 0;
  std::vector<Sizes> sizes;             // of each tensor given; all-to-all: without its rows
  std::vector<Extent> sends, receives;  // all-to-all: rows to and from each member
  Extent group_size;                    // as the call states it
  bool is_faulty = false;               // something is wrong whatever the others do: it has a RankFault
};

struct RankEvent {
  bool is_wait = false;
  std::uint32_t launch = 0;  // position in `launches`
  std::string node;
};

// What is wrong with a call, whatever the other ranks do.
struct RankFault {
  std::string invariant;  // verify_ranks.h
  std::string node;
  std::string why;
};

struct RankCalls {
  std::vector<RankLaunch> launches;  // in execution order
  std::vector<RankEvent> events;
  std::vector<RankFault> faults;
};

struct RankProgram {
  std::optional<std::uint32_t> rank;        // as the file says
  std::optional<std::uint32_t> world_size;  // as the file says
  std::vector<RankGroup> groups;
  std::shared_ptr<const RankCalls> calls;  // ranks that run one graph share them
};

// Reads the step. Throws InputError where a launch is on a group that the graph does not have.
RankProgram list_rank_program(const Graph& graph);

// The members that a group has on rank `rank`, for a group of regularly spaced ranks of a program
// that all ranks run: {0, 2} of 4 ranks is {1, 3} on rank 1. None: the ranks are not regularly
// spaced, or the groups do not cover the world.
std::optional<std::vector<std::uint32_t>> translate_members(const std::vector<std::uint32_t>& members,
                                                            std::uint32_t rank, std::uint32_t world_size);

}  // namespace epweave
