// What `chunk` assumes of a part's own counts of rows, and `verify A B` where it cannot prove it:
// in the same words, so that what is proved is not repeated from a log.
#pragma once

#include <string_view>

namespace epweave {

inline constexpr std::string_view kGroupSizesCountRows =
    "the group sizes of each grouped_mm count the rows of each expert";
// Behind "all_to_all_single_1 is right in parts, though ".
inline constexpr std::string_view kSplitSizesMayNotCount =
    "its split sizes may not count the rows that go to each rank";

}  // namespace epweave
