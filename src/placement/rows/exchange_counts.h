// Whether an exchange of sorted rows sends each row where the whole sends it.
//
// A part sends its own rows by split sizes of its own. They go to the same ranks as in the whole if
// the sizes are the histogram of what the rows were sorted by, in ascending order and in as many
// buckets as there are ranks:
//
//   marks  = scatter(zeros_like(scores), -1, ids, True)       one mark for each choice of a token
//   counts = sum(marks, [0])                                  how many rows each id has
//   rows   = x[sort(ids.reshape(-1))[1] // k]
//   in     = counts.reshape(ranks, -1).sum(1)                 sent to each rank
//   out    = all_to_all(counts.reshape(ranks, -1)).sum(1)     received from each
//   all_to_all(rows, out, in)
//
// Proved by following the sizes back to `ids`. Sizes that read no tensor's content, or are the
// histogram of other ids, send other rows; of all else nothing is known, nor of ids that
// a cast may have merged: rows sorted by whether their id is zero are in no order of the ids.
#pragma once

#include <string>

#include "analysis/value_numbers.h"
#include "ir/graph.h"

namespace epweave {

struct ExchangeCounts {
  enum class Verdict { kProved, kUnknown, kWrong };
  Verdict verdict = Verdict::kUnknown;
  std::string why;  // kWrong
};

// `exchange` is an all-to-all of rows in the order that the node `sort` gives.
ExchangeCounts check_exchange_counts(const Graph& graph, const ValueNumbers& numbers, NodeId exchange,
                                     NodeId sort);

}  // namespace epweave
