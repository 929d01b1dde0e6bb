// One graph for all ranks, as one of them sees it: what its groups are called there and who is in
// them.
//
// A graph holds for all ranks where it says so: info `compile_on_one_rank` (torchtitan's own) or
// `rank_agnostic` (epweave generalize). Its group table is the file's own rank's. On another rank a
// group is, by the first rule that applies:
//
//   1. the same, where that rank is a member
//   2. the group that info `rank_groups` lists for it: {"23": [["24", [1, 3]]]}
//   3. split from another: that group's members; a name that begins with that group's begins with
//      what it is there
//   4. the group of its axis (GroupRule), under the name that torch's numbering gives it: groups of
//      an axis are numbered one after the other, by first member; a name that is no number is one
//      for all ranks
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "analysis/world.h"
#include "ir/graph.h"

namespace epweave {

inline constexpr std::string_view kRankAgnosticKey = "rank_agnostic";
inline constexpr std::string_view kOneRankKey = "compile_on_one_rank";
inline constexpr std::string_view kFingerprintKey =
    "fingerprint";  // of an artifact (compare/ranks/fingerprint.h)
inline constexpr std::string_view kRankGroupsKey = "rank_groups";
// Metadata of a slice that each rank takes at its own place (passes/rank_elements.h).
inline constexpr std::string_view kElementOfKey = "element_of";

bool is_rank_agnostic(const Graph& graph);

// Sets, or with no value drops, a key of the graph's info.
void set_info(Graph& graph, std::string_view key, std::optional<Arg> value);

struct GroupOnRank {
  StringId name;
  std::vector<Rank> ranks;
  bool is_numbered = false;  // by rule 4, not from a record
};

// None: no rule applies.
std::optional<GroupOnRank> group_on_rank(const Graph& graph, const World& world, const ProcessGroup& group,
                                         Rank rank);

// Whether two groups, each of its graph, have the same ranks in the same order on every rank that
// the graphs hold for.
bool is_one_group(const Graph& a, const ProcessGroup& x, const Graph& b, const ProcessGroup& y);

// Groups of the table that a call of an op without a row in the op table takes by name. Which of
// its texts is a group's name, nobody knows.
std::vector<StringId> list_guessed_groups(const Graph& graph, const Node& node);

}  // namespace epweave
