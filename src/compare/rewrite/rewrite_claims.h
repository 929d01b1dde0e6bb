// What each node of a rewritten graph B says that it is, of the graph A it was made from: B's
// provenance, read as claims for others to prove (verify_rewrite.h has the list).
//
//   %mm_chunk1   body, part 1 of 2, from %mm     kPart of %mm
//   %cat         materialize, from %mm           kJoin of %mm
//   %view_7      materialize, from %wait         kMoved: all of %wait, which has no parts, in other storage
//   %mm          no record                       kWhole: it is %mm
//
// Nodes of A that one node of B stands for are one value: a class, named by its first node.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/verify.h"
#include "base/few_table.h"
#include "base/short_vector.h"
#include "compare/rewrite/numbers.h"
#include "compare/rewrite/same_values.h"
#include "ir/graph.h"

namespace epweave {

enum class ClaimKind : std::uint8_t { kNone, kWhole, kPart, kSplit, kPiece, kJoin, kSize, kBlocks, kMoved };

// Whether such a node makes its value anew, and does not cut or join others'.
inline bool computes(ClaimKind kind) {
  return kind == ClaimKind::kWhole || kind == ClaimKind::kPart || kind == ClaimKind::kMoved;
}

// What a node of B says that it is.
struct Claim {
  ClaimKind kind = ClaimKind::kNone;
  NodeId origin;                      // first of its class
  std::uint32_t part = 0, parts = 0;  // kPart, kPiece; kJoin by sums: the last part added
  std::uint32_t first_part = 0;       // kJoin by sums: the part that the others are added to
  bool complete = true;               // kJoin: all parts are in it
  bool regrouped = false;             // what it sums is added in another order
};

class RewriteClaims {
 public:
  // The graphs share a context and outlive the claims, as does the list that violations are added
  // to. `original`: of nodes of A that repeat another right behind it, which are one value with
  // that.
  RewriteClaims(const Graph& a, const Graph& b, const IdVector<NodeId, NodeId>& original,
                std::vector<Violation>& violations);

  // Reports what cannot be read: rewrite-derived, rewrite-merged, rewrite-once. False: B was not
  // made from A.
  bool read();
  // Of each graph, for all who ask.
  Facts& facts_a() const { return facts_a_; }
  Facts& facts_b() const { return facts_b_; }
  const Effects& effects_a() const { return values_.effects(); }
  // Parts are 0 .. n-1, each once.
  void check_parts();
  // A sum of parts has those from `first` to `last` in it.
  void set_sum(NodeId b, std::uint32_t first, std::uint32_t last);

  void set_regrouped(NodeId b) { claims_[b].regrouped = true; }

  const Claim& operator[](NodeId b) const { return claims_[b]; }
  std::string describe(NodeId b) const;  // "%mm_chunk1 (part 1 of %mm)"

  // The node of B that is all of A's by itself, if there is one.
  NodeId whole(NodeId a) const { return whole_[a]; }
  std::span<const NodeId> parts(NodeId a) const {
    const Parts* parts = parts_.find(a);
    return parts == nullptr ? std::span<const NodeId>() : std::span(parts->begin(), parts->size());
  }
  // Into how many parts a node of A, or one of equal value, is divided; 0: none is.
  std::uint32_t part_count(NodeId a) const;
  NodeId part_of(NodeId a, std::uint32_t part) const;
  NodeId find_class(NodeId a) const { return class_[a]; }
  // Of nodes of A that repeat another one: that one.
  const IdVector<NodeId, NodeId>& original() const { return original_; }
  bool same_class(NodeId x, NodeId y) const { return x && y && find_class(x) == find_class(y); }
  // Whether a node of B is this share of A's value: computed as such, or cut from all of it.
  bool is_share_of(NodeId b, NodeId a, Share share) const;

  // The part that a node of B is, or all.
  Share share_of(NodeId b) const;
  // Whether a node of B has all of its origin's value.
  bool is_whole(NodeId b) const;
  // Every part but the first adds to what the one before left.
  bool is_carried(NodeId a) const;

  const Graph& graph_a() const { return graph_a_; }
  const Graph& graph_b() const { return graph_b_; }
  const TensorType* tensor_a(NodeId id) const { return tensor_of(context_, a_.nodes[id].type); }
  const TensorType* tensor_b(NodeId id) const { return tensor_of(context_, b_.nodes[id].type); }
  // The recorded value of a scalar; no argument where it has none.
  Arg scalar_b(NodeId id) const;
  std::string name_a(NodeId id) const;  // "%mm"
  std::string name_b(NodeId id) const;

  // Report a violation: at a node of B, at a node of A, of the whole graph, of a nested graph.
  void fail(NodeId b, std::string_view invariant, std::string message);
  void fail_in_a(NodeId a, std::string_view invariant, std::string message);
  void fail_graph(std::string_view invariant, std::string message);
  void fail_nested(StringId body, std::string_view invariant, std::string message);

 private:
  using Parts = ShortVector<NodeId, 2>;

  bool check_derived();
  bool check_names();
  void merge_classes();
  NodeId find_root(NodeId a);
  void read_claims();
  void find_moved();
  void add_whole(NodeId b, NodeId origin);

  const Graph& graph_a_;
  const Graph& graph_b_;
  const Context& context_;
  const Body& a_;
  const Body& b_;
  std::vector<Violation>& violations_;
  mutable Facts facts_a_, facts_b_;  // what was normalised once is known
  IdVector<NodeId, NodeId> original_;
  SameValues values_;
  IdVector<NodeId, Claim> claims_;
  IdVector<NodeId, NodeId> class_;  // the first node of it, once classes are merged
  IdVector<NodeId, NodeId> whole_;
  FewTable<NodeId, Parts> parts_;
  IdVector<NodeId, NodeId> divided_;   // of a class: a node that has parts
  SideTable<StringId, NodeId> names_;  // of A
};

// view, _unsafe_view or reshape: one for the other is no change.
bool is_reshape(const Node& node);
// Of these, the one that is never a copy.
const OpInfo& find_view();
// Adds to its first argument in place, so that adding part by part gives what adding all at once
// does: add_(x, y); index_put_(x, [i], y, True).
bool accumulates(const Context& context, const Node& node);

// Whether neither is a tensor, or both are, of one dtype, device and number of dimensions.
bool has_same_elements(const Context& context, TypeId x, TypeId y);

}  // namespace epweave
