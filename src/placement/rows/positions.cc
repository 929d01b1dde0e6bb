#include "placement/rows/positions.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/indexed_dims.h"
#include "ops/number_ops.h"
#include "ops/op.h"
#include "ops/sorting.h"
#include "placement/placement_blocks.h"

namespace epweave {
namespace {

// What an op does with numbers.
enum class NumberOp : std::uint8_t {
  kComputes,  // with the values of its operands
  kTypeOnly,  // reads no values
  kKeeps,     // moves them
  kCast,
  kSum,        // or difference
  kQuotient,   // rounded
  kRemainder,  // not negative
  // Those below may make own numbers of none.
  kArange,
  kElement,
  kSort,
  kRepeat,  // numbers the counts that it is given
  kPick,    // from the first operand, at positions
  kPut,     // at positions of the first operand
};

NumberOp find_arithmetic(const OpInfo& op) {
  switch (number_rule(op)) {
    case NumberRule::kQuotient:
      return NumberOp::kQuotient;
    case NumberRule::kRemainder:
      return NumberOp::kRemainder;
    case NumberRule::kNone:
      break;
  }
  return op.linearity == Linearity::kSum && !op.writes ? NumberOp::kSum : NumberOp::kComputes;
}

NumberOp find_number_op(const OpInfo& op) {
  if (op.reads_types_only) return NumberOp::kTypeOnly;
  if (takes_rows(op.family)) return NumberOp::kPick;
  if (puts_rows(op.family)) return NumberOp::kPut;
  if (is_arange(op)) return NumberOp::kArange;
  if (op.family == OpFamily::kSort) return NumberOp::kSort;
  if (op.family == OpFamily::kRepeatRows) return NumberOp::kRepeat;
  switch (traits_of(op.family).elements) {
    case Elements::kSame:
    case Elements::kMoved:
    case Elements::kRepeated:
    case Elements::kPieces:
    case Elements::kSome:
      return NumberOp::kKeeps;
    case Elements::kRetyped:
      return NumberOp::kCast;
    case Elements::kOne:
      return NumberOp::kElement;
    case Elements::kChanged:
      return find_arithmetic(op);
    case Elements::kComputed:
    case Elements::kMade:
    case Elements::kBits:
    case Elements::kChosen:
    case Elements::kAmong:
    case Elements::kReplaced:
      return NumberOp::kComputes;
  }
  return NumberOp::kComputes;
}

NumberOp number_op_of(const Node& node) {
  return node.op == nullptr ? NumberOp::kComputes : find_number_op(*node.op);
}

struct OwnNumbers {
  // kEntries: of a part's own counts, which the user lets be data (contract=own-sums); kOwnEntries:
  // which the user does not.
  enum class Kind : std::uint8_t { kData, kEntries, kOwnEntries, kRows, kOffsets };
  Kind kind = Kind::kData;
  PolyId rows = {};  // kRows: how many rows of the whole they number

  bool is_own() const { return kind > Kind::kEntries; }
  bool is_place() const { return kind == Kind::kRows || kind == Kind::kOffsets; }
  bool may_shift() const { return kind != Kind::kData; }  // places among the part's own rows
  friend bool operator==(const OwnNumbers&, const OwnNumbers&) = default;
};

class PositionCheck {
 public:
  PositionCheck(const Graph& graph, const Placements& placements, const PlacementOptions& options,
                Facts& facts)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        placements_(placements),
        options_(options),
        facts_(facts) {}

  void run() {
    for (const auto [id, node] : walk(context_, body_)) {
      const bool is_divided = placements_.region[id] && placements_.is_divided(id);
      region_ = is_divided ? placements_.region[id] : RegionId();
      require_own_parts(id);
      if (is_divided) numbers_.at(id) = visit(id);
    }
  }

 private:
  // ------------------------------------------------------------------------- what a node makes

