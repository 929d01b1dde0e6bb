// The extents of values, and calls as the rules of scaling see them.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "ir/facts.h"
#include "ir/graph.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "placement/scaling/scaling_solver.h"

namespace epweave {

// A number in a call's arguments that is the extent `extent`.
struct SizeLiteral {
  NodeId node;
  std::size_t param = 0;
  std::optional<std::size_t> item;
  ExtentId extent;
};

// The extents of all values of the step.
class ExtentTable {
 public:
  ExtentTable(const Graph& graph, Facts& facts, ScalingSolver& solver);

  std::size_t tensor_count(NodeId id) const { return shapes_[id].count; }
  // Of tensor `element` of the node's value; empty if it is none.
  std::span<const ExtentId> of(NodeId id, std::size_t element = 0) const;
  // The extent of a sum of sizes, where it is a number; else none.
  ExtentId of_poly(PolyId poly);
  const std::vector<std::pair<PolyId, ExtentId>>& sums() const { return sums_; }

  // Whether autograd made the node for a mean of forward.
  bool is_gradient_of_mean(const Node& node) const {
    return node.backward && node.seq_nr && means_.contains(*node.seq_nr);
  }

  Facts& facts() { return facts_; }

 private:
  struct Tensor {
    std::uint32_t begin = 0, rank = 0;
  };
  struct Shape {
    std::uint32_t begin = 0, count = 0;
  };
  void add_tensor(TypeId type);
  ExtentId add_extent(ExprId extent);

  const Graph& graph_;
  Facts& facts_;
  ScalingSolver& solver_;
  SideTable<NodeId, Shape> shapes_;
  std::vector<Tensor> tensors_;
  Extents extents_;
  SideTable<PolyId, ExtentId> of_poly_;
  std::vector<std::pair<PolyId, ExtentId>> sums_;
  std::unordered_set<std::int64_t> means_;  // sequence numbers of forward's
};

class ScalingCall {
 public:
  ScalingCall(const Graph& graph_in, NodeId id_in, ExtentTable& table_in, ScalingSolver& solver_in,
              std::vector<SizeLiteral>& literals_in, bool equal_pieces_in);

  const Graph& graph;
  const NodeId id;
  const Node& node;
  ScalingSolver& solver;
  ExtentTable& table;
  const bool equal_pieces;  // ScalingOptions

  Arg arg(std::size_t param) const { return bound_.values[param]; }
  std::optional<std::int64_t> integer(std::size_t param) const;
  std::size_t param_count() const { return node.op->params.size(); }
  std::optional<std::size_t> find_param(std::string_view name) const { return node.op->find_param(name); }

  std::span<const ExtentId> in(std::size_t param) const { return in(arg(param)); }
  std::span<const ExtentId> in(Arg value) const;
  std::span<const ExtentId> out(std::size_t element = 0) const { return table.of(id, element); }
  std::size_t out_count() const { return table.tensor_count(id); }
  std::span<const Arg> items(Arg list) const;  // empty if it is none

  // The dimension that parameter `param` names, of `rank`; `fallback` where it is left out.
  std::size_t dim(std::size_t param, std::size_t rank, std::int64_t fallback = 0) const;
  // Those of a list or number; all where it is left out or empty.
  std::vector<bool> dims(std::size_t param, std::size_t rank) const;

  void unite(ExtentId a, ExtentId b) { solver.unite(a, b, id); }
  // Pairwise, from the right: extents that broadcast.
  void align(std::span<const ExtentId> a, std::span<const ExtentId> b);
  void unite_except(std::span<const ExtentId> a, std::span<const ExtentId> b, std::size_t dim);
  void literal(std::size_t param, std::optional<std::size_t> item, ExtentId extent);
  // Each item of a size list is the extent at its position.
  void literals(std::size_t param, std::span<const ExtentId> extents);

 private:
  BoundArgs bound_;
  std::vector<SizeLiteral>& literals_;
};

}  // namespace epweave
