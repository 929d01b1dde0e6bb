// Products fused with an exchange over symmetric memory, and what they stand for.
//
//   %f = fused_all_gather_matmul(%x, [%b, %c], 0, "11")       %g = all_gather_into_tensor(%x, 2, "11")
//   %a = getitem(%f, 0); %l = getitem(%f, 1)             =    %a = wait_tensor(%g)
//   %p = getitem(%l, 0); %q = getitem(%l, 1)                  %p = mm(%a, %b); %q = mm(%a, %c)
//
//   %r = fused_matmul_reduce_scatter(%a, %b, "sum", 0, "11")  =  mm, reduce_scatter_tensor, wait_tensor
//
// Along another dimension than 0 the ranks' blocks are cut and joined; rows of more than two
// dimensions are reshaped in front of the product and behind it. Results lie in memory as the op's
// type rule says.
//
// Metadata `fused_from` of a call says what it was written for, so that it can be written out as it
// was: names, targets and provenance of those nodes. It decides nothing of what is computed; a call
// without it is written out, too.
//
//   (launch, wait, cuts, products)    cuts: None, or [split or None, pieces .., join]
//                                     products: [(reshape in front or None, product, reshape behind or None), ..]
//   node: (name, target, numbers, records)    numbers: [start, end] of a slice, sizes of a reshape,
//                                             the dimension of a split or join
//   record: (pass, role, [origins ..], part, parts)
#pragma once

#include <optional>
#include <vector>

#include "analysis/verify.h"
#include "base/id.h"
#include "ir/graph.h"

namespace epweave {

// The nodes that a call stands for.
struct FusedNodes {
  struct Product {
    NodeId front, call, back;  // front, back: or none
  };
  NodeId launch, wait;
  std::vector<NodeId> cuts;  // empty; or split (or none, where slices cut), pieces, join
  std::vector<Product> products;
};

// `like` with metadata `fused_from`. A node that no pass has recorded anything of is kept, by
// `pass`.
const NodeExtra* describe_fused(Graph& graph, const FusedNodes& nodes, NodeExtra like, StringId pass);

bool is_fused_product(const Node& node);
// The type of a rank's block of the message: the shard that it gives to be gathered, or what is
// scattered to it; none where that is not recorded.
TypeId block_of_rank(const Context& context, const Body& body, const Node& call);
// Their names, sorted by id.
std::vector<StringId> list_fused_products(const Graph& graph);

// What keeps a call from being written out, as verify_graph says it where that finds it: its
// arguments are not what its schema and type rule want, or its result is taken otherwise than by
// elements that it has.
struct FusedFault {
  StringId call;
  Violation violation;  // of the call, or of what takes its result
};
// What is written out. Replay executes exchanges of pairs (OpFamily::kGatherPair, kScatterPair) as
// the collectives that they are made of; proofs compare them as the calls that they are.
enum class WrittenOut : std::uint8_t { kProducts, kAll };
bool is_exchange_pair(const Node& node);
bool is_written_out(const Node& node, WrittenOut kinds);
std::vector<FusedFault> find_fused_faults(const Graph& graph, WrittenOut kinds = WrittenOut::kProducts);

struct FusedExpansion {
  WrittenOut kinds = WrittenOut::kProducts;
  IdSet<StringId> kept;       // calls that stay calls: at least those that have faults
  IdSet<StringId> regrouped;  // result: what was written out and a kernel may sum in another order,
                              // products and reduce-scatters
};

// The graph with each such call written out, in its place. What `fused_from` does not speak of is
// said to be added by the call's last pass. Elements of a call's result, contiguous copies of them
// and reshapes to what the product had give way to what they show.
Graph expand_fused_products(Graph graph, FusedExpansion& expansion);
// The same, of all kinds and all calls. Throws InputError where one has a fault.
Graph expand_fused_products(Graph graph);

}  // namespace epweave
