#include "analysis/frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/effects.h"
#include "analysis/value_numbers.h"
#include "ir/op.h"
#include "ir/walk.h"

namespace epweave {
namespace {

using FrameId = Id<struct FrameTag>;

// What an op does with rows, as far as frames are concerned.
enum class RowOp : std::uint8_t {
  kRowWise,   // row i of the result belongs to row i of the operands
  kConstant,  // all rows of the result are equal
  kNone,      // has no rows of operands: counts, reads a size
  kSort,
  kIndex,         // x[i], the index in a list
  kGather,        // x[i], the index the argument behind the dimension
  kExchange,      // all-to-all
  kPut,           // rows written to positions: self, [positions], rows
  kScatter,       // self, positions, rows
  kScatterAlong,  // self, dimension, positions, rows
  kScatterValue,  // self, dimension, positions: one number written
  kProduct,       // may sum over rows
};

RowOp find_row_op(std::string_view target) {
  for (const std::string_view maker : {"aten.new_", "aten.zeros", "aten.ones", "aten.full", "aten.empty"})
    if (target.starts_with(maker)) return RowOp::kConstant;
  for (const std::string_view maker : {"aten.arange", "aten.sym_", "aten.repeat_interleave"})
    if (target.starts_with(maker)) return RowOp::kNone;
  static constexpr std::pair<std::string_view, RowOp> kOps[] = {
      {"aten.sort.stable", RowOp::kSort},
      {"aten.index.Tensor", RowOp::kIndex},
      {"aten.gather.default", RowOp::kGather},
      {"aten.index_select.default", RowOp::kGather},
      {"_c10d_functional.all_to_all_single.default", RowOp::kExchange},
      {"aten.index_put.default", RowOp::kPut},
      {"aten.index_put_.default", RowOp::kPut},
      {"torchtitan.deterministic_scatter_add.default", RowOp::kScatter},
      {"aten.scatter_add.default", RowOp::kScatterAlong},
      {"aten.scatter.value", RowOp::kScatterValue},
      {"aten.scatter_.value", RowOp::kScatterValue},
      {"aten.mm.default", RowOp::kProduct},
      {"aten.bmm.default", RowOp::kProduct},
      {"aten._grouped_mm.default", RowOp::kProduct},
  };
  for (const auto& [name, op] : kOps)
    if (name == target) return op;
  return RowOp::kRowWise;
}

RowOp row_op_of(const Node& node) {
  static const std::vector<RowOp> kTable = [] {
    std::vector<RowOp> table;
    for (const OpInfo& op : ops()) table.push_back(find_row_op(op.target));
    return table;
  }();
  return node.op == nullptr ? RowOp::kRowWise : kTable[node.op->index];
}

class Prover {
 public:
  Prover(const Graph& graph, const Placements& placements)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        placements_(placements),
        effects_(*placements.effects),
        numbers_(graph, effects_),
        writes_(effects_) {
    token_order_ = intern({kTokenOrder, FrameId(), {}});
  }

  FrameClaims run() {
    find_permutations();
    for (const auto [id, node] : walk(context_, body_)) {
      const bool is_divided = placements_.region[id] && placements_.is_divided(id);
      if (is_divided) visit(id);
      writes_.count_writes_of(id);
      if (is_divided) written_before_.at(id) = writes_[id];
    }
    return std::move(claims_);
  }

 private:
  enum Kind : std::uint32_t { kTokenOrder, kSort, kPick, kExchange };
  struct Term {
    Kind kind;
    FrameId base;
    std::vector<std::uint32_t> values;
    friend auto operator<=>(const Term&, const Term&) = default;
  };

  FrameId intern(Term term) {
    auto [found, is_new] = ids_.try_emplace(std::move(term), FrameId(terms_.size()));
    if (is_new) terms_.push_back(&found->first);
    return found->second;
  }

  Arg arg(const Node& node, std::size_t i) const {
    const auto args = context_.args[node.args];
    return i < args.size() ? args[i] : Arg::none();
  }
  // The single element of an index list, or none.
  Arg only_item(Arg list) const {
    if (!list.is_list()) return Arg::none();
    const auto items = context_.args.children(list);
    return items.size() == 1 ? items[0] : Arg::none();
  }
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
    const bool is_as_made = writes_[input] == written_before_[input];
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
  std::uint32_t number(Arg a) const { return a.is_node() ? numbers_[a.as_node()].index() : UINT32_MAX; }
  const Placement& placement(Arg a) const {
    static const Placement kWhole;
    return a.is_node() ? placements_.seen_from(a.as_node(), region_) : kWhole;
  }
  bool is_written(NodeId value) const { return written_.contains(effects_.storage_of(value)); }
  bool is_uninitialised(Arg a) const {
    static const OpInfo* const new_empty = find_op("aten.new_empty.default");
    return a.is_node() && body_.nodes[a.as_node()].op == new_empty;
  }

