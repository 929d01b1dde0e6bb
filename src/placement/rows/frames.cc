#include "placement/rows/frames.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/frame_terms.h"
#include "analysis/row_assumptions.h"
#include "analysis/value_numbers.h"
#include "ir/types/dimension.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/indexed_dims.h"
#include "ops/op.h"
#include "ops/sorting.h"
#include "ops/traffic.h"
#include "placement/rows/exchange_counts.h"
#include "placement/rows/frames_refusal.h"
#include "placement/rows/known_rows.h"
#include "placement/rows/row_numbers.h"
#include "placement/rows/row_ops.h"

namespace epweave {
namespace {

class Prover {
 public:
  Prover(const Graph& graph, const Placements& placements, Facts& facts)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        placements_(placements),
        facts_(facts),
        numbers_(graph, *placements.effects),
        terms_(graph, numbers_),
        token_order_(terms_.intern({FrameTerms::kTokenOrder, FrameId(), {}})),
        rows_(graph, placements, numbers_, token_order_),
        indices_(graph, *placements.effects, numbers_, facts) {}

  FrameClaims run() {
    for (const auto [id, node] : walk(context_, body_)) {
      if (placements_.region[id] && placements_.is_divided(id)) visit(id);
      rows_.leave(id);
    }
    return std::move(claims_);
  }

 private:
  Arg arg(const Node& node, std::size_t i) const { return arg_of(context_, node, i); }
  Arg index_of(const Node& node) const { return only_positions(context_, node); }

  void require_no_mix(NodeId id, const OperandRows& a, const OperandRows& b) const {
    if (!a.is_known() || !b.is_known() || a.frame == b.frame) return;
    if (terms_.may_be_same(a.frame, b.frame)) return;
    if (a.frame == token_order_) decline_other_order(graph_, id, a.node, b.node);
    if (b.frame == token_order_) decline_other_order(graph_, id, b.node, a.node);
    decline_two_orders(graph_, id, a.node, b.node);
  }

  // That row i of one belongs to the same token as row i of the other.
  void claim(NodeId id, const OperandRows& a, const OperandRows& b, std::string why) {
    require_no_mix(id, a, b);
    const bool is_same = a.is_known() && b.is_known() && a.frame == b.frame;
    const bool is_any = (a.is_known() && b.is_any()) || (a.is_any() && b.is_known());
    if (is_same || is_any) {
      ++claims_.proved;
      claims_.proved_at.push_back(id);
    } else {
      for (const OperandRows& rows : {a, b})
        if (rows.is_unknown() && rows_.lost_at(rows.node))
          decline_unproved_rows(graph_, id, rows_.lost_at(rows.node));
      claims_.open.push_back({id, std::move(why)});
    }
  }
  void visit(NodeId id) {
    const Node& node = body_.nodes[id];
    const Placement& p = placements_.placement[id];
    rows_.enter(id);
    switch (row_op_of(node)) {
      case RowOp::kNone:
        if (node.op->family == OpFamily::kIota) counted_.insert(id);
        return;
      case RowOp::kConstant:
        if (adds_up(id)) rows_.set_alike(id);
        return;
      case RowOp::kSort: {
        if (!sorts_rows(node, p)) break;
        const OperandRows keys = rows_.of(arg(node, 0));
        if (sorted_rows(p).is_local() && (keys.is_known() || keys.is_any())) rows_.set(id, sorted(id, keys));
        return;
      }
      case RowOp::kPick: {
        if (!picks_rows(id)) break;
        const Arg source = arg(node, 0), index = index_of(node);
        if (p.is_local()) return rows_.set(id, picked(id, source, index));
        if (puts_back(id, source, index)) return;
        break;
      }
      case RowOp::kExchange:
        if (p.is_local()) return rows_.set(id, exchanged(id));
        break;
      case RowOp::kPut:
        return visit_row_write(id,
                               {arg(node, 0), index_of(node), arg(node, indexed_params(*node.op).written)});
      case RowOp::kPutNumber:
        if (p.is_rows() && rows_.placement(index_of(node)).is_local()) return;
        break;
      case RowOp::kProduct:
        if (p.is_partial()) return check_product(id);
        break;
      case RowOp::kReshape:
        if (p.is_local() && p.is_rows() && is_local_rows(arg(node, 0))) return rows_.set(id, regrouped(id));
        break;
      case RowOp::kRowWise:
        break;
    }
    rows_.set(id, common(id));
  }

