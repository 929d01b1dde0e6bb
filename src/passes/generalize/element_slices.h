// Elements of an even split, or slices of one size, that each rank takes at its own place: one
// slice whose bounds follow a coordinate.
//
//   rank 0   getitem(split(%x, 8, 2), 0)      rank 1   getitem(split(%x, 8, 2), 1)
//   made     slice(%x, 2, 8 * c_tp, 8 + 8 * c_tp)
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "passes/generalize/affine.h"
#include "passes/pieces.h"

namespace epweave {

// Which each rank takes of the equal pieces that a value is made of, and how many these are.
struct PieceChoice {
  std::vector<std::int64_t> indices;
  std::int64_t count = 0;
};

// `pieces`: what each rank takes of one value of the first graph's step, the first by node `taken`.
// None if they are not equal pieces.
std::optional<PieceChoice> find_piece_choice(PieceFinder& finder, const Graph& first,
                                             const std::vector<TakenPiece>& pieces, NodeId taken);

class ElementSlices {
 public:
  ElementSlices(const Graph& first, Graph& made, PlaceWriter& writer)
      : first_(first), made_(made), writer_(writer) {}

  // The slice in place of the first rank's element; it begins and ends at nodes that follow
  // coordinates. Made once for each element and bounds.
  NodeId slice(NodeId element, const TakenPiece& piece, std::pair<NodeId, NodeId> bounds);

  // Puts each slice behind the element that the first rank reads.
  void place();

 private:
  const Node* find_call(NodeId element, const TakenPiece& piece);
  void list_last_pieces();
  TypeId type_of(const Node& element, const TakenPiece& piece, NodeId start) const;

  const Graph& first_;
  Graph& made_;
  PlaceWriter& writer_;
  std::map<std::tuple<NodeId, NodeId, NodeId>, NodeId> slices_;  // by the element, and bounds
  std::vector<std::pair<NodeId, NodeId>> inserted_;              // element, slice
  std::map<TakenPiece, std::vector<NodeId>> last_pieces_;        // of the first graph, in order
  SideTable<NodeId, std::uint32_t> position_;                    // in the first graph
};

}  // namespace epweave