  void find_permutations() {
    static const OpInfo* const index_put = find_op("aten.index_put_.default");
    for (NodeId id : body_.order)
      for (const StorageAccess& access : effects_.accesses_of(id))
        if (access.writes) written_.insert(access.storage);
    for (const auto [id, node] : walk(body_)) {
      const Arg index = node.op == index_put ? only_item(arg(node, 1)) : Arg::none();
      if (index.is_node() && is_uninitialised(arg(node, 0)) && !is_written(index.as_node()))
        permutations_.insert(numbers_[index.as_node()]);
    }
  }
  bool is_permutation(Arg index) const {
    return index.is_node() && !is_written(index.as_node()) &&
           permutations_.contains(numbers_[index.as_node()]);
  }

  // Rows that are in token order, and rows that are sorted, picked or exchanged: never in one order.
  [[noreturn]] void decline(NodeId id, NodeId ordered, NodeId moved) const {
    const Node& node = body_.nodes[id];
    const std::string_view moved_name = graph_.text(body_.nodes[moved].name);
    throw PassError(
        "chunk.mixed-orders",
        fmt::format("{} cannot run on parts of the tokens: it pairs the rows of '{}', which are in the order "
                    "of the tokens, with those of '{}', which were put into another order",
                    graph_.text(node.target), graph_.text(body_.nodes[ordered].name), moved_name),
        site_of(graph_, node),
        fmt::format("bring '{}' back into the order of the tokens before, or select roots that leave this "
                    "operation outside",
                    moved_name));
  }
  void require_no_mix(NodeId id, const Rows& a, const Rows& b) const {
    if (!a.is_known() || !b.is_known() || a.frame == b.frame) return;
    if (a.frame == token_order_) decline(id, a.node, b.node);
    if (b.frame == token_order_) decline(id, b.node, a.node);
  }

  // That row i of one belongs to the same token as row i of the other.
  void claim(NodeId id, const Rows& a, const Rows& b, std::string why) {
    using Order = Rows::Order;
    require_no_mix(id, a, b);
    const bool is_same = a.is_known() && b.is_known() && a.frame == b.frame;
    const bool is_any = (a.is_known() && b.order == Order::kAny) || (a.order == Order::kAny && b.is_known());
    if (is_same || is_any) {
      ++claims_.proved;
    } else {
      claims_.open.push_back({id, std::move(why)});
    }
  }

  void visit(NodeId id) {
    const Node& node = body_.nodes[id];
    const Placement& p = placements_.placement[id];
    region_ = placements_.region[id];
    switch (row_op_of(node)) {
      case RowOp::kNone:
        return;
      case RowOp::kConstant:
        constants_.insert(id);
        return;
      case RowOp::kSort:
        if (!p.elements.empty() && p.elements[0].is_local() && rows_of(arg(node, 0)).is_known())
          set(id, intern({kSort, FrameId(), {numbers_[id].index()}}));
        return;
      case RowOp::kIndex:
        if (p.is_local() && placement(only_item(arg(node, 1))).is_divided())
          return set(id, picked(arg(node, 0), only_item(arg(node, 1))));
        break;
      case RowOp::kGather:
        if (p.is_local() && gathers_rows(id)) return set(id, picked(arg(node, 0), arg(node, 2)));
        break;
      case RowOp::kExchange:
        if (p.is_local()) return set(id, exchanged(node));
        break;
      case RowOp::kPut:
        return visit_row_write(id, {arg(node, 0), only_item(arg(node, 1)), arg(node, 2)});
      case RowOp::kScatter:
        return visit_row_write(id, {arg(node, 0), arg(node, 1), arg(node, 2)});
      case RowOp::kScatterAlong:
        return visit_row_write(id, {arg(node, 0), arg(node, 2), arg(node, 3)});
      case RowOp::kScatterValue:
        if (p.is_rows() && placement(arg(node, 2)).is_local()) return;
        break;
      case RowOp::kProduct:
        if (p.is_partial()) return check_product(id);
        break;
      case RowOp::kRowWise:
        break;
    }
    set(id, common(id));
  }

  void set(NodeId id, FrameId frame) { frame_.at(id) = frame; }

  // Not along another dimension of rows that stay where they are.
  bool gathers_rows(NodeId id) const {
    const Node& node = body_.nodes[id];
    const Arg source = arg(node, 0), dim = arg(node, 1);
    if (!source.is_node() || !dim.is_int()) return true;
    if (placements_.access(id, 0).kind == Access::Kind::kSlice) return false;
    const TensorType* type = tensor_of(context_, body_.nodes[source.as_node()].type);
    const Placement& p = placement(source);
    if (type == nullptr || !p.is_rows()) return true;
    return p.dim ==
           (dim.as_int() < 0 ? dim.as_int() + static_cast<std::int64_t>(type->rank()) : dim.as_int());
  }