  // Whether the parts have as many rows together as the whole: not where an extent was rounded or
  // padded.
  bool adds_up(NodeId id) const {
    const TensorType* type = tensor_of(context_, body_.nodes[id].type);
    const Placement& p = placements_.placement[id];
    if (type == nullptr || !p.is_local()) return true;
    const ExprPool& pool = context_.exprs;
    const Poly& extent = pool[pool.poly(type->sizes[static_cast<std::size_t>(p.dim)])];
    return std::all_of(extent.terms.begin(), extent.terms.end(), [&](const auto& term) {
      return !term.atoms.empty() && term.coefficient.is_integer() &&
             std::all_of(term.atoms.begin(), term.atoms.end(),
                         [&](AtomId atom) { return pool[atom].kind == AtomKind::kSymbol; });
    });
  }
  // Of a sort, or of an argsort.
  static const Placement& sorted_rows(const Placement& p) { return p.elements.empty() ? p : p.elements[0]; }
  // Not along another dimension, which leaves the rows where they are.
  bool sorts_rows(const Node& node, const Placement& p) const {
    const TensorType* type = arg(node, 0).is_node() ? tensor(arg(node, 0)) : nullptr;
    return type != nullptr && sorted_rows(p).dim == sorted_dimension(context_, node, type->rank());
  }
  const TensorType* tensor(Arg a) const { return tensor_of(context_, body_.nodes[a.as_node()].type); }

  // Not along another dimension of rows that stay where they are.
  bool picks_rows(NodeId id) const {
    const Node& node = body_.nodes[id];
    if (arg(node, 1).is_list()) return rows_.placement(index_of(node)).is_divided();
    const Arg source = arg(node, 0), dim = arg(node, 1);
    if (!source.is_node() || !dim.is_int()) return true;
    if (placements_.access(id, leaf_of(context_, node, 0)).kind == Access::Kind::kSlice) return false;
    const TensorType* type = tensor_of(context_, body_.nodes[source.as_node()].type);
    const Placement& p = rows_.placement(source);
    if (type == nullptr || !p.is_rows()) return true;
    return find_dimension(dim.as_int(), type->rank()) == static_cast<std::size_t>(p.dim);
  }

  // Rows that were cut into c rows each, or put together again; as they are where there are as
  // many.
  bool is_local_rows(Arg a) const { return rows_.placement(a).is_local() && rows_.placement(a).is_rows(); }
  FrameId regrouped(NodeId id) {
    const NodeId source = arg(body_.nodes[id], 0).as_node();
    const PolyId before = row_count(source), after = row_count(id);
    const FrameId whole = common(id);
    if (before == after || rows_.are_alike(id)) return whole;
    if (const auto pieces = quotient(after, before))
      return whole ? terms_.intern({FrameTerms::kEach, whole, {pieces->index()}}) : FrameId();
    const auto pieces = quotient(before, after);
    if (whole && pieces && terms_[whole].kind == FrameTerms::kEach &&
        terms_[whole].values[0] == pieces->index())
      return terms_[whole].base;
    decline_regrouped_rows(graph_, id, source);
  }
  PolyId row_count(NodeId id) {
    const auto dim = static_cast<std::size_t>(rows_.placement(id).dim);
    return facts_.normalize(tensor_of(context_, body_.nodes[id].type)->sizes[dim]);
  }
  // a / b, where it is a whole number.
  std::optional<PolyId> quotient(PolyId a, PolyId b) {
    ExprPool& pool = facts_.pool();
    if (pool[a].terms.empty() || pool[b].terms.empty()) return std::nullopt;
    const Rational x = pool[a].terms[0].coefficient, y = pool[b].terms[0].coefficient;
    if (x.num <= 0 || y.num <= 0) return std::nullopt;
    const Rational ratio = x * Rational::of(y.den, y.num);
    if (!ratio.is_integer() || pool.scale(b, ratio) != a) return std::nullopt;
    return pool.poly_number(ratio);
  }

