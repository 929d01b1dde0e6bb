#include "ops/mesh_calls.h"

#include <algorithm>
#include <utility>

#include "ops/op.h"

namespace epweave {
namespace {

constexpr std::pair<MeshCall, std::string_view> kTargets[] = {
    {MeshCall::kGroup, "_dtensor.mesh_get_process_group.default"},
    {MeshCall::kSubmesh, "device_mesh._get_submesh.<packet>"},
    {MeshCall::kCoordinate, "device_mesh._runtime_compute_coordinate_on_dim.default"},
    {MeshCall::kDevice, "coor.current_device.default"},
};

void collect_ranks(const ArgPool& pool, Arg list, std::vector<std::uint32_t>& ranks) {
  if (list.is_int() && list.as_int() >= 0) ranks.push_back(static_cast<std::uint32_t>(list.as_int()));
  if (!list.is_list()) return;
  for (Arg item : pool.children(list)) collect_ranks(pool, item, ranks);
}

Arg nest(ArgPool& pool, std::span<const std::uint32_t> shape, std::span<const std::uint32_t> ranks) {
  if (shape.empty()) return Arg::integer(ranks.front());
  const std::size_t step = ranks.size() / std::max<std::size_t>(shape.front(), 1);
  std::vector<Arg> rows;
  for (std::size_t i = 0; i < shape.front(); ++i)
    rows.push_back(nest(pool, shape.subspan(1), ranks.subspan(i * step, step)));
  return pool.intern_tree(ArgKind::kList, rows);
}

}  // namespace

MeshCall mesh_call_of(const OpInfo& op) {
  if (op.family != OpFamily::kMesh) return MeshCall::kNone;
  for (const auto& [call, target] : kTargets)
    if (op.target == target) return call;
  return MeshCall::kNone;
}

MeshCall mesh_call_of(const Node& node) {
  return node.op != nullptr ? mesh_call_of(*node.op) : MeshCall::kNone;
}

std::string_view target_of(MeshCall call) {
  for (const auto& [known, target] : kTargets)
    if (known == call) return target;
  return {};
}

std::optional<std::size_t> MeshValue::find_axis(StringId name) const {
  const auto at = std::ranges::find(axes, name);
  if (at == axes.end()) return std::nullopt;
  return static_cast<std::size_t>(at - axes.begin());
}

std::optional<MeshValue> read_mesh(const Context& context, Arg mesh) {
  if (!mesh.is(ArgKind::kMesh)) return std::nullopt;
  const auto fields = context.args.children(mesh);
  if (fields.size() != 4 || !fields[0].is_list() || !fields[1].is_list()) return std::nullopt;
  MeshValue value;
  for (Arg axis : context.args.children(fields[0])) {
    if (!axis.is(ArgKind::kText)) return std::nullopt;
    value.axes.push_back(axis.as_name());
  }
  std::size_t count = 1;
  for (Arg extent : context.args.children(fields[1])) {
    if (!extent.is_int() || extent.as_int() < 1) return std::nullopt;
    value.shape.push_back(static_cast<std::uint32_t>(extent.as_int()));
    count *= value.shape.back();
  }
  collect_ranks(context.args, fields[2], value.ranks);
  if (fields[3].is(ArgKind::kText) || fields[3].is(ArgKind::kDevice)) value.device = fields[3].as_name();
  if (value.axes.size() != value.shape.size() || value.ranks.size() != count) return std::nullopt;
  return value;
}

Arg write_mesh(Context& context, const MeshValue& mesh) {
  std::vector<Arg> axes, shape;
  for (StringId axis : mesh.axes) axes.push_back(Arg::text(axis));
  for (std::uint32_t extent : mesh.shape) shape.push_back(Arg::integer(extent));
  ArgPool& pool = context.args;
  const Arg fields[] = {pool.intern_tree(ArgKind::kList, axes), pool.intern_tree(ArgKind::kList, shape),
                        nest(pool, mesh.shape, mesh.ranks),
                        mesh.device ? Arg::text(mesh.device) : Arg::none()};
  return pool.intern_tree(ArgKind::kMesh, fields);
}

std::optional<MeshValue> recorded_mesh(const Context& context, const Node& node) {
  if (!node.type || context.types[node.type].kind != TypeKind::kValue) return std::nullopt;
  return read_mesh(context, context.types[node.type].value);
}

std::optional<std::vector<std::uint32_t>> strides_of(const MeshValue& mesh) {
  std::vector<std::uint32_t> strides(mesh.shape.size());
  std::size_t inner = 1;
  for (std::size_t d = mesh.shape.size(); d-- > 0;) {
    if (mesh.shape[d] > 1) {
      if (mesh.ranks[inner] <= mesh.ranks[0]) return std::nullopt;
      strides[d] = mesh.ranks[inner] - mesh.ranks[0];
    }
    inner *= mesh.shape[d];
  }
  for (std::size_t i = 0; i < mesh.ranks.size(); ++i) {
    std::size_t rest = i, rank = mesh.ranks[0];
    for (std::size_t d = mesh.shape.size(); d-- > 0;) {
      rank += rest % mesh.shape[d] * strides[d];
      rest /= mesh.shape[d];
    }
    if (rank != mesh.ranks[i]) return std::nullopt;
  }
  return strides;
}

std::optional<MeshValue> mesh_through(const MeshValue& mesh, RankChange change) {
  if (std::ranges::find(mesh.ranks, change.to) != mesh.ranks.end()) return mesh;
  const auto strides = strides_of(mesh);
  if (!strides || std::ranges::find(mesh.ranks, change.from) == mesh.ranks.end()) return std::nullopt;
  std::uint32_t own = 0;  // what the rank's own coordinates in the mesh add to its number
  for (std::size_t d = 0; d < mesh.shape.size(); ++d)
    if ((*strides)[d] != 0) own += change.to / (*strides)[d] % mesh.shape[d] * (*strides)[d];
  MeshValue moved = mesh;
  for (std::uint32_t& rank : moved.ranks) rank = change.to - own + (rank - mesh.ranks[0]);
  return moved;
}

std::optional<std::vector<std::uint32_t>> ranks_along(const MeshValue& mesh, std::size_t axis,
                                                      std::uint32_t rank) {
  const auto through = mesh_through(mesh, {mesh.ranks[0], rank});
  if (!through) return std::nullopt;
  const auto found = std::ranges::find(through->ranks, rank);
  if (found == through->ranks.end()) return std::nullopt;
  std::size_t inner = 1;
  for (std::size_t d = axis + 1; d < mesh.shape.size(); ++d) inner *= mesh.shape[d];
  const auto own = static_cast<std::size_t>(found - through->ranks.begin());
  const std::size_t first = own - own / inner % mesh.shape[axis] * inner;
  std::vector<std::uint32_t> ranks;
  for (std::size_t i = 0; i < mesh.shape[axis]; ++i) ranks.push_back(through->ranks[first + i * inner]);
  return ranks;
}

}  // namespace epweave
