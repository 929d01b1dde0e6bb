#include "analysis/frame_terms.h"

#include <algorithm>
#include <utility>

#include "analysis/same_code.h"

namespace epweave {

FrameId FrameTerms::intern(Term term) {
  auto [found, is_new] = ids_.try_emplace(std::move(term), FrameId(terms_.size()));
  if (is_new) {
    terms_.push_back(&found->first);
    is_unknown_.push_back(has_unknown(found->first));
  }
  return found->second;
}

bool FrameTerms::has_unknown(const Term& term) const {
  if (term.kind == kUnknown || (term.base && is_unknown(term.base))) return true;
  if (term.kind != kJoin) return false;
  for (std::size_t i = 0; i < term.values.size(); i += 2)
    if (term.values[i] != kNoFrame && is_unknown_[term.values[i]]) return true;
  return false;
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
