// Do the ranks agree on their collectives, and can they all finish? Reads what each rank launches
// and waits for (compare/ranks/rank_program.h), pairs the n-th launch on a group with the n-th on
// every other member, and then runs the ranks against each other.
//
//   ranks-group         a member does not have the group, or states another size for it; ranks
//                       state worlds of different sizes
//   ranks-unknown       a call may communicate, but is of an unknown op, or of a nested graph that
//                       runs nobody knows how often
//   ranks-call          a call is wrong whatever the others do: an unknown reduction, a source that
//                       is no member, split tables or a group size that do not fit the group
//                       (ops/collective_arguments.h)
//   ranks-sequence      a member launches fewer or more collectives, or another kind, or with other
//                       dtypes
//   ranks-size          members give tensors of other sizes; of an all-to-all: rows of other sizes
//   ranks-splits        an all-to-all: what one member sends another is not what that one expects;
//                       without a table these are equal shares of its rows
//   ranks-deadlock      ranks wait for each other, whatever the machine
//   ranks-baked         a number that must follow the rank's coordinate along a mesh axis
//                       (analysis/rank_literals.h)
//                       stands in a graph that all ranks run, or is not the rank's own (compare/ranks/rank_baked.h);
//                       the slot of a bucketed gather is another rank's (compare/ranks/bucket_slots.h)
//                       the piece of a value that each rank takes at its own place is one rank's (compare/ranks/rank_slices.h)
//   ranks-axis          a mesh or a group is not the job's, or a collective and its gradient's are
//                       along different axes (compare/ranks/rank_axes.h)
//   ranks-interleaving  ranks launch collectives of different groups in different orders; they hang
//                       where collectives that are not finished keep others from starting, as
//                       NCCL's may
//
// How a rank runs, as in PyTorch: a collective starts when the compute launched before it has
// finished (so when all waits before it are over; the host's own waits for the device add nothing
// to that) and when the launch before it on its group has finished; it finishes when it started on
// all members. The n-th launch on a group is matched with the n-th. For ranks-interleaving, a
// launch also holds up all later launches of its rank.
//
// A deadlock is shown as the cycle of ranks, each with the wait it is stuck in and the launch it
// misses. A symbolic size is the number it was when the graph was traced, where that is recorded;
// the report counts these, and those that were not compared for want of a number. Ranks that a
// group names and nobody gave are taken to do what is asked of them.
#pragma once

#include <string>
#include <vector>

#include "compare/ranks/rank_program.h"

namespace epweave {

// One rank of the cycle. It does not go on before `misses` has launched `launch`.
struct StuckRank {
  std::uint32_t rank = 0;
  std::string at;      // its wait, or its launch that others do not join
  std::string launch;  // the launch that it needs to finish
  std::string group;
  std::uint32_t misses = 0;  // the rank that did not launch it
  bool never = false;        // and never will
};

struct RankViolation {
  std::string invariant;
  std::string message;
  std::vector<std::uint32_t> ranks;
  std::vector<std::string> nodes;  // of those ranks, in the same order; "": none
  std::vector<StuckRank> cycle;    // of deadlocks
  // Of ranks-baked: the argument's position, what stands there, what must.
  std::uint32_t argument = 0;
  std::int64_t value = 0;
  std::string expression;
};

struct RanksReport {
  std::vector<RankViolation> violations;
  std::uint32_t ranks = 0;
  std::size_t groups = 0;        // with more than one member, over all ranks
  std::size_t collectives = 0;   // each counted once
  std::size_t as_traced = 0;     // of them, with symbolic sizes or splits that were compared as traced
  std::size_t not_compared = 0;  // of them, with symbolic sizes or splits of unknown number
  std::vector<std::uint32_t> not_given;  // members of groups without a program
};

// One program for each rank; `rank` of each says which.
RanksReport verify_ranks(const std::vector<RankProgram>& programs);

}  // namespace epweave
