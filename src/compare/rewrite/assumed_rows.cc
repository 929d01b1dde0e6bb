#include "compare/rewrite/assumed_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/row_assumptions.h"

namespace epweave {

void AssumedRows::same_tokens(const Ordered& x, const Ordered& y, NodeId at) {
  if (!paired_.insert(std::minmax(x.frame, y.frame)).second) return;
  list_.push_back(fmt::format("rows of {} and {} are those of the same tokens in each part, at {}",
                              claims_.name_a(x.value), claims_.name_a(y.value), claims_.name_b(at)));
}

void AssumedRows::all_rows(const Ordered& summed, NodeId at) {
  if (!paired_.insert({summed.frame, summed.frame}).second) return;
  const std::string value = claims_.name_a(summed.value), where = claims_.name_b(at);
  if (terms_.is_unknown(summed.frame))
    list_.push_back(fmt::format("the parts of {} together have each of its rows once, at {}", value, where));
  if (terms_.is_sent_by_place(summed.frame))
    list_.push_back(fmt::format("sums over {} are added up over the ranks that its rows are sent to, at {}",
                                value, where));
}

void AssumedRows::alike_on_ranks(NodeId value, NodeId at) {
  if (!alike_.insert(value)) return;
  list_.push_back(fmt::format("{} is the same on all ranks that rows are sent to, at {}",
                              claims_.name_a(value), claims_.name_b(at)));
}

void AssumedRows::one_order_on_ranks(const Ordered& reduced, NodeId at) {
  if (!one_order_.insert(reduced.frame)) return;
  list_.push_back(fmt::format("rows of {} are those of the same tokens on all ranks, at {}",
                              claims_.name_a(reduced.value), claims_.name_b(at)));
}

void AssumedRows::came_back(NodeId at) {
  list_.push_back(fmt::format("rows come back by the numbers by which they went in each part, at {}",
                              claims_.name_b(at)));
}

void AssumedRows::all_elements(NodeId reshape, ExprId before, ExprId after) {
  const Context& context = *claims_.graph_b().context;
  if (!elements_.insert({context.exprs.poly(before), context.exprs.poly(after)}).second) return;
  list_.push_back(fmt::format("a part of {} has all elements that it regroups, as when traced: {} = {}",
                              claims_.name_a(reshape), context.exprs.text(before),
                              context.exprs.text(after)));
}

void AssumedRows::sizes_count(NodeId exchange) {
  const Graph& a = claims_.graph_a();
  list_.push_back(fmt::format("{} is right in parts, though {}", a.text(a.step().nodes[exchange].name),
                              kSplitSizesMayNotCount));
}

void AssumedRows::groups_count() {
  if (groups_count_) return;
  groups_count_ = true;
  list_.emplace_back(kGroupSizesCountRows);
}

}  // namespace epweave
