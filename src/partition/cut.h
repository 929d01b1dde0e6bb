// Which forward values a partition saves for backward, and which calls backward computes again.
//
// A forward value that backward reads is saved, computed again from what backward has, or it is an
// input of the step, which backward gets as it is. What is computed again needs its operands in
// turn.
#pragma once

#include <functional>
#include <vector>

#include "analysis/effects.h"
#include "partition/joint.h"

namespace epweave {

struct Cut {
  std::vector<NodeId> saved;             // in the order of forward; inputs of the step among them
  std::vector<std::uint8_t> recomputed;  // by node

  bool recomputes(NodeId id) const { return recomputed[id.index()] != 0; }
};

// What may be done about a value that backward needs.
struct ValueChoice {
  bool is_recomputed = false;  // computed again rather than saved
  bool can_save = true;        // not of tuples, groups, functions: nothing that an input of backward could be
  bool can_recompute = true;
};
using Choose = std::function<ValueChoice(NodeId)>;

// The cut that follows from choices for each value. Throws PassError partition.cut where a value
// can be neither.
Cut make_cut(const Graph& graph, const Joint& joint, const Choose& choose);
// The same; none where there is no such cut.
bool try_cut(const Graph& graph, const Joint& joint, const Choose& choose, Cut& cut, NodeId& problem);

// Tensors and numbers can be saved, but for a float that follows from other numbers, which
// no half of PyTorch's may return; other values are found again where they are needed.
bool can_save(const Graph& graph, const Node& node);
// Symbolic, or known when the graph was traced (what the host then read: it may read another).
bool is_number(const Context& context, const Node& node);
// A group, mesh, device or the like: what backward needs of them it looks up again.
bool is_looked_up(const Context& context, const Node& node);
// Throws PassError partition.random: the node draws and is tagged to be computed again.
[[noreturn]] void refuse_random(const Graph& graph, NodeId id);
// Whether the call may run twice: it is known, draws and writes nothing, has no effect but to wait,
// and is not said to be forward's (`required_half`).
bool can_run_twice(const Graph& graph, const Node& node);
// Storages that calls of forward write. Backward cannot make one again: it would lack what these
// calls, which it does not do, write into it.
IdSet<NodeId> find_written_in_forward(const Effects& effects, const Joint& joint);
// Calls that read storage in front of a call of forward that writes it. Backward cannot do one
// again: it would read something else.
IdSet<NodeId> find_reads_before_writes(const Effects& effects, const Joint& joint);
// Calls on storage that a wait for a copy frees in forward, and elements of their tuples. Backward
// cannot do one again: it would find the storage gone.
IdSet<NodeId> find_uses_of_freed(const Effects& effects, const Joint& joint);

// What PyTorch's partitioner saves against a tag: what one region of torch.utils.checkpoint (meta
// `ac_graph_id`, counted up) hands to a later one, and what a region returns that has a hook in
// backward (`has_backward_hook`).
IdSet<NodeId> find_region_outputs(const Graph& graph, const Joint& joint);

// By the `recompute` fields: what is tagged is computed again where that gives the same, all else
// that forward computes is saved. What is marked as backward's is, though it follows from no seed,
// unless forward needs it. Elements of a tuple stay with its call, a wait with its launch
// (analysis/done_again.h).
Cut cut_by_tags(const Graph& graph, const Joint& joint);

// PyTorch's min_cut_rematerialization_partition at an activation memory budget from 0 to 1: its
// lists of ops, bans, weights and knapsack. Of a graph whose equal calls are merged. What must not
// run twice is saved whatever the budget; what is neither a tensor nor a number has no bytes.
Cut cut_as_torch(const Graph& graph, const Joint& joint, double share = 1);
// The same for several.
std::vector<Cut> cut_as_torch(const Graph& graph, const Joint& joint, const std::vector<double>& shares);

}  // namespace epweave