  OwnNumbers visit(NodeId id) {
    const Node& node = body_.nodes[id];
    const NumberOp op = number_op_of(node);
    if (op < NumberOp::kArange && !takes_own_numbers(node)) return {};
    id_ = id;
    args_ = bind_args(context_, node);
    switch (op) {
      case NumberOp::kTypeOnly:
        return {};
      case NumberOp::kKeeps:
        return kept(of(args_.values[0]));
      case NumberOp::kCast:
        return cast();
      case NumberOp::kSum:
        return sum();
      case NumberOp::kQuotient:
        return quotient();
      case NumberOp::kRemainder:
        return remainder();
      case NumberOp::kArange:
        return arange();
      case NumberOp::kSort:
        return sort_of_order(context_, body_, id) == id ? order_of(node) : kept(of(args_.values[0]));
      case NumberOp::kElement:
        return element(node);
      case NumberOp::kRepeat:
        return repeated();
      case NumberOp::kPick:
        return pick();
      case NumberOp::kPut:
        return put();
      case NumberOp::kComputes:
        break;
    }
    return made_of_data();
  }

  bool takes_own_numbers(const Node& node) const {
    bool any = false;
    for_each_input(context_, node, [&](NodeId input) { any |= numbers_[input].may_shift(); });
    return any;
  }

  OwnNumbers made_of_data() const {
    for_each_input(context_, body_.nodes[id_], [&](NodeId input) {
      if (numbers_[input].is_own()) decline_data(input);
    });
    return {};
  }

  // A sum over the parts of them is none of theirs.
  OwnNumbers kept(OwnNumbers numbers) const {
    const Placement& p = placements_.placement[id_];
    return p.is_partial() || p.is(PlacementKind::kCarried) ? made_of_data() : numbers;
  }

  OwnNumbers element(const Node& node) {
    const auto element = tuple_element(context_, body_, node);
    if (!element) return {};
    const NodeId sort = sort_of_order(context_, body_, id_);
    return sort ? order_of(body_.nodes[sort]) : numbers_[element->tuple];
  }

  // The order that a sort gives numbers what it sorts.
  OwnNumbers order_of(const Node& sort) {
    const Placement& p = placements_.placement[id_];
    const TensorType* type = result();
    if (!p.is_rows() || type == nullptr || p.dim != sorted_dimension(context_, sort, type->rank())) return {};
    return {OwnNumbers::Kind::kRows, facts_.normalize(type->sizes[static_cast<std::size_t>(p.dim)])};
  }

  OwnNumbers cast() const {
    const OwnNumbers numbers = of(args_.values[0]);
    const TensorType* type = result();
    if (!numbers.may_shift()) return {};
    if (type == nullptr || is_floating(type->dtype) || type->dtype == DType::kBool) return made_of_data();
    return kept(numbers);
  }

  // Own numbers of rows may be moved by entries, to places among the part's own rows; by nothing
  // else.
  OwnNumbers sum() const {
    const OwnNumbers a = of(args_.values[0]), b = of(args_.values[1]);
    if (!a.may_shift() || !b.may_shift() || args_.is_given(2)) return made_of_data();
    const auto subtracted = subtracted_operand(*body_.nodes[id_].op);
    if ((a.is_place() && b.is_place()) || (subtracted && of(args_.values[*subtracted]).is_place()))
      return made_of_data();
    if (a.is_place() || b.is_place()) return kept({OwnNumbers::Kind::kOffsets});
    return kept({std::max(a.kind, b.kind)});
  }

  // How many rows of `divisor` slots each there are, if every part has whole ones in each block.
  std::optional<PolyId> rows_of_slots(Arg numbers, Arg divisor) {
    const OwnNumbers slots = of(numbers);
    if (slots.kind != OwnNumbers::Kind::kRows || !divisor.is_int() || divisor.as_int() < 1) return {};
    ExprPool& pool = facts_.pool();
    const auto rows = whole_quotient(pool, slots.rows, pool.poly_number(divisor.as_int()));
    const PolyId blocks = placement(numbers).blocks;
    return rows && (!blocks || whole_quotient(pool, *rows, blocks)) ? rows : std::nullopt;
  }

