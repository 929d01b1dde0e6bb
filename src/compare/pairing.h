// Which node of B is, or is a part of, which node of A.
//
//   by provenance  B's origins name A's nodes: B was made from A by passes; or both name the nodes of one
//                  graph before them (compare/rebase.h)
//   by structure   otherwise: parts with the node that torchtitan's chunker says they were made from
//                  (chunked_original_name) where A has no parts of it, the inputs by their roles, then
//                  every call whose target, constants and paired inputs are those of a call of A (the same
//                  name first where there are several), then by name, then by what is left of the same
//                  target in the same module
//
// Linear in nodes plus edges.
#pragma once

#include "ir/graph.h"

namespace epweave {

inline constexpr std::uint32_t kNoPart = ~0U;

struct BodyPairing {
  IdVector<NodeId, NodeId> origin;       // of a node of B: the node of A that it is or is a part of
  IdVector<NodeId, std::uint32_t> part;  // of a node of B: which part of its origin; kNoPart: all of it
  IdVector<NodeId, NodeId> made_for;     // of an added node of B: the node of A that it serves
  IdVector<NodeId, NodeId>
      absorbed_by;  // of a node of A without a pair: the node of B that stands for it too
};

enum class PairingKind : std::uint8_t { kProvenance, kNames, kStructure };
std::string_view name_of(PairingKind kind);  // "provenance", ...

struct PairingOptions {
  bool use_names = true;
};

// Whether B's origins are nodes of A.
bool derives_from(const Graph& a, const Graph& b);

BodyPairing pair_by_provenance(const Body& a, const Body& b);
// The roles tell the placeholders of the step apart; empty for nested graphs.
BodyPairing pair_by_structure(const Graph& graph_a, const Body& a, const Graph& graph_b, const Body& b,
                              const PairingOptions& options);

}  // namespace epweave
