#include "placement/rows/positions.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/types/dimension.h"
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

// The numbers of the values before the node that is looked at.
struct NumberedValues {
  const Graph& graph;
  const Context& context;
  const Body& body;
  const Placements& placements;
  const PlacementOptions& options;
  Facts& facts;
  SideTable<NodeId, OwnNumbers> numbers{};  // of divided nodes; a tuple's are of its first element

  std::string_view name(NodeId id) const { return graph.text(body.nodes[id].name); }
};

// A divided node, with its arguments as its region sees them.
struct DividedCall {
  const NumberedValues& known;
  NodeId id;
  RegionId region;
  BoundArgs args;

  const Node& node() const { return known.body.nodes[id]; }
  Arg arg(std::size_t i) const { return args.values[i]; }
  OwnNumbers of(Arg arg) const { return arg.is_node() ? known.numbers[arg.as_node()] : OwnNumbers(); }
  const Placement& placement(Arg arg) const {
    static const Placement kWhole;
    return arg.is_node() ? known.placements.seen_from(arg.as_node(), region) : kWhole;
  }
  const Placement& placement() const { return known.placements.placement[id]; }
  const TensorType* tensor(Arg arg) const {
    return tensor_of(known.context, known.body.nodes[arg.as_node()].type);
  }
  const TensorType* result() const { return tensor_of(known.context, node().type); }
  // What it picks from, or writes to.
  bool is_taken_whole() const {
    const std::size_t leaf = leaf_of(known.context, node(), 0);
    return known.placements.access(id, leaf).kind == Access::Kind::kWhole;
  }
};

// ------------------------------------------------------------------------------------- refusals

[[noreturn]] void decline_numbers(const NumberedValues& known, NodeId user, NodeId own,
                                  std::string_view what) {
  throw PassError("chunk.positions-as-data",
                  fmt::format("{} cannot run on parts of the tokens: it {} '{}', which numbers the rows of a "
                              "part from its own first row",
                              known.graph.text(known.body.nodes[user].target), what, known.name(own)),
                  site_of(known.graph, known.body.nodes[user]),
                  "compute the numbers outside the selected module, or select other roots");
}

[[noreturn]] void decline_data(const DividedCall& call, NodeId own) {
  decline_numbers(call.known, call.id, own, "computes with");
}

[[noreturn]] void decline_rows(const DividedCall& call, const IndexedDim& indexed, std::string_view numbers,
                               std::string_view rows) {
  const NumberedValues& known = call.known;
  throw PassError(
      "chunk.foreign-positions",
      fmt::format("{} cannot run on parts of the tokens: the numbers in '{}' {}, and the rows of '{}' {}",
                  known.graph.text(call.node().target), known.name(indexed.positions), numbers,
                  known.name(indexed.table), rows),
      site_of(known.graph, call.node()),
      "pick and place rows outside the selected module, or select other roots");
}

// Own numbers do not leave their part. Those of a Local value cannot, or are made again
// (chunk_lower.cc). `region`: of the user, if divided.
void require_own_parts(const NumberedValues& known, NodeId user, RegionId region) {
  const Placements& placements = known.placements;
  std::size_t leaf = 0;
  for_each_input(known.context, known.body.nodes[user], [&](NodeId input) {
    const std::size_t i = leaf++;
    if (!known.numbers[input].is_own()) return;
    const Access::Kind access = region ? placements.access(user, i).kind : Access::Kind::kWhole;
    if (placements.placement[input].is_local() || access == Access::Kind::kAny) return;
    if ((access == Access::Kind::kPart || access == Access::Kind::kPrefix) &&
        placements.has_parts_for(input, region))
      return;
    if (placements.placement[input].is(PlacementKind::kTuple)) return;
    decline_numbers(known, user, input, "wants whole");
  });
}

// --------------------------------------------------------------------- computing with numbers

OwnNumbers made_of_data(const DividedCall& call) {
  for_each_input(call.known.context, call.node(), [&](NodeId input) {
    if (call.known.numbers[input].is_own()) decline_data(call, input);
  });
  return {};
}

// A sum over the parts of them is none of theirs.
OwnNumbers kept_numbers(const DividedCall& call, OwnNumbers numbers) {
  const Placement& p = call.placement();
  return p.is_partial() || p.is(PlacementKind::kCarried) ? made_of_data(call) : numbers;
}

// Numbers of all rows of an extent.
OwnNumbers numbered_rows(const DividedCall& call, ExprId extent) {
  return {OwnNumbers::Kind::kRows, call.known.facts.normalize(extent)};
}

// The order that a sort gives numbers what it sorts.
OwnNumbers order_of(const DividedCall& call, const Node& sort) {
  const Placement& p = call.placement();
  const TensorType* type = call.result();
  if (!p.is_rows() || type == nullptr || p.dim != sorted_dimension(call.known.context, sort, type->rank()))
    return {};
  return numbered_rows(call, type->sizes[static_cast<std::size_t>(p.dim)]);
}

