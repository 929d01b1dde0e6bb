#include "analysis/frame_terms.h"

#include <algorithm>
#include <utility>

#include "analysis/same_code.h"

namespace epweave {
namespace {

bool makes_own_order(FrameTerms::Kind kind) {
  switch (kind) {
    case FrameTerms::kSort:
    case FrameTerms::kPick:
    case FrameTerms::kPlace:
    case FrameTerms::kExchange:
    case FrameTerms::kDeal:
    case FrameTerms::kRuns:
    case FrameTerms::kOwn:
      return true;
    case FrameTerms::kTokenOrder:
    case FrameTerms::kGather:
    case FrameTerms::kScatter:
    case FrameTerms::kEach:
    case FrameTerms::kJoin:
    case FrameTerms::kUnknown:
      return false;
  }
  return false;
}

}  // namespace

FrameId FrameTerms::intern(Term term) {
  auto [found, is_new] = ids_.try_emplace(std::move(term), FrameId(terms_.size()));
  if (is_new) {
    const Term& made = found->first;
    const bool is_unknown = made.kind == kUnknown || made.kind == kOwn || is_true_below(made, is_unknown_);
    const bool is_cut_and_sent = made.kind == kDeal || made.kind == kScatter ||
                                 (made.kind == kExchange && (*this)[made.base].kind == kTokenOrder);
    terms_.push_back(&made);
    is_sent_by_place_.push_back(is_cut_and_sent || is_true_below(made, is_sent_by_place_));
    is_unknown_.push_back(is_unknown);
    is_own_.push_back(makes_own_order(made.kind) || is_true_below(made, is_own_));
    is_in_runs_.push_back(made.kind == kRuns || is_true_below(made, is_in_runs_));
  }
  return found->second;
}

bool FrameTerms::is_true_below(const Term& term, const std::vector<bool>& of_terms) {
  if (term.base && of_terms[term.base.index()]) return true;
  if (term.kind != kJoin) return false;
  for (std::size_t i = 0; i < term.values.size(); i += 2)
    if (term.values[i] != kNoFrame && of_terms[term.values[i]]) return true;
  return false;
}

FrameId FrameTerms::runs_below(FrameId id) const {
  while ((*this)[id].base) id = (*this)[id].base;
  return (*this)[id].kind == kRuns ? id : FrameId();
}

bool FrameTerms::may_be_same_word(std::uint64_t a, std::uint64_t b) const {
  const bool are_nodes = (a & b & kNodeWord) != 0;
  return a == b || (are_nodes && may_be_same_value(graph_, numbers_, node_of(a), node_of(b)));
}

bool FrameTerms::may_be_same(FrameId a, FrameId b) const {
  while (a != b) {
    const Term &x = (*this)[a], &y = (*this)[b];
    const bool is_like = x.kind == y.kind && std::ranges::equal(x.values, y.values, [&](auto v, auto w) {
                           return may_be_same_word(v, w);
                         });
    if (!is_like) return false;
    if (!x.base || !y.base) return x.base == y.base;
    a = x.base;
    b = y.base;
  }
  return true;
}

}  // namespace epweave
