// Whether rows in two orders may meet.
#include "compare/rewrite/verify_frames.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/rewrite/conditions.h"

namespace epweave {

void FrameCheck::pair(const Operand& x, const Order& a, const Operand& y, const Order& b) {
  if (!a.is_known() || !b.is_known() || a == b) return;
  if (is_tokens(a) && is_tokens(b)) return pair_tokens(x, a, y, b);
  const std::optional<Meeting> alike = meet_alike(a.frame, b.frame);
  const Meeting meeting = alike ? *alike : meet_others(a.frame, b.frame);
  if (meeting == Meeting::kRight) return;
  const bool are_others = alike == Meeting::kWrong;
  const bool may_meet = meeting == Meeting::kUnknown || is_unknown(a) || is_unknown(b);
  if (!are_others && may_meet) return assume(x, a, y, b);
  if (holds(Condition::kOrdersPair, false)) return;
  claims_.fail(
      part_, "rewrite-rows",
      fmt::format("takes rows of {} and of {} together, which a part has in different orders of its own",
                  name_of(x), name_of(y)));
}

FrameCheck::Meeting FrameCheck::meet(FrameId a, FrameId b) {
  const std::optional<Meeting> alike = meet_alike(a, b);
  return alike ? *alike : meet_others(a, b);
}

FrameCheck::Meeting FrameCheck::meet_others(FrameId a, FrameId b) {
  const FrameTerms::Term &x = terms_[a], &y = terms_[b];
  if (x.kind == FrameTerms::kRuns) return meet_runs(a, b);
  if (y.kind == FrameTerms::kRuns) return meet_runs(b, a);
  const bool is_made_alike = x.kind == y.kind && x.values == y.values && x.base && y.base;
  if (is_made_alike) return meet(x.base, y.base);
  if (x.kind == FrameTerms::kJoin && y.kind == FrameTerms::kJoin && x.values.size() == y.values.size())
    return meet_joined(x.values, y.values);
  const bool is_of_tokens = x.kind == FrameTerms::kTokenOrder || y.kind == FrameTerms::kTokenOrder;
  return !is_of_tokens && (terms_.is_in_runs(a) || terms_.is_in_runs(b)) ? Meeting::kUnknown
                                                                         : Meeting::kWrong;
}

// Of orders that are one in A, or that the same code makes there: parts may be cut in two ways.
// None: others.
std::optional<FrameCheck::Meeting> FrameCheck::meet_alike(FrameId a, FrameId b) {
  if (a == b) return Meeting::kRight;
  if (!terms_.may_be_same(a, b)) return {};
  Meeting result = Meeting::kUnknown;
  for (; a != b; a = terms_[a].base, b = terms_[b].base) {
    const FrameTerms::Term &x = terms_[a], &y = terms_[b];
    for (std::size_t i = 0; i < x.values.size(); ++i)
      if (x.values[i] != y.values[i]) result = std::max(result, meet_parts(x.values[i], y.values[i]));
  }
  return result;
}

// Of two values of A.
FrameCheck::Meeting FrameCheck::meet_parts(std::uint64_t a, std::uint64_t b) {
  const EqualParts::Verdict verdict =
      of_b().parts.compare_parts(FrameTerms::node_of(a), FrameTerms::node_of(b));
  return verdict == EqualParts::Verdict::kOther ? Meeting::kWrong : Meeting::kUnknown;
}

// Whether rows come back by what they went by.
bool FrameCheck::are_undone(std::span<const std::uint64_t> went, std::span<const std::uint64_t> back) {
  if (std::ranges::equal(went, back)) return true;
  const bool may_be_one = std::ranges::equal(went, back, [&](std::uint64_t x, std::uint64_t y) {
    const bool are_calls = (x & y & FrameTerms::kNodeWord) != 0;
    return x == y || (are_calls && numbers_[FrameTerms::node_of(x)] == numbers_[FrameTerms::node_of(y)] &&
                      meet_parts(x, y) != Meeting::kWrong);
  });
  if (!may_be_one) return false;
  assumptions_.push_back(fmt::format("rows come back by the numbers by which they went in each part, at {}",
                                     claims_.name_b(part_)));
  return true;
}

// Those that are joined in one place meet each other.
FrameCheck::Meeting FrameCheck::meet_joined(std::span<const std::uint64_t> a,
                                            std::span<const std::uint64_t> b) {
  Meeting result = Meeting::kRight;
  for (std::size_t i = 0; i < a.size(); i += 2) {
    const bool are_as_many = a[i + 1] == b[i + 1];
    if (are_as_many && a[i] == b[i]) continue;
    if (!are_as_many || a[i] == FrameTerms::kNoFrame || b[i] == FrameTerms::kNoFrame) return Meeting::kWrong;
    result = std::max(result, meet(FrameId(a[i]), FrameId(b[i])));
  }
  return result;
}

// Rows that meet the same runs in one call meet each other.
FrameCheck::Meeting FrameCheck::meet_runs(FrameId runs, FrameId rows) {
  for (const auto& [others, met] : met_)
    if (others == runs && met != rows) return meet(met, rows);
  const Meeting found = find_runs(FrameTerms::node_of(terms_[runs].values[0]), rows);
  if (found != Meeting::kWrong) met_.emplace_back(runs, rows);
  return found;
}

// Rows in the order of the tokens are taken to lie in no runs: they do only where the ids ascend
// already. Of those that were neither sorted nor received, nothing is known.
FrameCheck::Meeting FrameCheck::find_runs(NodeId counts, FrameId rows) {
  if (terms_[rows].kind == FrameTerms::kTokenOrder) return Meeting::kWrong;
  const auto sorted = sorted_rows(rows);
  if (!sorted) return Meeting::kUnknown;
  const auto meeting_of = [](CountCheck::Verdict verdict) {
    using Verdict = CountCheck::Verdict;
    return verdict == Verdict::kCounted  ? Meeting::kRight
           : verdict == Verdict::kOthers ? Meeting::kWrong
                                         : Meeting::kUnknown;
  };
  Meeting found = meeting_of(counts_.check_runs(counts, sorted->exchange, sorted->sort).verdict);
  for (std::uint32_t k = 0; k < claims_.part_count(sorted->sort) && found == Meeting::kRight; ++k) {
    const NodeId own_counts = claims_.part_of(counts, k);
    const auto own = of_part(*sorted, k);
    if (!own_counts || !own) return Meeting::kUnknown;
    found = meeting_of(verdict_of(of_b().counts.check_runs(own_counts, own->exchange, own->sort)));
  }
  return found;
}

FrameCheck::Order FrameCheck::settled(const Order& order) {
  return order.is_known() && !met_.empty() ? known(settle(order.frame)) : order;
}

FrameId FrameCheck::settle(FrameId frame) {
  if (!terms_.is_in_runs(frame)) return frame;
  for (const auto& [runs, rows] : met_)
    if (frame == runs) return rows;
  FrameTerms::Term term = terms_[frame];
  if (term.base) term.base = settle(term.base);
  if (term.kind == FrameTerms::kJoin)
    for (std::size_t i = 0; i < term.values.size(); i += 2)
      if (term.values[i] != FrameTerms::kNoFrame) term.values[i] = settle(FrameId(term.values[i])).index();
  return terms_.intern(std::move(term));
}

// Where blocks are not known, or it reports them itself, OrderCheck says so.
void FrameCheck::pair_tokens(const Operand& x, const Order& a, const Operand& y, const Order& b) {
  const std::uint64_t of_x = terms_[a.frame].values[0], of_y = terms_[b.frame].values[0];
  if (of_x == 0 || of_y == 0 || orders_.has_reported(part_) || holds(Condition::kBlocksPair, false)) return;
  claims_.fail(
      part_, "rewrite-rows",
      fmt::format("takes rows of {} and of {} together, of which a part has some of {} blocks and of {}",
                  name_of(x), name_of(y), of_x, of_y));
}

std::string FrameCheck::name_of(const Operand& operand) const {
  return claims_.name_a(value_in_a(operand));
}

void FrameCheck::assume(const Operand& x, const Order& a, const Operand& y, const Order& b) {
  if (!assumed_.insert(std::minmax(a.frame, b.frame)).second) return;
  assumptions_.push_back(fmt::format("rows of {} and {} are those of the same tokens in each part, at {}",
                                     name_of(x), name_of(y), claims_.name_b(part_)));
}

// Of a part, other rows go to a rank than of the whole. They meet the same there only if all ranks
// have it.
void FrameCheck::assume_alike_on_ranks() {
  const auto operands = facts_->operands();
  const auto is_sent = [&](const Operand& operand) {
    const Order rows = order_of(operand);
    return rows.is_known() && terms_.is_sent_by_place(rows.frame);
  };
  if (std::ranges::none_of(operands, is_sent)) return;
  for (const Operand& operand : operands) {
    if (!operand.is_tensor || operand.is_rows() || !operand.taken->value.is_node()) continue;
    const Claim& claim = claims_[operand.taken->value.as_node()];
    if (claim.kind == ClaimKind::kPart || !claim.origin || !alike_.insert(claim.origin)) continue;
    assumptions_.push_back(fmt::format("{} is the same on all ranks that rows are sent to, at {}",
                                       name_of(operand), claims_.name_b(part_)));
  }
}

// What was gathered from the ranks of a group is in one order on all of them.
void FrameCheck::assume_one_order_on_ranks(const Operand& reduced) {
  const Order rows = order_of(reduced);
  if (!rows.is_known() || is_tokens(rows)) return;
  const FrameTerms::Term& term = terms_[rows.frame];
  if (term.kind == FrameTerms::kGather && term.values[0] == group_of_call()) return;
  if (!one_order_.insert(rows.frame)) return;
  assumptions_.push_back(fmt::format("rows of {} are those of the same tokens on all ranks, at {}",
                                     name_of(reduced), claims_.name_b(part_)));
}

// Of rows that went to ranks by their places, a rank has others in parts than of the whole: sums
// over them are the same only once they are added up over the ranks.
void FrameCheck::assume_all_rows(const Operand& summed) {
  const FrameId frame = order_of(summed).frame;
  if (!assumed_.insert({frame, frame}).second) return;
  const std::string value = name_of(summed), at = claims_.name_b(part_);
  if (terms_.is_unknown(frame))
    assumptions_.push_back(
        fmt::format("the parts of {} together have each of its rows once, at {}", value, at));
  if (terms_.is_sent_by_place(frame))
    assumptions_.push_back(
        fmt::format("sums over {} are added up over the ranks that its rows are sent to, at {}", value, at));
}

}  // namespace epweave
