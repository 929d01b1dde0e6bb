// schedule{like=inductor}: the order that PyTorch's overlap scheduler (torch 2.15,
// schedule_overlap_bucketing) gives a step, and, where it is asked for, the collectives that its
// overlap-preserving bucketer merges in that order.
//
//   ordered   g0 = all_gather(p)  g1 = all_gather(q)  y = mm(x, x)  w0 = wait(g0)  w1 = wait(g1)
//   merged    buf = pack([p, q])  g = all_gather_out(slice(buf), out=buf)  y = mm(x, x)  w = wait(g)  w0, w1 = pieces of w
//
// What to merge: schedule/inductor_buckets.h. A merged launch is written where its first member's
// was (BucketWriter); then the step is sorted, stably, by what its nodes take and by what keeps
// collectives hidden.
//
// Collectives that bucket's writer cannot merge stay alone, and a note says why.
//
// Refusals: those of `schedule`, and PassError schedule.bucket-order (what keeps collectives hidden
// contradicts itself once they are merged; the reference stops there, too).
#pragma once

#include "passes/pass.h"
#include "passes/schedule/schedule.h"

namespace epweave {

// `options.like_inductor` is given.
PassResult schedule_like_inductor(const Graph& graph, const ScheduleOptions& options);

}  // namespace epweave
