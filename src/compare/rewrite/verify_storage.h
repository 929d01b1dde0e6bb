// Storage that is written: each node of B sees it in the state in which its origin sees it in A,
// and the step leaves it as A does. And what else has an order: random draws, ops of unknown
// effects, reads of the host.
//
//   A: add_(buf, x); y = clone(buf)     B: y = clone(buf); add_(buf, x)     y does not see what add_ wrote
//
// Each value that a node takes by itself: a join made before the parts' writes is the value before
// them, whatever else the node takes.
//
// Of storage that parts write, a part may read between two writes only its own share, cut as the
// writes are; what takes more of it needs all parts' writes:
//
//   mul_(%c_0, 2); %z_0 = mm(%x_0, t(%c)); mul_(%c_1, 2)      %z_0 takes all of %c, half written
//
// Reports rewrite-effects, rewrite-update, rewrite-order and rewrite-host-read.
#pragma once

#include <string>

#include "analysis/users.h"
#include "compare/rewrite/rewrite_claims.h"
#include "compare/rewrite/storage_writers.h"

namespace epweave {

class StorageCheck {
 public:
  explicit StorageCheck(RewriteClaims& claims);

  // What the node, whole or a part, sees of storage that others write.
  void check_effects(NodeId id);
  // Writes to storage that outlives the step, ops kept for their effect alone, ops of unknown
  // effects, and random draws (each changes the numbers of all later ones) must be there; of waits,
  // `waited` are.
  void check_updates(const IdSet<NodeId>& waited);
  // What the step leaves in its inputs, its attributes and what it returns comes from the same last
  // write.
  void check_last_writes();
  void check_order();
  // A copy is read behind something that makes the host wait for it, unless A does not wait either.
  void check_host_reads();

  const StorageWriters& writers_of_b() const { return writers_b_; }
  const Effects& effects_of_a() const { return writers_a_.effects(); }
  const Effects& effects_of_b() const { return writers_b_.effects(); }

 private:
  void check_each_storage(NodeId id, std::span<const SeenWrite> before, std::span<const SeenWrite> after);
  NodeId storage_in_a(NodeId storage) const;
  std::string describe(const SeenWrite& write) const;
  bool continues(NodeId id, const SeenWrite& write) const;
  // Who sees a write, and where in the order.
  struct Reader {
    NodeId node;
    std::size_t position = 0;
  };
  bool stands_for_write(const Reader& reader, const SeenWrite& write, NodeId x);
  bool precede(NodeId origin, const Reader& reader) const;
  bool touches_own_share(NodeId reader, const SeenWrite& write) const;
  bool shows_share_of(NodeId value, NodeId reader, NodeId writer) const;
  NodeId find_share(NodeId value) const;
  bool is_same_cut(NodeId p, NodeId q) const;
  bool is_guard(const Node& node) const;
  void check_returned(NodeId output, ArgRange before, ArgRange after);
  void check_last_write(NodeId site, NodeId before, NodeId after);

  RewriteClaims& claims_;
  const Graph& graph_a_;
  const Graph& graph_b_;
  const Context& context_;
  const Body& a_;
  const Body& b_;
  StorageWriters writers_a_, writers_b_;
  IdVector<NodeId, std::uint32_t> positions_;  // in B
};

}  // namespace epweave
