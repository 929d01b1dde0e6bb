#include "compare/rewrite/verify_interface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "analysis/effects.h"
#include "analysis/rank_view.h"
#include "analysis/world.h"
#include "compare/rewrite/conditions.h"

namespace epweave {
namespace {

// Whether nested graphs compute the same: node by node in the same order, types included, but for
// numbers that became constants.
class NestedComparison {
 public:
  NestedComparison(Context& context, Numbers& numbers) : context_(context), numbers_(numbers) {}

  bool is_same(const Body& before, const Body& after) {
    image_ = SideTable<NodeId, NodeId>();
    before_ = &before;
    std::size_t next = 0;
    for (NodeId id : before.order) {
      const Node& x = before.nodes[id];
      if (next < after.order.size() && is_same_node(x, after.nodes[after.order[next]])) {
        image_.at(id) = after.order[next++];
      } else if (x.kind != NodeKind::kCall || !number_of(id)) {
        return false;
      }  // a number, which may have become a constant where it is used
    }
    return next == after.order.size();
  }

 private:
  bool is_same_node(const Node& x, const Node& y) {
    return x.kind == y.kind && (x.kind != NodeKind::kCall || x.target == y.target) &&
           is_same_list(x.args, y.args) && is_same_list(x.kwargs, y.kwargs) &&
           context_.args.equal(x.attr, y.attr) && is_same_tensor(x.type, y.type);
  }

  bool is_same_tensor(TypeId x, TypeId y) {
    if (!has_same_elements(context_, x, y)) return false;
    const TensorType *before = tensor_of(context_, x), *after = tensor_of(context_, y);
    return before == nullptr || std::ranges::equal(before->sizes, after->sizes, [&](ExprId p, ExprId q) {
             return numbers_.match(p, q, {}) != Fraction::kNone;
           });
  }

  bool is_same_list(ArgRange x, ArgRange y) {
    if (x.count != y.count) return false;
    for (std::uint32_t i = 0; i < x.count; ++i)
      if (!is_same_arg(context_.args[x][i], context_.args[y][i])) return false;
    return true;
  }

  bool is_same_arg(Arg p, Arg q) {
    if (p.is_tree() && q.is_tree()) return p.kind() == q.kind() && is_same_list(p.children(), q.children());
    if (p.is_node() && q.is_node()) return image_[p.as_node()] == q.as_node();
    const ExprId number = p.is_node()                ? number_of(p.as_node())
                          : p.is(ArgKind::kSymbolic) ? p.as_expr()
                                                     : ExprId();
    return number ? numbers_.match_scalar(number, q, {}) != Fraction::kNone : p == q;
  }

  ExprId number_of(NodeId id) const {
    const TypeId type = before_->nodes[id].type;
    return type && context_.types[type].kind == TypeKind::kScalar ? context_.types[type].expr : ExprId();
  }

  Context& context_;
  Numbers& numbers_;
  const Body* before_ = nullptr;
  SideTable<NodeId, NodeId> image_;
};

// A number that neither A reads nor a part of what A reads: nothing proves what B says of it.
void check_added_numbers(RewriteClaims& claims, const SideTable<StringId, const Symbol*>& known) {
  const Body& body = claims.graph_b().step();
  SideTable<StringId, const Symbol*> own;
  for (const Symbol& symbol : claims.graph_b().symbols)
    if (known[symbol.name] == nullptr) own.at(symbol.name) = &symbol;
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    const ClaimKind kind = claims[id].kind;
    if (node.kind != NodeKind::kCall || node.extra == nullptr || kind == ClaimKind::kWhole ||
        kind == ClaimKind::kPart)
      continue;
    for (const Binding& binding : node.extra->bindings) {
      const Symbol* symbol = own[binding.symbol];
      const bool says =
          symbol != nullptr && (symbol->replaced_by || (symbol->asserts && !symbol->asserts->empty()));
      if (!holds(Condition::kSaysNothingOfOthers, !says))
        claims.fail(id, "rewrite-symbol",
                    fmt::format("reads {}, which the first graph does not; nothing proves what is said of it",
                                claims.graph_b().text(binding.symbol)));
    }
  }
}

// Which nodes of A give its symbols their values.
class BindersOfA {
 public:
  explicit BindersOfA(const RewriteClaims& claims) : claims_(claims), body_(claims.graph_a().step()) {
    for (const Symbol& symbol : claims.graph_a().symbols) known_.insert(symbol.name);
    for (NodeId id : body_.order) {
      if (body_.nodes[id].extra == nullptr) continue;
      for (const Binding& binding : body_.nodes[id].extra->bindings) {
        known_.insert(binding.symbol);
        binders_.at(binding.symbol).push_back({id, binding.path});
      }
    }
  }

