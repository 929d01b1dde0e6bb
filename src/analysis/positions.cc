#include "analysis/positions.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/op.h"
#include "ir/walk.h"

namespace epweave {
namespace {

// The argument of an op that names rows, or none.
int find_index_argument(std::string_view target) {
  static constexpr std::pair<std::string_view, int> kOps[] = {
      {"aten.index.Tensor", 1},
      {"aten.gather.default", 2},
      {"aten.index_select.default", 2},
      {"aten.index_put.default", 1},
      {"aten.index_put_.default", 1},
      {"aten.scatter.value", 2},
      {"aten.scatter_.value", 2},
      {"aten.scatter_add.default", 2},
      {"torchtitan.deterministic_scatter_add.default", 1},
  };
  for (const auto& [name, argument] : kOps)
    if (name == target) return argument;
  return -1;
}

bool has_like_values(std::string_view target) {
  return target.find("_like.") == target.npos && !target.starts_with("aten.new_");
}

class Checker {
 public:
  Checker(const Graph& graph, const Placements& placements)
      : graph_(graph), context_(*graph.context), body_(graph.step()), placements_(placements) {}

  void run() {
    for (const auto [id, node] : walk(context_, body_))
      if (placements_.region[id] && placements_.is_divided(id)) visit(id, node);
  }

 private:
  void visit(NodeId id, const Node& node) {
    if (makes_positions(node, id)) {
      positions_.insert(id);
      return;
    }
    if (!node.type || !has_like_values(graph_.text(node.target))) return;
    const NodeId position = find_position_operand(node);
    if (!position) return;
    const Type& type = context_.types[node.type];
    if (type.kind == TypeKind::kScalar) return;  // a size
    const Placement& p = placements_.placement[id];
    const bool is_number = type.kind == TypeKind::kTensor && is_floating(type.tensor.dtype);
    if (is_number || p.is_partial() || p.is(PlacementKind::kCarried)) decline(id, position);
    const bool is_answer = type.kind == TypeKind::kTensor && type.tensor.dtype == DType::kBool;
    if (!is_answer) positions_.insert(id);
  }

  bool makes_positions(const Node& node, NodeId id) const {
    static const OpInfo *const getitem = find_op("operator.getitem"), *const sort =
                                                                          find_op("aten.sort.stable");
    if (graph_.text(node.target).starts_with("aten.arange")) return placements_.placement[id].is_local();
    if (node.op == nullptr || node.op != getitem || !placements_.placement[id].is_local()) return false;
    const auto args = context_.args[node.args];
    return args.size() == 2 && args[0].is_node() && body_.nodes[args[0].as_node()].op == sort &&
           args[1].is_int() && args[1].as_int() == 1;
  }

  // One whose values the node computes with.
  NodeId find_position_operand(const Node& node) const {
    const auto args = context_.args[node.args];
    const int index = find_index_argument(graph_.text(node.target));
    NodeId found;
    for (std::size_t i = 0; i < args.size(); ++i) {
      if (static_cast<int>(i) == index) continue;
      context_.args.for_each_node(args[i], [&](NodeId input) {
        if (positions_.contains(input)) found = input;
      });
    }
    return found;
  }

  [[noreturn]] void decline(NodeId id, NodeId position) const {
    const Node& node = body_.nodes[id];
    throw PassError(
        "chunk.positions-as-data",
        fmt::format(
            "{} cannot run on parts of the tokens: it computes with '{}', which numbers the rows of a "
            "part from its own first row",
            graph_.text(node.target), graph_.text(body_.nodes[position].name)),
        site_of(graph_, node), "compute the numbers outside the selected module, or select other roots");
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const Placements& placements_;
  IdSet<NodeId> positions_;
};

}  // namespace

void check_positions(const Graph& graph, const Placements& placements) {
  Checker(graph, placements).run();
}

}  // namespace epweave
