// Which nodes of a body are the same value, whatever the inputs: aliases of the whole of another
// value (detach, views that change nothing, a transpose of a transpose, a wait for what was waited
// for), and calls with the same target and the same arguments that neither see nor make storage
// which anything but a wait writes:
//
//   %a = neg(%x); %b = neg(%x); add_(%a, %y); mul(%a, %b)     %a and %b are two values
#pragma once

#include <vector>

#include "analysis/effects.h"
#include "base/word_table.h"
#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

class SameValues {
 public:
  // `original`: of nodes that repeat another one, which is then the same value, unless one of them
  // is written.
  SameValues(const Graph& graph, Facts& facts, const IdVector<NodeId, NodeId>& original);
  bool same(NodeId a, NodeId b) { return number_[a] == number_[b]; }
  const Effects& effects() const { return effects_; }

 private:
  NodeId find_aliased(NodeId id);
  void find_written_tuples();
  bool is_pure(NodeId id) const;
  bool is_written(NodeId id) const { return written_.contains(effects_.storage_of(id)); }

  const Graph& graph_;
  const Body& body_;
  Facts& facts_;
  Effects effects_;
  IdSet<NodeId> written_;            // storage
  IdSet<NodeId> written_tuples_;     // some element of which is written
  IdVector<NodeId, NodeId> number_;  // the first node that is the same value
};

}  // namespace epweave