OwnNumbers sorted_numbers(const DividedCall& call) {
  const bool is_order = sort_of_order(call.known.context, call.known.body, call.id) == call.id;
  return is_order ? order_of(call, call.node()) : kept_numbers(call, call.of(call.arg(0)));
}

OwnNumbers element_numbers(const DividedCall& call) {
  const auto element = tuple_element(call.known.context, call.known.body, call.node());
  if (!element) return {};
  const NodeId sort = sort_of_order(call.known.context, call.known.body, call.id);
  return sort ? order_of(call, call.known.body.nodes[sort]) : call.known.numbers[element->tuple];
}

OwnNumbers cast_numbers(const DividedCall& call) {
  const OwnNumbers numbers = call.of(call.arg(0));
  const TensorType* type = call.result();
  if (!numbers.may_shift()) return {};
  if (type == nullptr || is_floating(type->dtype) || type->dtype == DType::kBool) return made_of_data(call);
  return kept_numbers(call, numbers);
}

// Own numbers of rows may be moved by entries, to places among the part's own rows; by nothing
// else.
OwnNumbers sum_numbers(const DividedCall& call) {
  const OwnNumbers a = call.of(call.arg(0)), b = call.of(call.arg(1));
  if (!a.may_shift() || !b.may_shift() || call.args.is_given(2)) return made_of_data(call);
  const auto subtracted = subtracted_operand(*call.node().op);
  if ((a.is_place() && b.is_place()) || (subtracted && call.of(call.arg(*subtracted)).is_place()))
    return made_of_data(call);
  if (a.is_place() || b.is_place()) return kept_numbers(call, {OwnNumbers::Kind::kOffsets});
  return kept_numbers(call, {std::max(a.kind, b.kind)});
}

// How many rows of `divisor` slots each there are, if every part has whole ones in each block.
std::optional<PolyId> rows_of_slots(const DividedCall& call, Arg numbers, Arg divisor) {
  const OwnNumbers slots = call.of(numbers);
  if (slots.kind != OwnNumbers::Kind::kRows || !divisor.is_int() || divisor.as_int() < 1) return {};
  ExprPool& pool = call.known.facts.pool();
  const auto rows = whole_quotient(pool, slots.rows, pool.poly_number(divisor.as_int()));
  const PolyId blocks = call.placement(numbers).blocks;
  return rows && (!blocks || whole_quotient(pool, *rows, blocks)) ? rows : std::nullopt;
}

OwnNumbers quotient_numbers(const DividedCall& call) {
  if (!call.of(call.arg(0)).is_own()) return made_of_data(call);
  const auto rows = rows_of_slots(call, call.arg(0), call.arg(1));
  const TensorType* type = call.result();
  if (type == nullptr || is_floating(type->dtype)) return made_of_data(call);  // not rounded
  return rows ? OwnNumbers{OwnNumbers::Kind::kRows, *rows} : made_of_data(call);
}
OwnNumbers remainder_numbers(const DividedCall& call) {
  return rows_of_slots(call, call.arg(0), call.arg(1)) ? OwnNumbers() : made_of_data(call);
}

OwnNumbers arange_numbers(const DividedCall& call) {
  const TensorType* type = call.result();
  if (type == nullptr || !call.placement().is_local()) return {};
  if (!counts_from_zero(call.known.context, call.node())) return {OwnNumbers::Kind::kOffsets};
  return numbered_rows(call, type->sizes[0]);
}

OwnNumbers repeated_numbers(const DividedCall& call) {
  const Arg counts = call.arg(0);
  if (call.of(counts).is_own()) return made_of_data(call);
  if (!call.placement(counts).is_rows()) return {};  // numbers of counts that all parts have
  return numbered_rows(call, call.tensor(counts)->sizes[0]);
}

// ------------------------------------------------------------------------- picking and placing

// That positions number rows of what they pick from, or place in.
void require_rows(const DividedCall& call, const IndexedDim& indexed) {
  const Arg value = Arg::node(indexed.table), index = Arg::node(indexed.positions);
  const OwnNumbers numbers = call.of(index);
  const Placement& p = call.placement(value);
  const auto dim = find_dimension(indexed.dim, call.tensor(value)->rank());
  const bool is_along = p.is_rows() && dim == static_cast<std::size_t>(p.dim) && !call.is_taken_whole();
  if (!is_along) {
    if (numbers.is_own())
      decline_rows(call, indexed, "number rows of a part from its own first row",
                   p.is_rows() ? "are along another dimension" : "all parts share");
    return;
  }
  if (!numbers.may_shift()) {
    if (call.placement(index).is_divided())
      decline_rows(call, indexed, "do not count the rows of a part", "are in parts");
    return;
  }
  Facts& facts = call.known.facts;
  const auto text = [&](PolyId rows) { return facts.pool().text(facts.expr(rows)); };
  const PolyId rows = facts.normalize(call.tensor(value)->sizes[*dim]);
  if (numbers.kind == OwnNumbers::Kind::kRows && numbers.rows != rows)
    decline_rows(call, indexed, fmt::format("number {} rows", text(numbers.rows)),
                 fmt::format("are {}", text(rows)));
  if (numbers.kind != OwnNumbers::Kind::kRows && !p.is_local())
    decline_rows(call, indexed, "are offsets among rows of a part's own", "are in the order of the tokens");
}

