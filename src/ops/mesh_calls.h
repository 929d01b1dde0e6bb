// What calls on device meshes give; graphs that hold for every rank compute groups and coordinates
// by them.
//
//   %sub = device_mesh._get_submesh.<packet>(%mesh, [1])                       kSubmesh
//   %group = _dtensor.mesh_get_process_group.default(%sub, 0)                  kGroup: of an axis, through this rank
//   %c = device_mesh._runtime_compute_coordinate_on_dim.default(%ranks, 1)     kCoordinate: this rank's, along an axis
//   %device = coor.current_device.default()                                    kDevice: this rank's
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace epweave {

enum class MeshCall : std::uint8_t { kNone, kGroup, kSubmesh, kCoordinate, kDevice };

MeshCall mesh_call_of(const OpInfo& op);
MeshCall mesh_call_of(const Node& node);
std::string_view target_of(MeshCall call);

// A mesh as a value (ArgKind::kMesh): its ranks in row-major order.
struct MeshValue {
  std::vector<StringId> axes;
  std::vector<std::uint32_t> shape;
  std::vector<std::uint32_t> ranks;
  StringId device;

  std::optional<std::size_t> find_axis(StringId name) const;
};

// None where it is no mesh, or its ranks do not fill its shape.
std::optional<MeshValue> read_mesh(const Context& context, Arg mesh);
Arg write_mesh(Context& context, const MeshValue& mesh);

// The mesh that a placeholder or a call is recorded to be, or none.
std::optional<MeshValue> recorded_mesh(const Context& context, const Node& node);

// How far apart the ranks of neighbouring coordinates are along an axis of the mesh; 0 along an
// axis of extent 1. None: its ranks are not evenly spaced.
std::optional<std::vector<std::uint32_t>> strides_of(const MeshValue& mesh);

// What another rank's program has in this mesh's place: the mesh through that rank. None: not
// evenly spaced, or without the rank whose mesh this is.
struct RankChange {
  std::uint32_t from = 0, to = 0;
};
std::optional<MeshValue> mesh_through(const MeshValue& mesh, RankChange change);

// The ranks along an axis of the mesh, through this rank: of the mesh through it, where this mesh
// does not hold it. None: there is no such mesh.
std::optional<std::vector<std::uint32_t>> ranks_along(const MeshValue& mesh, std::size_t axis,
                                                      std::uint32_t rank);

}  // namespace epweave
