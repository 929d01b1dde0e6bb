// Device meshes as values: rank-agnostic graphs compute groups from them.
#include <algorithm>

#include "ops/rules.h"

namespace epweave::rules {
namespace {

// A mesh constant: axes, shape, ranks (nested lists), device type.
struct Mesh {
  std::span<const Arg> axes, shape;
  Arg ranks, device;
};

std::optional<Mesh> mesh_of(TypeRuleCall& call, Arg value) {
  if (value.is_node()) {
    const TypeId type = call.type_of(value);
    if (!type || call.context.types[type].kind != TypeKind::kValue) return std::nullopt;
    value = call.context.types[type].value;
  }
  if (!value.is(ArgKind::kMesh)) return std::nullopt;
  const auto fields = call.context.args.children(value);
  if (fields.size() != 4 || !fields[0].is_list() || !fields[1].is_list()) return std::nullopt;
  return Mesh{call.context.args.children(fields[0]), call.context.args.children(fields[1]), fields[2],
              fields[3]};
}

void flatten(const ArgPool& pool, Arg ranks, std::vector<Arg>& out) {
  if (!ranks.is_list()) {
    out.push_back(ranks);
    return;
  }
  const auto children = pool.children(ranks);
  for (std::size_t i = 0; i < children.size(); ++i) flatten(pool, children[i], out);
}

// Nested lists of `shape` over `flat`, from dimension `dim` on.
Arg nest(ArgPool& pool, std::span<const std::int64_t> shape, std::span<const Arg> flat) {
  if (shape.empty()) return flat.front();
  const std::size_t count = static_cast<std::size_t>(shape.front());
  const std::size_t step = count == 0 ? 0 : flat.size() / count;
  std::vector<Arg> rows;
  for (std::size_t i = 0; i < count; ++i)
    rows.push_back(nest(pool, shape.subspan(1), flat.subspan(i * step, step)));
  return pool.intern_tree(ArgKind::kList, rows);
}

// Positions among the mesh's axes of what the argument lists: numbers or names.
std::vector<std::size_t> axis_positions(TypeRuleCall& call, const Mesh& mesh) {
  std::vector<std::size_t> positions;
  const Arg wanted = call.arg(1);
  const std::vector<Arg> items = wanted.is_list()
                                     ? std::vector<Arg>(call.list(wanted).begin(), call.list(wanted).end())
                                     : std::vector<Arg>{wanted};
  for (Arg item : items) {
    if (item.is(ArgKind::kText)) {
      const auto found = std::find(mesh.axes.begin(), mesh.axes.end(), item);
      if (found == mesh.axes.end())
        call.mismatch("the mesh has no axis '{}'", call.context.text(item.as_name()));
      positions.push_back(static_cast<std::size_t>(found - mesh.axes.begin()));
    } else if (item.is_int() && item.as_int() >= 0 &&
               static_cast<std::size_t>(item.as_int()) < mesh.axes.size()) {
      positions.push_back(static_cast<std::size_t>(item.as_int()));
    } else {
      call.mismatch("an axis is neither a name nor a position in the mesh");
    }
  }
  return positions;
}

}  // namespace

// device_mesh._get_submesh(mesh, axes): those axes of the mesh; the other coordinates are 0, rank
// 0's, whose view a file is.
TypeId submesh(TypeRuleCall& call) {
  const auto mesh = mesh_of(call, call.arg(0));
  if (!mesh) call.mismatch("the first argument is not a mesh");
  const std::vector<std::size_t> kept = axis_positions(call, *mesh);
  std::vector<std::int64_t> shape;
  for (Arg extent : mesh->shape) shape.push_back(extent.as_int());
  std::vector<Arg> flat;
  flatten(call.context.args, mesh->ranks, flat);
  std::vector<std::size_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * static_cast<std::size_t>(shape[i]);

  std::vector<std::int64_t> sub_shape;
  std::vector<Arg> axes, extents, ranks;
  std::size_t count = 1;
  for (std::size_t axis : kept) {
    sub_shape.push_back(shape[axis]);
    axes.push_back(mesh->axes[axis]);
    extents.push_back(mesh->shape[axis]);
    count *= static_cast<std::size_t>(shape[axis]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t rest = i, position = 0;
    for (std::size_t k = kept.size(); k-- > 0;) {
      const auto extent = static_cast<std::size_t>(sub_shape[k]);
      position += rest % extent * strides[kept[k]];
      rest /= extent;
    }
    if (position >= flat.size()) call.mismatch("the mesh's ranks do not fill its shape");
    ranks.push_back(flat[position]);
  }
  ArgPool& pool = call.context.args;
  const Arg device = mesh->device;  // the spans above do not survive additions
  const Arg fields[] = {pool.intern_tree(ArgKind::kList, axes), pool.intern_tree(ArgKind::kList, extents),
                        nest(pool, sub_shape, ranks), device};
  return call.value(pool.intern_tree(ArgKind::kMesh, fields));
}

// _dtensor.mesh_get_process_group(mesh, dim): the group of the axis, by its ranks where that names
// one group.
TypeId mesh_group(TypeRuleCall& call) {
  const auto mesh = mesh_of(call, call.arg(0));
  if (!mesh) call.mismatch("the first argument is not a mesh");
  const std::int64_t dim = call.integer(1);
  if (dim < 0 || static_cast<std::size_t>(dim) >= mesh->axes.size())
    call.mismatch("dimension {} of a mesh of {} axes", dim, mesh->axes.size());
  const Arg axis = mesh->axes[static_cast<std::size_t>(dim)];
  const ProcessGroup* found = nullptr;
  for (const ProcessGroup& group : call.graph.groups) {
    if (!group.axes) continue;
    if (std::find(group.axes->begin(), group.axes->end(), axis.as_name()) == group.axes->end()) continue;
    if (found != nullptr) return {};
    found = &group;
  }
  if (found == nullptr) return {};
  // Meshes that share an axis may each have a group of its ranks.
  const auto is_twin = [&](const ProcessGroup& group) {
    return &group != found && group.ranks == found->ranks;
  };
  if (std::any_of(call.graph.groups.begin(), call.graph.groups.end(), is_twin)) return {};
  return call.value(Arg::named(ArgKind::kProcessGroup, found->name));
}

}  // namespace epweave::rules