// Whether some positions are in parts.
bool require_rows_at_positions(const DividedCall& call) {
  bool any_divided = false;
  for (const IndexedDim& indexed : list_indexed_dims(call.known.context, call.node())) {
    require_rows(call, indexed);
    any_divided |= call.placement(Arg::node(indexed.positions)).is_divided();
  }
  return any_divided;
}

OwnNumbers picked_numbers(const DividedCall& call) {
  const bool are_divided = require_rows_at_positions(call);
  const Arg source = call.arg(0);
  if (!call.placement(source).is_partial() || !are_divided) return kept_numbers(call, call.of(source));
  return {call.known.options.own_sums == OwnSums::kAccept ? OwnNumbers::Kind::kEntries
                                                          : OwnNumbers::Kind::kOwnEntries};
}

// Whether 0, 1, .. of the part's own rows are written to an order of these.
bool undoes_order(const DividedCall& call) {
  const NumberedValues& known = call.known;
  const auto inverse = inverse_order(known.context, known.facts, known.body, call.id);
  const auto is_unwritten = [&](NodeId value) {
    const Effects& effects = *known.placements.effects;
    return !effects.is_written(effects.storage_of(value));
  };
  return inverse && inverse->rows && known.numbers[inverse->order] == known.numbers[inverse->rows] &&
         is_unwritten(inverse->order) && is_unwritten(inverse->rows);
}

OwnNumbers put_numbers(const DividedCall& call) {
  require_rows_at_positions(call);
  const Arg values = call.arg(indexed_params(*call.node().op).written);
  if (undoes_order(call)) return call.of(values);
  for (const Arg written : {call.arg(0), values})
    if (call.of(written).is_own()) decline_data(call, written.as_node());
  return {};
}

// ------------------------------------------------------------------------------------- all nodes

OwnNumbers numbers_of(const DividedCall& call, NumberOp op) {
  switch (op) {
    case NumberOp::kTypeOnly:
      return {};
    case NumberOp::kKeeps:
      return kept_numbers(call, call.of(call.arg(0)));
    case NumberOp::kCast:
      return cast_numbers(call);
    case NumberOp::kSum:
      return sum_numbers(call);
    case NumberOp::kQuotient:
      return quotient_numbers(call);
    case NumberOp::kRemainder:
      return remainder_numbers(call);
    case NumberOp::kArange:
      return arange_numbers(call);
    case NumberOp::kSort:
      return sorted_numbers(call);
    case NumberOp::kElement:
      return element_numbers(call);
    case NumberOp::kRepeat:
      return repeated_numbers(call);
    case NumberOp::kPick:
      return picked_numbers(call);
    case NumberOp::kPut:
      return put_numbers(call);
    case NumberOp::kComputes:
      break;
  }
  return made_of_data(call);
}

bool takes_own_numbers(const NumberedValues& known, const Node& node) {
  bool any = false;
  for_each_input(known.context, node, [&](NodeId input) { any |= known.numbers[input].may_shift(); });
  return any;
}

// What the call writes in place is seen by all values of its storage from here on.
void number_storage(NumberedValues& known, NodeId call, const OwnNumbers& numbers) {
  const Effects& effects = *known.placements.effects;
  for (NodeId value : known.body.order) {
    if (value == call) break;
    if (effects.storage_of(value) == effects.storage_of(call)) known.numbers.at(value) = numbers;
  }
}

void number_call(NumberedValues& known, NodeId id, const Node& node, RegionId region) {
  const NumberOp op = number_op_of(node);
  if (op < NumberOp::kArange && !takes_own_numbers(known, node)) return;
  const DividedCall call{known, id, region, bind_args(known.context, node)};
  const OwnNumbers made = numbers_of(call, op);
  if (op == NumberOp::kPut && node.op->writes && undoes_order(call)) number_storage(known, id, made);
  known.numbers.at(id) = made;
}

}  // namespace

void check_positions(const Graph& graph, const Placements& placements, const PlacementOptions& options,
                     Facts& facts) {
  NumberedValues known{graph, *graph.context, graph.step(), placements, options, facts};
  for (const auto [id, node] : walk(known.context, known.body)) {
    const bool is_divided = placements.region[id] && placements.is_divided(id);
    const RegionId region = is_divided ? placements.region[id] : RegionId();
    require_own_parts(known, id, region);
    if (is_divided) number_call(known, id, node, region);
  }
}

}  // namespace epweave
