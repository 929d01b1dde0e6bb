// bucket: merges the collectives of sharded parameters module by module, and launches each merged
// gather one module ahead of its use.
//
//   before  g0 = all_gather(cast(p0)); w0 = wait(g0)        x = mm(h, w0) ..
//           g1 = all_gather(cast(p1)); w1 = wait(g1)        y = mm(x, w1) ..
//   after   buf = pack([p0, p1]); own = slice(buf)          both shards, cast, at this rank's place
//           g = all_gather_out(own, out=buf)                one launch
//           .. compute of the module before ..
//           w = wait(g); w0, w1 = the parameters, cut out of w
//
// `plan=blocks` is torchtitan's plan (docs/bucketing.md): a bucket per transformer block,
// direction, group, dtype and kind of collective; the embedding by itself, the last norm and the
// head together; experts apart from their block where they are sharded over ranks of their own.
// Within a bucket, parameters stand in the order of the model, since the order in which a ring adds
// depends on the offset. A gather is launched in front of the wait for the one before it, a
// reduce-scatter is waited for behind the launch of the next.
//
// `plan=overlap` merges, across blocks, too, only what the step is predicted to be shorter for
// (bucket_choice.h), in the order that the step has: within a budget of memory, and so that no
// collective that is hidden is exposed. Launches stand where the first of them did, waits for
// gathers where the first did, for reductions where the last did. The whole result is simulated
// beside its input; what is not shorter is not returned. Where the step is scheduled behind it
// (`then`), the schedule of the result must be shorter than the schedule of the input, too: a good
// order hides what a merge would save, and the copies stay. Where nothing pays, the step stays as
// it is.
//
// What is left alone: gathers of what is no parameter, gradients that are added up behind the
// reduction, collectives with other than one wait, of sizes that are no numbers, or of storage that
// is written between launch and wait.
//
// Numerics: gathers are exact; a reduction adds the same summands, in an order that its library
// chooses by the place in the buffer (sum-order), but where a bucket holds one tensor, whose layout
// is kept.
#pragma once

#include <optional>

#include "passes/pass.h"
#include "passes/schedule/schedule.h"

namespace epweave {

struct BucketOptions {
  std::optional<PriceOptions> overlap;  // plan=overlap, by these; none: plan=blocks
  std::optional<ScheduleOptions> then;  // with plan=overlap: of the schedule behind it
};

// Of plan=overlap, throws PassError simulate.unpriced (a call that nothing prices), and InputError
// where the measured costs are of another graph.
PassResult bucket(const Graph& graph, const BucketOptions& options = {});

}  // namespace epweave
