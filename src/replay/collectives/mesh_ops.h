// Ops that look groups up in a device mesh. Graphs that are the same for all ranks have them in
// place of literals.
//
//   %submesh = device_mesh._get_submesh.<packet>(%mesh, [1])
//   %group = _dtensor.mesh_get_process_group.default(%submesh, 0)      the name of a group in the table
//   %shard = device_mesh._runtime_compute_coordinate_on_dim.default(%mesh, 1)
//
// A file is one rank's view: its meshes hold that rank's row. A group is the recorded one, by name;
// that its members are the ranks of the mesh along the axis is checked. The coordinate of rank r
// along an axis of extent n, whose neighbours are s ranks apart, is r / s mod n: the meshes of a
// world are row-major. Traced graphs give the mesh as the tensor of its ranks: there the coordinate
// is r's place in it.
#pragma once

#include "ir/graph.h"
#include "replay/collectives/groups.h"
#include "replay/values/value.h"

namespace epweave::replay {

bool is_mesh_op(const OpInfo& op);

struct MeshCall {
  const Node& node;
  Rank rank = 0;
  Value mesh;  // the first argument's value, if there is one
};
// What the call gives on one rank. Throws KernelError if the file does not tell.
Value evaluate_mesh_op(const Graph& graph, const World& world, const MeshCall& call);

// Extent of an axis of a mesh, and how many ranks lie between neighbours along it.
struct MeshAxis {
  std::int64_t extent = 1;
  std::int64_t stride = 1;
};
// The axes of a recorded mesh (ArgKind::kMesh), or none if its ranks do not fill its shape.
std::vector<MeshAxis> read_mesh_axes(const Context& context, Arg mesh);

}  // namespace epweave::replay
