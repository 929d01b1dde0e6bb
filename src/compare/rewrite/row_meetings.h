// Whether rows in two orders can meet, for all calls that take rows together. One that lies in
// runs is in the other's from there on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "analysis/frame_terms.h"
#include "analysis/value_numbers.h"
#include "compare/rewrite/frame_order.h"
#include "compare/rewrite/sorted_counts.h"

namespace epweave {

enum class RowMeeting : std::uint8_t { kRight, kUnknown, kWrong };

class RowMeetings {
 public:
  // All must outlive it. `numbers`: of A.
  RowMeetings(const ValueNumbers& numbers, FrameTerms& terms, SortedCounts& counts)
      : numbers_(numbers), terms_(terms), counts_(counts) {}

  // Another call: what met in the one before has met.
  void begin() { met_.clear(); }

  // Whether rows of the one are those of the other: what every call asks whose rows meet. Of rows
  // of which nothing is known it is never kRight, but with themselves.
  RowMeeting meet(const FrameOrder& x, const FrameOrder& y);
  // Whether rows come back by what they went by.
  RowMeeting find_undone(std::span<const std::uint64_t> went, std::span<const std::uint64_t> back);

  // With the orders of rows that runs have met in this call in the place of theirs.
  FrameOrder settled(const FrameOrder& order);

 private:
  RowMeeting meet(FrameId a, FrameId b);
  std::optional<RowMeeting> meet_alike(FrameId a, FrameId b);
  RowMeeting meet_others(FrameId a, FrameId b);
  static RowMeeting meet_tokens(const FrameTerms::Term& x, const FrameTerms::Term& y);
  RowMeeting meet_runs(FrameId runs, FrameId rows);
  RowMeeting meet_parts(std::uint64_t a, std::uint64_t b);
  RowMeeting meet_joined(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b);
  RowMeeting find_runs(NodeId counts, FrameId rows);
  FrameId settle(FrameId frame);

  const ValueNumbers& numbers_;
  FrameTerms& terms_;
  SortedCounts& counts_;
  std::vector<std::pair<FrameId, FrameId>> met_;  // orders of runs, and of the rows that they met
};

}  // namespace epweave