  bool is_known(StringId symbol) const { return known_.contains(symbol); }
  NodeId first_of(StringId symbol) const {
    return binders_[symbol].empty() ? NodeId() : binders_[symbol].front().node;
  }

  // Whether a node of B that binds the symbol is all of one that does in A, at the same place of
  // its value.
  bool is_bound_alike(NodeId b, const Binding& binding) const {
    const ArgPool& args = claims_.graph_a().context->args;
    return claims_[b].kind == ClaimKind::kWhole &&
           std::ranges::any_of(binders_[binding.symbol], [&](const Binder& binder) {
             return claims_.same_class(claims_[b].origin, binder.node) &&
                    std::ranges::equal(args[binder.path], args[binding.path]);
           });
  }

 private:
  struct Binder {
    NodeId node;
    ArgRange path;
  };

  const RewriteClaims& claims_;
  const Body& body_;
  IdSet<StringId> known_;  // symbols of A
  SideTable<StringId, std::vector<Binder>> binders_;
};

// Data about an input or output, as its caller reads it; numbers may have become constants.
bool is_same_data(const Context& context, Numbers& numbers, Arg x, Arg y) {
  if (x.is_tree() && y.is_tree()) {
    const auto before = context.args.children(x), after = context.args.children(y);
    return x.kind() == y.kind() && std::ranges::equal(before, after, [&](Arg p, Arg q) {
             return is_same_data(context, numbers, p, q);
           });
  }
  const bool is_number = x.is(ArgKind::kSymbolic) && (y.is(ArgKind::kSymbolic) || y.is_int());
  return is_number ? numbers.match_scalar(x.as_expr(), y, {}) == Fraction::kAll : x == y;
}

bool is_same_data(const Context& context, Numbers& numbers, ArgRange x, ArgRange y) {
  return std::ranges::equal(context.args[x], context.args[y],
                            [&](Arg p, Arg q) { return is_same_data(context, numbers, p, q); });
}

// Of which tensor of which subclass each input and output is a piece, and the like.
void check_data_about(RewriteClaims& claims, Numbers& numbers) {
  const Graph &graph_a = claims.graph_a(), &graph_b = claims.graph_b();
  const auto check = [&](std::string_view what, ArgRange before, ArgRange after) {
    if (!holds(Condition::kSameDataAbout, is_same_data(*graph_a.context, numbers, before, after)))
      claims.fail_graph("rewrite-inputs",
                        fmt::format("what is said of {} is not what the first graph says", what));
  };
  for (std::size_t i = 0; i < graph_a.inputs.size(); ++i)
    check(fmt::format("input '{}'", graph_b.text(graph_b.inputs[i].name)), graph_a.inputs[i].more,
          graph_b.inputs[i].more);
  for (std::size_t i = 0; i < graph_a.outputs.size(); ++i)
    check(fmt::format("output {}", i), graph_a.outputs[i].more, graph_b.outputs[i].more);
}

}  // namespace

void check_inputs(RewriteClaims& claims, Numbers& numbers) {
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
  if (!holds(Condition::kSameInputs, is_same))
    return claims.fail_graph("rewrite-inputs", "the inputs or outputs are not those of the first graph");
  check_data_about(claims, numbers);
}

