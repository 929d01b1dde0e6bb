// Groups of two graphs, for what is moved between ranks: launches over groups that are one bring
// the same elements, and what they bring.
//
//   recorded groups      one where they have the same members on every rank
//   groups looked up     in graphs for all ranks: one where the same node of the first graph stands
//                        for them, or lookups of one name along the same axis
//   split from one       by either rewrite (isolate-ep-pg, reassign-pgs): that one
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/aliases.h"
#include "compare/rewrite/movement.h"
#include "compare/rewrite/numbers.h"
#include "compare/rewrite/rewrite_claims.h"

namespace epweave {

class MovedGroups {
 public:
  explicit MovedGroups(const RewriteClaims& claims);

  // What a launch of the first graph, or of B, gives, of which one rank sends this. None: that is
  // not followed.
  std::optional<Sequence> send(MovementTerms& terms, const Node& launch, const Sequence& sent, bool of_b);

 private:
  struct RecordedGroup {
    const Graph* graph = nullptr;
    const ProcessGroup* group = nullptr;
  };

  void number_lookups();
  NodeId lookup_split(const Graph& graph, StringId name) const;
  std::optional<std::uint64_t> number_of(Arg group, bool of_b);
  std::size_t number_recorded(const Graph& graph, const ProcessGroup& group);

  const RewriteClaims& claims_;
  const Graph& graph_a_;
  const Graph& graph_b_;
  const Context& context_;
  std::vector<RecordedGroup> groups_;  // of those that are one, the first
  std::map<std::pair<const Graph*, StringId>, std::size_t> group_numbers_;
  SideTable<NodeId, NodeId> lookups_;                   // of A: the first node that looks the same group up
  std::map<StringId, std::vector<NodeId>> lookups_of_;  // the first of each axis, by recorded name
};

// Whether a coordinate that is read from a constant of all ranks is, on each of them, its place in
// its group. `writes`: those to the graph's memory.
bool is_place_in(const Graph& graph, NodeId coordinate, const ProcessGroup& group, Numbers& numbers,
                 const LaterWrites& writes);

}  // namespace epweave
