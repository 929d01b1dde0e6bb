#include "compare/rewrite/part_symbols.h"

#include <fmt/format.h>

#include "analysis/verify_report.h"
#include "base/few_table.h"
#include "compare/lineage.h"

namespace epweave {
namespace {

template <class Visit>  // void(StringId)
void for_each_binding(const Node& node, const Visit& visit) {
  if (node.extra == nullptr) return;
  for (const Binding& binding : node.extra->bindings) visit(binding.symbol);
}

class PartSymbols {
 public:
  PartSymbols(const Graph& b, std::vector<Violation>& out)
      : graph_(b), context_(*b.context), body_(b.step()), out_(out) {}

  void run(const Graph& a) {
    SideTable<StringId, int> before;
    for (NodeId id : a.step().order)
      for_each_binding(a.step().nodes[id], [&](StringId symbol) { ++before.at(symbol); });
    bind(before);
    for (NodeId id : body_.order) {
      const Lineage lineage = find_lineage(body_.nodes[id]);
      if (lineage.is_part() && body_.nodes[id].type) check_type(id, body_.nodes[id].type, lineage);
    }
  }

 private:
  struct Binder {
    NodeId node;
    std::uint32_t part = 0, parts = 0;
  };

  void fail(NodeId id, std::string message) {
    report(graph_, body_, body_.nodes[id], "rewrite-symbol", std::move(message), out_);
  }

  void bind(const SideTable<StringId, int>& before) {
    SideTable<StringId, int> count;
    for (NodeId id : body_.order) {
      for_each_binding(body_.nodes[id], [&](StringId symbol) {
        if (++count.at(symbol) > std::max(1, before[symbol]))
          fail(id, fmt::format("binds {}, which %{} binds", graph_.text(symbol),
                               graph_.text(body_.nodes[binders_[symbol].node].name)));
        const Lineage lineage = find_lineage(body_.nodes[id]);
        binders_.at(symbol) = {id, lineage.part, lineage.is_part() ? lineage.parts : 0};
      });
    }
  }

  void check_type(NodeId id, TypeId type, const Lineage& lineage) {
    for (StringId symbol : symbols_of(type)) {
      const Binder& binder = binders_[symbol];
      if (!binder.node || binder.parts != lineage.parts || binder.part == lineage.part) continue;
      return fail(
          id, fmt::format("part {} names {}, which %{} of part {} binds", lineage.part, graph_.text(symbol),
                          graph_.text(body_.nodes[binder.node].name), binder.part));
    }
  }

  // Types of a graph repeat.
  const std::vector<StringId>& symbols_of(TypeId id) {
    if (const std::vector<StringId>* known = symbols_.find(id)) return *known;
    return symbols_.at(id) = collect(id);
  }
  std::vector<StringId> collect(TypeId id) {
    std::vector<StringId> all;
    const auto add = [&](ExprId expr) {
      if (!expr) return;
      const std::vector<StringId>& symbols = context_.exprs.symbols(expr);
      all.insert(all.end(), symbols.begin(), symbols.end());
    };
    const Type& type = context_.types[id];
    for (ExprId size : type.tensor.sizes) add(size);
    add(type.expr);
    for (TypeId element : type.elements) {
      if (!element) continue;
      const std::vector<StringId> inner = collect(element);
      all.insert(all.end(), inner.begin(), inner.end());
    }
    return all;
  }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  std::vector<Violation>& out_;
  SideTable<StringId, Binder> binders_;
  FewTable<TypeId, std::vector<StringId>> symbols_;
};

}  // namespace

void check_part_symbols(const Graph& a, const Graph& b, std::vector<Violation>& out) {
  PartSymbols(b, out).run(a);
}

}  // namespace epweave