  // Rows that are as little known as the operand's, and why.
  FrameId lost(NodeId id, Arg operand) {
    const NodeId at = operand.is_node() ? rows_.lost_at(operand.as_node()) : NodeId();
    rows_.set_lost(id, at);
    return FrameId();
  }

  // Rows that are like each other are numbered as they lie.
  FrameId sorted(NodeId id, const OperandRows& keys) {
    const FrameId base = keys.is_known() ? keys.frame : token_order_;
    const std::uint64_t word = FrameTerms::kNodeWord | numbers_[id].index();
    return base == token_order_ ? terms_.intern({FrameTerms::kSort, FrameId(), {word}})
                                : terms_.intern({FrameTerms::kPick, base, {word}});
  }
  // Whether the index is 0, 1, .. to the last row of the source.
  bool counts_rows(Arg index, Arg source) {
    return indices_.counts(index.as_node()) &&
           facts_.normalize(tensor(index)->sizes[0]) == row_count(source.as_node());
  }
  // Whether `index` puts rows that were picked by `word` back.
  bool undoes(Arg index, std::uint64_t word) const {
    const NodeId order = index.is_node() ? undone(index) : NodeId();
    return order && (word & FrameTerms::kNodeWord) != 0 &&
           indices_.sort_of(Arg::node(order)) == FrameTerms::node_of(word);
  }

  FrameId picked(NodeId id, Arg source, Arg index) {
    if (rows_.placement(source).is_partial()) return FrameId();  // a part's own sum is another one
    if (!rows_.placement(source).is_local())
      return rows_.frame(index);  // row i belongs to whatever index i belongs to
    const FrameId base = rows_.frame(source);
    if (!base) return lost(id, source);
    if (counts_rows(index, source)) return base;
    const FrameTerms::Term& term = terms_[base];
    if (term.kind == FrameTerms::kPick && undoes(index, term.values[0])) return term.base;
    if (term.kind == FrameTerms::kPlace && term.values[0] == indices_.word(terms_, index)) return term.base;
    if (!indices_.sort_of(index) && !indices_.is_permutation(index)) {
      rows_.set_lost(id, id);
      return FrameId();
    }
    return terms_.intern({FrameTerms::kPick, base, {indices_.word(terms_, index)}});
  }

  // Whether a pick takes rows of a part's own order in the order of the tokens: by where a sort put
  // them. They must be in the order of that sort.
  bool puts_back(NodeId id, Arg source, Arg index) {
    const bool is_back = placements_.placement[id].is(PlacementKind::kSplit) && is_local_rows(source) &&
                         rows_.placement(index).is(PlacementKind::kSplit);
    if (!is_back) return false;
    const OperandRows rows = rows_.of(source);
    if (rows.is_known() && terms_[rows.frame].kind == FrameTerms::kSort &&
        undoes(index, terms_[rows.frame].values[0])) {
      ++claims_.proved;
      claims_.proved_at.push_back(id);
      return true;
    }
    if (rows.is_known()) decline_other_order(graph_, id, index.as_node(), rows.node);
    if (const NodeId at = rows_.lost_at(rows.node)) decline_unproved_rows(graph_, id, at);
    claims_.open.push_back(
        {id, "its rows and the places that they are picked from may belong to different tokens"});
    return true;
  }

