#include "compare/rewrite/verify_strides.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "analysis/collectives.h"
#include "compare/rewrite/conditions.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

std::string print_strides(const Context& context, const TensorType& type) {
  std::vector<std::string> strides;
  for (ExprId stride : type.strides) strides.emplace_back(context.exprs.text(stride));
  return fmt::format("{{{}}}", fmt::join(strides, ", "));
}

std::vector<NodeId> list_inputs_of(const Context& context, const Node& node) {
  std::vector<NodeId> inputs;
  for_each_input(context, node, [&](NodeId input) { inputs.push_back(input); });
  return inputs;
}

}  // namespace

StrideCheck::StrideCheck(RewriteClaims& claims, Numbers& numbers, const LaterWrites& in_a,
                         const LaterWrites& in_b)
    : claims_(claims),
      numbers_(numbers),
      context_(*claims.graph_a().context),
      graph_a_(claims.graph_a()),
      graph_b_(claims.graph_b()),
      facts_a_(claims.facts_a()),
      facts_b_(claims.facts_b()),
      later_a_(in_a),
      later_b_(in_b) {}

void StrideCheck::check(NodeId id) {
  const Node &before = graph_a_.step().nodes[claims_[id].origin], &after = graph_b_.step().nodes[id];
  if (may_copy(before) || may_copy(after)) check_showing(id);
  if (reads_layout(graph_b_, after) && !holds(Condition::kLiesAlike, false)) check_operands(id);
  if (after.kind == NodeKind::kOutput) compare_results(id);
}

void StrideCheck::check_piece(NodeId id) {
  if (!may_copy(graph_b_.step().nodes[id]) || !later_b_.any(id)) return;
  if (known_showing_of(facts_b_, graph_b_, id) == Showing::kView) return;
  const NodeId shown = shown_operand(context_, graph_b_.step(), id);
  claims_.fail(id, "rewrite-strides",
               fmt::format("may be a copy of {}, and one of them is written behind it",
                           shown ? claims_.describe(shown) : "another value"));
}

// What is a view in A and a copy in B, or the other way around, may not be written behind it, nor
// what it shows.
void StrideCheck::check_showing(NodeId id) {
  const NodeId origin = claims_[id].origin;
  if (!later_a_.any(origin) && !later_b_.any(id)) return;
  const Showing before = showing_of(facts_a_, graph_a_, origin), after = showing_of(facts_b_, graph_b_, id);
  const NodeId x = shown_operand(context_, graph_a_.step(), origin),
               y = shown_operand(context_, graph_b_.step(), id);
  // The same op on the same value does the same. A part can have the strides of the whole, and not
  // its extents.
  const bool may_both_copy = may_copy(graph_a_.step().nodes[origin]) && may_copy(graph_b_.step().nodes[id]);
  if (may_both_copy && x && y && claims_.is_whole(y) && lies_alike(x, y, {})) return;
  const auto text = [](Showing showing) {
    return showing == Showing::kView ? "a view" : showing == Showing::kCopy ? "a copy" : "a view or a copy";
  };
  const std::string shown = y ? claims_.describe(y) : "another value";
  if (before == after && before != Showing::kUnknown) {
    const bool is_known = known_showing_of(facts_a_, graph_a_, origin) == before &&
                          known_showing_of(facts_b_, graph_b_, id) == after;
    if (!holds(Condition::kShowsAlike, is_known))
      assumptions_.push_back(
          fmt::format("{} is {} of {}, as when traced", claims_.name_b(id), text(after), shown));
    return;
  }
  if (holds(Condition::kShowsAlike, false)) return;
  claims_.fail(id, "rewrite-strides",
               fmt::format("is {} of {}, its origin {} of {}, and one of them is written behind it",
                           text(after), shown, text(before), x ? claims_.name_a(x) : "another value"));
}

