// Numbers that a part has of its own, and what they may be used for.
//
// What a sort gives back as order, and an arange over a part's rows, count from the first row of
// the part; an entry of a part's own counts is another number than in the whole. Every other value
// is data: part k's rows of it are the whole's. Own numbers are one of
//
//   rows of E      0 .. E-1 number the rows of a divided dimension of extent E: sort's order, arange(E)
//   rows of E / c  floor_divide(rows of E, c), where c divides E whatever the tokens: [u, 3] -> [3*u] slots to tokens
//   own offsets    such a number moved by entries of own counts: places among a part's own rows
//
// and must not leave the part. They may be moved, sorted, and pick or place rows:
//
//   x[order]              x in the order of the tokens: order numbers as many rows as x has
//   x[offsets]            x in an order of its part's own
//   order % 3             data: which of a token's three slots
//   table[order], x[order // 2], (order + 1) % n, order < 4, x * order,
//   order.sum(), order - order                                             refused
//
// Rows in parts are picked by own numbers only: what is data numbers rows of the whole.
#pragma once

#include "placement/placement.h"

namespace epweave {

// Throws PassError: chunk.positions-as-data where a node makes data of own numbers,
// chunk.foreign-positions where numbers pick or place rows that they do not number.
void check_positions(const Graph& graph, const Placements& placements, const PlacementOptions& options,
                     Facts& facts);

}  // namespace epweave
