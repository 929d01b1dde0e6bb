// Placement of what moves rows: top-k, sorting, indexing, scattering, exchanges.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/placement_rules.h"

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
    call.refuse("chunk.along-divided", "it selects along the divided dimension");
  return Placement::tuple({p, p});
}

// Rows, or positions of rows, of what is placed `p`.
Placement in_own_order(const Placement& p, int dim) {
  Placement result = Placement::local(dim);
  result.blocks = p.blocks;
  return result;
}

Placement sort(PlacementCall& call) {
  const Placement p = call.of(call.arg(0));
  if (p.is_whole()) return p;
  if (!p.is_rows()) {
    call.take_whole(call.arg(0));
    return Placement::whole();
  }
  if (p.dim != call.dim(call.int_arg(2, "dim", -1), call.rank(call.arg(0)))) return Placement::tuple({p, p});
  call.assume("orders the part's own rows");
  return Placement::tuple({in_own_order(p, p.dim), in_own_order(p, p.dim)});
}

// `source` is divided along the dimension that is indexed. Positions that count rows of the part pick from
// the part; whole positions need the whole.
Placement pick(PlacementCall& call, Operand source, Operand positions, int result_dim) {
  const Placement q = call.of(positions);
  if (q.is_local()) {
    if (const Placement p = call.of(source); p.is(PlacementKind::kSplit)) require_same_order(call, p, q);
    call.assume(fmt::format("picks rows of its own part of '{}' by '{}'", call.name_of(source),
                            call.name_of(positions)));
    return in_own_order(q, result_dim);
  }
  if (q.is_partial()) call.refuse(std::string(kCombination), "its positions are a sum of parts");
  call.take_whole(source);
  Placement result = q;
  if (result.is_rows()) result.dim = result_dim;
  return result;
}

Placement gather(PlacementCall& call) {
  const Operand source = call.arg(0), index = call.arg(2, "index");
  const Placement p = call.of(source), q = call.of(index);
  if (p.is_whole() && q.is_whole()) return p;
  const int dim = call.dim(call.int_arg(1, "dim", 0), call.rank(source));
  if (p.is_rows() && p.dim == dim) return pick(call, source, index, q.dim);
  if (p.is_rows() && q.is_whole()) {
    call.take_slice_like(index, p.dim, p);
    return p;
  }
  if (p.is_partial() || q.is_partial())
    call.refuse(std::string(kCombination), "an operand is a sum of parts");
  if (p.is_whole() && q.dim != dim) {
    // The other dimensions of the index pair with the source's rows.
    const TensorType* type = call.tensor(source);
    if (type != nullptr && call.tokens().scales(type->sizes[static_cast<std::size_t>(q.dim)]))
      call.take_slice_like(source, q.dim, q);
  }
  const Placement rows = common_rows(call, std::vector{p, q});
  if (p.is_rows() && q.is_rows()) require_same_extent(call, {source, p.dim}, {index, q.dim});
  return rows;
}

Placement index(PlacementCall& call) {
  const Operand source = call.arg(0);
  const Placement p = call.of(source);
  const auto items = call.items(call.arg(1, "indices"));
  Operand only;
  int at = 0, used = 0;
  bool any_divided = p.is_divided();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].arg.is_node()) continue;
    only = items[i];
    at = static_cast<int>(i);
    ++used;
    any_divided |= call.of(items[i]).is_divided();
  }
  if (!any_divided) return Placement::whole();
  if (used != 1) call.refuse("chunk.several-indices", "it indexes several dimensions at once");
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
  const std::string_view target = call.graph().text(node->target);
  return target == "aten.zeros.default" || target == "aten.new_zeros.default" ||
         target == "aten.zeros_like.default";
}

// Rows `source` written or added at `positions` of dimension `dim` of `destination`.
struct RowWrite {
  Operand destination, positions, source;
  int dim = 0;
  bool accumulates = false;
};

