// Placement of what moves rows: top-k, sorting, indexing, scattering, exchanges.
#include <fmt/format.h>

#include <algorithm>

#include "ops/bind.h"
#include "ops/number_ops.h"
#include "ops/sorting.h"
#include "ops/traffic.h"
#include "placement/rules/placement_rules.h"

namespace epweave {
namespace {

constexpr std::string_view kCombination = "chunk.combination";

Placement topk(PlacementCall& call) {
  const Placement p = call.of(call.arg(0));
  if (p.is_whole()) return p;
  if (!p.is_rows()) {
    call.take_whole(call.arg(0));
    return Placement::whole();
  }
  if (p.dim == call.dim(call.int_arg(2, "dim", -1), call.rank(call.arg(0))))
    call.refuse(
        "chunk.along-divided", "it selects along the divided dimension",
        "choose along a dimension that is not divided, as within each sequence of a divided batch, or "
        "select roots that leave this operation outside");
  return Placement::tuple({p, p});
}

// Rows, or positions of rows, of what is placed `p`.
Placement in_own_order(const Placement& p, int dim) {
  Placement result = Placement::local(dim);
  result.blocks = p.blocks;
  return result;
}

// Of the order that a sort of rows gave, sorted upwards: row i says where row i went, so that it is
// in the order that the rows had.
std::optional<Placement> rows_put_back(PlacementCall& call) {
  const Context& context = *call.graph().context;
  const Body& body = call.graph().step();
  const Operand order = call.arg(0);
  const NodeId sort = order.arg.is_node() ? sort_of_order(context, body, order.arg.as_node()) : NodeId();
  if (!sort || call.rank(order) != 1 || !sorts_upwards(context, call.node())) return {};
  const Arg sorted = arg_of(context, body.nodes[sort], 0);
  if (!sorted.is_node()) return {};
  const Placement rows = call.of_value(sorted.as_node());
  return rows.is(PlacementKind::kSplit) ? std::optional(rows) : std::nullopt;
}

// Whether the positions say of rows in the order of the tokens where the part has them.
bool are_put_back(PlacementCall& call, Operand positions) {
  return call.of(positions).is(PlacementKind::kSplit) && positions.arg.is_node() &&
         inverse_order(*call.graph().context, call.facts(), call.graph().step(), positions.arg.as_node());
}

Placement sort(PlacementCall& call) {
  const Placement p = call.of(call.arg(0));
  if (p.is_whole()) return p;
  if (const auto back = p.is_local() ? rows_put_back(call) : std::nullopt) {
    call.assume("says of the part's own rows where they are");
    return call.op().returns.size() == 1 ? *back : Placement::tuple({p, *back});
  }
  if (!p.is_rows()) {
    call.take_whole(call.arg(0));
    return Placement::whole();
  }
  const bool is_along = p.dim == call.dim_arg(-1, call.rank(call.arg(0)));
  if (is_along && !sorts_whole_rows(*call.graph().context, call.node(), *call.tensor(call.arg(0))))
    call.refuse("chunk.along-divided", "it sorts each column of the divided dimension on its own",
                "sort one column, and pick the rows by the order that it gives");
  if (is_along) call.assume("orders the part's own rows");
  const Placement rows = is_along ? in_own_order(p, p.dim) : p;
  if (call.op().returns.size() == 1) return rows;
  return Placement::tuple(std::vector<Placement>(call.op().returns.size(), rows));
}

// `source` is divided along the dimension that is indexed. Positions that count rows of the part
// pick from the part; whole positions need the whole.
Placement pick(PlacementCall& call, Operand source, Operand positions, int result_dim) {
  const Placement q = call.of(positions);
  if (q.is_local()) {
    if (const Placement p = call.of(source); p.is(PlacementKind::kSplit)) require_same_order(call, p, q);
    call.assume(fmt::format("picks rows of its own part of '{}' by '{}'", call.name_of(source),
                            call.name_of(positions)));
    return in_own_order(q, result_dim);
  }
  if (q.is_partial()) call.refuse(std::string(kCombination), "its positions are a sum of parts");
  if (call.of(source).is_local() && are_put_back(call, positions))
    call.assume(fmt::format("puts rows of its own part '{}' back in their order", call.name_of(source)));
  else
    call.take_whole(source);
  Placement result = q;
  if (result.is_rows()) result.dim = result_dim;
  return result;
}

// Takes from `whole`, which all parts share, the rows that pair by number with a part's rows of
// `divided`.
void take_paired(PlacementCall& call, const RowsOfValue& whole, const RowsOfValue& divided) {
  const Placement rows = call.of(divided.value);
  if (const TensorType* type = call.tensor(whole.value); type != nullptr) {
    require_same_extent(call, whole, divided);
    const bool is_known = rows.is(PlacementKind::kSplit) &&
                          call.tokens().scales(type->sizes[static_cast<std::size_t>(whole.dim)]);
    if (is_known) return call.take_slice_like(whole.value, whole.dim, rows);
  }
  call.refuse(
      "chunk.whole-rows",
      fmt::format("nothing shows which rows of '{}', which all parts share, pair with a part's rows of "
                  "'{}'",
                  call.name_of(whole.value), call.name_of(divided.value)),
      "make the rows inside the selected module from rows of the part");
}

Placement gather(PlacementCall& call) {
  const Operand source = call.arg(0), index = call.arg(2, "index");
  const Placement p = call.of(source), q = call.of(index);
  if (p.is_whole() && q.is_whole()) return p;
  const int dim = call.dim(call.int_arg(1, "dim", 0), call.rank(source));
  if (p.is_rows() && p.dim == dim) {
    // The other dimensions of the index pair with those of the source, which is not divided there.
    if (q.is_rows() && q.dim != dim)
      call.refuse("chunk.mixed-dimensions",
                  fmt::format("operands are divided along dimensions {} and {}", p.dim, q.dim));
    return pick(call, source, index, q.dim);
  }
  if (p.is_rows() && q.is_whole()) {
    take_paired(call, {index, p.dim}, {source, p.dim});
    return p;
  }
  if (!(p.is_whole() || p.is_rows()) || !q.is_rows())
    call.refuse(std::string(kCombination), "an operand is a sum of parts");
  if (p.is_whole() && q.dim != dim) take_paired(call, {source, q.dim}, {index, q.dim});
  const Placement rows = common_rows(call, std::vector{p, q});
  if (p.is_rows()) require_same_extent(call, {source, p.dim}, {index, q.dim});
  return rows;
}

// How many rows a mask picks depends on its values.
void refuse_masks(PlacementCall& call, std::span<const Operand> indices) {
  for (const Operand& index : indices)
    if (const TensorType* type = call.tensor(index); type != nullptr && type->dtype == DType::kBool)
      call.refuse("chunk.mask",
                  fmt::format("it picks by the mask '{}', and how many rows that are depends on the values",
                              call.name_of(index)),
                  fmt::format("keep the rows and use where(mask, rows, 0); of experts: {}", kGroupRows));
}

// x[:, i]: what a call indexes, None not counted.
struct IndexList {
  std::vector<Operand> items;  // None counted
  Operand first;
  int at = 0;  // the dimension of `first`
  int used = 0;
  bool any_divided = false;

