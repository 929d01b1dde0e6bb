#include "compare/rewrite/sorted_counts.h"

#include <fmt/format.h>

#include "compare/rewrite/conditions.h"
#include "ops/named_arg.h"
#include "ops/op.h"

namespace epweave {

SortedCounts::SortedCounts(RewriteClaims& claims, const BothEffects& effects, const RowBlocks& blocks,
                           const ValueNumbers& numbers, const FrameTerms& terms)
    : claims_(claims),
      context_(*claims.graph_a().context),
      a_(claims.graph_a().step()),
      effects_b_(effects.of_b),
      blocks_(blocks),
      numbers_(numbers),
      terms_(terms),
      counts_(claims.graph_a(), effects.of_a, numbers) {}

void SortedCounts::note_exchange(FrameId frame, NodeId exchange) {
  if (NodeId& first = exchanges_.at(frame); !first) first = exchange;
}

SortedCounts::Finding SortedCounts::check_exchange(NodeId exchange, FrameId rows) {
  const NodeId sort = sort_behind(rows);
  Finding finding = sort ? counts_.check(exchange, sort) : Finding();
  if (finding.verdict == Verdict::kCounted && !are_parts_counted(exchange, sort)) return {};
  return finding;
}

SortedCounts::Finding SortedCounts::check_groups(NodeId product, NodeId ends, FrameId rows) {
  if (const NodeId sort = sort_behind(rows)) {
    const Finding finding = counts_.check_ends(ends, sort);
    return finding.verdict != Verdict::kCounted || are_parts_counted(product, sort) ? finding : Finding();
  }
  const auto placed = placed_rows(rows);
  if (!placed) return {};
  const Finding finding =
      counts_.check_ends_of_places(ends, placed->places, placed->of.exchange, placed->of.sort);
  return finding.verdict != Verdict::kCounted || are_parts_placed(product, *placed) ? finding : Finding();
}

SortedCounts::Verdict SortedCounts::check_runs(NodeId counts, FrameId rows) {
  const auto sorted = sorted_rows(rows);
  if (!sorted) return Verdict::kUnknown;
  Verdict found = counts_.check_runs(counts, sorted->exchange, sorted->sort).verdict;
  for (std::uint32_t k = 0; k < claims_.part_count(sorted->sort) && found == Verdict::kCounted; ++k) {
    const NodeId own_counts = claims_.part_of(counts, k);
    const auto own = of_part(*sorted, k);
    if (!own_counts || !own) return Verdict::kUnknown;
    found = verdict_of(of_b().counts.check_runs(own_counts, own->exchange, own->sort));
  }
  return found;
}

// The call whose order the rows are in, if they were sorted, by whatever order they were in before.
NodeId SortedCounts::sort_behind(FrameId frame) const {
  const FrameTerms::Term& term = terms_[frame];
  if (term.kind != FrameTerms::kSort && term.kind != FrameTerms::kPick) return {};
  const NodeId call = FrameTerms::node_of(term.values[0]);
  return has_family(a_.nodes[call], OpFamily::kSort) ? call : NodeId();
}

SortedCounts::OfB& SortedCounts::of_b() {
  if (!of_b_) of_b_.emplace(claims_, numbers_, effects_b_, blocks_);
  return *of_b_;
}

// What B counts and sorts is one value in A: others are parts that B cuts in two ways.
SortedCounts::Verdict SortedCounts::verdict_of(const Finding& finding) {
  if (finding.verdict != Verdict::kUnknown || !finding.counted) return finding.verdict;
  const NodeId counted = claims_[finding.counted].origin, sorted_by = claims_[finding.sorted_by].origin;
  if (!counted || !sorted_by || numbers_[counted] != numbers_[sorted_by]) return Verdict::kUnknown;
  if (holds(Condition::kEqualPartsAreOne, false)) return Verdict::kCounted;
  const bool are_others =
      of_b().parts.compare(finding.counted, finding.sorted_by) == EqualParts::Verdict::kOther;
  return are_others ? Verdict::kOthers : Verdict::kUnknown;
}

// One value of the whole can be cut in two ways, of which a part counts one and sorts the other.
// False: that is not known. Parts that are known to do so are reported.
bool SortedCounts::are_parts_counted(NodeId call, NodeId sort) {
  const Graph& b = claims_.graph_b();
  const CountCheck& counts = of_b().counts;
  for (const NodeId part : claims_.parts(call)) {
    const NodeId own_sort = claims_.part_of(sort, claims_[part].part);
    if (!own_sort) return false;
    const Node& node = b.step().nodes[part];
    const Arg ends = named_arg(context_, node, "offs");
    const Finding finding = node.op->family == OpFamily::kAllToAll ? counts.compare_ids(part, own_sort)
                            : ends.is_node() ? counts.compare_ids_of_ends(ends.as_node(), own_sort)
                                             : Finding();
    if (verdict_in(part, finding) == Verdict::kUnknown) return false;
  }
  return true;
}

// Reports a part that counts other rows.
SortedCounts::Verdict SortedCounts::verdict_in(NodeId part, const Finding& finding) {
  const CountCheck::Verdict verdict = verdict_of(finding);
  if (verdict == Verdict::kOthers)
    claims_.fail(part, "rewrite-rows",
                 fmt::format("it counts the rows of {}, and its rows are sorted by {}",
                             claims_.name_b(finding.counted), claims_.name_b(finding.sorted_by)));
  return verdict;
}

std::optional<SortedCounts::SortedRows> SortedCounts::sorted_rows(FrameId frame) const {
  const FrameTerms::Term& term = terms_[frame];
  const bool is_sent = term.kind == FrameTerms::kExchange;
  const NodeId sort = sort_behind(is_sent ? term.base : frame);
  if (!sort || claims_.parts(sort).empty()) return {};
  return SortedRows{is_sent ? exchanges_[frame] : NodeId(), sort};
}

std::optional<SortedCounts::SortedRows> SortedCounts::of_part(const SortedRows& rows,
                                                              std::uint32_t part) const {
  const SortedRows own{rows.exchange ? claims_.part_of(rows.exchange, part) : NodeId(),
                       claims_.part_of(rows.sort, part)};
  return own.sort && own.exchange.valid() == rows.exchange.valid() ? std::optional(own) : std::nullopt;
}

std::optional<SortedCounts::PlacedRows> SortedCounts::placed_rows(FrameId frame) const {
  const FrameTerms::Term& pick = terms_[frame];
  if (pick.kind != FrameTerms::kPick) return {};
  const NodeId places = FrameTerms::node_of(pick.values[0]);
  const auto of = pick.base ? sorted_rows(pick.base) : std::nullopt;
  if (!of || claims_.parts(places).empty()) return {};
  return PlacedRows{places, *of};
}

// The places of a part are made of its own counts.
bool SortedCounts::are_parts_placed(NodeId call, const PlacedRows& rows) {
  const CountCheck& counts = of_b().counts;
  for (const NodeId part : claims_.parts(call)) {
    const std::uint32_t k = claims_[part].part;
    const NodeId places = claims_.part_of(rows.places, k);
    const auto own = of_part(rows.of, k);
    const Arg ends = named_arg(context_, claims_.graph_b().step().nodes[part], "offs");
    if (!places || !own || !ends.is_node()) return false;
    const Finding finding = counts.check_ends_of_places(ends.as_node(), places, own->exchange, own->sort);
    if (verdict_in(part, finding) == Verdict::kUnknown) return false;
  }
  return true;
}

}  // namespace epweave
