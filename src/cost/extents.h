// Numbers for the extents of a graph, for estimates of bytes and flops.
//
// A symbol counts as the number it had when the graph was traced. Rows that experts receive have no
// such number: they are taken to be balanced, so that each member of an all-to-all's group gets the
// same share of the rows it is given:
//
//   e = all_to_all_single(x : [3072, 256], [u6, u7], [u4, u5], "35")      u4 = u5 = u6 = u7 = 1536
//
// An exchange may be given the rows of another one: shares are handed on until nothing changes.
// What has no number then (torchtitan's chunker keeps symbols of the whole in the types of parts)
// gets the commonest share.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

// Arithmetic on numbers that may be missing: one that does not fit is missing, too.
using Count = std::optional<std::int64_t>;
Count times(Count a, Count b);
Count plus(Count a, Count b);

class Extents {
 public:
  explicit Extents(const Graph& graph);

  // None where a symbol has neither a number nor a share.
  Count number(ExprId extent);
  Count elements(const TensorType& tensor);  // the product of its sizes
  // Of the storage that the tensor needs when it is made: up to its last element.
  Count storage_bytes(const TensorType& tensor);

  std::size_t assumed() const { return shares_.size(); }  // symbols that were taken to be balanced
  // Whether the extent's number rests on such a symbol.
  bool is_assumed(ExprId extent);

 private:
  void balance(const std::vector<NodeId>& exchanges, bool (Extents::*give)(const Node&));
  bool balance(const Node& node);
  bool share_result(const Node& node);
  bool share(Arg sizes, std::int64_t rows);
  void find_common_share();
  void give_common_share(ExprId extent);
  Count evaluate(PolyId poly);
  StringId last_symbol(StringId symbol) const;
  StringId symbol_of(PolyId poly) const;

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  Facts facts_;
  std::unordered_map<StringId, std::int64_t> shares_;
  std::unordered_map<ExprId, Count> numbers_;
  std::unordered_map<StringId, ExprId> replaced_;
  Count common_share_;
  bool is_balanced_ = false;  // shares are final
};

}  // namespace epweave