void StrideCheck::check_operands(NodeId id) {
  const NodeId origin = claims_[id].origin;
  const Node &before = graph_a_.step().nodes[origin], &after = graph_b_.step().nodes[id];
  const std::vector<NodeId> xs = list_inputs_of(context_, before), ys = list_inputs_of(context_, after);
  if (xs.size() != ys.size()) return;  // CallCheck says so
  if (claims_[id].kind == ClaimKind::kPart && addresses_storage(after))
    return claims_.fail(id, "rewrite-strides",
                        "addresses storage by strides, which no part of it does alike");
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const Share share = claims_.is_whole(ys[i]) ? Share{} : claims_.share_of(id);
    if (!lies_alike(xs[i], ys[i], share)) {
      const auto strides = [&](TypeId type) { return print_type(context_, type); };
      claims_.fail(id, "rewrite-strides",
                   fmt::format("depends on strides, and {} is {}, in the first graph {}",
                               claims_.describe(ys[i]), strides(graph_b_.step().nodes[ys[i]].type),
                               strides(graph_a_.step().nodes[xs[i]].type)));
    } else if (addresses_storage(after)) {
      check_storage(id, xs[i], ys[i]);
    }
  }
}

void StrideCheck::compare_results(NodeId output) {
  const std::vector<NodeId> xs = list_inputs_of(context_, graph_a_.step().nodes[claims_[output].origin]),
                            ys = list_inputs_of(context_, graph_b_.step().nodes[output]);
  IdSet<NodeId> seen;
  for (std::size_t i = 0; i < std::min(xs.size(), ys.size()); ++i)
    if (!lies_alike(xs[i], ys[i], {}) && seen.insert(ys[i]))
      assumptions_.push_back(fmt::format("what takes {} does not depend on its strides: {} for {}",
                                         claims_.name_b(ys[i]),
                                         print_strides(context_, *claims_.tensor_b(ys[i])),
                                         print_strides(context_, *claims_.tensor_a(xs[i]))));
}

// The storage as well as what the operand shows of it: a join has its own.
void StrideCheck::check_storage(NodeId id, NodeId x, NodeId y) {
  const NodeId storage_a = find_storage(graph_a_, facts_a_, x),
               storage_b = find_storage(graph_b_, facts_b_, y);
  const bool is_same = claims_.is_whole(storage_b) &&
                       claims_.same_class(claims_[storage_b].origin, storage_a) &&
                       lies_alike(storage_a, storage_b, {});
  if (!is_same)
    claims_.fail(id, "rewrite-strides",
                 fmt::format("addresses the storage of {}, in the first graph that of {}",
                             claims_.describe(storage_b), claims_.name_a(storage_a)));
}

// The value that has the storage of its own.
NodeId StrideCheck::find_storage(const Graph& graph, Facts& facts, NodeId id) const {
  const bool is_b = &graph == &graph_b_;
  while (!(is_b && is_join(id)) && showing_of(facts, graph, id) != Showing::kCopy) {
    const NodeId shown = shown_operand(context_, graph.step(), id);
    if (!shown) break;
    id = shown;
  }
  return id;
}

bool StrideCheck::is_join(NodeId b) const {
  return claims_[b].kind == ClaimKind::kJoin;
}

bool StrideCheck::lies_alike(NodeId x, NodeId y, Share share) {
  const TensorType *before = claims_.tensor_a(x), *after = claims_.tensor_b(y);
  return before == nullptr || after == nullptr || has_equal_strides(*before, *after, share);
}

bool StrideCheck::has_equal_strides(const TensorType& x, const TensorType& y, Share share) {
  if (x.strides.size() != y.strides.size()) return false;
  for (std::size_t i = 0; i < x.strides.size(); ++i)
    if (is_zero(facts_a_, x.sizes[i])) return true;
  for (std::size_t i = 0; i < x.strides.size(); ++i)
    if (!is_one(facts_a_, x.sizes[i]) && !is_one(facts_b_, y.sizes[i]) &&
        numbers_.match(x.strides[i], y.strides[i], share) == Fraction::kNone)
      return false;
  return true;
}

}  // namespace epweave
