#include "compare/rewrite/moved_launches.h"

#include <algorithm>
#include <iterator>

#include "compare/rewrite/conditions.h"

namespace epweave {
namespace {

using Ranges = std::map<std::int64_t, std::int64_t>;

void add_range(Ranges& ranges, std::int64_t begin, std::int64_t end) {
  auto at = ranges.upper_bound(begin);
  if (at != ranges.begin() && std::prev(at)->second >= begin) --at;
  while (at != ranges.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = ranges.erase(at);
  }
  ranges.emplace_hint(at, begin, end);
}

bool meets(const Ranges& ranges, std::int64_t begin, std::int64_t end) {
  const auto next = ranges.lower_bound(end);
  return next != ranges.begin() && std::prev(next)->second > begin;
}

}  // namespace

Sequence MovedLaunches::add(NodeId launch, const Sequence& sent, const Sequence& given) {
  const LaunchedId id = results_.push_back({.launch = launch, .sent = sent});
  Sequence result;
  for (Piece piece : given.pieces()) {
    piece.launched = id;
    piece.place = result.size();
    result.append(piece);
  }
  return results_[id].given = result;
}

void MovedLaunches::show(const Piece& piece) {
  if (piece.launched) add_range(results_[piece.launched].shown, piece.place, piece.place + piece.count);
}

void MovedLaunches::show(const Sequence& elements) {
  for (const Piece& piece : elements.pieces()) show(piece);
}

const Piece* MovedLaunches::find_unshown(TermId term, std::int64_t rank, std::int64_t first) const {
  for (const Result& result : results_) {
    if (!waits_of_.contains(result.launch)) continue;
    for (const Piece& piece : result.given.pieces()) {
      const bool has_element = piece.term == term && piece.rank == rank && piece.first <= first &&
                               first < piece.first + piece.count;
      const std::int64_t place = piece.place + first - piece.first;
      if (has_element && !meets(result.shown, place, place + 1)) return &piece;
    }
  }
  return nullptr;
}

bool MovedLaunches::show_unshown(const Sequence& elements) {
  std::vector<Piece> found;
  for (const Piece& piece : elements.pieces())
    for (std::int64_t done = 0; done < piece.count;) {
      const Piece* in = find_unshown(piece.term, piece.rank, piece.first + done);
      if (in == nullptr) return false;
      const std::int64_t skipped = piece.first + done - in->first;
      const std::int64_t count = std::min(in->count - skipped, piece.count - done);
      if (meets(results_[in->launched].shown, in->place + skipped, in->place + skipped + count)) return false;
      found.push_back({.launched = in->launched, .count = count, .place = in->place + skipped});
      done += count;
    }
  for (const Piece& piece : found) show(piece);
  return !found.empty();
}

// All of it. Of a result without elements there is nothing to show.
bool MovedLaunches::is_shown(const Result& result) {
  if (result.given.size() == 0) return true;
  return result.shown.size() == 1 && result.shown.begin()->first == 0 &&
         result.shown.begin()->second == result.given.size();
}

std::vector<NodeId> MovedLaunches::settle() {
  std::vector<NodeId> accounted;
  for (std::size_t end = results_.size(); end > 0;) {
    const NodeId launch = results_[LaunchedId(end - 1)].launch;
    std::size_t begin = end;
    bool is_all = true, is_any = false;
    while (begin > 0 && results_[LaunchedId(begin - 1)].launch == launch) {
      const Result& result = results_[LaunchedId(--begin)];
      is_all = holds(Condition::kShowsAllSent, is_shown(result)) && is_all;
      is_any |= result.given.size() > 0;
    }
    if (is_all && is_any) {
      accounted.push_back(launch);
      std::ranges::copy(waits_of_[launch], std::back_inserter(accounted));
      for (std::size_t i = begin; i < end; ++i) show(results_[LaunchedId(i)].sent);
    }
    end = begin;
  }
  return accounted;
}

}  // namespace epweave
