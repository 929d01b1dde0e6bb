// Which launches of a rewrite bring nothing but what launches of the first graph bring.
//
//   %l = all_reduce(cat([%x, %q]))     all of its result must be shown by values of the first graph:
//                                      if %x's part alone is, %q is sent though nothing asked for it
//
// Each piece of a followed value says which launch brought it, and from which place of its result
// on. A launch is accounted for once values of the first graph show all that it gives, or launches
// that are accounted for sent it on. What a launch gives of a wait of the first graph that no value
// stands for any more counts as shown: the first graph waits for it, too.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "compare/rewrite/movement.h"
#include "ir/graph.h"

namespace epweave {

class MovedLaunches {
 public:
  // A result of a launch, in their order, and what it sends for it. Returns the result as this
  // launch brings it.
  Sequence add(NodeId launch, const Sequence& sent, const Sequence& given);
  void add_wait(NodeId launch, NodeId wait) { waits_of_[launch].push_back(wait); }
  // A value of the first graph has these elements.
  void show(const Sequence& elements);
  // Whether launches that are waited for bring them where no value shows them; they are shown then.
  bool show_unshown(const Sequence& elements);
  // The launches that are accounted for, and their waits.
  std::vector<NodeId> settle();

 private:
  struct Result {
    NodeId launch;
    Sequence sent, given;
    std::map<std::int64_t, std::int64_t> shown;  // ranges that meet nowhere, as begin and end
  };

  const Piece* find_unshown(TermId term, std::int64_t rank, std::int64_t first) const;
  void show(const Piece& piece);
  static bool is_shown(const Result& result);

  IdVector<LaunchedId, Result> results_;
  std::map<NodeId, std::vector<NodeId>> waits_of_;
};

}  // namespace epweave