  OwnNumbers quotient() {
    const OwnNumbers numbers = of(args_.values[0]);
    if (!numbers.is_own()) return made_of_data();
    const auto rows = rows_of_slots(args_.values[0], args_.values[1]);
    if (result() == nullptr || is_floating(result()->dtype)) return made_of_data();  // not rounded
    return rows ? OwnNumbers{OwnNumbers::Kind::kRows, *rows} : made_of_data();
  }
  OwnNumbers remainder() {
    return rows_of_slots(args_.values[0], args_.values[1]) ? OwnNumbers() : made_of_data();
  }

  OwnNumbers arange() {
    const TensorType* type = result();
    if (type == nullptr || !placements_.placement[id_].is_local()) return {};
    if (!counts_from_zero(context_, body_.nodes[id_])) return {OwnNumbers::Kind::kOffsets};
    return {OwnNumbers::Kind::kRows, facts_.normalize(type->sizes[0])};
  }

  OwnNumbers repeated() {
    const Arg counts = args_.values[0];
    if (of(counts).is_own()) return made_of_data();
    if (!placement(counts).is_rows()) return {};  // numbers of counts that all parts have
    return {OwnNumbers::Kind::kRows, facts_.normalize(tensor(counts)->sizes[0])};
  }

  // ------------------------------------------------------------------------- picking and placing

  // Whether some positions are in parts.
  bool require_rows_at_positions() {
    bool any_divided = false;
    for (const IndexedDim& indexed : list_indexed_dims(context_, body_.nodes[id_])) {
      require_rows(indexed);
      any_divided |= placement(Arg::node(indexed.positions)).is_divided();
    }
    return any_divided;
  }

  OwnNumbers pick() {
    const bool are_divided = require_rows_at_positions();
    const Arg source = args_.values[0];
    if (!placement(source).is_partial() || !are_divided) return kept(of(source));
    return {options_.own_sums == OwnSums::kAccept ? OwnNumbers::Kind::kEntries
                                                  : OwnNumbers::Kind::kOwnEntries};
  }

  OwnNumbers put() {
    require_rows_at_positions();
    const OpInfo& op = *body_.nodes[id_].op;
    const Arg values = args_.values[indexed_params(op).written];
    if (undoes_order()) {
      if (op.writes) number_storage(of(values));
      return of(values);
    }
    for (const Arg written : {args_.values[0], values})
      if (of(written).is_own()) decline_data(written.as_node());
    return {};
  }

  // What the call writes in place is seen by all values of its storage from here on.
  void number_storage(const OwnNumbers& numbers) {
    const Effects& effects = *placements_.effects;
    for (NodeId value : body_.order) {
      if (value == id_) break;
      if (effects.storage_of(value) == effects.storage_of(id_)) numbers_.at(value) = numbers;
    }
  }

  // Whether 0, 1, .. of the part's own rows are written to an order of these.
  bool undoes_order() const {
    const auto inverse = inverse_order(context_, facts_, body_, id_);
    const auto is_unwritten = [&](NodeId value) {
      const Effects& effects = *placements_.effects;
      return !effects.is_written(effects.storage_of(value));
    };
    return inverse && inverse->rows && numbers_[inverse->order] == numbers_[inverse->rows] &&
           is_unwritten(inverse->order) && is_unwritten(inverse->rows);
  }

  // That positions number rows of what they pick from, or place in.
  void require_rows(const IndexedDim& indexed) {
    const Arg value = Arg::node(indexed.table), index = Arg::node(indexed.positions);
    const OwnNumbers numbers = of(index);
    const Placement& p = placement(value);
    const std::int64_t dim =
        indexed.dim < 0 ? indexed.dim + static_cast<std::int64_t>(tensor(value)->rank()) : indexed.dim;
    const bool is_along = p.is_rows() && p.dim == dim && !is_taken_whole();
    if (!is_along) {
      if (numbers.is_own())
        decline_rows(value, index, "number rows of a part from its own first row",
                     p.is_rows() ? "are along another dimension" : "all parts share");
      return;
    }
    if (!numbers.may_shift()) {
      if (placement(index).is_divided())
        decline_rows(value, index, "do not count the rows of a part", "are in parts");
      return;
    }
    const PolyId rows = facts_.normalize(tensor(value)->sizes[static_cast<std::size_t>(dim)]);
    if (numbers.kind == OwnNumbers::Kind::kRows && numbers.rows != rows)
      decline_rows(value, index, fmt::format("number {} rows", text(numbers.rows)),
                   fmt::format("are {}", text(rows)));
    if (numbers.kind != OwnNumbers::Kind::kRows && !p.is_local())
      decline_rows(value, index, "are offsets among rows of a part's own", "are in the order of the tokens");
  }

