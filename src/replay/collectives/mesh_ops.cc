#include "replay/collectives/mesh_ops.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/mesh_calls.h"
#include "ops/op.h"
#include "replay/kernels/kernel.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {
namespace {

void collect_integers(const Context& context, Arg list, std::vector<std::int64_t>& integers) {
  if (list.is_int()) integers.push_back(list.as_int());
  if (list.is_list())
    for (Arg item : context.args.children(list)) collect_integers(context, item, integers);
}

// The ranks of a mesh in row-major order.
std::vector<std::int64_t> read_ranks(const Context& context, Arg mesh) {
  std::vector<std::int64_t> ranks;
  collect_integers(context, context.args.children(mesh)[2], ranks);
  return ranks;
}

// What is recorded of a value that is no tensor.
Arg recorded_value(const Graph& graph, const Node& node) {
  if (!node.type || graph.context->types[node.type].kind != TypeKind::kValue)
    throw KernelError("the file does not record what this gives");
  return graph.context->types[node.type].value;
}

struct AxisOfMesh {
  Arg mesh;
  MeshAxis axis;
};
AxisOfMesh find_axis(const Graph& graph, const Node& node) {
  const Context& context = *graph.context;
  const auto args = context.args[node.args];
  if (args.size() < 2 || !args[1].is_int()) throw KernelError("the axis of the mesh is not known");
  const Arg mesh = args[0].is_node() ? recorded_value(graph, graph.step().nodes[args[0].as_node()]) : args[0];
  if (!mesh.is(ArgKind::kMesh)) throw KernelError("the first argument is not a mesh");
  const std::vector<MeshAxis> axes = read_mesh_axes(context, mesh);
  const auto count = static_cast<std::int64_t>(axes.size());
  const std::int64_t dim = args[1].as_int() < 0 ? args[1].as_int() + count : args[1].as_int();
  if (dim < 0 || dim >= count)
    throw KernelError(fmt::format("axis {} of a mesh of {} axes", args[1].as_int(), count));
  return {mesh, axes[static_cast<std::size_t>(dim)]};
}

std::int64_t coordinate_of(Rank rank, const MeshAxis& axis) {
  return static_cast<std::int64_t>(rank) / axis.stride % axis.extent;
}

// The rank's place in a tensor of ranks along the axis that the call names.
std::int64_t find_place(const Graph& graph, const Node& node, const MeshCall& call) {
  const Tensor& ranks = call.mesh.tensor();
  const auto args = graph.context->args[node.args];
  if (args.size() < 2 || !args[1].is_int() || ranks.wrap(args[1].as_int()) >= ranks.rank())
    throw KernelError("the axis of the mesh is not known");
  std::vector<std::byte> elements(static_cast<std::size_t>(ranks.numel()) * ranks.element_bytes());
  gather_elements(ranks, elements.data());
  const std::size_t dim = ranks.wrap(args[1].as_int());
  std::int64_t inner = 1;
  for (std::size_t d = dim + 1; d < ranks.rank(); ++d) inner *= ranks.sizes[d];
  for (std::int64_t i = 0; i < ranks.numel(); ++i) {
    const std::byte* element = elements.data() + static_cast<std::size_t>(i) * ranks.element_bytes();
    if (load_number(element, ranks.dtype) == static_cast<double>(call.rank))
      return i / inner % ranks.sizes[dim];
  }
  throw KernelError(fmt::format("rank {} is not in the mesh", call.rank));
}

Value find_group(const Graph& graph, const World& world, const Node& node) {
  const Arg recorded = recorded_value(graph, node);
  if (!recorded.is(ArgKind::kProcessGroup)) throw KernelError("the file does not record the group's name");
  const std::string name(graph.text(recorded.as_name()));
  const auto group = world.groups.find(name);
  if (group == world.groups.end())
    throw KernelError(fmt::format("process group '{}' is not in the graph's table", name));
  const MeshAxis axis = find_axis(graph, node).axis;
  std::vector<Rank> members;
  for (std::int64_t i = 0; i < axis.extent; ++i)
    members.push_back(static_cast<Rank>(static_cast<std::int64_t>(world.file_rank) +
                                        (i - coordinate_of(world.file_rank, axis)) * axis.stride));
  const std::vector<std::vector<Rank>>& known = group->second.of_rank;
  if (!known.empty() && known[world.file_rank] != members)
    throw KernelError(fmt::format("the mesh has ranks [{}] along this axis, group '{}' has [{}]",
                                  fmt::join(members, ", "), name, fmt::join(known[world.file_rank], ", ")));
  return Text{ArgKind::kProcessGroup, name};
}

}  // namespace

bool is_mesh_op(const OpInfo& op) {
  return mesh_call_of(op) != epweave::MeshCall::kNone;
}

std::vector<MeshAxis> read_mesh_axes(const Context& context, Arg mesh) {
  const auto fields = context.args.children(mesh);
  std::vector<std::int64_t> shape;
  collect_integers(context, fields[1], shape);
  const std::vector<std::int64_t> ranks = read_ranks(context, mesh);
  std::vector<MeshAxis> axes(shape.size());
  std::size_t inner = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] < 1) return {};
    axes[d].extent = shape[d];
    if (shape[d] > 1) {
      if (inner >= ranks.size() || ranks[inner] <= ranks[0]) return {};
      axes[d].stride = ranks[inner] - ranks[0];
    }
    inner *= static_cast<std::size_t>(shape[d]);
  }
  return axes;
}

Value evaluate_mesh_op(const Graph& graph, const World& world, const MeshCall& call) {
  const Node& node = call.node;
  if (mesh_call_of(node) == epweave::MeshCall::kGroup) return find_group(graph, world, node);
  if (mesh_call_of(node) == epweave::MeshCall::kCoordinate) {
    if (call.mesh.is_tensor()) return find_place(graph, node, call);
    return coordinate_of(call.rank, find_axis(graph, node).axis);
  }
  const Arg recorded = recorded_value(graph, node);
  return Text{recorded.kind(), recorded.is_tree() ? "" : std::string(graph.text(recorded.as_name()))};
}

}  // namespace epweave::replay
