#include "replay/check/added_roundings.h"

#include <fmt/format.h>

#include <vector>

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
  if (!has_family(node, OpFamily::kCast)) return false;
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

std::string describe_cast(const Graph& b, NodeId cast, std::string_view before) {
  const Node& node = b.step().nodes[cast];
  return fmt::format("%{} ({}, before {})", b.text(node.name), print_type(*b.context, node.type), before);
}

std::vector<NodeId> list_returned(const Graph& graph) {
  std::vector<NodeId> outputs;
  for_each_input(*graph.context, graph.step().nodes[graph.step().order.back()],
                 [&](NodeId output) { outputs.push_back(output); });
  return outputs;
}

struct BothPaths {
  const Paths& a;
  const Paths& b;
};

// What is returned as it is.
void compare_returned(const PairedGraphs& graphs, const BothPaths& paths, std::set<std::string>& found) {
  const std::vector<NodeId> in_a = list_returned(graphs.a), in_b = list_returned(graphs.b);
  if (in_a.size() != in_b.size()) return;
  for (std::size_t i = 0; i < in_b.size(); ++i)
    if (const Path& path = paths.b[in_b[i]]; path.casts > paths.a[in_a[i]].casts && path.added)
      found.insert(describe_cast(graphs.b, path.added, fmt::format("output {}", i)));
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
      found.insert(describe_cast(b, path.added, fmt::format("%{}", b.text(b.step().nodes[id].name))));
    // What is behind it is said once.
    if (whole && path.casts > in_a[whole].casts) path = {in_a[whole].casts, {}};
    in_b.at(id) = path;
  }
  compare_returned(graphs, BothPaths{in_a, in_b}, found);
  return found;
}

}  // namespace epweave::replay
