// Process groups of every rank, from one rank's file.
//
// A file is one rank's view (`info.rank`, else 0) of a program that all ranks run. Its group table
// has that rank's members of each group. The members of the other ranks follow, by the first rule
// that applies:
//
//   1. one member: every rank is alone in its group
//   2. all ranks of the world: the same for every rank
//   3. split from another group: that group's members
//   4. an axis named in the table and found in a mesh of `info.global_meshes` that covers the
//      world, ranks row-major: the ranks that differ in that coordinate only
//   5. r, r + s, .., r + (n-1)*s, where n*s divides the world: the axis of stride s of a row-major
//      mesh
//
// In every case the derived members of the file's own rank must be those in the table. Where no
// rule applies, or that check fails, the group is refused when a launch uses it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace epweave {

using Rank = std::uint32_t;

// The ranks of a world that this process runs.
struct RankRange {
  Rank first = 0, end = 0;
  bool holds(Rank rank) const { return rank >= first && rank < end; }
};

struct Mesh {
  std::vector<std::string> axes;
  std::vector<std::uint32_t> shape;
  std::uint32_t size() const;
  // The rank's coordinate along an axis; the mesh is row-major.
  std::uint32_t coordinate(Rank rank, std::size_t axis) const;
};

struct GroupMembers {
  std::vector<std::vector<Rank>> of_rank;  // for each rank its group's members; empty if not derived
  std::string problem;                     // why not
};

// Groups that are the ranks r, r + stride, .., of a mesh's axis; each rank of the world is in one
// of them.
struct GroupRule {
  std::uint32_t stride = 1, extent = 1;

  std::uint32_t coordinate(Rank rank) const { return rank / stride % extent; }
  std::vector<Rank> members(Rank rank) const;
  // Which of the groups, by first member, the rank is in: torch numbers the groups of an axis in
  // this order.
  std::uint32_t index(Rank rank) const { return rank / (stride * extent) * stride + rank % stride; }
};

// The rule by which these are one rank's members in a world of that size, or none.
std::optional<GroupRule> find_group_rule(const std::vector<Rank>& members, std::uint32_t world_size);

struct World {
  std::uint32_t size = 1;
  Rank file_rank = 0;
  std::vector<Mesh> meshes;                    // info.global_meshes
  std::map<std::string, GroupMembers> groups;  // by name
};

// The rank whose view the graph is: info.rank, else 0.
Rank own_rank(const Graph& graph);

// As the graph records it; 0 where it does not.
std::int64_t recorded_world_size(const Graph& graph);

// Size, meshes and the file's own rank alone, without groups. Throws InputError for more than
// 65,536 ranks.
World read_world(const Graph& graph, std::uint32_t ranks = 0);

// The world recorded in the file, or `ranks` where the file has none. Throws UsageError if they
// differ.
World derive_world(const Graph& graph, std::uint32_t ranks = 0);

// The members of the rank's group along an axis of the mesh.
std::vector<Rank> members_along(const Mesh& mesh, std::size_t axis, Rank rank);

// The coordinate of a rank along the first mesh axis of that name, if there is one.
std::optional<std::uint32_t> find_coordinate(const World& world, std::string_view axis, Rank rank);

// The value of a key of a dict, or null.
const Arg* find_entry(const Context& context, Arg dict, std::string_view key);
const Arg* find_entry(const Context& context, ArgRange names_and_values, std::string_view key);

}  // namespace epweave
