// Copies of values to the host and back, taken out of a graph before it is compared: what comes
// back is what went out.
//
//   %o = ao.offload(%x)                   gone
//   %h = ao.wait_tensor(%o, %x, ..)       gone; frees the storage of %x
//   %r = ao.reload(%h, cuda:0, ..)        gone
//   %b = ao.wait_tensor(%r, %h)           %x; frees the storage of %h
//
// That is so where, in the order of the graph,
//
//   each copy is waited for, once, and only the wait reads it
//   what comes back has the type of %x, device and strides included
//   nothing writes the storage of %x behind the call that sends it, nor that of either copy
//   a wait frees nothing that the caller has, and nothing behind it looks at what may be that memory
//   something keeps the storage of %x up to the wait for its copy
#pragma once

#include <vector>

#include "analysis/verify.h"
#include "ir/graph.h"

namespace epweave {

bool has_host_copies(const Graph& graph);

struct WithoutHostCopies {
  Graph graph;
  // Of what arrived on the host, and of what came back: the value that was sent. Nodes of the graph
  // as it was; those that are gone have no place in the order of the new one.
  SideTable<NodeId, NodeId> value_of;
};

// The graph without them. A copy of which the above does not hold is a violation
// `rewrite-host-copy`.
WithoutHostCopies remove_host_copies(const Graph& graph, std::vector<Violation>& violations);

// Of each result in turn, the call that loaded its memory back from the host; none: it is of other
// memory.
std::vector<NodeId> find_loaded_results(const Graph& graph);

}  // namespace epweave
