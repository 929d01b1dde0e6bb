// The refusals of prove_frames (frames.h): each throws PassError.
#pragma once

#include <string_view>

#include "ir/graph.h"

namespace epweave {

// Rows in token order paired with rows that were sorted, picked or exchanged.
[[noreturn]] void decline_other_order(const Graph& graph, NodeId id, NodeId ordered, NodeId moved);
// Rows in two such orders.
[[noreturn]] void decline_two_orders(const Graph& graph, NodeId id, NodeId one, NodeId other);
// `user` needs rows of which nothing is known since `at` picked or wrote them.
[[noreturn]] void decline_unproved_rows(const Graph& graph, NodeId user, NodeId at);
// Rows of `source` made of several.
[[noreturn]] void decline_regrouped_rows(const Graph& graph, NodeId id, NodeId source);
// What is made of 0, 1, .. meets rows of which a part has some of each block.
[[noreturn]] void decline_counted_rows(const Graph& graph, NodeId id, NodeId counted, NodeId in_blocks);
// An exchange that sends rows elsewhere.
[[noreturn]] void decline_split_sizes(const Graph& graph, NodeId id, std::string_view why);

}  // namespace epweave
