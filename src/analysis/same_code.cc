#include "analysis/same_code.h"

#include <set>
#include <span>
#include <utility>
#include <vector>

namespace epweave {
namespace {

class Comparison {
 public:
  Comparison(const Graph& graph, const ValueNumbers& numbers)
      : context_(*graph.context), body_(graph.step()), numbers_(numbers) {}

  bool may_be_same(NodeId a, NodeId b) {
    open_ = {{a, b}};
    while (!open_.empty()) {
      const auto pair = open_.back();
      open_.pop_back();
      if (numbers_[pair.first] == numbers_[pair.second] || !seen_.insert(pair).second) continue;
      const Node &x = body_.nodes[pair.first], &y = body_.nodes[pair.second];
      if (x.kind != NodeKind::kCall || y.kind != NodeKind::kCall || x.target != y.target) return false;
      if (!match(context_.args[x.args], context_.args[y.args])) return false;
      if (!match(context_.args[x.kwargs], context_.args[y.kwargs])) return false;
    }
    return true;
  }

 private:
  using Args = std::span<const Arg>;

  // Notes the pairs of nodes.
  bool match(Args a, Args b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i].kind() != b[i].kind()) return false;
      if (a[i].is_node()) {
        open_.emplace_back(a[i].as_node(), b[i].as_node());
      } else if (a[i].is_tree()) {
        if (!match(context_.args.children(a[i]), context_.args.children(b[i]))) return false;
      } else if (a[i] != b[i]) {
        return false;
      }
    }
    return true;
  }

  const Context& context_;
  const Body& body_;
  const ValueNumbers& numbers_;
  std::vector<std::pair<NodeId, NodeId>> open_;
  std::set<std::pair<NodeId, NodeId>> seen_;
};

}  // namespace

bool may_be_same_value(const Graph& graph, const ValueNumbers& numbers, NodeId a, NodeId b) {
  return Comparison(graph, numbers).may_be_same(a, b);
}

}  // namespace epweave
