// Verification of what a pass made of a graph: a call that is what it was, on values of the types
// that they had, has the type that its rule gives, as it had before.
#pragma once

#include <vector>

#include "analysis/verify.h"

namespace epweave {

// Finds what verify_graph finds. `before`: the graph that was given, whose calls fit their schemas
// and have the types that their rules give.
std::vector<Violation> verify_changes(const Graph& graph, const Graph& before);

// Whether the types of calls that are right in `before` are right in the other graph, too, by what
// the two say of symbols, process groups and the world.
bool keeps_types(const Graph& graph, const Graph& before);

// The calls of a step that need not be checked against their rules again.
class UnchangedCalls {
 public:
  UnchangedCalls(const Graph& graph, const Graph& before);

  bool contains(NodeId id) const;

 private:
  bool has_numbers_only(TypeId type) const;
  bool has_numbers_only(ArgRange args) const;
  bool is_type_kept(TypeId type) const;

  Context& context_;
  const Body &body_, &before_;
  IdSet<NodeId> ran_;  // in `before`; none where calls may have another type now
  bool are_symbols_kept_ = false;
  mutable IdSet<TypeId> of_numbers_, of_symbols_;  // types that were looked at
};

// verify_types, but for such calls of the step.
void verify_types(const Graph& graph, Facts& facts, const UnchangedCalls& unchanged,
                  std::vector<Violation>& out);

}  // namespace epweave
