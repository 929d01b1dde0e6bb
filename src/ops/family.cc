#include "ops/family.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

namespace epweave {
namespace {

using F = OpFamily;
using E = Elements;
using R = RowOrder;
using P = PositionForm;
using D = DimNumbers;
using S = Sums;
using X = ExchangeKind;

constexpr FamilyTraits kTraits[] = {
    {F::kElementwise, "elementwise", E::kChanged, R::kPaired, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kIdentity, "identity", E::kSame, R::kPaired, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kCast, "cast", E::kRetyped, R::kPaired, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kTransfer, "transfer", E::kSame, R::kPaired, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kSum, "sum", E::kComputed, R::kHandedOn, P::kNone, D::kOfFirst, S::kAlways, X::kNone},
    {F::kReduce, "reduce", E::kComputed, R::kHandedOn, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kTruth, "truth", E::kComputed, R::kHandedOn, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kScan, "scan", E::kComputed, R::kHandedOn, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kNormalise, "normalise", E::kComputed, R::kPaired, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kHalve, "halve", E::kComputed, R::kPaired, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kHalveBackward, "halve-backward", E::kComputed, R::kPaired, P::kNone, D::kOfFirst, S::kNever,
     X::kNone},
    {F::kNormaliseLast, "normalise-last", E::kComputed, R::kHandedOn, P::kNone, D::kOther, S::kNever,
     X::kNone},
    {F::kNormaliseLastBackward, "normalise-last-backward", E::kComputed, R::kPaired, P::kNone, D::kOther,
     S::kAlways, X::kNone},
    {F::kReshape, "reshape", E::kSame, R::kRegrouped, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kBitView, "bit-view", E::kBits, R::kRegrouped, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kUnsqueeze, "unsqueeze", E::kSame, R::kHandedOn, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kSqueeze, "squeeze", E::kSame, R::kHandedOn, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kPermute, "permute", E::kMoved, R::kHandedOn, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kExpand, "expand", E::kRepeated, R::kExpanded, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kRepeat, "repeat", E::kRepeated, R::kRepeated, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kSelect, "select", E::kSome, R::kHandedOn, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kSlice, "slice", E::kSome, R::kHandedOn, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kSplit, "split", E::kPieces, R::kSplit, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kUnbind, "unbind", E::kPieces, R::kHandedOn, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kPad, "pad", E::kAmong, R::kHandedOn, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kUnslice, "unslice", E::kAmong, R::kHandedOn, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kSliceWrite, "slice-write", E::kReplaced, R::kPaired, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kJoin, "join", E::kAmong, R::kJoined, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kStack, "stack", E::kAmong, R::kPaired, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kReorder, "reorder", E::kMoved, R::kHandedOn, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kTriangle, "triangle", E::kReplaced, R::kHandedOn, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kIndex, "index", E::kChosen, R::kByPositions, P::kInList, D::kOther, S::kNever, X::kNone},
    {F::kGather, "gather", E::kChosen, R::kByPositions, P::kForEach, D::kOfFirst, S::kNever, X::kNone},
    {F::kIndexSelect, "index-select", E::kChosen, R::kByPositions, P::kAlong, D::kOfFirst, S::kNever,
     X::kNone},
    {F::kEmbedding, "embedding", E::kChosen, R::kByPositions, P::kOfRows, D::kOther, S::kNever, X::kNone},
    {F::kEmbeddingBackward, "embedding-backward", E::kComputed, R::kUnknown, P::kNone, D::kOther,
     S::kByArguments, X::kNone},
    {F::kIndexPut, "index-put", E::kComputed, R::kOfFirst, P::kInList, D::kOther, S::kByArguments, X::kNone},
    {F::kScatter, "scatter", E::kComputed, R::kOfFirst, P::kForEach, D::kOfFirst, S::kNever, X::kNone},
    {F::kScatterAdd, "scatter-add", E::kComputed, R::kOfFirst, P::kForEach, D::kOfFirst, S::kAlways,
     X::kNone},
    {F::kRowScatter, "row-scatter", E::kComputed, R::kOfFirst, P::kOfRows, D::kOther, S::kAlways, X::kNone},
    {F::kIndexAdd, "index-add", E::kComputed, R::kOfFirst, P::kAlong, D::kOfFirst, S::kAlways, X::kNone},
    {F::kIndexCopy, "index-copy", E::kReplaced, R::kOfFirst, P::kAlong, D::kOfFirst, S::kNever, X::kNone},
    {F::kRepeatRows, "repeat-rows", E::kComputed, R::kOwn, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kMaskedRows, "masked-rows", E::kComputed, R::kOwn, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kSearch, "search", E::kComputed, R::kHandedOn, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kCount, "count", E::kComputed, R::kUnknown, P::kNone, D::kOther, S::kAlways, X::kNone},
    {F::kOneHot, "one-hot", E::kComputed, R::kHandedOn, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kTopK, "top-k", E::kComputed, R::kHandedOn, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kSort, "sort", E::kComputed, R::kSorted, P::kNone, D::kOfFirst, S::kNever, X::kNone},
    {F::kMatmul, "matmul", E::kComputed, R::kPaired, P::kNone, D::kOther, S::kAlways, X::kNone},
    {F::kAddMatmul, "add-matmul", E::kComputed, R::kPaired, P::kNone, D::kOther, S::kAlways, X::kNone},
    {F::kGroupedMatmul, "grouped-matmul", E::kComputed, R::kPaired, P::kNone, D::kOther, S::kAlways,
     X::kNone},
    {F::kConvolution, "convolution", E::kComputed, R::kHandedOn, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kConvolutionBackward, "convolution-backward", E::kComputed, R::kPaired, P::kNone, D::kOther,
     S::kAlways, X::kNone},
    {F::kSolve, "solve", E::kComputed, R::kPaired, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kAttention, "attention", E::kComputed, R::kHandedOn, P::kNone, D::kOther, S::kByArguments, X::kNone},
    {F::kFlexAttention, "flex-attention", E::kComputed, R::kHandedOn, P::kNone, D::kOther, S::kByArguments,
     X::kNone},
    {F::kLoss, "loss", E::kComputed, R::kPaired, P::kNone, D::kOther, S::kByArguments, X::kNone},
    {F::kLossBackward, "loss-backward", E::kComputed, R::kPaired, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kClassLoss, "class-loss", E::kComputed, R::kPaired, P::kNone, D::kOther, S::kByArguments, X::kNone},
    {F::kClassLossBackward, "class-loss-backward", E::kComputed, R::kPaired, P::kNone, D::kOther, S::kNever,
     X::kNone},
    {F::kFactory, "factory", E::kMade, R::kAlike, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kIota, "iota", E::kMade, R::kCounted, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kLike, "like", E::kMade, R::kAlike, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kNew, "new", E::kMade, R::kAlike, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kRandom, "random", E::kComputed, R::kPaired, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kSize, "size", E::kComputed, R::kUnknown, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kNumber, "number", E::kComputed, R::kUnknown, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kComparison, "comparison", E::kComputed, R::kUnknown, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kHostRead, "host-read", E::kComputed, R::kUnknown, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kCheck, "check", E::kComputed, R::kUnknown, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kElement, "element", E::kOne, R::kHandedOn, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kAllGather, "all-gather", E::kComputed, R::kGathered, P::kNone, D::kOther, S::kNever, X::kGather},
    {F::kReduceScatter, "reduce-scatter", E::kComputed, R::kScattered, P::kNone, D::kOther, S::kNever,
     X::kScatter},
    {F::kAllReduce, "all-reduce", E::kComputed, R::kReduced, P::kNone, D::kOther, S::kNever, X::kReduce},
    {F::kAllToAll, "all-to-all", E::kComputed, R::kExchanged, P::kNone, D::kOther, S::kNever, X::kAllToAll},
    {F::kBroadcast, "broadcast", E::kComputed, R::kReduced, P::kNone, D::kOther, S::kNever, X::kBroadcast},
    {F::kGatherMatmul, "gather-matmul", E::kComputed, R::kUnknown, P::kNone, D::kOther, S::kNever,
     X::kGather},
    {F::kMatmulScatter, "matmul-scatter", E::kComputed, R::kUnknown, P::kNone, D::kOther, S::kNever,
     X::kScatter},
    {F::kGatherPair, "gather-pair", E::kComputed, R::kPaired, P::kNone, D::kOther, S::kNever, X::kGather},
    {F::kScatterPair, "scatter-pair", E::kComputed, R::kPaired, P::kNone, D::kOther, S::kNever, X::kScatter},
    {F::kWait, "wait", E::kSame, R::kHandedOn, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kMesh, "mesh", E::kComputed, R::kUnknown, P::kNone, D::kOther, S::kNever, X::kNone},
    {F::kOpaque, "opaque", E::kComputed, R::kUnknown, P::kNone, D::kOther, S::kNever, X::kNone},
};

constexpr bool has_each_family_in_its_place() {
  if (std::size(kTraits) != static_cast<std::size_t>(F::kOpaque) + 1) return false;  // the last one
  for (std::size_t i = 0; i < std::size(kTraits); ++i)
    if (static_cast<std::size_t>(kTraits[i].family) != i) return false;
  return true;
}
static_assert(has_each_family_in_its_place(), "a family has no row, or stands elsewhere in the enumeration");

bool has_one_of(OpFamily family, std::initializer_list<Elements> kinds) {
  return std::ranges::find(kinds, traits_of(family).elements) != kinds.end();
}

}  // namespace

const FamilyTraits& traits_of(OpFamily family) {
  return kTraits[static_cast<std::size_t>(family)];
}

std::string_view name_of(OpFamily family) {
  return traits_of(family).name;
}

bool keeps_sequence(OpFamily family) {
  return has_one_of(family, {E::kSame, E::kBits});
}

bool keeps_numbers(OpFamily family) {
  return has_one_of(family, {E::kSame, E::kRetyped});
}

bool keeps_all_elements(OpFamily family) {
  return has_one_of(family, {E::kSame, E::kMoved, E::kRepeated, E::kPieces, E::kOne, E::kAmong});
}

bool shows_elements(OpFamily family) {
  return has_one_of(
      family, {E::kSame, E::kRetyped, E::kMoved, E::kRepeated, E::kPieces, E::kSome, E::kOne, E::kChosen});
}

bool may_narrow(OpFamily family) {
  return has_one_of(family, {E::kPieces, E::kSome, E::kOne});
}

bool keeps_each(OpFamily family) {
  return has_one_of(family, {E::kChanged, E::kSame, E::kRetyped, E::kMoved, E::kRepeated});
}

bool copies_elements(OpFamily family) {
  return has_one_of(family, {E::kSame, E::kMoved, E::kRepeated, E::kPieces, E::kSome, E::kOne, E::kChosen,
                             E::kAmong, E::kReplaced});
}

}  // namespace epweave
