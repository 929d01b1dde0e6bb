// What B has that A has not, node by node.
//
//   A: %mm = mm(%x, %w)          B: %mm_chunk0 = mm(%s0, %w)  %mm_chunk1 = mm(%s1, %w)   divided, 2 parts
//      %a = add(%mm, 1)             %m = cat([%mm_chunk0, %mm_chunk1])                   added, joins %mm
//      %b = mul(%a, 2)              %a = add(%m, 1)                                      rejoined
//                                   %b = mul(%a, 3)                                      arguments changed
//
// The nodes are paired first (compare/pairing.h); arguments are the same if they name the same
// nodes under the pairing. Moved is minimal: a node that is not in the longest common subsequence
// of the two orders, among nodes that are whole, and among those of each part.
#pragma once

#include <string>
#include <vector>

#include "compare/pairing.h"
#include "ir/graph.h"

namespace epweave {

enum class Change : std::uint16_t {
  kDivided = 1 << 0,      // one node of A, N parts in B
  kAdded = 1 << 1,        // only in B
  kRemoved = 1 << 2,      // only in A
  kArguments = 1 << 3,    // other arguments, or another target
  kType = 1 << 4,         // another recorded type
  kMoved = 1 << 5,        // another place in the order
  kRejoined = 1 << 6,     // takes the joined parts of what it took
  kSpecialized = 1 << 7,  // symbols became numbers; nothing else about the type or the argument
  kRenamed = 1 << 8,
  kMetadata = 1 << 9,
  kProvenance = 1 << 10,
};
inline constexpr int kChangeKinds = 11;
std::string_view name_of(Change change);  // "divided", ...

class Changes {
 public:
  bool has(Change change) const { return (bits_ & static_cast<unsigned>(change)) != 0; }
  void add(Change change) { bits_ |= static_cast<unsigned>(change); }
  void remove(Change change) { bits_ &= ~static_cast<unsigned>(change); }
  bool none() const { return bits_ == 0; }
  bool only(Change change) const { return bits_ == static_cast<unsigned>(change); }
  unsigned bits() const { return bits_; }

 private:
  unsigned bits_ = 0;
};

// A node of A with what it became, or an added node of B.
struct NodeDiff {
  NodeId a;               // none: added
  std::vector<NodeId> b;  // in execution order; none: removed
  Changes changes;
  NodeId about;  // of an added node: the node of A it serves; of a removed one: the node of B
                 // that stands for it
  std::vector<std::string> details;  // "type: f32[u0] -> f32[8]"; one line each
};

struct BodyDiff {
  StringId name;                // of a nested graph
  const Body* a = nullptr;      // null: only in B
  const Body* b = nullptr;      // null: only in A
  std::vector<NodeDiff> nodes;  // that differ, in the order of B; removed ones behind what they stood behind
  std::size_t same = 0;         // nodes without a difference
  IdVector<NodeId, NodeId> origin;  // of a node of B: the node of A that it is or is a part of; empty where
                                    // one graph lacks the body
  IdVector<NodeId, std::uint32_t> part;  // of a node of B: which part of its origin; kNoPart: all of it
};

// A symbol, process group, role or other fact of the whole graph.
struct TableDiff {
  std::string table;   // "symbol", "group", "input", "output", "pass", "info"
  std::string before;  // as the text form has it; empty: added
  std::string after;   // empty: removed
};

struct DiffOptions {
  bool names = true, order = true, metadata = true, types = true, provenance = true;
};

struct GraphDiff {
  PairingKind pairing = PairingKind::kStructure;
  std::vector<BodyDiff> bodies;  // the step first; nested graphs only where they differ
  std::size_t same_nested = 0;   // nodes of the nested graphs that do not
  std::vector<TableDiff> tables;

  bool is_same() const;
};

// The two graphs share a context and outlive the result.
GraphDiff diff_graphs(const Graph& a, const Graph& b, const DiffOptions& options);

}  // namespace epweave
