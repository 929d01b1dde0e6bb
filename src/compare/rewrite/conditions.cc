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
    {Condition::kReducesBySum, "rows are reduced by a sum"},
    {Condition::kLinear, "what is made of a share is linear in it"},
    {Condition::kFirstIsShare, "linear in the first operand: it is the share"},
    {Condition::kOneIsShare, "linear in each operand: one is a share"},
    {Condition::kAllAreSummands, "linear in all operands: all are summands"},
    {Condition::kAddsNoNumber, "no number is added to a share"},
    {Condition::kScalesByFinite, "a share is not divided by zero, nor scaled by what is not finite"},
    {Condition::kConvertsSums, "a share converts as a summand does: no fractions are dropped, nothing wraps"},
    {Condition::kPadsZeros, "a share is padded by zeros"},
    {Condition::kReducesRanksBySum, "shares are reduced across ranks by a sum"},
    {Condition::kRowsTakeNoShare, "rows take no share"},
    {Condition::kRowsTakeNoNumbers, "rows take no numbers of their part"},
    {Condition::kDividesOneDimension, "rows of a part do not meet those of all parts"},
    {Condition::kGroupsCountRows, "groups of a part's rows are counted in the part"},
    {Condition::kNumbersSayExtents, "a part's own numbers say how large tensors are"},
    {Condition::kNumbersPickParts, "numbers of a part pick from parts"},
    {Condition::kNumbersCountRows, "numbers count the rows that they pick from"},
    {Condition::kPlacesPickOwnRows, "places pick from rows in an order of the part's own"},
    {Condition::kDataPickNoParts, "data pick from no part"},
    {Condition::kPositionsMeetNoRows,
     "positions that a part has pick for all of its rows in no other dimension"},
    {Condition::kEntriesDivideRows, "entries divide the rows of each part"},
    {Condition::kOrdersPair, "rows that meet are in one order"},
    {Condition::kBlocksPair, "rows that meet are of the same blocks"},
    {Condition::kNumbersOfTheirRows, "numbers pick rows in the order that they number"},
    {Condition::kWritesReachViews, "writes are in every view"},
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