  // Rows that were not put into an order of their experts before have others sent with them in a
  // part.
  FrameId exchanged(NodeId id) {
    const Node& node = body_.nodes[id];
    const FrameId rows = rows_.frame(arg(node, 0));
    if (rows == token_order_ && arg(node, 2).is_list() && !context_.args.children(arg(node, 2)).empty())
      decline_split_sizes(graph_, id,
                          "its rows are in the order of the tokens, of which a part has others first");
    if (!rows) return lost(id, arg(node, 0));
    if (rows == token_order_) return FrameId();
    const FrameTerms::Term& term = terms_[rows];
    const std::uint64_t group = terms_.word(arg(node, 3));
    const std::vector<std::uint64_t> out = splits(arg(node, 1)), in = splits(arg(node, 2));
    std::vector<std::uint64_t> there = {group}, back = {group};
    there.insert(there.end(), out.begin(), out.end());
    there.insert(there.end(), in.begin(), in.end());
    back.insert(back.end(), in.begin(), in.end());
    back.insert(back.end(), out.begin(), out.end());
    if (term.kind == FrameTerms::kExchange && term.values == back) return term.base;
    if (term.kind == FrameTerms::kExchange) require_no_shuffle(id, term.values, back);
    check_counts(id, term);
    return terms_.intern({FrameTerms::kExchange, rows, std::move(there)});
  }
  // Rows are sent back by as many as came from each rank. The same sizes in another order send
  // others.
  void require_no_shuffle(NodeId id, std::vector<std::uint64_t> came, std::vector<std::uint64_t> back) const {
    std::ranges::sort(came);
    std::ranges::sort(back);
    if (came != back) return;
    decline_split_sizes(graph_, id,
                        "its split sizes are those of the exchange that brought its rows, in another order");
  }
  // That a part sends its rows where the whole sends them.
  void check_counts(NodeId id, const FrameTerms::Term& rows) {
    using Verdict = ExchangeCounts::Verdict;
    const ExchangeCounts counts =
        rows.kind == FrameTerms::kSort
            ? check_exchange_counts(graph_, numbers_, id, FrameTerms::node_of(rows.values[0]))
            : ExchangeCounts();
    if (counts.verdict == Verdict::kProved) claims_.exchanges_at.push_back(id);
    if (counts.verdict == Verdict::kUnknown)
      claims_.open.push_back({id, std::string(kSplitSizesMayNotCount)});
    if (counts.verdict == Verdict::kWrong) decline_split_sizes(graph_, id, counts.why);
  }
  std::vector<std::uint64_t> splits(Arg list) const {
    std::vector<std::uint64_t> result;
    if (list.is_list())
      for (Arg item : context_.args.children(list)) result.push_back(terms_.word(item));
    return result;
  }

  struct RowWrite {
    Arg destination, positions, rows;
  };

  void visit_row_write(NodeId id, const RowWrite& write) {
    const Placement& p = placements_.placement[id];
    // At the same places of every row.
    if (p.is_rows() && !rows_.placement(write.positions).is_divided()) return rows_.set(id, common(id));
    if (p.is_local()) return rows_.set(id, restored(id, write));
    if (!p.is(PlacementKind::kSplit)) return rows_.set(id, common(id));
    if (!rows_.placement(write.positions).is_local()) return;  // along another dimension than the rows
    if (indices_.undone_by(id)) return;                        // says of the part's own rows where they are
    claim(id, rows_.of(write.positions), rows_.of(write.rows),
          "the rows and the positions that they are written to may belong to different tokens");
  }

  // Rows put back to where they were picked from, into rows that say nothing or are the same; or
  // placed anew.
  FrameId restored(NodeId id, const RowWrite& write) {
    const OperandRows rows = rows_.of(write.rows), destination = rows_.of(write.destination);
    if (rows.is_unknown()) return lost(id, write.rows);
    if (!write.positions.is_node()) return {};  // none, or along several dimensions
    rows_.set_lost(id, id);
    if (!rows.is_known()) return {};
    const bool is_unset =
        write.destination.is_node() && leaves_unset(body_.nodes[write.destination.as_node()]);
    const bool says_nothing = destination.is_any() || is_unset;
    if (const NodeId order = undone(write.positions); order && says_nothing)
      return moved_as(rows.frame, order);
    if (indices_.is_written(write.positions.as_node())) return {};
    const FrameTerms::Term& term = terms_[rows.frame];
    const std::uint64_t word = indices_.word(terms_, write.positions);
    const bool is_any = destination.is_any();
    if (term.kind == FrameTerms::kPick && term.values[0] == word &&
        (is_any || destination.frame == term.base))
      return term.base;
    return is_unset && indices_.is_permutation(write.positions)
               ? terms_.intern({FrameTerms::kPlace, rows.frame, {word}})
               : FrameId();
  }

