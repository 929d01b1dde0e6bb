#include "compare/rewrite/conditions.h"

#include <array>
#include <utility>

namespace epweave {
namespace {

thread_local Condition dropped = Condition::kNone;

using Row = std::pair<Condition, std::string_view>;
constexpr auto kNames = std::to_array<Row>({
    {Condition::kEachPartOnce, "each part is added once"},
    {Condition::kPartsInOrder, "parts are joined in order"},
    {Condition::kAddsSummands, "what is added are summands"},
    {Condition::kJoinsRows, "what is joined are rows"},
    {Condition::kJoinsKnownOrders, "rows are joined in the order of the whole"},
    {Condition::kMixesNoRows, "no op mixes rows of parts"},
    {Condition::kPairsRows, "rows of parts pair with rows of parts"},
    {Condition::kOwnTablesCutOwnRows, "what exchanges by a part's own sizes is rows of the part's own"},
    {Condition::kReducesBySum, "rows are reduced by a sum"},
    {Condition::kLinear, "what is made of a share is linear in it"},
    {Condition::kFirstIsShare, "linear in the first operand: it is the share"},
    {Condition::kOneIsShare, "linear in each operand: one is a share"},
    {Condition::kAllAreSummands, "linear in all operands: all are summands"},
    {Condition::kAddsNoNumber, "no number is added to a share"},
    {Condition::kScalesByFinite, "a share is not divided by zero, nor scaled by what is not finite"},
    {Condition::kConvertsSums, "a share converts as a summand does: no fractions are dropped, nothing wraps"},
    {Condition::kPadsZeros, "a share is padded by zeros, and lies beside zeros where a mask is"},
    {Condition::kReducesRanksBySum, "shares are reduced across ranks by a sum"},
    {Condition::kRowsTakeNoShare, "rows take no share"},
    {Condition::kRowsTakeNoNumbers, "rows take no numbers of their part"},
    {Condition::kDividesOneDimension, "rows of a part do not meet those of all parts"},
    {Condition::kGroupsCountRows, "groups of a part's rows are counted in the part"},
    {Condition::kNumbersSayExtents, "a part's own numbers say how large tensors are"},
    {Condition::kNumbersPickParts, "numbers of a part pick from parts"},
    {Condition::kNumbersCountRows, "numbers count the rows that they pick from"},
    {Condition::kPlacesPickOwnRows, "places pick from rows in an order of the part's own"},
    {Condition::kMovesOnePlace, "a place is one number of a row, moved by entries"},
    {Condition::kRepeatsCounted, "rows of a part are repeated as often as its share counts"},
    {Condition::kDataPickNoParts, "data pick from no part"},
    {Condition::kMasksByData, "masks are data, and say nothing of a part's own numbers or sums"},
    {Condition::kPositionsMeetNoRows,
     "positions that a part has pick for all of its rows in no other dimension"},
    {Condition::kEntriesDivideRows, "entries divide the rows of each part"},
    {Condition::kOrdersPair, "rows that meet are in one order"},
    {Condition::kBlocksPair, "rows that meet are of the same blocks"},
    {Condition::kNumbersOfTheirRows, "numbers pick rows in the order that they number"},
    {Condition::kEqualPartsAreOne, "equal values count as one where their parts are equal"},
    {Condition::kRemainderNumbersTokens, "what remainders are taken of numbers the tokens' rows"},
    {Condition::kWritesReachViews, "writes are in every view"},
    {Condition::kWritesRowsOfWhole, "into rows of a value that is kept whole, parts write rows of the whole"},
    {Condition::kSameInputs, "inputs and outputs are the first graph's, with their roles"},
    {Condition::kBindsAlike, "the call that reads a number in the first graph reads it"},
    {Condition::kSameDataAbout, "what is said of inputs and outputs is what the first graph says"},
    {Condition::kSameWorld, "rank, number of ranks and meshes are those of the first graph"},
    {Condition::kSaysNothingOfOthers, "nothing is said of numbers that the first graph does not read"},
    {Condition::kSaysNoMore, "of the first graph's numbers nothing is said that it does not say"},
    {Condition::kSameTarget, "a call is of the same op"},
    {Condition::kSameOperands, "operands are those of the call, or parts of them"},
    {Condition::kSameConstants, "constants are those of the call"},
    {Condition::kSameKeywords, "keywords are those of the call"},
    {Condition::kSameTypes,
     "a whole value has the dtype, device and sizes of the call, an input its strides"},
    {Condition::kSameGroup, "a collective runs on the same ranks"},
    {Condition::kLiesAlike, "operands of calls that depend on strides have the same"},
    {Condition::kShowsAlike, "what is written is a view where the call is one"},
    {Condition::kTakesAlike, "all parts take an argument in the same way"},
    {Condition::kCutsAlike, "parts are cut along the same dimension, in as many blocks"},
    {Condition::kSizesFollow, "a size follows from its operands"},
    {Condition::kCarriesSums, "what all parts write, each adds its share to"},
    {Condition::kSplitsTheWhole, "what is split is all of the value"},
    {Condition::kPieceIsItsElement, "a piece is its own element of the split"},
    {Condition::kSplitsInShares, "pieces are shares of what is split"},
    {Condition::kJoinsShares, "joined parts have their share of the sizes"},
    {Condition::kMovedElements, "a moved value has the same elements in the same order"},
    {Condition::kCastsAlike, "elements are cast where they were"},
    {Condition::kSendsInGroup, "elements are sent within the same group"},
    {Condition::kReducesAlike, "elements are reduced in the same way"},
    {Condition::kMovesUnwritten, "what is moved is not written"},
    {Condition::kForgetsWritten, "what is written otherwise is not known any more"},
    {Condition::kWritesBeforeShown, "memory is filled before it is shown"},
    {Condition::kReshapesCopy, "a reshape that copies is no view"},
    {Condition::kShowsApart, "no two moved values show the same memory"},
    {Condition::kMovedStays, "memory of the first graph that a moved value shows is not written behind it"},
    {Condition::kGathersFromOwnPlace, "what is gathered in place lies at the rank's own place"},
    {Condition::kShowsAllSent, "a launch sends nothing that no launch of the first graph sends"},
    {Condition::kReadsArrived, "what a launch gives is read behind its wait"},
    {Condition::kLaunchesUndisturbed, "what a launch sends or fills is not written before its wait"},
    {Condition::kTakesSameRows, "rows that are taken begin where they did"},
    {Condition::kTakesRows, "what rows are taken of has rows"},
    {Condition::kTakesUnwritten, "operands of a cat that rows are taken of are not written, nor is the cat"},
    {Condition::kMergesSameCalls, "merged calls are the same"},
    {Condition::kMergesUnwritten, "what merged calls read or make is not written"},
    {Condition::kMergesNoDraws, "what is merged draws no random numbers"},
    {Condition::kSeesNoOtherWrite, "storage is read behind no other write"},
    {Condition::kSeesWritesInEach, "storage that is there twice is written in both"},
    {Condition::kJoinsAllWritten, "parts are joined when all of them are written"},
    {Condition::kSeesLastCarried, "an update in parts is read behind the last one"},
    {Condition::kSeesAllParts, "storage that parts write is read behind all of them"},
    {Condition::kSeesOwnShare, "between the writes of parts, a part reads its own share"},
    {Condition::kLeavesWritten, "the step leaves inputs and results as they were left"},
    {Condition::kDrawsInOrder, "random draws and unknown effects stay in order"},
    {Condition::kDividesNoDraws, "no draw of random numbers is divided"},
    {Condition::kDoesAllEffects, "every draw, effect and write to what the caller has is done"},
    {Condition::kResultsApart, "results share no elements where they did not"},
    {Condition::kSentUnwritten, "what was sent to the host is not written behind that"},
    {Condition::kLoadedUnwritten, "what is loaded back is not written"},
    {Condition::kLoadsAlike, "what is loaded back has the type of what was sent"},
    {Condition::kLoadsAllAddressed, "what is addressed by strides is loaded with all of its memory"},
    {Condition::kKeepsSent, "what is sent to the host is kept until the copy is done"},
    {Condition::kFreesNoCallers, "a wait frees no memory of the caller's"},
    {Condition::kFreedUntouched, "nothing looks at what a wait has freed"},
    {Condition::kSameFunctions, "nested graphs are the first graph's"},
    {Condition::kFunctionsWriteNothing, "functions write nothing of their caller's"},
    {Condition::kCutsAtQueries,
     "attention is cut along a dimension of its queries, and what lies beside them alike"},
    {Condition::kBeginsABlock, "a part with tables of blocks begins a block"},
    {Condition::kCutsTables, "block tables are those of the part's rows and sequences"},
    {Condition::kCountsFromItsRow, "mask and score functions count from the part's first row"},
    {Condition::kLooksUpInAll, "functions look up rows in all of what they captured"},
    {Condition::kHidesLaterKeys, "keys behind the part's are hidden from its queries"},
    {Condition::kJoinsEarlierKeys, "keys are those of the parts up to the queries'"},
    {Condition::kAddsLaterGradients,
     "the gradient of a part's keys is the sum of what it and the parts behind it give"},
    {Condition::kKeepsEarlierKeys, "keys and values that later parts join are not written"},
    {Condition::kCausalOfAllQueries, "what is causal by position has queries and keys of the same tokens"},
    {Condition::kMasksFromItsRow, "a causal mask begins at the part's first row"},
    {Condition::kMasksTheKeys, "a mask has the rows of the queries and the columns of the keys"},
    {Condition::kMasksItsKeys, "the mask of a part is made for as many keys as it takes"},
    {Condition::kMasksByInfinity, "a mask hides by what is infinite"},
    {Condition::kMasksAsKernelsRead,
     "a mask has the dtype, device, batches, heads and alignment that kernels read"},
    {Condition::kCountsTheSorted, "counts of rows are of the ids that sorted them"},
    {Condition::kSortsUpwards, "rows are sorted upwards"},
    {Condition::kMarksDiffer, "marks that are counted differ in each row"},
    {Condition::kCountsOverAndOver, "the list that runs pick of counts upwards from zero"},
    {Condition::kSumsEachClass, "counts are summed of each class"},
    {Condition::kSumsRunsOfPlaces, "counts are summed of the runs that are placed one behind another"},
    {Condition::kPlacesBeginRuns, "places of a run begin where its rows do"},
    {Condition::kStatisticsOfRows, "statistics of attention have as many rows as its queries"},
    {Condition::kZerosUnwritten, "zeros are not written"},
    {Condition::kCountsRows, "a number of a part counts rows of the whole"},
    {Condition::kNumbersAddUp, "numbers of parts that are added are together the whole's"},
    {Condition::kExtentsAddUp, "rows that no operand has are as many in all parts as in the whole"},
    {Condition::kLeavesOfRows, "what takes some rows takes them of a part's, not of all rows"},
    {Condition::kMovesIntegers, "numbers stay integers"},
});

constexpr auto kAll = [] {
  std::array<Condition, kNames.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = kNames[i].first;
  return all;
}();

}  // namespace

std::string_view name_of(Condition condition) {
  for (const auto& [known, name] : kNames)
    if (known == condition) return name;
  return "none";
}

std::span<const Condition> conditions() {
  return kAll;
}

DroppedCondition::DroppedCondition(Condition condition) {
  dropped = condition;
}
DroppedCondition::~DroppedCondition() {
  dropped = Condition::kNone;
}

bool holds(Condition condition, bool is_met) {
  return is_met || dropped == condition;
}

}  // namespace epweave
