#include "replay/check/added_roundings.h"

#include <fmt/format.h>

#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "replay/bounds/error_bounds.h"

namespace epweave::replay {
namespace {

// How many casts to a coarser type lie on the way to a value.
struct Path {
  std::uint64_t casts = 0;
  NodeId added;  // the last of them that stands for no node of A
};
using Paths = SideTable<NodeId, Path>;

const TensorType* type_of(const Graph& graph, NodeId id) {
  return tensor_of(*graph.context, graph.step().nodes[id].type);
}

bool narrows(const Graph& graph, NodeId id) {
  const Node& node = graph.step().nodes[id];
  if (node.op == nullptr || node.op->family != OpFamily::kCast) return false;
  const Arg from = arg_of(*graph.context, node, 0);
  const TensorType* after = type_of(graph, id);
  const TensorType* before = from.is_node() ? type_of(graph, from.as_node()) : nullptr;
  return before != nullptr && after != nullptr && is_floating(before->dtype) && is_floating(after->dtype) &&
         unit_roundoff(after->dtype) > unit_roundoff(before->dtype);
}

// What comes with the operands: the most of them.
Path follow(const Graph& graph, NodeId id, const Paths& paths) {
  Path most;
  for_each_input(*graph.context, graph.step().nodes[id], [&](NodeId input) {
    if (paths[input].casts > most.casts) most = paths[input];
  });
  return most;
}

// A computes it in the type that the cast of B gives.
bool rounds_as(const PairedGraphs& graphs, NodeId whole, NodeId cast) {
  const TensorType *in_a = type_of(graphs.a, whole), *in_b = type_of(graphs.b, cast);
  return !narrows(graphs.a, whole) && in_a != nullptr && in_b != nullptr && in_a->dtype == in_b->dtype;
}

}  // namespace

std::set<std::string> find_added_roundings(const PairedGraphs& graphs) {
  const Graph& b = graphs.b;
  Paths in_a, in_b;
  for (NodeId id : graphs.a.step().order) {
    Path path = follow(graphs.a, id, in_a);
    path.casts += narrows(graphs.a, id);
    in_a.at(id) = path;
  }
  SideTable<NodeId, NodeId> whole_of;
  for (const Group& group : graphs.groups)
    for (NodeId value : group.values)
      if (value) whole_of.at(value) = group.whole;
  std::set<std::string> found;
  for (NodeId id : b.step().order) {
    const NodeId whole = whole_of[id];
    Path path = follow(b, id, in_b);
    if (narrows(b, id) && !(whole && rounds_as(graphs, whole, id))) {
      ++path.casts;
      if (!whole) path.added = id;
    }
    if (whole && path.casts > in_a[whole].casts && path.added)
      found.insert(fmt::format("%{} ({}, before %{})", b.text(b.step().nodes[path.added].name),
                               print_type(*b.context, b.step().nodes[path.added].type),
                               b.text(b.step().nodes[id].name)));
    // What is behind it is said once.
    if (whole && path.casts > in_a[whole].casts) path = {in_a[whole].casts, {}};
    in_b.at(id) = path;
  }
  return found;
}

}  // namespace epweave::replay