// Rows of which all parts have all: which of them a part's positions are for is not known.
void refuse_whole_rows(PlacementCall& call, Operand source) {
  const TensorType* type = call.tensor(source);
  if (type == nullptr || call.tokens().dimensions(*type).empty()) return;
  call.refuse("chunk.whole-rows",
              fmt::format("it writes rows of '{}', which all parts share, to positions of a part",
                          call.name_of(source)),
              "make the rows inside the selected module from rows of the part");
}

Placement write_rows(PlacementCall& call, const RowWrite& write) {
  const Placement to = call.of(write.destination), at = call.of(write.positions),
                  rows = call.of(write.source);
  if (!to.is_divided() && !at.is_divided() && !rows.is_divided()) return Placement::whole();
  if (to.is_rows() && to.dim == write.dim) {
    if (at.is_local() && rows.is_whole()) refuse_whole_rows(call, write.source);
    if (at.is_local() && (rows.is_local() || rows.is_whole())) {
      if (to.is(PlacementKind::kSplit)) require_same_order(call, to, at);
      call.assume(fmt::format("writes rows of its own part by '{}'", call.name_of(write.positions)));
      Placement result = to;
      if (to.any_order) result.blocks = at.blocks;
      result.any_order = false;
      return result;
    }
    call.refuse("chunk.whole-positions",
                fmt::format("rows placed {} are written into a divided destination at positions placed {}",
                            print_placement(rows), print_placement(at)));
  }
  if (to.is_rows()) {
    if (at.is_rows() && at.dim == to.dim && (rows.is_whole() || (rows.is_rows() && rows.dim == to.dim))) {
      require_same_extent(call, {write.destination, to.dim}, {write.positions, at.dim});
      if (rows.is_rows()) require_same_extent(call, {write.positions, at.dim}, {write.source, rows.dim});
      return common_rows(call, std::vector{to, at, rows});
    }
    call.refuse("chunk.along-divided", "it scatters across the divided dimension");
  }
  if (to.is_whole() && write.accumulates && is_made_of_zeros(call, write.destination) &&
      (at.is_rows() || rows.is_rows())) {
    if (call.op().writes) {
      call.take_chain(write.destination);
      return Placement::carried();
    }
    call.rely_on_content(write.destination);
    call.assume("adds the part's rows into zeros of its own");
    return Placement::partial();
  }
  call.refuse(std::string(kCombination),
              fmt::format("rows placed {} are written at positions placed {} into a value placed {}",
                          print_placement(rows), print_placement(at), print_placement(to)));
}

Placement scatter_value(PlacementCall& call) {
  return write_rows(call, {call.arg(0),
                           call.arg(2, "index"),
                           {},
                           call.dim(call.int_arg(1, "dim", 0), call.rank(call.arg(0))),
                           false});
}

Placement scatter_add(PlacementCall& call) {
  return write_rows(call, {call.arg(0), call.arg(2, "index"), call.arg(3, "src"),
                           call.dim(call.int_arg(1, "dim", 0), call.rank(call.arg(0))), true});
}

Placement deterministic_scatter_add(PlacementCall& call) {
  return write_rows(call, {call.arg(0), call.arg(1), call.arg(2), 0, true});
}

Placement index_put(PlacementCall& call) {
  const auto items = call.items(call.arg(1, "indices"));
  if (items.size() != 1) {
    for (const Operand& operand : call.operands())
      for (const Operand& item : call.items(operand))
        if (call.of(item).is_divided())
          call.refuse("chunk.several-indices", "it indexes several dimensions at once");
    if (call.of(call.arg(0)).is_divided() || call.of(call.arg(2)).is_divided())
      call.refuse("chunk.several-indices", "it indexes several dimensions at once");
    return Placement::whole();
  }
  return write_rows(call,
                    {call.arg(0), items[0], call.arg(2, "values"), 0, call.bool_arg(3, "accumulate", false)});
}