  // Whether the rows of `p` lie along a dimension that is indexed.
  bool meets(const Placement& p) const {
    const auto dim = static_cast<std::size_t>(p.dim);
    return p.is_rows() && dim < items.size() && items[dim].arg.is_node();
  }
};

IndexList indices_of(PlacementCall& call) {
  IndexList list;
  list.items = call.items(call.arg(1, "indices"));
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (!list.items[i].arg.is_node()) continue;
    if (list.used++ == 0) list.first = list.items[i], list.at = static_cast<int>(i);
    list.any_divided |= call.of(list.items[i]).is_divided();
  }
  return list;
}

[[noreturn]] void refuse_several_indices(PlacementCall& call) {
  call.refuse("chunk.several-indices", "it indexes several dimensions at once");
}

Placement index(PlacementCall& call) {
  const Operand source = call.arg(0);
  const Placement p = call.of(source);
  const IndexList list = indices_of(call);
  if (!p.is_divided() && !list.any_divided) return Placement::whole();
  refuse_masks(call, list.items);
  if (list.used != 1) {
    if (list.any_divided || list.meets(p)) refuse_several_indices(call);
    return by_factors(call);
  }
  const Operand only = list.first;
  const int at = list.at;
  const Placement q = call.of(only);
  const int index_rank = static_cast<int>(call.rank(only));
  if (p.is_rows() && p.dim == at) return pick(call, source, only, at + std::max(q.dim, 0));
  if (p.is_rows()) {
    if (q.is_divided())
      call.refuse(std::string(kCombination), "both the indexed value and the index are divided");
    Placement result = p;
    result.dim += p.dim > at ? index_rank - 1 : 0;
    return result;
  }
  if (p.is_partial()) {
    if (q.is_whole()) return p;
    if (!q.is_rows()) call.refuse(std::string(kCombination), "its index is a sum of parts");
    // Counts may tell a part's own rows apart (positions.h); a sum of data is not its part's share.
    if (const TensorType* type = call.tensor(source); type == nullptr || is_floating(type->dtype))
      call.take_own_sum(source);
    call.assume(fmt::format("reads the part's own sum '{}'", call.name_of(source)));
    return in_own_order(q, at + q.dim);
  }
  if (!q.is_rows()) call.refuse(std::string(kCombination), "its index is a sum of parts");
  Placement result = q;
  result.dim += at;
  return result;
}

Placement index_select(PlacementCall& call) {
  const Operand source = call.arg(0), positions = call.arg(2, "index");
  const Placement p = call.of(source), q = call.of(positions);
  if (p.is_whole() && q.is_whole()) return p;
  const int dim = call.dim(call.int_arg(1, "dim", 0), call.rank(source));
  if (p.is_rows() && p.dim == dim) return pick(call, source, positions, dim);
  if (p.is_rows() && q.is_whole()) return p;
  if (p.is_whole() && q.is_rows()) {
    Placement result = q;
    result.dim = dim;
    return result;
  }
  call.refuse(std::string(kCombination),
              fmt::format("the value is placed {}, the index {}", print_placement(p), print_placement(q)));
}

// Made of zeros. It holds zeros as long as nothing writes it.
bool is_made_of_zeros(PlacementCall& call, Operand operand) {
  const Node* node = call.producer(operand);
  if (node == nullptr || node->kind != NodeKind::kCall) return false;
  return node->op != nullptr && node->op->makes_zeros;
}

// How the dimensions of the positions, of what is written and of the destination go together.
enum class Pairing : std::uint8_t {
  kAll,      // scatter: each with its like, but for the destination's dimension that the positions number
  kIndexed,  // index_put, index_add: those of the positions with some of what is written
};

// Rows `source` written or added at `positions` of dimension `dim` of `destination`.
struct RowWrite {
  Operand destination, positions, source;
  int dim = 0;
  bool accumulates = false;
  Pairing pairing = Pairing::kAll;
};

// By how much a dimension of the source is behind the one of the positions that it pairs with.
// Those of the positions stand where the dimension that they index was.
int source_shift(const PlacementCall& call, const RowWrite& write) {
  if (write.pairing == Pairing::kAll) return 0;
  return write.dim + static_cast<int>(call.rank(write.source)) -
         static_cast<int>(call.rank(write.positions)) - static_cast<int>(call.rank(write.destination)) + 1;
}

// The dimension of the source that pairs with dimension `dim` of the positions; none if one row is
// written to all of them.
std::optional<int> source_dim(PlacementCall& call, const RowWrite& write, int dim) {
  const TensorType* type = call.tensor(write.source);
  if (type == nullptr) return {};
  const int paired = dim + source_shift(call, write);
  if (paired < 0 || paired >= static_cast<int>(type->rank())) return {};
  const bool is_one = call.facts().pool().constant(type->sizes[static_cast<std::size_t>(paired)]) == 1;
  return is_one && write.pairing == Pairing::kIndexed ? std::nullopt : std::optional(paired);
}

// The source's rows go with the divided positions `at`: those of the part if all parts share them.
void pair_source(PlacementCall& call, const RowWrite& write) {
  const Placement at = call.of(write.positions), rows = call.of(write.source);
  const std::optional<int> dim = source_dim(call, write, at.dim);
  if (rows.is_whole()) {
    if (dim) take_paired(call, {write.source, *dim}, {write.positions, at.dim});
  } else if (rows.is_rows() && rows.dim == dim) {
    require_same_extent(call, {write.positions, at.dim}, {write.source, *dim});
    if (at.is(PlacementKind::kSplit) && rows.is(PlacementKind::kSplit)) require_same_order(call, at, rows);
  } else {
    call.refuse(std::string(kCombination), fmt::format("rows placed {} are written at positions placed {}",
                                                       print_placement(rows), print_placement(at)));
  }
}

// Where positions are made by writing: 0, 1, .. at an order, say.
std::string remedy_for_positions(PlacementCall& call, Operand positions) {
  const Node* made = call.producer(positions);
  const bool is_written =
      made != nullptr && (has_family(*made, OpFamily::kIndexPut) || has_family(*made, OpFamily::kScatter));
  return is_written ? "take argsort(order) for the inverse of an order, or write arange(n) to the n places "
                      "that a sort gives as its order"
                    : "";
}

// Of several copies of the tokens, which lie one behind the other, those of one token are added up
// by its number among the tokens.
void refuse_copies_by_remainder(PlacementCall& call, const RowWrite& write) {
  const Node* numbers = call.producer(write.positions);
  const bool is_remainder =
      numbers != nullptr && numbers->op != nullptr && number_rule(*numbers->op) == NumberRule::kRemainder;
  if (!is_remainder || !write.accumulates || !call.of(write.positions).blocks) return;
  call.refuse("chunk.mixed-orders",
              fmt::format("it adds up copies of the tokens at '{}', the remainder of their numbers",
                          call.name_of(write.positions)),
              "put the copies back by the inverse of their order, and add them up: "
              "rows[argsort(order)].view(copies, tokens, width).sum(0)");
}

// Whether each of a part's own rows is written to where a sort of rows in the order of the tokens
// took it from, in new memory of as many rows: the order names each once, so that nothing of the
// memory stays.
bool are_written_back(PlacementCall& call, const RowWrite& write) {
  const Context& context = *call.graph().context;
  const Body& body = call.graph().step();
  const Node* made = call.producer(write.destination);
  const bool is_new =
      made != nullptr && made->op != nullptr && (leaves_unset(*made->op) || made->op->makes_zeros);
  const bool is_order =
      call.of(write.positions).is_local() && call.rank(write.positions) == 1 && write.positions.arg.is_node();
  if (!is_new || !is_order || write.accumulates || !call.of(write.source).is_local()) return false;
  const NodeId sort = sort_of_order(context, body, write.positions.arg.as_node());
  const Arg keys = sort ? arg_of(context, body.nodes[sort], 0) : Arg::none();
  if (!keys.is_node() || !call.of_value(keys.as_node()).is(PlacementKind::kSplit)) return false;
  const TensorType *to = call.tensor(write.destination), *order = call.tensor(write.positions);
  return to != nullptr && order != nullptr &&
         call.facts().equal(to->sizes[static_cast<std::size_t>(write.dim)], order->sizes[0]);
}

// Rows of the part itself, at positions among them.
Placement write_own_rows(PlacementCall& call, const RowWrite& write) {
  const Placement to = call.of(write.destination), at = call.of(write.positions),
                  rows = call.of(write.source);
  refuse_copies_by_remainder(call, write);
  const bool are_back =
      (to.is_local() || is_made_of_zeros(call, write.destination)) && are_put_back(call, write.positions);
  const bool are_along =
      (at.is_local() || are_back) && at.is_rows() && (write.pairing == Pairing::kIndexed || at.dim == to.dim);
  if (!are_along || !(rows.is_local() || rows.is_whole() || are_back))
    call.refuse("chunk.whole-positions",
                fmt::format("rows placed {} are written into a divided destination at positions placed {}",
                            print_placement(rows), print_placement(at)),
                remedy_for_positions(call, write.positions));
  pair_source(call, write);
  if (to.is(PlacementKind::kSplit)) require_same_order(call, to, at);
  call.assume(fmt::format("writes rows of its own part by '{}'", call.name_of(write.positions)));
  if (to.is_local() && are_written_back(call, write)) {
    call.rely_on_order(write.positions);
    Placement back = Placement::split(to.dim);
    back.blocks = at.blocks;
    return back;
  }
  Placement result = are_back ? in_own_order(to, to.dim) : to;
  if (to.any_order) result.blocks = at.blocks;
  result.any_order = false;
  return result;
}

// Within each row of a divided destination.
Placement write_within_rows(PlacementCall& call, const RowWrite& write) {
  const Placement to = call.of(write.destination), at = call.of(write.positions),
                  rows = call.of(write.source);
  if (write.pairing != Pairing::kAll || !at.is_rows() || at.dim != to.dim)
    call.refuse("chunk.along-divided", "it scatters across the divided dimension");
  require_same_extent(call, {write.destination, to.dim}, {write.positions, at.dim});
  pair_source(call, write);
  return common_rows(call, std::vector{to, at, rows});
}

// Rows of the part, added to zeros that all parts share.
Placement add_rows(PlacementCall& call, const RowWrite& write) {
  const Placement at = call.of(write.positions), rows = call.of(write.source);
  const int divided = at.is_rows() ? at.dim : rows.dim - source_shift(call, write);
  const bool is_along = write.pairing == Pairing::kAll
                            ? divided == write.dim
                            : divided >= 0 && divided < static_cast<int>(call.rank(write.positions));
  if (!is_along)
    call.refuse("chunk.along-divided",
                fmt::format("the part's rows pair with rows of '{}', which all parts share",
                            call.name_of(write.destination)),
                "make the destination inside the selected module, with a row for each token");
  if (at.is_rows())
    pair_source(call, write);
  else
    take_paired(call, {write.positions, divided}, {write.source, rows.dim});
  if (call.op().writes) {
    call.take_chain(write.destination);
    return Placement::carried();
  }
  call.rely_on_zeros(write.destination);
  call.assume("adds the part's rows into zeros of its own");
  return Placement::partial();
}

Placement write_rows(PlacementCall& call, const RowWrite& write) {
  const Placement to = call.of(write.destination), at = call.of(write.positions),
                  rows = call.of(write.source);
  if (!to.is_divided() && !at.is_divided() && !rows.is_divided()) return Placement::whole();
  if (to.is_rows()) return to.dim == write.dim ? write_own_rows(call, write) : write_within_rows(call, write);
  const bool adds_rows =
      (at.is_rows() && (rows.is_rows() || rows.is_whole())) || (at.is_whole() && rows.is_rows());
  if (to.is_whole() && write.accumulates && is_made_of_zeros(call, write.destination) && adds_rows)
    return add_rows(call, write);
  call.refuse(std::string(kCombination),
              fmt::format("rows placed {} are written at positions placed {} into a value placed {}",
                          print_placement(rows), print_placement(at), print_placement(to)));
}

// A number, or the values of a tensor: the gradient of a topk's values.
Placement scatter(PlacementCall& call) {
  return write_rows(
      call, {call.arg(0), call.arg(2, "index"), call.op().find_param("src") ? call.arg(3, "src") : Operand(),
             call.dim(call.int_arg(1, "dim", 0), call.rank(call.arg(0))), false});
}

Placement scatter_add(PlacementCall& call) {
  return write_rows(call, {call.arg(0), call.arg(2, "index"), call.arg(3, "src"),
                           call.dim(call.int_arg(1, "dim", 0), call.rank(call.arg(0))), true});
}

Placement deterministic_scatter_add(PlacementCall& call) {
  return write_rows(call, {call.arg(0), call.arg(1), call.arg(2), 0, true});
}

// Whether what is written is divided along a dimension that pairs with one of the positions.
bool has_rows_at_positions(PlacementCall& call, const RowWrite& write) {
  const Placement rows = call.of(write.source);
  const int paired = rows.dim - source_shift(call, write);
  return rows.is_rows() && paired >= 0 && paired < static_cast<int>(call.rank(write.positions));
}

// Along dimensions that are not indexed it is by the mapping.
Placement index_put(PlacementCall& call) {
  const IndexList list = indices_of(call);
  const Placement to = call.of(call.arg(0));
  const bool meets = list.any_divided || list.meets(to);
  if (list.used != 1 && meets) refuse_several_indices(call);
  const RowWrite write{
      call.arg(0),      list.first, call.arg(2, "values"), list.at, call.bool_arg(3, "accumulate", false),
      Pairing::kIndexed};
  if (list.used == 1 && (meets || has_rows_at_positions(call, write))) return write_rows(call, write);
  return call.op().writes ? by_factors_in_place(call) : by_factors(call);
}

// Rows, times alpha, added at a vector of positions. Along other dimensions, and where no part has
// positions or rows of its own, it is by the mapping.
Placement index_add(PlacementCall& call) {
  const RowWrite write{call.arg(0),
                       call.arg(2, "index"),
                       call.arg(3, "source"),
                       call.dim(call.int_arg(1, "dim", 0), call.rank(call.arg(0))),
                       true,
                       Pairing::kIndexed};
  const bool is_vector = call.rank(write.positions) == 1 && !call.arg(4, "alpha").arg.is_node();
  if (is_vector && (call.of(write.positions).is_rows() || has_rows_at_positions(call, write)))
    return write_rows(call, write);
  return call.op().writes ? by_factors_in_place(call) : by_factors(call);
}

Placement repeat_interleave(PlacementCall& call) {
  if (!call.of(call.arg(0)).is_divided()) return Placement::whole();
  const Operand rows = call.arg(1, "output_size");
  if (rows && rows.arg.is(ArgKind::kSymbolic))
    call.refuse("chunk.raw-symbol", "the number of its rows is a raw symbolic argument",
                "trace with symbolic sizes as nodes");
  if (rows) call.take_part(rows);
  return Placement::local(0);
}

Placement scalar_read(PlacementCall& call) {
  const Placement p = call.of(call.arg(0));
  if (p.is_rows()) call.refuse(std::string(kCombination), "it reads a number from rows of a part");
  const TensorType* read = call.tensor(call.arg(0));
  const bool is_count = read != nullptr && converts_sums(read->dtype, DType::kInt64);
  if (!p.is_divided() || is_count) return p;
  // Only sizes are added up over the parts: any other number, and one that wraps at 8 or 16 bits,
  // is read from the whole.
  call.take_whole(call.arg(0));
  return Placement::whole();
}

bool writes_over(const OpInfo& op) {
  return !op.find_param("reduce");
}

constexpr PlacementRow kRoutingRows[] = {
    {OpFamily::kTopK, topk},
    {OpFamily::kSort, sort},
    {OpFamily::kGather, gather},
    {OpFamily::kIndex, index},
    {OpFamily::kIndexSelect, index_select},
    {OpFamily::kScatter, scatter, writes_over},
    {OpFamily::kScatterAdd, scatter_add, any_op},
    {OpFamily::kRowScatter, deterministic_scatter_add},
    {OpFamily::kIndexPut, index_put, any_op},
    {OpFamily::kIndexAdd, index_add, any_op},
    {OpFamily::kRepeatRows, repeat_interleave},
    {OpFamily::kHostRead, scalar_read},
};

}  // namespace

std::span<const PlacementRow> routing_placement_rows() {
  return kRoutingRows;
}

}  // namespace epweave