  // The order whose way back the positions are by now.
  NodeId undone(Arg positions) const {
    const NodeId value = positions.as_node();
    return rows_.is_as_made(value) ? indices_.undone_by(value) : NodeId();
  }
  // Rows that are where `order` says that they came from: as if it had picked them.
  FrameId moved_as(FrameId rows, NodeId order) {
    const OperandRows sorted = rows_.of(order);
    if (rows == token_order_ && sorted.is_known() && terms_[sorted.frame].kind == FrameTerms::kSort)
      return sorted.frame;
    return terms_.intern({FrameTerms::kPick, rows, {indices_.word(terms_, Arg::node(order))}});
  }

  void check_product(NodeId id) {
    const Node& node = body_.nodes[id];
    if (rows_.placement(arg(node, 0)).is_local() || rows_.placement(arg(node, 1)).is_local())
      claim(id, rows_.of(arg(node, 0)), rows_.of(arg(node, 1)),
            "the rows that it multiplies may belong to different tokens");
  }

  // Of a row-wise op: the one frame of its operands with rows. None may be in another order.
  FrameId common(NodeId id) {
    OperandRows known, any, unknown;
    NodeId counted, in_blocks;
    bool differ = false;
    std::size_t i = 0;
    for_each_input(*graph_.context, body_.nodes[id], [&](NodeId input) {
      const OperandRows rows = placements_.access(id, i++).kind == Access::Kind::kSlice
                                   ? OperandRows{OperandRows::Order::kKnown, token_order_, input}
                                   : rows_.of(input);
      if (rows.is_any()) any = rows;
      if (rows.is_unknown()) unknown = rows;
      if (rows.is_unknown() && counted_.contains(input)) counted = input;
      const Placement& p = rows_.placement(input);
      if (p.is(PlacementKind::kSplit) && p.blocks && !p.any_order) in_blocks = input;
      if (!rows.is_known()) return;
      require_no_mix(id, known, rows);
      differ |= known.is_known() && known.frame != rows.frame;
      known = rows;
    });
    if (counted && in_blocks && row_op_of(body_.nodes[id]) == RowOp::kRowWise)
      decline_counted_rows(graph_, id, counted, in_blocks);
    if (counted && !known.is_known()) counted_.insert(id);
    if (differ) claims_.open.push_back({id, "its operands may have their rows in different orders"});
    if (unknown.is_unknown() && sums_over_rows(placements_.placement[id]))
      claims_.open.push_back({id,
                              fmt::format("the rows of '{}' may not be those of the whole",
                                          graph_.text(body_.nodes[unknown.node].name)),
                              unknown.node});
    if (any.node && !known.is_known() && !unknown.is_unknown() &&
        row_op_of(body_.nodes[id]) == RowOp::kRowWise)
      rows_.set_alike(id);
    if (unknown.is_unknown()) return lost(id, Arg::node(unknown.node));
    return differ ? FrameId() : known.frame;
  }
  static bool sums_over_rows(const Placement& p) {
    return p.is_partial() || p.is(PlacementKind::kCarried) ||
           std::any_of(p.elements.begin(), p.elements.end(), sums_over_rows);
  }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  const Placements& placements_;
  Facts& facts_;
  ValueNumbers numbers_;
  FrameTerms terms_;
  const FrameId token_order_;
  KnownRows rows_;
  RowNumbers indices_;
  IdSet<NodeId> counted_;  // made of 0, 1, .. alone, row by row
  FrameClaims claims_;
};

}  // namespace

FrameClaims prove_frames(const Graph& graph, const Placements& placements, Facts& facts) {
  return Prover(graph, placements, facts).run();
}

}  // namespace epweave
