// Side conditions of the rules by which `verify A B` accepts (docs/rewrite_verification.md, "The
// calculus"), by name, so that a test can drop one and see which wrong rewrite passes without it
// (tools/dev/check_rules.cc). No program that users run drops any.
//
//   if (!holds(Condition::kFirstIsShare, first_is_share)) return PartFact::kOwn;
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace epweave {

enum class Condition : std::uint8_t {
  kNone,
  // ADD, CAT
  kEachPartOnce,
  kPartsInOrder,
  kAddsSummands,
  kJoinsRows,
  kJoinsKnownOrders,
  // ROWS
  kMixesNoRows,
  kPairsRows,
  kOwnTablesCutOwnRows,
  // REDUCE, FIRST, EACH, SUM
  kReducesBySum,
  kLinear,
  kFirstIsShare,
  kOneIsShare,
  kAllAreSummands,
  kAddsNoNumber,
  kScalesByFinite,
  kConvertsSums,
  kPadsZeros,
  kReducesRanksBySum,
  // ROW
  kRowsTakeNoShare,
  kRowsTakeNoNumbers,
  kDividesOneDimension,
  kGroupsCountRows,
  kNumbersSayExtents,
  // INDEX, SLOT
  kNumbersPickParts,
  kNumbersCountRows,
  kPlacesPickOwnRows,
  kMovesOnePlace,
  kRepeatsCounted,
  kDataPickNoParts,
  kMasksByData,
  kPositionsMeetNoRows,
  kEntriesDivideRows,
  // ORDER
  kOrdersPair,
  kBlocksPair,
  kNumbersOfTheirRows,
  kEqualPartsAreOne,
  kRemainderNumbersTokens,
  // WRITE
  kWritesReachViews,
  kWritesRowsOfWhole,
  // INPUT, FACTS
  kSameInputs,
  kBindsAlike,
  kSameDataAbout,
  kSameWorld,
  kSaysNothingOfOthers,
  kSaysNoMore,
  // CALL
  kSameTarget,
  kSameOperands,
  kSameConstants,
  kSameKeywords,
  kSameTypes,
  kSameGroup,
  kLiesAlike,
  kShowsAlike,
  // PART, SIZE, CHAIN, SPLIT, DIVIDE
  kTakesAlike,
  kCutsAlike,
  kSizesFollow,
  kCarriesSums,
  kSplitsTheWhole,
  kPieceIsItsElement,
  kSplitsInShares,
  kJoinsShares,
  // MOVED
  kMovedElements,
  kCastsAlike,
  kSendsInGroup,
  kReducesAlike,
  kMovesUnwritten,
  kForgetsWritten,
  kWritesBeforeShown,
  kReshapesCopy,
  kShowsApart,
  kMovedStays,
  kGathersFromOwnPlace,
  kShowsAllSent,
  kReadsArrived,
  kLaunchesUndisturbed,
  // TAKE, MERGE
  kTakesSameRows,
  kTakesRows,
  kTakesUnwritten,
  kMergesSameCalls,
  kMergesUnwritten,
  kMergesNoDraws,
  // STATE, ALIAS
  kSeesNoOtherWrite,
  kSeesWritesInEach,
  kJoinsAllWritten,
  kSeesLastCarried,
  kSeesAllParts,
  kSeesOwnShare,
  kLeavesWritten,
  kDrawsInOrder,
  kDividesNoDraws,
  kDoesAllEffects,
  kResultsApart,
  // OFFLOAD
  kSentUnwritten,
  kLoadedUnwritten,
  kLoadsAlike,
  kLoadsAllAddressed,
  kKeepsSent,
  kFreesNoCallers,
  kFreedUntouched,
  // BLOCKS, FUNCTION, PREFIX, CAUSAL
  kSameFunctions,
  kFunctionsWriteNothing,
  kCutsAtQueries,
  kBeginsABlock,
  kCutsTables,
  kCountsFromItsRow,
  kLooksUpInAll,
  kHidesLaterKeys,
  kJoinsEarlierKeys,
  kAddsLaterGradients,
  kKeepsEarlierKeys,
  kMasksItsKeys,
  kCausalOfAllQueries,
  kMasksFromItsRow,
  kMasksTheKeys,
  kMasksByInfinity,
  kMasksAsKernelsRead,
  // COUNTS
  kCountsTheSorted,
  kSortsUpwards,
  kMarksDiffer,
  kCountsOverAndOver,
  kSumsEachClass,
  kSumsRunsOfPlaces,
  kPlacesBeginRuns,
  // STATISTICS
  kStatisticsOfRows,
  // COMMON, COUNT, IOTA, MOVE, PLACES
  kZerosUnwritten,
  kCountsRows,
  kNumbersAddUp,
  kExtentsAddUp,
  kLeavesOfRows,
  kMovesIntegers,
};

std::string_view name_of(Condition condition);
std::span<const Condition> conditions();

// For tests: while it lives, the condition counts as met, in this thread.
class DroppedCondition {
 public:
  explicit DroppedCondition(Condition condition);
  ~DroppedCondition();
  DroppedCondition(const DroppedCondition&) = delete;
  DroppedCondition& operator=(const DroppedCondition&) = delete;
};

bool holds(Condition condition, bool is_met);

}  // namespace epweave
