// Where sharded parameters are gathered: the chain from an input to the whole parameter.
//
//   %w -> _to_copy -> all_gather_into_tensor -> wait_tensor -> view* -> compute
//                                                           -> split -> getitem* -> cat -> view* -> compute
//
// A chain is linear but for a split whose pieces are all joined again; every node of it reads the
// one before, and beside it at most what looks a process group up. It ends in front of the first
// node that reads something else, less trailing views.
#pragma once

#include <vector>

#include "analysis/users.h"
#include "ir/graph.h"

namespace epweave {

struct UnshardChain {
  NodeId input;   // the placeholder
  NodeId gather;  // the last launch of the chain
  NodeId end;     // the whole parameter: the last node that is no view
};

// In the order of the inputs; an input that is read several times has a chain for each gather.
std::vector<UnshardChain> find_unshard_chains(const Body& body, const NodeLists& inputs,
                                              const NodeLists& users);

// The nodes of the chain behind its input, up to its end; in no order.
std::vector<NodeId> list_chain(const Body& body, const NodeLists& inputs, const UnshardChain& chain);

}  // namespace epweave
