// Does B compute what A computes? Translation validation: reads B's provenance as claims and proves
// each from the two graphs. Shares the IR, the op table and the analyses of effects with the
// passes, and nothing else: it does not know why a pass did something, only what the result must
// satisfy.
//
//   claim of a node of B        what is proved
//   whole: it is A's node x     same target; each argument is the whole value of x's argument
//   part k of x                 same target; each argument is part k of x's argument, or its whole value, and
//                               of the same kind in every part; or, of an argument that is written, what
//                               part k-1 of x left, if part 0 begins with all of it (buffers)
//   split of x, its pieces      x whole, cut into n equal extents along one dimension; piece k is element k
//   join of x                   cat: exactly parts 0 .. n-1, in order, along the dimension in which they are
//                               smaller than x; or of parts all permuted alike, permuted back. sum: parts 0 .. n-1 of the size of x, added in order, from
//                               the first on or from the last on, each of them a summand (part_facts.h)
//   moved                       what B packed, sent and cut out again is element by element what x
//                               is (verify_movement.h)
//   size                        a scalar whose recorded expression is that of x's argument, or its
//                               n-th part
//
// Arguments of outputs are arguments like others, so by induction all that A's outputs need is
// computed.
//
//   rewrite-derived    B's origins are A's nodes; without origins, B's nodes are A's by name
//   rewrite-inputs     the same inputs and outputs, with the same roles; the output is A's
//   rewrite-target     a node has its origin's target
//   rewrite-argument   an argument is not what the claim needs
//   rewrite-attention  a part of a FlexAttention call has not its rows of the mask, or counts them
//                      wrong
//   rewrite-part       parts are not 0 .. n-1, each once; a chunk field names another part than the
//                      provenance; a part takes what the other parts do not; all parts write the
//                      same storage and do not each add a part of the whole to it
//   rewrite-rows       a part of an op that mixes rows (softmax, mean, ...) along the dimension that is divided;
//                      rows that pair, or go to ranks, in which a part has them in other blocks (row_blocks.h);
//                      sorted rows that are sent by counts of others (verify_counts.h)
//   rewrite-split      a split or its piece is not as above
//   rewrite-join       a join is not as above
//   rewrite-moved      what is said to be a value of A, in other storage, has other elements or
//                      another order
//   rewrite-merged     a node stands for two nodes of A that are not the same value
//   rewrite-once       two nodes are the same whole node of A
//   rewrite-type       a whole value has another dtype, device or size, an input other strides; a
//                      number is another; or a value has no type where its origin has one
//   rewrite-update     an update of a buffer, an op with effects or unknown ones, or a random draw
//                      is missing (guards may go)
//   rewrite-added      a node that is neither A's nor a part of A's writes, communicates, draws or
//                      has effects
//   rewrite-effects    a node sees storage in another state: another write was the last before it,
//                      or one of which not all parts are done (verify_storage.h); or the step
//                      leaves an input or what it returns in another state
//   rewrite-strides    a value lies in memory otherwise than in A, and a call depends on it: a
//                      reshape is a view where it was a copy, and one of them is written;
//                      as_strided; unknown ops (verify_strides.h)
//   rewrite-aliases    a result shows elements of another one, of an input or of an attribute, which
//                      it does not in A (verify_aliases.h)
//   rewrite-order      random draws or ops of unknown effects changed places
//   rewrite-group      a collective runs on a group with other ranks, or a group of that name has
//                      others
//   rewrite-host-copy  what a copy to the host and back returns need not be what was sent
//                      (host_copies.h)
//   rewrite-host-read  the host reads a copy that may not have arrived, where in A it waits for it
//   rewrite-symbol     a part names what another part binds, a symbol is bound more often
//                      (part_symbols.h) or by another call than in A, or is said to be what the
//                      first graph does not say: a number, a range, a value when traced
//   rewrite-nested     a nested graph differs
//
// Where A is itself the result of a rewrite and B was made from it by another, the provenance of
// both names the nodes of a graph before; it is brought to A's first (rebase.h).
//
// What it takes for granted: symbols that are numbers in the other graph's inputs had those
// numbers; what is recorded of symbols that a rewrite made, and what it says it assumes.
// docs/rewrite_verification.md has all rules.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/verify.h"
#include "ir/graph.h"

namespace epweave {

// How the bits of a value of B relate to A's: none changed; those of running the module on each
// part; or a floating-point sum was regrouped.
enum class Numerics : std::uint8_t { kReorder, kChunkEqual, kSumOrder };
std::string_view name_of(Numerics numerics);  // "reorder", ...

struct RewriteOutput {
  std::string what;  // "loss", "gradient of layers.0.w", "update of layers.0.bias"
  std::string node;  // of B
  Numerics numerics = Numerics::kReorder;
};

struct RewriteReport {
  std::vector<Violation> violations;  // sites are nodes of B where there is one, else of A
  std::vector<RewriteOutput> outputs;
  std::vector<std::string> assumptions;  // what the proof rests on (rewrite_assumptions.h)
  std::size_t whole = 0, divided = 0, joins = 0, splits = 0;
};

// The graphs share a context and have a sound structure.
RewriteReport verify_rewrite(const Graph& a, const Graph& b);

}  // namespace epweave