void check_world(RewriteClaims& claims) {
  static constexpr std::pair<std::string_view, std::string_view> kEntries[] = {
      {"rank", "the graph is of another rank than the first graph"},
      {"world_size", "the graph is for another number of ranks than the first graph"},
      {"global_meshes", "the meshes are not those of the first graph"}};
  const Graph &graph_a = claims.graph_a(), &graph_b = claims.graph_b();
  for (const auto& [key, problem] : kEntries) {
    const Arg* before = find_entry(*graph_a.context, graph_a.info, key);
    const Arg* after = find_entry(*graph_b.context, graph_b.info, key);
    const bool is_left_out = before != nullptr && after == nullptr;
    const bool is_other =
        before != nullptr && after != nullptr && !graph_a.context->args.equal(*before, *after);
    if (!holds(Condition::kSameWorld, !is_left_out && !is_other))
      claims.fail_graph("rewrite-group", std::string(problem));
  }
  const bool is_for_more = is_rank_agnostic(graph_b) && !is_rank_agnostic(graph_a);
  if (!holds(Condition::kSameWorld, !is_for_more))
    claims.fail_graph("rewrite-group", "the graph is for every rank, and the first graph for one");
}

// What both list of the names and members of groups on other ranks, of groups that both have.
void check_listed_groups(RewriteClaims& claims) {
  const Graph &graph_a = claims.graph_a(), &graph_b = claims.graph_b();
  const Context& context = *graph_a.context;
  const Arg* before = find_entry(context, graph_a.info, kRankGroupsKey);
  const Arg* after = find_entry(context, graph_b.info, kRankGroupsKey);
  if (before == nullptr || after == nullptr) return;
  for (const ProcessGroup& group : graph_a.groups) {
    if (graph_b.find_group(group.name) == nullptr || graph_a.find_group(group.name) != &group) continue;
    const Arg* x = find_entry(context, *before, graph_a.text(group.name));
    const Arg* y = find_entry(context, *after, graph_a.text(group.name));
    const bool is_same = x == nullptr || y == nullptr ? x == y : context.args.equal(*x, *y);
    if (!is_same)
      claims.fail_graph("rewrite-group",
                        fmt::format("what group '{}' is on other ranks is not what the first graph says",
                                    graph_a.text(group.name)));
  }
}

void check_groups(RewriteClaims& claims) {
  check_listed_groups(claims);
  const Graph &graph_a = claims.graph_a(), &graph_b = claims.graph_b();
  for (const ProcessGroup& group : graph_a.groups) {
    const ProcessGroup* after = graph_b.find_group(group.name);
    const bool is_first = graph_a.find_group(group.name) == &group;  // what a name means
    if (is_first && after != nullptr && after->axes != group.axes)
      claims.fail_graph(
          "rewrite-group",
          fmt::format("group '{}' is of other mesh axes than in the first graph", graph_a.text(group.name)));
    if (is_first && after != nullptr && after->ranks != group.ranks)
      claims.fail_graph("rewrite-group", fmt::format("group '{}' has ranks [{}], in the first graph [{}]",
                                                     graph_a.text(group.name), fmt::join(after->ranks, ", "),
                                                     fmt::join(group.ranks, ", ")));
    else if (is_first && after != nullptr && !is_one_group(graph_a, group, graph_b, *after))
      claims.fail_graph("rewrite-group", fmt::format("group '{}' has other ranks on other ranks than in the "
                                                     "first graph",
                                                     graph_a.text(group.name)));
  }
}

