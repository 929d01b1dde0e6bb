// Wrong rewrites: a right rewrite B of A, changed at one random place in a way that looks legal.
// Who accepts one says that it still computes what A computes; what it computes is seen by
// executing both.
//
//   where                              what
//   one node of B; all parts of a      argument    another literal, keyword, value, list; operands exchanged
//   node; a node of A with all         target      another op that takes these arguments, in place or not
//   that B has of it; a node of A      left out    users take an operand instead
//   B                                  order, types, facts of symbols, provenance
//   both                               chain       random calls on a divided value and in the same way on its parts,
//                                                  joined by a concatenation or a sum, read behind it, and returned
//   both                               copies that are returned, in B as views of what was copied, or one for two
//   B                                  faults by name (rewrite_faults.h, rewrite_lies.h)
//
// Types follow from the changed arguments by rule, so that what is left to find is what the graph
// computes. The same seed gives the same mutants.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ir/graph.h"
#include "testing/dice.h"

namespace epweave {

class LieMaker;
class PairedNodes;

struct Mutant {
  Graph a, b;
  std::string kind;   // "literal in all parts"
  std::string place;  // "aten.mul.Tensor at %mul_3"
  bool changes_a = false;
};

class WrongRewrites {
 public:
  // The graphs share a context and outlive this.
  WrongRewrites(const Graph& a, const Graph& b, std::uint64_t seed);
  ~WrongRewrites();
  WrongRewrites(const WrongRewrites&) = delete;
  WrongRewrites& operator=(const WrongRewrites&) = delete;

  // None: the place that was drawn does not allow the change.
  std::optional<Mutant> make();

 private:
  std::optional<Mutant> change_calls();
  std::optional<Mutant> make_fault();
  std::optional<Mutant> return_copies();
  std::optional<Mutant> change_records();

  const Graph& a_;
  const Graph& b_;
  Dice dice_, copies_dice_;  // two, so that copies leave all other mutants of a seed as they are
  std::unique_ptr<PairedNodes> paired_;
  std::unique_ptr<LieMaker> faults_;
};

}  // namespace epweave
