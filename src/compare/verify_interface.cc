#include "compare/verify_interface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace epweave {
namespace {

// Whether nested graphs compute the same: node by node in the same order.
class NestedComparison {
 public:
  NestedComparison(Context& context, Numbers& numbers) : context_(context), numbers_(numbers) {}

  bool is_same(const Body& before, const Body& after) {
    if (before.order.size() != after.order.size()) return false;
    SideTable<NodeId, NodeId> image;
    for (std::size_t i = 0; i < before.order.size(); ++i) {
      const Node& x = before.nodes[before.order[i]];
      const Node& y = after.nodes[after.order[i]];
      const bool is_same_call = x.kind == y.kind && (x.kind != NodeKind::kCall || x.target == y.target) &&
                                is_same_list(x.args, y.args, image) &&
                                is_same_list(x.kwargs, y.kwargs, image) &&
                                context_.args.equal(x.attr, y.attr);
      if (!is_same_call) return false;
      image.at(before.order[i]) = after.order[i];
    }
    return true;
  }

 private:
  bool is_same_list(ArgRange x, ArgRange y, const SideTable<NodeId, NodeId>& image) {
    if (x.count != y.count) return false;
    for (std::uint32_t i = 0; i < x.count; ++i) {
      const Arg p = context_.args[x][i], q = context_.args[y][i];
      const bool is_same =
          p.is_tree() && q.is_tree() ? p.kind() == q.kind() && is_same_list(p.children(), q.children(), image)
          : p.is_node() && q.is_node() ? image[p.as_node()] == q.as_node()
          : p.is(ArgKind::kSymbolic)   ? numbers_.match_scalar(p.as_expr(), q, {}) != Fraction::kNone
                                       : p == q;
      if (!is_same) return false;
    }
    return true;
  }

  Context& context_;
  Numbers& numbers_;
};

}  // namespace

void check_inputs(RewriteClaims& claims) {
  const Graph &graph_a = claims.graph_a(), &graph_b = claims.graph_b();
  auto placeholders = [](const Body& body) {
    std::vector<NodeId> list;
    for (NodeId id : body.order)
      if (body.nodes[id].kind == NodeKind::kPlaceholder) list.push_back(id);
    return list;
  };
  const std::vector<NodeId> before = placeholders(graph_a.step()), after = placeholders(graph_b.step());
  bool is_same = before.size() == after.size() && graph_a.inputs.size() == graph_b.inputs.size() &&
                 graph_a.outputs.size() == graph_b.outputs.size();
  for (std::size_t i = 0; is_same && i < before.size(); ++i)
    is_same = claims[after[i]].kind == ClaimKind::kWhole && claims[after[i]].origin == before[i];
  for (std::size_t i = 0; is_same && i < graph_a.inputs.size(); ++i) {
    const InputRole& x = graph_a.inputs[i];
    const InputRole& y = graph_b.inputs[i];
    is_same = x.role == y.role && x.fqn == y.fqn && x.which == y.which;
  }
  for (std::size_t i = 0; is_same && i < graph_a.outputs.size(); ++i)
    is_same = graph_a.outputs[i].role == graph_b.outputs[i].role &&
              graph_a.outputs[i].fqn == graph_b.outputs[i].fqn;
  if (!is_same) claims.fail_graph("rewrite-inputs", "the inputs or outputs are not those of the first graph");
}

void check_groups(RewriteClaims& claims) {
  const Graph &graph_a = claims.graph_a(), &graph_b = claims.graph_b();
  for (const ProcessGroup& group : graph_a.groups) {
    const ProcessGroup* after = find_group(graph_b, group.name);
    if (after != nullptr && after->ranks != group.ranks)
      claims.fail_graph("rewrite-group", fmt::format("group '{}' has ranks [{}], in the first graph [{}]",
                                                     graph_a.text(group.name), fmt::join(after->ranks, ", "),
                                                     fmt::join(group.ranks, ", ")));
  }
}

const ProcessGroup* find_group(const Graph& graph, StringId name) {
  for (const ProcessGroup& group : graph.groups)
    if (name && group.name == name) return &group;
  return nullptr;
}

void check_symbol_facts(RewriteClaims& claims, Numbers& numbers) {
  const Graph &graph_a = claims.graph_a(), &graph_b = claims.graph_b();
  SideTable<StringId, const Symbol*> known;
  for (const Symbol& symbol : graph_a.symbols) known.at(symbol.name) = &symbol;
  for (const Symbol& after : graph_b.symbols) {
    const Symbol* before = known[after.name];
    if (before == nullptr) continue;
    const auto say = [&](std::string_view what) {
      claims.fail_graph("rewrite-symbol", fmt::format("symbol {} {}, which the first graph does not say",
                                                      graph_b.text(after.name), what));
    };
    const bool is_replaced =
        after.replaced_by &&
        !(before->replaced_by && numbers.is_same_statement(*before->replaced_by, *after.replaced_by));
    if (is_replaced)
      say(fmt::format("is replaced by {}",
                      graph_b.context->exprs.print(graph_b.context->exprs.poly(*after.replaced_by))));
    for (ExprId statement : after.asserts.value_or(std::vector<ExprId>())) {
      const bool is_known = before->asserts && std::ranges::any_of(*before->asserts, [&](ExprId other) {
                              return numbers.is_same_statement(other, statement);
                            });
      if (!is_known)
        say(fmt::format("satisfies {}",
                        graph_b.context->exprs.print(graph_b.context->exprs.poly(statement))));
    }
  }
}

void check_nested(RewriteClaims& claims, Numbers& numbers) {
  const Graph &graph_a = claims.graph_a(), &graph_b = claims.graph_b();
  NestedComparison comparison(*graph_a.context, numbers);
  for (std::size_t i = 1; i < graph_a.bodies.size(); ++i) {
    const Body& before = graph_a.bodies[i];
    const Body* after = graph_b.find_body(before.name);
    const bool is_dropped = after == nullptr;  // nothing of the second graph names it, or that is no graph
    if (!is_dropped && !comparison.is_same(before, *after))
      claims.fail_nested(before.name, "rewrite-nested", "is not what it is in the first graph");
  }
}

}  // namespace epweave
