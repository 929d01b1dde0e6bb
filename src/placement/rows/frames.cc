#include "placement/rows/frames.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/effects.h"
#include "analysis/frame_terms.h"
#include "analysis/row_assumptions.h"
#include "analysis/value_numbers.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/indexed_dims.h"
#include "ops/number_ops.h"
#include "ops/op.h"
#include "ops/sorting.h"
#include "ops/traffic.h"
#include "placement/rows/exchange_counts.h"
#include "placement/rows/frames_refusal.h"
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
        effects_(*placements.effects),
        numbers_(graph, effects_),
        terms_(graph, numbers_),
        contents_(numbers_, effects_) {
    token_order_ = terms_.intern({FrameTerms::kTokenOrder, FrameId(), {}});
  }

  FrameClaims run() {
    find_permutations();
    for (const auto [id, node] : walk(context_, body_)) {
      const bool is_divided = placements_.region[id] && placements_.is_divided(id);
      if (is_divided) visit(id);
      contents_.note_writes_of(id);
      if (is_divided) content_when_made_.at(id) = contents_[id];
    }
    return std::move(claims_);
  }

 private:
  Arg arg(const Node& node, std::size_t i) const { return arg_of(context_, node, i); }
  Arg index_of(const Node& node) const { return only_positions(context_, node); }
  // What is known of the order of an operand's rows.
  struct Rows {
    enum class Order : std::uint8_t { kNoRows, kAny, kUnknown, kKnown };
    Order order = Order::kNoRows;
    FrameId frame;  // of kKnown
    NodeId node;
    bool is_known() const { return order == Order::kKnown; }
    bool is_unknown() const { return order == Order::kUnknown; }
  };

  Rows rows_of(NodeId input) const {
    using Order = Rows::Order;
    const bool is_as_made = contents_[input] == content_when_made_[input];
    const Placement& p = placements_.seen_from(input, region_);
    if (constants_.contains(input) && is_as_made && placements_.shares_parts(input, region_))
      return {Order::kAny, {}, input};
    if (p.is(PlacementKind::kSplit)) return {Order::kKnown, token_order_, input};
    const bool is_tensor = tensor_of(context_, body_.nodes[input].type) != nullptr;
    const bool is_own = (p.is_local() && is_tensor) || p.is(PlacementKind::kTuple);
    if (!is_own) return {Order::kNoRows, {}, input};
    if (frame_[input] && is_as_made) return {Order::kKnown, frame_[input], input};
    return {p.is_local() ? Order::kUnknown : Order::kNoRows, {}, input};
  }
  Rows rows_of(Arg a) const { return a.is_node() ? rows_of(a.as_node()) : Rows(); }
  FrameId frame(Arg a) const { return rows_of(a).frame; }
  const Placement& placement(Arg a) const {
    static const Placement kWhole;
    return a.is_node() ? placements_.seen_from(a.as_node(), region_) : kWhole;
  }
  bool is_written(NodeId value) const { return effects_.is_written(effects_.storage_of(value)); }
  bool is_uninitialised(Arg a) const {
    const OpInfo* op = a.is_node() ? body_.nodes[a.as_node()].op : nullptr;
    return op != nullptr && leaves_unset(*op);
  }

  void find_permutations() {
    for (const auto [id, node] : walk(body_)) {
      const bool is_written_to = has_family(node, OpFamily::kIndexPut) && node.op->writes;
      const Arg index = is_written_to ? index_of(node) : Arg::none();
      if (index.is_node() && is_uninitialised(arg(node, 0)) && !is_written(index.as_node()))
        permutations_.insert(numbers_[index.as_node()]);
    }
  }
  bool is_permutation(Arg index) const {
    return index.is_node() && !is_written(index.as_node()) &&
           permutations_.contains(numbers_[index.as_node()]);
  }

  void require_no_mix(NodeId id, const Rows& a, const Rows& b) const {
    if (!a.is_known() || !b.is_known() || a.frame == b.frame) return;
    if (terms_.may_be_same(a.frame, b.frame)) return;
    if (a.frame == token_order_) decline_other_order(graph_, id, a.node, b.node);
    if (b.frame == token_order_) decline_other_order(graph_, id, b.node, a.node);
    decline_two_orders(graph_, id, a.node, b.node);
  }

  // That row i of one belongs to the same token as row i of the other.
  void claim(NodeId id, const Rows& a, const Rows& b, std::string why) {
    using Order = Rows::Order;
    require_no_mix(id, a, b);
    const bool is_same = a.is_known() && b.is_known() && a.frame == b.frame;
    const bool is_any = (a.is_known() && b.order == Order::kAny) || (a.order == Order::kAny && b.is_known());
    if (is_same || is_any) {
      ++claims_.proved;
      claims_.proved_at.push_back(id);
    } else {
      for (const Rows& rows : {a, b})
        if (rows.is_unknown() && lost_at_[rows.node]) decline_unproved_rows(graph_, id, lost_at_[rows.node]);
      claims_.open.push_back({id, std::move(why)});
    }
  }
  void visit(NodeId id) {
    const Node& node = body_.nodes[id];
    const Placement& p = placements_.placement[id];
    region_ = placements_.region[id];
    switch (row_op_of(node)) {
      case RowOp::kNone:
        if (node.op->family == OpFamily::kIota) counted_.insert(id);
        return;
      case RowOp::kConstant:
        if (adds_up(id)) constants_.insert(id);
        return;
      case RowOp::kSort:
        if (!sorts_rows(node, p)) break;
        if (sorted_rows(p).is_local() && rows_of(arg(node, 0)).is_known()) set(id, sorted(id));
        return;
      case RowOp::kPick: {
        if (!picks_rows(id)) break;
        const Arg source = arg(node, 0), index = index_of(node);
        if (p.is_local()) return set(id, picked(id, source, index));
        if (puts_back(id, source, index)) return;
        break;
      }
      case RowOp::kExchange:
        if (p.is_local()) return set(id, exchanged(id));
        break;
      case RowOp::kPut:
        return visit_row_write(id,
                               {arg(node, 0), index_of(node), arg(node, indexed_params(*node.op).written)});
      case RowOp::kPutNumber:
        if (p.is_rows() && placement(index_of(node)).is_local()) return;
        break;
      case RowOp::kProduct:
        if (p.is_partial()) return check_product(id);
        break;
      case RowOp::kReshape:
        if (p.is_local() && p.is_rows() && is_local_rows(arg(node, 0))) return set(id, regrouped(id));
        break;
      case RowOp::kRowWise:
        break;
    }
    set(id, common(id));
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

  void set(NodeId id, FrameId frame) { frame_.at(id) = frame; }

  // Not along another dimension of rows that stay where they are.
  bool picks_rows(NodeId id) const {
    const Node& node = body_.nodes[id];
    if (arg(node, 1).is_list()) return placement(index_of(node)).is_divided();
    const Arg source = arg(node, 0), dim = arg(node, 1);
    if (!source.is_node() || !dim.is_int()) return true;
    if (placements_.access(id, leaf_of(context_, node, 0)).kind == Access::Kind::kSlice) return false;
    const TensorType* type = tensor_of(context_, body_.nodes[source.as_node()].type);
    const Placement& p = placement(source);
    if (type == nullptr || !p.is_rows()) return true;
    return p.dim ==
           (dim.as_int() < 0 ? dim.as_int() + static_cast<std::int64_t>(type->rank()) : dim.as_int());
  }

  // Rows that were cut into c rows each, or put together again; as they are where there are as
  // many.
  bool is_local_rows(Arg a) const { return placement(a).is_local() && placement(a).is_rows(); }
  FrameId regrouped(NodeId id) {
    const NodeId source = arg(body_.nodes[id], 0).as_node();
    const PolyId before = row_count(source), after = row_count(id);
    const FrameId whole = common(id);
    if (before == after || constants_.contains(id)) return whole;
    if (const auto pieces = quotient(after, before))
      return whole ? terms_.intern({FrameTerms::kEach, whole, {pieces->index()}}) : FrameId();
    const auto pieces = quotient(before, after);
    if (whole && pieces && terms_[whole].kind == FrameTerms::kEach &&
        terms_[whole].values[0] == pieces->index())
      return terms_[whole].base;
    decline_regrouped_rows(graph_, id, source);
  }
  PolyId row_count(NodeId id) {
    const auto dim = static_cast<std::size_t>(placements_.seen_from(id, region_).dim);
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
    const NodeId at = operand.is_node() ? lost_at_[operand.as_node()] : NodeId();
    lost_at_.at(id) = at;
    return FrameId();
  }

  FrameId sorted(NodeId id) {
    const FrameId base = frame(arg(body_.nodes[id], 0));
    const std::uint64_t word = FrameTerms::kNodeWord | numbers_[id].index();
    return base == token_order_ ? terms_.intern({FrameTerms::kSort, FrameId(), {word}})
                                : terms_.intern({FrameTerms::kPick, base, {word}});
  }
  // The sort whose order a value is.
  NodeId sort_of(Arg order) const {
    if (!order.is_node() || is_written(order.as_node())) return {};
    const NodeId sort = sort_of_order(context_, body_, order.as_node());
    return sort ? numbers_[sort] : NodeId();
  }
  // An order by its sort, else a value.
  std::uint64_t index_word(Arg index) const {
    const NodeId sort = sort_of(index);
    return sort ? FrameTerms::kNodeWord | sort.index() : terms_.word(index);
  }
  // Whether the index is 0, 1, .. to the last row of the source.
  bool counts_rows(Arg index, Arg source) {
    if (!counts_from_zero(context_, body_.nodes[index.as_node()]) || is_written(index.as_node()))
      return false;
    return facts_.normalize(tensor(index)->sizes[0]) == row_count(source.as_node());
  }
  // Whether `index` puts rows that were picked by `word` back.
  bool undoes(Arg index, std::uint64_t word) const {
    const NodeId order = index.is_node() ? undone(index) : NodeId();
    return order && (word & FrameTerms::kNodeWord) != 0 &&
           sort_of(Arg::node(order)) == FrameTerms::node_of(word);
  }

  FrameId picked(NodeId id, Arg source, Arg index) {
    if (placement(source).is_partial()) return FrameId();    // a part's own sum is another one
    if (!placement(source).is_local()) return frame(index);  // row i belongs to whatever index i belongs to
    const FrameId base = frame(source);
    if (!base) return lost(id, source);
    if (counts_rows(index, source)) return base;
    const FrameTerms::Term& term = terms_[base];
    if (term.kind == FrameTerms::kPick && undoes(index, term.values[0])) return term.base;
    if (term.kind == FrameTerms::kPlace && term.values[0] == index_word(index)) return term.base;
    if (!sort_of(index) && !is_permutation(index)) {
      lost_at_.at(id) = id;
      return FrameId();
    }
    return terms_.intern({FrameTerms::kPick, base, {index_word(index)}});
  }

  // Whether a pick takes rows of a part's own order in the order of the tokens: by where a sort put
  // them. They must be in the order of that sort.
  bool puts_back(NodeId id, Arg source, Arg index) {
    const bool is_back = placements_.placement[id].is(PlacementKind::kSplit) && is_local_rows(source) &&
                         placement(index).is(PlacementKind::kSplit);
    if (!is_back) return false;
    const Rows rows = rows_of(source);
    if (rows.is_known() && terms_[rows.frame].kind == FrameTerms::kSort &&
        undoes(index, terms_[rows.frame].values[0])) {
      ++claims_.proved;
      claims_.proved_at.push_back(id);
      return true;
    }
    if (rows.is_known()) decline_other_order(graph_, id, index.as_node(), rows.node);
    decline_unproved_rows(graph_, id, lost_at_[rows.node] ? lost_at_[rows.node] : rows.node);
  }

  // Rows that were not put into an order of their experts before have others sent with them in a
  // part.
  FrameId exchanged(NodeId id) {
    const Node& node = body_.nodes[id];
    const FrameId rows = frame(arg(node, 0));
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
    if (p.is_rows() && !placement(write.positions).is_divided()) return set(id, common(id));
    if (p.is_local()) return set(id, restored(id, write));
    if (!p.is(PlacementKind::kSplit)) return set(id, common(id));
    if (!placement(write.positions).is_local()) return;  // along another dimension than the rows
    if (undone_by(id)) return;                           // says of the part's own rows where they are
    claim(id, rows_of(write.positions), rows_of(write.rows),
          "the rows and the positions that they are written to may belong to different tokens");
  }

  // Rows put back to where they were picked from, into rows that say nothing or are the same; or
  // placed anew.
  FrameId restored(NodeId id, const RowWrite& write) {
    const Rows rows = rows_of(write.rows), destination = rows_of(write.destination);
    if (rows.is_unknown()) return lost(id, write.rows);
    if (!write.positions.is_node()) return {};  // none, or along several dimensions
    lost_at_.at(id) = id;
    if (!rows.is_known()) return {};
    const bool says_nothing = destination.order == Rows::Order::kAny || is_uninitialised(write.destination);
    if (const NodeId order = undone(write.positions); order && says_nothing)
      return moved_as(rows.frame, order);
    if (is_written(write.positions.as_node())) return {};
    const FrameTerms::Term& term = terms_[rows.frame];
    const std::uint64_t word = index_word(write.positions);
    const bool is_any = destination.order == Rows::Order::kAny;
    if (term.kind == FrameTerms::kPick && term.values[0] == word &&
        (is_any || destination.frame == term.base))
      return term.base;
    return is_uninitialised(write.destination) && is_permutation(write.positions)
               ? terms_.intern({FrameTerms::kPlace, rows.frame, {word}})
               : FrameId();
  }

  // The order whose way back a value is when it is made.
  NodeId undone_by(NodeId value) const {
    const auto inverse = inverse_order(context_, facts_, body_, value);
    if (!inverse || is_written(inverse->order)) return {};
    return inverse->rows && is_written(inverse->rows) ? NodeId() : inverse->order;
  }
  // The order whose way back the positions are by now.
  NodeId undone(Arg positions) const {
    const NodeId value = positions.as_node();
    return contents_[value] == content_when_made_[value] ? undone_by(value) : NodeId();
  }
  // Rows that are where `order` says that they came from: as if it had picked them.
  FrameId moved_as(FrameId rows, NodeId order) {
    const Rows sorted = rows_of(order);
    if (rows == token_order_ && sorted.is_known() && terms_[sorted.frame].kind == FrameTerms::kSort)
      return sorted.frame;
    return terms_.intern({FrameTerms::kPick, rows, {index_word(Arg::node(order))}});
  }

  void check_product(NodeId id) {
    const Node& node = body_.nodes[id];
    if (placement(arg(node, 0)).is_local() || placement(arg(node, 1)).is_local())
      claim(id, rows_of(arg(node, 0)), rows_of(arg(node, 1)),
            "the rows that it multiplies may belong to different tokens");
  }

  // Of a row-wise op: the one frame of its operands with rows. None may be in another order.
  FrameId common(NodeId id) {
    Rows known, any, unknown;
    NodeId counted, in_blocks;
    bool differ = false;
    std::size_t i = 0;
    for_each_input(*graph_.context, body_.nodes[id], [&](NodeId input) {
      const Rows rows = placements_.access(id, i++).kind == Access::Kind::kSlice
                            ? Rows{Rows::Order::kKnown, token_order_, input}
                            : rows_of(input);
      if (rows.order == Rows::Order::kAny) any = rows;
      if (rows.is_unknown()) unknown = rows;
      if (rows.is_unknown() && counted_.contains(input)) counted = input;
      const Placement& p = placements_.seen_from(input, region_);
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
      constants_.insert(id);
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
  const Effects& effects_;
  ValueNumbers numbers_;
  FrameTerms terms_;
  StorageContents contents_;                            // up to the node that is visited
  SideTable<NodeId, std::uint32_t> content_when_made_;  // of a value's storage
  RegionId region_;                                     // of the node that is visited
  SideTable<NodeId, FrameId> frame_;
  // The pick or write, by one index, that left nothing known of a value's rows.
  SideTable<NodeId, NodeId> lost_at_;
  FrameId token_order_;
  IdSet<NodeId> constants_;
  IdSet<NodeId> counted_;  // made of 0, 1, .. alone, row by row
  IdSet<NodeId> permutations_;
  FrameClaims claims_;
};

}  // namespace

FrameClaims prove_frames(const Graph& graph, const Placements& placements, Facts& facts) {
  return Prover(graph, placements, facts).run();
}

}  // namespace epweave