void check_symbol_facts(RewriteClaims& claims, Numbers& numbers) {
  const Graph &graph_a = claims.graph_a(), &graph_b = claims.graph_b();
  SideTable<StringId, const Symbol*> known;
  for (const Symbol& symbol : graph_a.symbols) known.at(symbol.name) = &symbol;
  check_added_numbers(claims, known);
  for (const Symbol& after : graph_b.symbols) {
    const Symbol* before = known[after.name];
    if (before == nullptr) continue;
    const auto say = [&](std::string_view what) {
      if (holds(Condition::kSaysNoMore, false)) return;
      claims.fail_graph("rewrite-symbol", fmt::format("symbol {} {}, which the first graph does not say",
                                                      graph_b.text(after.name), what));
    };
    const auto print = [&](const std::optional<ExprId>& expr) {
      return expr ? std::string(graph_b.context->exprs.text(*expr)) : std::string("anything");
    };
    const bool is_replaced =
        after.replaced_by &&
        !(before->replaced_by && numbers.is_same_statement(*before->replaced_by, *after.replaced_by));
    if (is_replaced)
      say(fmt::format("is replaced by {}",
                      graph_b.context->exprs.print(graph_b.context->exprs.poly(*after.replaced_by))));
    const auto narrows = [](const std::optional<ExprId>& bound, const std::optional<ExprId>& other) {
      return bound && (!other || *bound != *other);
    };
    if (narrows(after.lower, before->lower) || narrows(after.upper, before->upper))
      say(fmt::format("is from {} to {}", print(after.lower), print(after.upper)));
    if (after.hint && after.hint != before->hint) say(fmt::format("was {}", *after.hint));
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

// What data gives all of a value, other data give a part: its type cannot say which number that is.
void check_numbers_of_parts(RewriteClaims& claims, NodeId id) {
  const Graph &graph_a = claims.graph_a(), &graph_b = claims.graph_b();
  const NodeExtra *before = graph_a.step().nodes[claims[id].origin].extra,
                  *after = graph_b.step().nodes[id].extra;
  if (before == nullptr) return;
  const ArgPool& args = graph_a.context->args;
  for (const Binding& binding : before->bindings) {
    const bool is_bound = after != nullptr && std::ranges::any_of(after->bindings, [&](const Binding& other) {
                            return std::ranges::equal(args[binding.path], args[other.path]);
                          });
    if (!is_bound)
      claims.fail(id, "rewrite-symbol",
                  fmt::format("binds no number of its own for {}, which {} binds",
                              graph_a.text(binding.symbol), claims.name_a(claims[id].origin)));
  }
}

void check_binders(RewriteClaims& claims) {
  const Graph &graph_a = claims.graph_a(), &graph_b = claims.graph_b();
  const BindersOfA binders(claims);
  for (NodeId id : graph_b.step().order) {
    if (claims[id].kind == ClaimKind::kPart) check_numbers_of_parts(claims, id);
    const NodeExtra* extra = graph_b.step().nodes[id].extra;
    if (extra == nullptr) continue;
    for (const Binding& binding : extra->bindings) {
      if (!binders.is_known(binding.symbol) ||
          holds(Condition::kBindsAlike, binders.is_bound_alike(id, binding)))
        continue;
      const NodeId before = binders.first_of(binding.symbol);
      claims.fail(id, "rewrite-symbol",
                  fmt::format("binds {}, which {} binds in the first graph", graph_a.text(binding.symbol),
                              before ? claims.name_a(before) : "no call"));
    }
  }
}

// What a function writes for its caller, no effect of a call says whose op the table has; of others
// nothing is known anyway.
void check_functions_write_nothing(RewriteClaims& claims) {
  IdSet<StringId> told;
  for (const Graph* graph : {&claims.graph_a(), &claims.graph_b()}) {
    const Body& step = graph->step();
    IdSet<StringId> checked;
    const auto check = [&](NodeId input) {
      const Arg attr = step.nodes[input].attr;
      const Body* body = attr.is(ArgKind::kGraph) ? graph->find_body(attr.as_name()) : nullptr;
      if (body == nullptr || !checked.insert(body->name)) return;
      const Effects effects(*graph, *body);
      const bool writes = std::ranges::any_of(body->order, [&](NodeId id) {
        return body->nodes[id].kind == NodeKind::kPlaceholder && effects.is_written(effects.storage_of(id));
      });
      if (!holds(Condition::kFunctionsWriteNothing, !writes) && told.insert(body->name))
        claims.fail_nested(body->name, "rewrite-nested", "may write what its caller has");
    };
    for (NodeId id : step.order)
      if (step.nodes[id].op != nullptr) for_each_input(*graph->context, step.nodes[id], check);
  }
}

void check_nested(RewriteClaims& claims, Numbers& numbers) {
  const Graph &graph_a = claims.graph_a(), &graph_b = claims.graph_b();
  check_functions_write_nothing(claims);
  NestedComparison comparison(*graph_a.context, numbers);
  for (std::size_t i = 1; i < graph_a.bodies.size(); ++i) {
    const Body& before = graph_a.bodies[i];
    const Body* after = graph_b.find_body(before.name);
    const bool is_dropped = after == nullptr;  // nothing of the second graph names it, or that is no graph
    if (!is_dropped && !holds(Condition::kSameFunctions, comparison.is_same(before, *after)))
      claims.fail_nested(before.name, "rewrite-nested", "is not what it is in the first graph");
  }
}

}  // namespace epweave
