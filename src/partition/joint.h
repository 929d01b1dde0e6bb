// A joint graph, read for a partition: where backward begins, and what each half must have.
//
//   %loss = ..          forward output
//   %one = ones_like(%loss)           a seed: the gradient of the loss, read by backward alone
//   %d = div(%one, %n)  bwd           backward: all that follows from seeds, by values or
//                                   by storage, writes of backward, and calls that must be there
//
// What a seed is: analysis/seeds.h. Outputs with role `grad`, and those that follow from seeds, are
// backward's; the others are forward's.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/users.h"
#include "ir/graph.h"
#include "partition/symbol_needs.h"

namespace epweave {

// The half that must have a call, as AOTAutograd's metadata `partitioner_tag` says it:
// must_be_in_forward, must_be_in_backward.
enum class RequiredHalf : std::uint8_t { kAny, kForward, kBackward };
RequiredHalf required_half(const Context& context, const Node& node);

struct Joint {
  NodeLists inputs, users;
  IdVector<NodeId, std::uint32_t> positions;
  std::vector<NodeId> seeds;
  std::vector<std::uint8_t> is_seed;      // by node
  std::vector<std::uint8_t> is_backward;  // by node: follows from seeds
  std::vector<std::uint8_t> is_forward;   // by node: forward must have it: for its outputs, or for its effect
  std::vector<NodeId> outputs;            // by position; none for None
  std::vector<std::uint32_t> forward_outputs, backward_outputs;  // positions among the outputs
  std::vector<SymbolNeed> symbol_needs;

  bool seed(NodeId id) const { return is_seed[id.index()] != 0; }
  bool backward(NodeId id) const { return is_backward[id.index()] != 0; }
  bool forward(NodeId id) const { return is_forward[id.index()] != 0; }
};

// Which waits forward must have though nothing there reads them: all, as PyTorch's partitioner has
// it, or all but those of backward whose values backward reads, and whose launches are backward's,
// too: what a step that recomputes exchanges again.
enum class Waits { kAll, kOfForward };

// Throws PassError partition.backward (the graph has no seed), partition.tangent-read (an output of
// forward needs a gradient that the caller gives to backward), partition.tangent-written (a call of
// forward writes one) and partition.tag (what must be in forward, or the loss, needs what only
// backward has).
Joint read_joint(const Graph& graph, Waits waits = Waits::kOfForward);

// Nodes that compute alike become the first of them, as PyTorch's partitioner has it before it
// cuts: not what backward needs with what it does not, nor what draws, writes, has effects or shows
// what the step returns. Records `merged`.
Graph merge_equal_calls(const Graph& graph);

// Whether the input is a parameter or buffer: it lives throughout, so saving it costs nothing.
bool is_state(const Graph& graph, std::size_t input);
IdSet<NodeId> find_state(const Graph& graph);

}  // namespace epweave
