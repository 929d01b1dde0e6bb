// Placement of collectives.
#include <fmt/format.h>

#include "ops/collective_arguments.h"
#include "placement/placement_blocks.h"
#include "placement/rules/placement_rules.h"

namespace epweave {
namespace {

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
  // Shares of the same size that are whole blocks change places, and blocks of parts with them.
  const auto ranks = count_equal_shares(call.facts(), call.graph(), call.node());
  if (p.is(PlacementKind::kSplit) && p.dim == 0 && ranks && cut_blocks(call.facts().pool(), p, *ranks) &&
      (splits_per_part || call.items(call.arg(1)).empty()))
    return p;
  if (p.is_rows() && p.dim == 0) {
    if (!splits_per_part)
      call.refuse(
          "chunk.whole-splits", "it exchanges a part's rows by split sizes that are those of all rows",
          "the sizes must come from counts that each part can make of its own rows (sums of integers)");
    call.assume("exchanges the part's own rows");
    return Placement::local(0);
  }
  // Tokens behind the dimension that ranks exchange, [experts, tokens, width]: every row sent has
  // each part's tokens in it, on all ranks alike.
  if (p.is(PlacementKind::kSplit) && !splits_divided) return p;
  call.refuse("chunk.combination", fmt::format("it exchanges a value placed {}", print_placement(p)));
}

// A maximum over the ranks, for one, is no sum of the parts' maxima.
bool reduces_linearly(const PlacementCall& call) {
  const Operand kind = call.arg(1, "reduce_op");
  const TensorType* type = call.tensor(call.arg(0));
  return type != nullptr && kind.arg.is(ArgKind::kText) &&
         is_linear_reduction(call.graph().text(kind.arg.as_name()), type->dtype);
}

// One collective on the joined value.
Placement whole_collective(PlacementCall& call) {
  call.take_whole(call.arg(0));
  return Placement::whole();
}

// Where ranks share the tokens, modules gather and scatter them inside: then a part's rows of all
// ranks are blocks of the whole's, and each part has a collective of its own. All ranks of a group
// have parts of the same sizes.
bool is_divided_on_each_rank(PlacementCall& call, const Placement& p) {
  if (!p.is(PlacementKind::kSplit)) return false;
  const TensorType* type = call.tensor(call.arg(0));
  return type != nullptr && call.tokens().is_shared(type->sizes[static_cast<std::size_t>(p.dim)]);
}

// How many times the rows of one the other has.
std::optional<std::int64_t> count_ranks(PlacementCall& call, const TensorType* all, const TensorType* one) {
  if (all == nullptr || one == nullptr) return std::nullopt;
  return count_runs(call.facts(), all->sizes[0], one->sizes[0]);
}

Placement all_gather(PlacementCall& call) {
  const Placement p = call.of(call.arg(0));
  const auto ranks = count_ranks(call, call.result_tensor(), call.tensor(call.arg(0)));
  if (!ranks || !is_divided_on_each_rank(call, p)) return whole_collective(call);
  return p.dim == 0 ? join_blocks(call.facts().pool(), p, *ranks) : p;
}

// Adds up over the ranks. In eager mode each part's gradient is added up by a collective of its
// own.
Placement reduction_of_sums(PlacementCall& call) {
  const bool is_eager = call.options().grad_accumulation == GradAccumulation::kEager;
  const bool is_gradient = call.node().is_backward() && call.of(call.arg(0)).is_partial();
  return is_eager && is_gradient && reduces_linearly(call) ? Placement::partial() : whole_collective(call);
}

// Row by row over the ranks.
Placement all_reduce(PlacementCall& call) {
  const Placement p = call.of(call.arg(0));
  return is_divided_on_each_rank(call, p) ? p : reduction_of_sums(call);
}

// The same, and each rank has a run of the rows: rows of parts, if the run is whole blocks.
Placement reduce_scatter(PlacementCall& call) {
  const Placement p = call.of(call.arg(0));
  if (!is_divided_on_each_rank(call, p)) return reduction_of_sums(call);
  if (p.dim != 0) return p;
  const auto ranks = count_ranks(call, call.tensor(call.arg(0)), call.result_tensor());
  const auto run = ranks ? cut_blocks(call.facts().pool(), p, *ranks) : std::nullopt;
  return run ? *run : whole_collective(call);
}

// One rank's rows for all.
Placement broadcast(PlacementCall& call) {
  const Placement p = call.of(call.arg(0));
  return is_divided_on_each_rank(call, p) ? p : whole_collective(call);
}

// Not a list of them, nor one that it is given.
bool returns_one_tensor(const OpInfo& op) {
  return !op.writes && op.params[0].type == "Tensor";
}

constexpr PlacementRow kCollectivesRows[] = {
    {OpFamily::kAllToAll, all_to_all, returns_one_tensor},
    {OpFamily::kAllGather, all_gather, returns_one_tensor},
    {OpFamily::kReduceScatter, reduce_scatter, returns_one_tensor},
    {OpFamily::kAllReduce, all_reduce, returns_one_tensor},
    {OpFamily::kBroadcast, broadcast, returns_one_tensor},
};

}  // namespace

std::span<const PlacementRow> collective_placement_rows() {
  return kCollectivesRows;
}

}  // namespace epweave