Placement repeat_interleave(PlacementCall& call) {
  if (!call.of(call.arg(0)).is_divided()) return Placement::whole();
  if (const Operand rows = call.arg(1, "output_size")) call.take_part(rows);
  return Placement::local(0);
}

Placement scalar_read(PlacementCall& call) {
  const Placement p = call.of(call.arg(0));
  if (p.is_rows()) call.refuse(std::string(kCombination), "it reads a number from rows of a part");
  return p;
}

Placement all_to_all(PlacementCall& call) {
  const Operand value = call.arg(0);
  const Placement p = call.of(value);
  bool splits_divided = false;  // some split size
  bool splits_per_part = true;  // all of them
  for (const std::size_t i : {1UL, 2UL})
    for (const Operand& item : call.items(call.arg(i)))
      (call.of(item).is_divided() ? splits_divided : splits_per_part) = call.of(item).is_divided();
  if (p.is_whole() && !splits_divided) return p;
  if (!call.node().ep.ep && !call.node().ep.token_exchange && !call.node().ep.token_count_exchange)
    call.refuse("chunk.foreign-exchange",
                "it exchanges rows between ranks but is not labelled as expert-parallel",
                "annotate the exchange (custom['EP'] or custom['EP_token_exchange']), or select other roots");
  if (p.is_partial() && !splits_divided) return p;  // counts; equal splits permute them alike in every part
  if (p.is_rows() && p.dim == 0) {
    if (!splits_per_part)
      call.refuse(
          "chunk.whole-splits", "it exchanges a part's rows by split sizes that are those of all rows",
          "the sizes must come from counts that each part can make of its own rows (sums of integers)");
    call.assume("exchanges the part's own rows");
    return Placement::local(0);
  }
  call.refuse(std::string(kCombination), fmt::format("it exchanges a value placed {}", print_placement(p)));
}

// A maximum over the ranks, for one, is no sum of the parts' maxima.
bool is_linear_reduction(const PlacementCall& call) {
  const Operand kind = call.arg(1, "reduce_op");
  if (!kind.arg.is(ArgKind::kText)) return false;
  const std::string_view name = call.graph().text(kind.arg.as_name());
  return name == "sum" || name == "avg";
}

// One collective on the joined value.
Placement whole_collective(PlacementCall& call) {
  call.take_whole(call.arg(0));
  return Placement::whole();
}

// Adds up over the ranks. In eager mode each part's gradient is added up by a collective of its own.
Placement reduction(PlacementCall& call) {
  const bool is_eager = call.options().grad_accumulation == GradAccumulation::kEager;
  const bool is_gradient = call.node().is_backward() && call.of(call.arg(0)).is_partial();
  return is_eager && is_gradient && is_linear_reduction(call) ? Placement::partial() : whole_collective(call);
}

constexpr PlacementRow kRows[] = {
    {"aten.topk.default", topk},
    {"aten.sort.stable", sort},
    {"aten.gather.default", gather},
    {"aten.index.Tensor", index},
    {"aten.index_select.default", index_select},
    {"aten.scatter_.value", scatter_value},
    {"aten.scatter.value", scatter_value},
    {"aten.scatter_add.default", scatter_add},
    {"torchtitan.deterministic_scatter_add.default", deterministic_scatter_add},
    {"aten.index_put.default", index_put},
    {"aten.index_put_.default", index_put},
    {"aten.repeat_interleave.Tensor", repeat_interleave},
    {"aten._local_scalar_dense.default", scalar_read},
    {"_c10d_functional.all_to_all_single.default", all_to_all},
    {"_c10d_functional.all_gather_into_tensor.default", whole_collective},
    {"_c10d_functional.reduce_scatter_tensor.default", reduction},
    {"_c10d_functional.all_reduce.default", reduction},
};

}  // namespace

std::span<const PlacementRow> routing_placement_rows() {
  return kRows;
}

}  // namespace epweave
