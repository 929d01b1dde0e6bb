// Which values of two graphs differ in native math because the library took other kernels: for
// another number of rows it may take another algorithm, whose bits are others.
//
//   A  %mm        bf16[1024, 256] x [256, 64]  algorithm 66, tile 20
//   B  %mm_chunk0 bf16[512, 256] x [256, 64]   algorithm 66, tile 18    mm and what is computed from it: library-kernel
//
// Such a difference is no fault of the rewrite, and hides one: nothing that lies behind it is
// verified.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "replay/run/executor.h"
#include "replay/run/pairing.h"

namespace epweave::replay {

// A product that took other algorithms in B than in A, and whose values differ.
struct KernelChange {
  Rank rank = 0;
  std::size_t group = 0;          // of the groups that were compared
  std::string origin;             // the node of A
  std::vector<std::string> a, b;  // each once: "bf16[1024, 256] x [256, 64]: algorithm 66, tile 20, ..."
};

// The library's products of one run by rank and node.
class ProductTable {
 public:
  explicit ProductTable(const RunResult& run);
  const std::vector<const LibraryProduct*>& at(Rank rank, NodeId node) const;
  std::vector<NodeId> nodes(Rank rank) const;  // those that have products

 private:
  std::vector<std::map<NodeId, std::vector<const LibraryProduct*>>> of_rank_;
};

// None if the products took the algorithms that they took in A. A grouped product is compared group
// by group: its groups take several algorithms in A alone, by their numbers of rows.
std::optional<KernelChange> find_kernel_change(const ProductTable& a, const ProductTable& b, Rank rank,
                                               const Group& group);

// What is computed from some nodes, through memory too.
struct Reached {
  IdSet<NodeId> nodes;
  std::vector<bool> outputs;  // of the graph's outputs, in order
  // Of the placeholders, in order, that are tensors: whether their memory is written by one.
  std::vector<std::optional<bool>> inputs;
};
Reached find_reached(const Graph& graph, const IdSet<NodeId>& roots);

}  // namespace epweave::replay