  FrameId picked(Arg source, Arg index) {
    if (placement(source).is_partial()) return FrameId();    // a part's own sum is another one
    if (!placement(source).is_local()) return frame(index);  // row i belongs to whatever index i belongs to
    const FrameId base = frame(source);
    if (!base || !is_permutation(index)) return FrameId();
    return intern({kPick, base, {number(index)}});
  }

  // Rows that were not put into an order of their experts before have others sent with them in a part.
  FrameId exchanged(const Node& node) {
    const FrameId rows = frame(arg(node, 0));
    if (!rows || rows == token_order_) return FrameId();
    std::vector<std::uint32_t> out = splits(arg(node, 1)), in = splits(arg(node, 2));
    const Term& term = *terms_[rows.index()];
    std::vector<std::uint32_t> there = out, back = in;
    there.insert(there.end(), in.begin(), in.end());
    back.insert(back.end(), out.begin(), out.end());
    if (term.kind == kExchange && term.values == back) return term.base;
    return intern({kExchange, rows, std::move(there)});
  }
  std::vector<std::uint32_t> splits(Arg list) const {
    std::vector<std::uint32_t> result;
    if (list.is_list())
      for (Arg item : context_.args.children(list))
        result.push_back(item.is_int() ? static_cast<std::uint32_t>(item.as_int()) : number(item));
    return result;
  }

  struct RowWrite {
    Arg destination, positions, rows;
  };

  void visit_row_write(NodeId id, const RowWrite& write) {
    const Placement& p = placements_.placement[id];
    if (p.is_local()) return set(id, restored(write));
    if (!p.is(PlacementKind::kSplit)) return set(id, common(id));
    if (!placement(write.positions).is_local()) return;  // along another dimension than the rows
    claim(id, rows_of(write.positions), rows_of(write.rows),
          "the rows and the positions that they are written to may belong to different tokens");
  }

  // Rows put back to where they were picked from, into rows that say nothing or are the same.
  FrameId restored(const RowWrite& write) const {
    const Rows rows = rows_of(write.rows), destination = rows_of(write.destination);
    if (!rows.is_known() || !write.positions.is_node() || is_written(write.positions.as_node())) return {};
    const Term& term = *terms_[rows.frame.index()];
    if (term.kind != kPick || term.values[0] != number(write.positions)) return {};
    return destination.order == Rows::Order::kAny || destination.frame == term.base ? term.base : FrameId();
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
    bool differ = false;
    std::size_t i = 0;
    for_each_input(*graph_.context, body_.nodes[id], [&](NodeId input) {
      const Rows rows = placements_.access(id, i++).kind == Access::Kind::kSlice
                            ? Rows{Rows::Order::kKnown, token_order_, input}
                            : rows_of(input);
      if (rows.order == Rows::Order::kAny) any = rows;
      if (rows.is_unknown()) unknown = rows;
      if (!rows.is_known()) return;
      require_no_mix(id, known, rows);
      differ |= known.is_known() && known.frame != rows.frame;
      known = rows;
    });
    if (differ) claims_.open.push_back({id, "its operands may have their rows in different orders"});
    if (unknown.is_unknown() && sums_over_rows(placements_.placement[id]))
      claims_.open.push_back({id, fmt::format("the rows of '{}' may not be those of the whole",
                                              graph_.text(body_.nodes[unknown.node].name))});
    if (any.node && !known.is_known() && !unknown.is_unknown() &&
        row_op_of(body_.nodes[id]) == RowOp::kRowWise)
      constants_.insert(id);
    return differ || unknown.is_unknown() ? FrameId() : known.frame;
  }
  static bool sums_over_rows(const Placement& p) {
    return p.is_partial() || p.is(PlacementKind::kCarried) ||
           std::any_of(p.elements.begin(), p.elements.end(), sums_over_rows);
  }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  const Placements& placements_;
  const Effects& effects_;
  ValueNumbers numbers_;
  WriteCounts writes_;                               // up to the node that is visited
  SideTable<NodeId, std::uint32_t> written_before_;  // writes to a value's storage until it was made
  RegionId region_;                                  // of the node that is visited
  std::map<Term, FrameId> ids_;
  std::vector<const Term*> terms_;
  SideTable<NodeId, FrameId> frame_;
  FrameId token_order_;
  IdSet<NodeId> constants_;
  IdSet<NodeId> written_;  // storages
  IdSet<NodeId> permutations_;
  FrameClaims claims_;
};

}  // namespace

FrameClaims prove_frames(const Graph& graph, const Placements& placements) {
  return Prover(graph, placements).run();
}

}  // namespace epweave
