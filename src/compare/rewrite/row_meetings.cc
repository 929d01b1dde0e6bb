#include "compare/rewrite/row_meetings.h"

#include <algorithm>

#include "compare/rewrite/equal_parts.h"

namespace epweave {

RowMeeting RowMeetings::meet(const FrameOrder& x, const FrameOrder& y) {
  if (!x.is_known() || !y.is_known()) return RowMeeting::kRight;
  const std::optional<RowMeeting> alike = meet_alike(x.frame, y.frame);
  if (alike) return *alike;
  const RowMeeting others = meet_others(x.frame, y.frame);
  const bool is_unknown = terms_.is_unknown(x.frame) || terms_.is_unknown(y.frame);
  return others == RowMeeting::kWrong && is_unknown ? RowMeeting::kUnknown : others;
}

RowMeeting RowMeetings::meet(FrameId a, FrameId b) {
  const std::optional<RowMeeting> alike = meet_alike(a, b);
  return alike ? *alike : meet_others(a, b);
}

RowMeeting RowMeetings::meet_others(FrameId a, FrameId b) {
  const FrameTerms::Term &x = terms_[a], &y = terms_[b];
  if (x.kind == FrameTerms::kTokenOrder && y.kind == FrameTerms::kTokenOrder) return meet_tokens(x, y);
  // Rows that were put into two orders do not meet, whatever runs they were.
  const FrameId runs = terms_.runs_below(a);
  if (runs && runs == terms_.runs_below(b)) return RowMeeting::kWrong;
  if (x.kind == FrameTerms::kRuns) return meet_runs(a, b);
  if (y.kind == FrameTerms::kRuns) return meet_runs(b, a);
  const bool is_made_alike = x.kind == y.kind && x.values == y.values && x.base && y.base;
  if (is_made_alike) return meet(x.base, y.base);
  if (x.kind == FrameTerms::kJoin && y.kind == FrameTerms::kJoin && x.values.size() == y.values.size())
    return meet_joined(x.values, y.values);
  const bool is_of_tokens = x.kind == FrameTerms::kTokenOrder || y.kind == FrameTerms::kTokenOrder;
  return !is_of_tokens && (terms_.is_in_runs(a) || terms_.is_in_runs(b)) ? RowMeeting::kUnknown
                                                                         : RowMeeting::kWrong;
}

// Of the same blocks. Data that repeat themselves meet rows of any (RowBlocks::check_remainders).
RowMeeting RowMeetings::meet_tokens(const FrameTerms::Term& x, const FrameTerms::Term& y) {
  const std::uint64_t of_x = x.values[0], of_y = y.values[0];
  return of_x == of_y || of_x == 0 || of_y == 0 ? RowMeeting::kRight : RowMeeting::kWrong;
}

// Of orders that are one in A, or that the same code makes there: parts may be cut in two ways.
// None: others.
std::optional<RowMeeting> RowMeetings::meet_alike(FrameId a, FrameId b) {
  if (a == b) return RowMeeting::kRight;
  if (!terms_.may_be_same(a, b)) return {};
  RowMeeting result = RowMeeting::kUnknown;
  for (; a != b; a = terms_[a].base, b = terms_[b].base) {
    const FrameTerms::Term &x = terms_[a], &y = terms_[b];
    for (std::size_t i = 0; i < x.values.size(); ++i)
      if (x.values[i] != y.values[i]) result = std::max(result, meet_parts(x.values[i], y.values[i]));
  }
  return result;
}

// Of two values of A.
RowMeeting RowMeetings::meet_parts(std::uint64_t a, std::uint64_t b) {
  const EqualParts::Verdict verdict =
      counts_.parts().compare_parts(FrameTerms::node_of(a), FrameTerms::node_of(b));
  return verdict == EqualParts::Verdict::kOther ? RowMeeting::kWrong : RowMeeting::kUnknown;
}

RowMeeting RowMeetings::find_undone(std::span<const std::uint64_t> went,
                                    std::span<const std::uint64_t> back) {
  if (std::ranges::equal(went, back)) return RowMeeting::kRight;
  const bool may_be_one = std::ranges::equal(went, back, [&](std::uint64_t x, std::uint64_t y) {
    const bool are_calls = (x & y & FrameTerms::kNodeWord) != 0;
    return x == y || (are_calls && numbers_[FrameTerms::node_of(x)] == numbers_[FrameTerms::node_of(y)] &&
                      meet_parts(x, y) != RowMeeting::kWrong);
  });
  return may_be_one ? RowMeeting::kUnknown : RowMeeting::kWrong;
}

// Those that are joined in one place meet each other.
RowMeeting RowMeetings::meet_joined(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
  RowMeeting result = RowMeeting::kRight;
  for (std::size_t i = 0; i < a.size(); i += 2) {
    const bool are_as_many = a[i + 1] == b[i + 1];
    if (are_as_many && a[i] == b[i]) continue;
    if (!are_as_many || a[i] == FrameTerms::kNoFrame || b[i] == FrameTerms::kNoFrame)
      return RowMeeting::kWrong;
    result = std::max(result, meet(FrameId(a[i]), FrameId(b[i])));
  }
  return result;
}

// Rows that meet the same runs in one call meet each other.
RowMeeting RowMeetings::meet_runs(FrameId runs, FrameId rows) {
  for (const auto& [others, met] : met_)
    if (others == runs && met != rows) return meet(met, rows);
  const RowMeeting found = find_runs(FrameTerms::node_of(terms_[runs].values[0]), rows);
  if (found != RowMeeting::kWrong) met_.emplace_back(runs, rows);
  return found;
}

// Rows in the order of the tokens are taken to lie in no runs: they do only where the ids ascend
// already. Of those that were neither sorted nor received, nothing is known.
RowMeeting RowMeetings::find_runs(NodeId counts, FrameId rows) {
  if (terms_[rows].kind == FrameTerms::kTokenOrder) return RowMeeting::kWrong;
  switch (counts_.check_runs(counts, rows)) {
    case SortedCounts::Verdict::kCounted:
      return RowMeeting::kRight;
    case SortedCounts::Verdict::kOthers:
      return RowMeeting::kWrong;
    case SortedCounts::Verdict::kUnknown:
      break;
  }
  return RowMeeting::kUnknown;
}

FrameOrder RowMeetings::settled(const FrameOrder& order) {
  return order.is_known() && !met_.empty() ? FrameOrder::known(settle(order.frame)) : order;
}

FrameId RowMeetings::settle(FrameId frame) {
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

}  // namespace epweave