  // Own numbers do not leave their part. Those of a Local value cannot, or are made again
  // (chunk_lower.cc).
  void require_own_parts(NodeId user) const {
    std::size_t leaf = 0;
    for_each_input(context_, body_.nodes[user], [&](NodeId input) {
      const std::size_t i = leaf++;
      if (!numbers_[input].is_own()) return;
      const Access::Kind access = region_ ? placements_.access(user, i).kind : Access::Kind::kWhole;
      if (placements_.placement[input].is_local() || access == Access::Kind::kAny) return;
      if ((access == Access::Kind::kPart || access == Access::Kind::kPrefix) &&
          placements_.has_parts_for(input, region_))
        return;
      if (placements_.placement[input].is(PlacementKind::kTuple)) return;
      decline(user, input, "wants whole");
    });
  }

  // ------------------------------------------------------------------------- look-ups

  OwnNumbers of(Arg arg) const { return arg.is_node() ? numbers_[arg.as_node()] : OwnNumbers(); }
  const Placement& placement(Arg arg) const {
    static const Placement kWhole;
    return arg.is_node() ? placements_.seen_from(arg.as_node(), region_) : kWhole;
  }
  const TensorType* tensor(Arg arg) const { return tensor_of(context_, body_.nodes[arg.as_node()].type); }
  const TensorType* result() const { return tensor_of(context_, body_.nodes[id_].type); }
  // Of the node that is visited: what it picks from, or writes to.
  bool is_taken_whole() const {
    const std::size_t leaf = leaf_of(context_, body_.nodes[id_], 0);
    return placements_.access(id_, leaf).kind == Access::Kind::kWhole;
  }

  std::string_view text(PolyId poly) { return facts_.pool().text(facts_.expr(poly)); }
  std::string_view name(NodeId id) const { return graph_.text(body_.nodes[id].name); }

  [[noreturn]] void decline_data(NodeId own) const { decline(id_, own, "computes with"); }
  [[noreturn]] void decline(NodeId user, NodeId own, std::string_view what) const {
    throw PassError(
        "chunk.positions-as-data",
        fmt::format("{} cannot run on parts of the tokens: it {} '{}', which numbers the rows of a "
                    "part from its own first row",
                    graph_.text(body_.nodes[user].target), what, name(own)),
        site_of(graph_, body_.nodes[user]),
        "compute the numbers outside the selected module, or select other roots");
  }
  [[noreturn]] void decline_rows(Arg value, Arg index, std::string_view numbers,
                                 std::string_view rows) const {
    throw PassError(
        "chunk.foreign-positions",
        fmt::format("{} cannot run on parts of the tokens: the numbers in '{}' {}, and the rows of '{}' {}",
                    graph_.text(body_.nodes[id_].target), name(index.as_node()), numbers,
                    name(value.as_node()), rows),
        site_of(graph_, body_.nodes[id_]),
        "pick and place rows outside the selected module, or select other roots");
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const Placements& placements_;
  const PlacementOptions& options_;
  Facts& facts_;
  SideTable<NodeId, OwnNumbers> numbers_;  // of divided nodes; a tuple's are those of its first element
  RegionId region_;                        // of the node that is visited, if divided
  NodeId id_;
  BoundArgs args_;
};

}  // namespace

void check_positions(const Graph& graph, const Placements& placements, const PlacementOptions& options,
                     Facts& facts) {
  PositionCheck(graph, placements, options, facts).run();
}

}  // namespace epweave
