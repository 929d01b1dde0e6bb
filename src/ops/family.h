// What is known of each family of ops, a row per family (ops/family.cc), which every concern reads:
//
//   family    elements    rows       positions   dims      sums      across ranks
//   kReshape  same        regrouped  -           -         -         -
//   kGather   chosen      by numbers for each    of first  -         -
//   kSum      computed    handed on  -           of first  adds      -
//
// A new family is a new row: without it the table does not compile. What is said of elements is
// tested by execution (replay/kernels/host/family_test.cc).
#pragma once

#include <cstdint>

#include "ops/op.h"

namespace epweave {

// Which elements of the first operand a result has. Of a sort: its first result.
enum class Elements : std::uint8_t {
  kComputed,  // none: each is made of several, or of other operands or ranks
  kMade,      // none: each is made of no element of a tensor
  kChanged,   // each, changed in its place by those of the other operands, which broadcast
  kSame,      // each in the same row-major order
  kRetyped,   // so, in another dtype
  kBits,      // the same memory, read as elements of another size
  kMoved,     // each once, in a place that the call says
  kRepeated,  // each, perhaps several times
  kPieces,    // each in one of several results
  kSome,      // those that the call says
  kOne,       // one of the values of a tuple
  kChosen,    // those that data choose
  kAmong,     // each, or what a pad leaves, among numbers or those of other operands, in one dtype
  kReplaced,  // those that no number or element of another operand has replaced
};

// How the order of a result's rows follows from that of its operands'.
enum class RowOrder : std::uint8_t {
  kPaired,       // rows with the same number are paired: all operands are in one order
  kHandedOn,     // the operands' rows, which need not pair
  kReduced,      // the operand's, of all ranks
  kExpanded,     // the operand's, or all like its one
  kOfFirst,      // the order of what is written, or picked from within its rows
  kByPositions,  // of the numbers that pick rows
  kSorted,
  kCounted,
  kExchanged,  // of ranks
  kOwn,        // as data make them
  kRepeated,
  kRegrouped,
  kGathered,
  kScattered,
  kJoined,
  kSplit,
  kAlike,  // rows are like each other
  kUnknown,
};

// Which operand says where, for a family whose rows data choose.
enum class PositionForm : std::uint8_t {
  kNone,
  kInList,   // a tensor, or nothing, for each dimension: x[:, i]
  kAlong,    // a vector along `dim`
  kForEach,  // as many along `dim` as there are elements
  kOfRows,   // of the first dimension
};

// What `dim` counts.
enum class DimNumbers : std::uint8_t {
  kOther,    // nothing, or dimensions of a tensor with another number of them
  kOfFirst,  // dimensions of the first operand
};

// Whether results that are as large for a part of the rows as for all are sums over them.
enum class Sums : std::uint8_t { kNever, kAlways, kByArguments };

// What ranks exchange.
enum class ExchangeKind : std::uint8_t { kNone, kGather, kScatter, kReduce, kAllToAll, kBroadcast };

struct FamilyTraits {
  constexpr FamilyTraits(OpFamily of, std::string_view its_name, Elements e, RowOrder r, PositionForm p,
                         DimNumbers d, Sums s, ExchangeKind x)
      : family(of), name(its_name), elements(e), rows(r), positions(p), dims(d), sums(s), exchange(x) {}

  OpFamily family;
  std::string_view name;
  Elements elements;
  RowOrder rows;
  PositionForm positions;
  DimNumbers dims;
  Sums sums;
  ExchangeKind exchange;
};

const FamilyTraits& traits_of(OpFamily family);

inline RowOrder row_order(OpFamily family) {
  return traits_of(family).rows;
}
inline ExchangeKind exchange_of(OpFamily family) {
  return traits_of(family).exchange;
}
// Rows that data number, of the first operand: read, or written.
inline bool takes_rows(OpFamily family) {
  return row_order(family) == RowOrder::kByPositions;
}
inline bool puts_rows(OpFamily family) {
  return row_order(family) == RowOrder::kOfFirst;
}
// Constants, or what nobody has written.
inline bool makes_rows_alike(OpFamily family) {
  return row_order(family) == RowOrder::kAlike;
}

// All elements in their row-major order, under other sizes or as other bits.
bool keeps_sequence(OpFamily family);
// All elements in their row-major order, under other sizes or in another dtype.
bool keeps_numbers(OpFamily family);
// Every element is in the result, unchanged, but for what a pad cuts or a join converts.
bool keeps_all_elements(OpFamily family);
// The result has elements of the first operand, perhaps in another dtype, and no others.
bool shows_elements(OpFamily family);
// The result has some of the elements that its operand has, not all.
bool may_narrow(OpFamily family);
// Each element of the first operand stays one, changed in its place or moved: ids stay ids, a mask
// a mask.
bool keeps_each(OpFamily family);
// Every element is one of an operand, or a number that the call says.
bool copies_elements(OpFamily family);

}  // namespace epweave
