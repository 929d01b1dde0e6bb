// Writes nodes that compute the rank's coordinates, and numbers made of them, at the front of a
// step.
//
//   %_ranks_by_tp = get_attr tensor([[[0], [1]], [[2], [3]]])   all ranks, the axis as dimension 1
//   %coordinate_tp = _runtime_compute_coordinate_on_dim(%_ranks_by_tp, 1) : SymInt(u0)
//   %coordinate_tp_mul_1024 = operator.mul(%coordinate_tp, 1024)
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "analysis/world.h"
#include "ir/graph.h"

namespace epweave {

class CoordinateWriter {
 public:
  // New nodes say that `pass` added them, where the graph says so of its nodes.
  CoordinateWriter(Graph& graph, std::uint32_t world_size, std::string_view pass);

  // The coordinate along the axis; made once for each axis.
  NodeId coordinate(std::string_view axis_name, const GroupRule& axis);
  // Of an integer node and a number or integer node: "operator.mul", "operator.add".
  NodeId number(std::string_view target, NodeId a, Arg b);
  // A node that the caller puts into the order; its name begins with `name`.
  NodeId add(Node node, const std::string& name);

  // Puts what was made behind the step's inputs.
  void place();

 private:
  StringId fresh_name(const std::string& base);
  NodeId add(Node node);  // which has its name
  NodeId write_ranks(std::string_view axis_name, const GroupRule& axis);
  StringId add_symbol(const GroupRule& axis);

  Graph& graph_;
  Context& context_;
  std::uint32_t world_size_;
  StringId pass_;
  std::set<StringId> names_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, NodeId> coordinates_;  // by stride and extent
  std::vector<NodeId> made_;
};

// Nodes whose values follow from the rank alone: lookups in meshes, coordinates, numbers made of
// them, and the constants that they are looked up in. They read no tensor that the step computes.
IdSet<NodeId> find_rank_nodes(const Graph& graph);

// Puts those behind the step's inputs, in their order, so that what else is in the step stands as
// on one rank.
void hoist_rank_nodes(Graph& graph);

}  // namespace epweave
