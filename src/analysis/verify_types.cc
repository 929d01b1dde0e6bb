#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

#include "analysis/looked_up_group.h"
#include "analysis/type_symbols.h"
#include "analysis/verify_changes.h"
#include "analysis/verify_report.h"
#include "analysis/world.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/mesh_calls.h"
#include "ops/type_memo.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

// Which symbols have a value when a node executes.
class BoundSymbols {
 public:
  explicit BoundSymbols(const Graph& graph) : graph_(graph), bound_(graph.context->strings.size()) {
    for (const Symbol& symbol : graph.symbols)
      if (symbol.replaced_by) replaced_.emplace(symbol.name, *symbol.replaced_by);
  }

  bool contains(StringId symbol) {
    if (bound_.contains(symbol)) return true;
    const auto replaced = replaced_.find(symbol);
    if (replaced == replaced_.end()) return false;
    for (StringId other : graph_.context->exprs.symbols(replaced->second))
      if (other == symbol || !contains(other)) return false;
    return true;
  }
  // Returns whether the symbol was not bound before.
  bool insert(StringId symbol) { return bound_.insert(symbol); }

 private:
  const Graph& graph_;
  IdSet<StringId> bound_;
  std::unordered_map<StringId, ExprId> replaced_;
};

class TypeCheck {
 public:
  // unchanged: calls of the step that are known to be right; null: none is.
  TypeCheck(const Graph& graph, Facts& facts, const UnchangedCalls* unchanged, std::vector<Violation>& out)
      : graph_(graph),
        context_(*graph.context),
        facts_(facts),
        unchanged_(unchanged),
        out_(out),
        bound_(graph),
        symbols_(*graph.context),
        fitting_(ops().size(), 0) {}

  // The step goes first: nested graphs may name its symbols.
  void check_body(const Body& body) {
    TypeMemo types(facts_);
    const UnchangedCalls* unchanged = &body == &graph_.step() ? unchanged_ : nullptr;
    for (const auto [id, node] : walk(context_, body)) {
      bind(body, node);
      if (node.kind == NodeKind::kPlaceholder) {
        if (node.type) bind_type(node.type);
        continue;
      }
      check_symbols(body, node);
      if (node.op != nullptr && (unchanged == nullptr || !unchanged->contains(id)))
        check_call(body, node, types);
      const MeshCall mesh_call = mesh_call_of(node);
      if (mesh_call == MeshCall::kNone || !has_meshes(body, node, mesh_call)) continue;
      if (mesh_call == MeshCall::kGroup) check_lookup(body, node, types);
    }
  }

 private:
  void bind(const Body& body, const Node& node) {
    if (!node.extra) return;
    for (const Binding& binding : node.extra->bindings)
      if (!bound_.insert(binding.symbol))
        report(graph_, body, node, "bindings",
               fmt::format("binds {}, which is bound already", text(binding.symbol)), out_);
  }

  // A placeholder brings the symbols of its value.
  void bind_type(TypeId type) {
    for (StringId symbol : symbols_.of(type)) bound_.insert(symbol);
  }

  void check_symbols(const Body& body, const Node& node) {
    std::string unbound;
    if (node.type) add_unbound(node.type, unbound);
    for_each_expr(node.args, [&](ExprId expr) { add_unbound(context_.exprs.symbols(expr), unbound); });
    for_each_expr(node.kwargs, [&](ExprId expr) { add_unbound(context_.exprs.symbols(expr), unbound); });
    if (!unbound.empty())
      report(graph_, body, node, "symbols-bound", fmt::format("nothing before it binds {}", unbound), out_);
  }

  void add_unbound(TypeId type, std::string& text) {
    if (sound_.contains(type)) return;
    if (mentions_only(context_, type, [&](StringId symbol) { return bound_.contains(symbol); })) {
      sound_.insert(type);  // bound symbols stay bound
    } else {
      add_unbound(symbols_.of(type), text);
    }
  }

  void add_unbound(const std::vector<StringId>& symbols, std::string& unbound) {
    for (StringId symbol : symbols)
      if (!bound_.contains(symbol)) unbound += (unbound.empty() ? "" : ", ") + std::string(text(symbol));
  }

  // Whether a call without keywords fits its schema, the number of its arguments says: that is
  // asked once for each op and number.
  std::string schema_problem(const Node& node) {
    const bool is_counted = node.kwargs.count == 0 && node.args.count < 32;
    std::uint32_t& fitting = fitting_[node.op->index];
    if (is_counted && (fitting >> node.args.count & 1) != 0) return {};
    std::string problem = find_schema_problem(context_, node);
    if (is_counted && problem.empty()) fitting |= std::uint32_t{1} << node.args.count;
    return problem;
  }

  void check_call(const Body& body, const Node& node, TypeMemo& types) {
    if (std::string problem = schema_problem(node); !problem.empty()) {
      report(graph_, body, node, "schema", std::move(problem), out_);
      return;
    }
    if (!has_type_rule(node)) return;
    try {
      const TypeId type = types.infer(graph_, body, node);
      if (!type || !node.type || reaches_same_elements(facts_, context_, type, node.type)) return;
      const TypeId of_kernel = infer_kernel_type(facts_, graph_, body, node);
      if (reaches_same_elements(facts_, context_, of_kernel, node.type)) return;
      report(graph_, body, node, "type",
             fmt::format("recorded {}, the arguments give {}", print_type(context_, node.type),
                         print_type(context_, type)),
             out_);
    } catch (const TypeMismatch& mismatch) {
      report(graph_, body, node, "type", mismatch.what(), out_);
    }
  }

