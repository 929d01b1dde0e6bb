// A group that is looked up in a mesh: what it is recorded to be called on the file's own rank, and
// its axis.
//
//   %a = mesh_get_process_group(%fsdp, 0) : pg(0)      of mesh(["fsdp"], [2], [0, 1])
//   %b = mesh_get_process_group(%ep, 0) : pg(0)        of mesh(["ep"], [2], [0, 1]): the same group as a
//
// Two lookups of the same name, stride and extent are one group on every rank, though they go by
// different meshes: the groups of an axis that has all ranks are the default group, and a tracer
// may take one mesh for the other.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/graph.h"
#include "ops/mesh_calls.h"

namespace epweave {

struct LookedUpGroup {
  StringId name;
  std::uint32_t stride = 0, extent = 0;  // the ranks r, r + stride, .. through this rank
};

// None: no lookup, or its mesh, axis or group is not recorded.
std::optional<LookedUpGroup> looked_up_group(const Context& context, const Body& body, const Node& node);

// The axis of a mesh that a lookup names. None: the number is not known, or the mesh has none such.
std::optional<std::size_t> axis_looked_up(const Context& context, const Node& lookup, const MeshValue& mesh);

}  // namespace epweave
