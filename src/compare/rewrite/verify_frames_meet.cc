// What rows in two orders that meet are: one order, refused, or assumed to be.
#include "compare/rewrite/verify_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "compare/rewrite/conditions.h"

namespace epweave {

void FrameCheck::pair(const Operand& x, const Order& a, const Operand& y, const Order& b) {
  switch (meetings_.meet(a, b)) {
    case RowMeeting::kRight:
      return;
    case RowMeeting::kUnknown:
      return assumed_.same_tokens({value_in_a(x), a.frame}, {value_in_a(y), b.frame}, part_);
    case RowMeeting::kWrong:
      return fail_pair(x, a, y, b);
  }
}

void FrameCheck::fail_pair(const Operand& x, const Order& a, const Operand& y, const Order& b) {
  const bool are_tokens = orders_.is_tokens(a) && orders_.is_tokens(b);
  if (holds(are_tokens ? Condition::kBlocksPair : Condition::kOrdersPair, false)) return;
  const std::string how = are_tokens ? fmt::format("of which a part has some of {} blocks and of {}",
                                                   terms_[a.frame].values[0], terms_[b.frame].values[0])
                                     : "which a part has in different orders of its own";
  claims_.fail(part_, "rewrite-rows",
               fmt::format("takes rows of {} and of {} together, {}", name_of(x), name_of(y), how));
}

std::string FrameCheck::name_of(const Operand& operand) const {
  return claims_.name_a(value_in_a(operand));
}

// Whether rows come back by what they went by.
bool FrameCheck::are_undone(std::span<const std::uint64_t> went, std::span<const std::uint64_t> back) {
  const RowMeeting undone = meetings_.find_undone(went, back);
  if (undone == RowMeeting::kUnknown) assumed_.came_back(part_);
  return undone != RowMeeting::kWrong;
}

// Of a part, other rows go to a rank than of the whole. They meet the same there only if all ranks
// have it.
void FrameCheck::assume_alike_on_ranks() {
  const auto operands = facts_->operands();
  const auto is_sent = [&](const Operand& operand) {
    const Order rows = orders_.of(operand);
    return rows.is_known() && terms_.is_sent_by_place(rows.frame);
  };
  if (std::ranges::none_of(operands, is_sent)) return;
  for (const Operand& operand : operands) {
    if (!operand.is_tensor || operand.is_rows() || !operand.taken->value.is_node()) continue;
    const Claim& claim = claims_[operand.taken->value.as_node()];
    if (claim.kind != ClaimKind::kPart && claim.origin) assumed_.alike_on_ranks(claim.origin, part_);
  }
}

// What was gathered from the ranks of a group is in one order on all of them.
void FrameCheck::assume_one_order_on_ranks(const Operand& reduced) {
  const Order rows = orders_.of(reduced);
  if (!rows.is_known() || orders_.is_tokens(rows)) return;
  const FrameTerms::Term& term = terms_[rows.frame];
  if (term.kind == FrameTerms::kGather && term.values[0] == group_of_call()) return;
  assumed_.one_order_on_ranks({value_in_a(reduced), rows.frame}, part_);
}

}  // namespace epweave