  // Reports meshes among the arguments whose ranks do not fill their shape, each once. A mesh whose
  // axes have no names is none to look up a group in; other calls take it.
  bool has_meshes(const Body& body, const Node& node, MeshCall call) {
    const bool are_filled = std::ranges::all_of(context_.args[node.args], [&](Arg given) {
      if (!given.is(ArgKind::kMesh)) return true;
      const auto mesh = read_mesh(context_, given);
      return mesh ? has_each_rank_once(*mesh) : call != MeshCall::kGroup;
    });
    if (!are_filled)
      report(graph_, body, node, "mesh-group", "the mesh's ranks do not fill its shape, each once", out_);
    return are_filled;
  }

  // What is recorded of a lookup is the group's name; its ranks are in the table.
  void check_lookup(const Body& body, const Node& node, TypeMemo& types) {
    const StringId name = group_of(node.type);
    const ProcessGroup* group = name ? graph_.find_group(name) : nullptr;
    const auto mesh = group != nullptr ? mesh_of(body, arg_of(context_, node, 0), types) : std::nullopt;
    const auto axis = mesh ? axis_looked_up(context_, node, *mesh) : std::nullopt;
    if (!axis) return;
    const std::uint32_t own = own_rank(graph_);
    const auto ranks = ranks_along(*mesh, *axis, own);
    if (!ranks)
      return report(graph_, body, node, "mesh-group",
                    fmt::format("the mesh does not hold the file's own rank {}", own), out_);
    if (!std::ranges::is_permutation(*ranks, group->ranks))
      report(graph_, body, node, "mesh-group",
             fmt::format("recorded as group '{}' with ranks [{}], the mesh has ranks [{}] along this axis",
                         text(name), fmt::join(group->ranks, ", "), fmt::join(*ranks, ", ")),
             out_);
  }

  static bool has_each_rank_once(const MeshValue& mesh) {
    std::vector<std::uint32_t> ranks = mesh.ranks;
    std::ranges::sort(ranks);
    return std::ranges::adjacent_find(ranks) == ranks.end();
  }

  StringId group_of(TypeId type) const {
    if (!type || context_.types[type].kind != TypeKind::kValue) return {};
    const Arg value = context_.types[type].value;
    return value.is(ArgKind::kProcessGroup) ? value.as_name() : StringId();
  }

  // By its record; where there is none, by what it is made of.
  std::optional<MeshValue> mesh_of(const Body& body, Arg mesh, TypeMemo& types) {
    if (!mesh.is_node()) return read_mesh(context_, mesh);
    Node made = body.nodes[mesh.as_node()];
    if (!made.type && has_type_rule(made)) {
      try {
        made.type = types.infer(graph_, body, made);
      } catch (const TypeMismatch&) {
        return std::nullopt;  // a violation of that node
      }
    }
    return recorded_mesh(context_, made);
  }

  template <class Visit>
  void for_each_expr(ArgRange range, const Visit& visit) {
    for (std::uint32_t i = 0; i < range.count; ++i) {
      const Arg arg = context_.args[range][i];
      if (arg.is(ArgKind::kSymbolic)) visit(arg.as_expr());
      if (arg.is_tree()) for_each_expr(arg.children(), visit);
    }
  }

  std::string_view text(StringId id) const { return graph_.text(id); }

  const Graph& graph_;
  Context& context_;
  Facts& facts_;
  const UnchangedCalls* unchanged_;
  std::vector<Violation>& out_;
  BoundSymbols bound_;
  IdSet<TypeId> sound_;  // types all of whose symbols are bound
  TypeSymbols symbols_;
  std::vector<std::uint32_t> fitting_;  // by op: bit n for a call of n arguments without keywords
};

// The number that a symbol had when traced is what sizes are compared by where facts do not say
// them: one that it cannot have says nothing.
void check_hint(const Graph& graph, const Symbol& symbol, std::vector<Violation>& out) {
  const ExprPool& exprs = graph.context->exprs;
  if (!symbol.hint) return;
  const auto check = [&](const std::optional<ExprId>& bound, std::string_view side, auto is_beyond) {
    const auto number = bound ? exprs.constant(*bound) : std::nullopt;
    if (number && is_beyond(*symbol.hint, *number))
      out.push_back({"symbol-hints",
                     fmt::format("{} was {} when traced, and is at {} {}", graph.text(symbol.name),
                                 *symbol.hint, side, *number),
                     {},
                     {}});
  };
  check(symbol.lower, "least", std::less<>());
  check(symbol.upper, "most", std::greater<>());
}

void verify_types(const Graph& graph, Facts& facts, const UnchangedCalls* unchanged,
                  std::vector<Violation>& out) {
  for (const Symbol& symbol : graph.symbols) check_hint(graph, symbol, out);
  TypeCheck check(graph, facts, unchanged, out);
  for (const Body& body : graph.bodies) check.check_body(body);
}

}  // namespace

void verify_types(const Graph& graph, Facts& facts, std::vector<Violation>& out) {
  verify_types(graph, facts, nullptr, out);
}

void verify_types(const Graph& graph, Facts& facts, const UnchangedCalls& unchanged,
                  std::vector<Violation>& out) {
  verify_types(graph, facts, &unchanged, out);
}

}  // namespace epweave
