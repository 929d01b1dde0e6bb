#include "analysis/verify_changes.h"

#include <algorithm>
#include <utility>

#include "analysis/type_symbols.h"
#include "ops/mesh_calls.h"

namespace epweave {
namespace {

bool same_group(const ProcessGroup& a, const ProcessGroup& b) {
  return a.name == b.name && a.ranks == b.ranks && a.axes == b.axes;
}

bool says_the_same(const Symbol& a, const Symbol& b) {
  return a.lower == b.lower && a.upper == b.upper && a.hint == b.hint && a.asserts == b.asserts &&
         a.replaced_by == b.replaced_by && a.assumptions == b.assumptions;
}

// Placeholders come first.
bool same_hints(const Body& a, const Body& b) {
  const auto hints_of = [](const Body& body) {
    std::vector<std::pair<StringId, std::int64_t>> hints;
    for (NodeId id : body.order) {
      const Node& node = body.nodes[id];
      if (node.kind != NodeKind::kPlaceholder) break;
      if (node.extra != nullptr)
        hints.insert(hints.end(), node.extra->chunk_hints.begin(), node.extra->chunk_hints.end());
    }
    return hints;
  };
  return hints_of(a) == hints_of(b);
}

// What is known of a symbol may say of others which is larger.
bool speaks_of_itself(ExprPool& exprs, const Symbol& symbol) {
  const auto is_of_itself = [&](ExprId statement) {
    return std::ranges::all_of(exprs.symbols(statement), [&](StringId name) { return name == symbol.name; });
  };
  return !symbol.replaced_by && (!symbol.asserts || std::ranges::all_of(*symbol.asserts, is_of_itself)) &&
         std::ranges::all_of(symbol.assumptions, is_of_itself);
}

// Passes add symbols between others, whose order stays.
bool keeps_symbols(const Graph& graph, const Graph& before) {
  auto kept = before.symbols.begin();
  for (const Symbol& symbol : graph.symbols) {
    const bool is_new = kept == before.symbols.end() || kept->name != symbol.name;
    if (is_new ? !speaks_of_itself(graph.context->exprs, symbol) : !says_the_same(symbol, *kept++))
      return false;
  }
  return kept == before.symbols.end() && same_hints(graph.step(), before.step());
}

// What rules look up besides symbols.
bool keeps_world(const Graph& graph, const Graph& before) {
  return graph.context == before.context && graph.context->args.equal(graph.info, before.info) &&
         std::ranges::equal(graph.groups, before.groups, same_group);
}

}  // namespace

bool keeps_types(const Graph& graph, const Graph& before) {
  return keeps_world(graph, before) && keeps_symbols(graph, before);
}

UnchangedCalls::UnchangedCalls(const Graph& graph, const Graph& before)
    : context_(*graph.context), body_(graph.step()), before_(before.step()) {
  if (!keeps_world(graph, before)) return;
  are_symbols_kept_ = keeps_symbols(graph, before);
  ran_ = IdSet<NodeId>(before_.nodes.size());
  for (NodeId id : before_.order) ran_.insert(id);
}

// By its row and the types of what it takes: what else a rule may look at, a nested graph, how a
// value without a recorded type is made, or the devices of the step's inputs, may have changed.
bool UnchangedCalls::contains(NodeId id) const {
  if (!ran_.contains(id)) return false;
  const Node &now = body_.nodes[id], &was = before_.nodes[id];
  if (mesh_call_of(now) == MeshCall::kDevice) return false;
  if (now.op != was.op || now.args != was.args || now.kwargs != was.kwargs || now.type != was.type ||
      now.extra != was.extra || now.target != was.target || now.kind != was.kind)
    return false;
  if (!is_type_kept(now.type)) return false;
  if (!are_symbols_kept_ && !(has_numbers_only(now.args) && has_numbers_only(now.kwargs))) return false;
  bool are_inputs_kept = true;
  for_each_input(context_, now, [&](NodeId input) {
    const Node& value = body_.nodes[input];
    are_inputs_kept = are_inputs_kept && value.type && value.type == before_.nodes[input].type &&
                      !value.attr.is(ArgKind::kGraph) && is_type_kept(value.type);
  });
  return are_inputs_kept;
}

bool UnchangedCalls::is_type_kept(TypeId type) const {
  return are_symbols_kept_ || !type || has_numbers_only(type);
}

bool UnchangedCalls::has_numbers_only(TypeId type) const {
  if (of_numbers_.contains(type)) return true;
  if (of_symbols_.contains(type)) return false;
  const bool is_plain = mentions_only(context_, type, [](StringId) { return false; });
  (is_plain ? of_numbers_ : of_symbols_).insert(type);
  return is_plain;
}

bool UnchangedCalls::has_numbers_only(ArgRange args) const {
  return std::ranges::all_of(context_.args[args], [&](Arg arg) {
    if (arg.is_tree()) return has_numbers_only(arg.children());
    if (arg.is(ArgKind::kTypeRef)) return has_numbers_only(arg.as_type());
    return !arg.is(ArgKind::kSymbolic) || context_.exprs.symbols(arg.as_expr()).empty();
  });
}

}  // namespace epweave
