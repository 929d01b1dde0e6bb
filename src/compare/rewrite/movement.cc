#include "compare/rewrite/movement.h"

#include <algorithm>

#include "compare/rewrite/conditions.h"

namespace epweave {
namespace {

// Whether all elements that a view shows, which are some, are in 0 .. extent.
bool lies_in(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides, std::int64_t offset,
             std::int64_t extent) {
  if (offset < 0 || offset >= extent) return false;
  std::int64_t last = offset;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    if (strides[d] < 0 || strides[d] > (extent - 1 - last) / (sizes[d] - 1)) return false;
    last += strides[d] * (sizes[d] - 1);
  }
  return true;
}

}  // namespace

std::optional<std::int64_t> count_of(std::span<const std::int64_t> sizes) {
  std::int64_t count = 1;
  for (std::int64_t size : sizes) {
    if (size < 0 || size > kMaxElements / count) return {};
    count *= std::max<std::int64_t>(size, 1);
  }
  return std::ranges::find(sizes, 0) == sizes.end() ? count : 0;
}

std::optional<std::vector<std::int64_t>> find_sizes(Numbers& numbers, const TensorType* type) {
  auto sizes = type != nullptr ? numbers.find_numbers(type->sizes) : std::nullopt;
  return sizes && count_of(*sizes) ? sizes : std::nullopt;
}

std::vector<std::int64_t> row_major(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

std::optional<std::vector<Run>> runs_of(std::span<const std::int64_t> sizes,
                                        std::span<const std::int64_t> strides, std::int64_t offset,
                                        std::int64_t extent) {
  std::vector<Run> runs;
  const auto all = count_of(sizes);
  if (all == 0) return runs;
  if (!all || !lies_in(sizes, strides, offset, extent)) return {};
  // The last dimensions that lie side by side are one run.
  std::size_t outer = sizes.size();
  std::int64_t run = 1;
  while (outer > 0 && (strides[outer - 1] == run || sizes[outer - 1] == 1)) run *= sizes[--outer];
  if (*all / run > kMaxPieces) return {};
  std::vector<std::int64_t> index(outer);
  for (std::int64_t n = 0; n < *all / run; ++n) {
    std::int64_t first = offset;
    for (std::size_t d = 0; d < outer; ++d)
      if (index[d] != 0) first += index[d] * strides[d];
    runs.push_back({first, run});
    for (std::size_t d = outer; d-- > 0 && ++index[d] == sizes[d];) index[d] = 0;
  }
  return runs;
}

void Sequence::give_up() {
  *this = {};
  is_followed_ = false;
}

void Sequence::append(const Piece& piece) {
  if (piece.count == 0 || !is_followed_) return;
  if (piece.count < 0 || piece.count > kMaxElements - size()) return give_up();
  if (!pieces_.empty()) {
    Piece& last = pieces_.back();
    const bool is_next_place =
        last.launched == piece.launched && (!piece.launched || last.place + last.count == piece.place);
    if (is_next_place && last.term == piece.term && last.rank == piece.rank &&
        last.first + last.count == piece.first) {
      last.count += piece.count;
      return;
    }
  }
  if (std::ssize(pieces_) == kMaxPieces) return give_up();
  begins_.push_back(size());
  pieces_.push_back(piece);
}

void Sequence::append(const Sequence& other, std::int64_t first, std::int64_t count) {
  if (!other.is_followed_ || first < 0 || count < 0 || first > other.size() - count) return give_up();
  auto at = static_cast<std::size_t>(std::ranges::upper_bound(other.begins_, first) - other.begins_.begin());
  for (std::size_t i = at == 0 ? 0 : at - 1; i < other.pieces_.size() && count > 0; ++i) {
    Piece piece = other.pieces_[i];
    const std::int64_t skipped = std::max<std::int64_t>(first - other.begins_[i], 0);
    piece.first += skipped;
    if (piece.launched) piece.place += skipped;
    piece.count = std::min(piece.count - skipped, count);
    append(piece);
    first += piece.count;
    count -= piece.count;
  }
}

// Pieces of different launches are apart, so that equal elements may be in other pieces.
bool Sequence::has_elements_of(const Sequence& other) const {
  if (size() != other.size()) return false;
  std::size_t i = 0, j = 0;
  std::int64_t done_i = 0, done_j = 0;
  while (i < pieces_.size()) {
    const Piece &x = pieces_[i], &y = other.pieces_[j];
    if (x.term != y.term || x.rank != y.rank || x.first + done_i != y.first + done_j) return false;
    const std::int64_t count = std::min(x.count - done_i, y.count - done_j);
    done_i += count;
    done_j += count;
    if (done_i == x.count) ++i, done_i = 0;
    if (done_j == y.count) ++j, done_j = 0;
  }
  return true;
}

bool MovementTerms::is_unknown(const Sequence& x) const {
  return x.is_followed() && std::ranges::all_of(x.pieces(), [&](const Piece& piece) {
           return terms_[piece.term].kind == TermKind::kUnknown;
         });
}

bool MovementTerms::reserve(std::int64_t pieces) {
  if (pieces > kMaxAllPieces - pieces_) return false;
  pieces_ += pieces;
  return true;
}

TermId MovementTerms::intern(const MovedTerm& term) {
  const auto [known, is_new] = ids_.try_emplace(term, TermId(terms_.size()));
  if (is_new) terms_.push_back(term);
  return known->second;
}

// What a piece is taken from, as one term.
TermId MovementTerms::at_rank(const Piece& piece) {
  if (terms_[piece.term].kind != TermKind::kGathered) return piece.term;
  return intern(
      {.kind = TermKind::kAtRank, .of = piece.term, .what = static_cast<std::uint64_t>(piece.rank)});
}

Sequence MovementTerms::cast(const Sequence& x, DType dtype) {
  if (holds(Condition::kCastsAlike, false)) return x;
  Sequence result;
  for (Piece piece : x.pieces()) {
    piece.term =
        intern({.kind = TermKind::kCast, .of = at_rank(piece), .what = static_cast<std::uint64_t>(dtype)});
    piece.rank = 0;
    result.append(piece);
  }
  return result;
}

Sequence MovementTerms::gather(const Sequence& x, std::uint64_t group, std::int64_t ranks) {
  std::vector<Piece> row;
  for (const Piece& piece : x.pieces())
    row.push_back({.term = intern({.kind = TermKind::kGathered, .of = at_rank(piece), .what = group}),
                   .first = piece.first,
                   .count = piece.count});
  Sequence result;
  for (std::int64_t rank = 0; rank < ranks && result.is_followed(); ++rank)
    for (Piece piece : row) {
      piece.rank = rank;
      result.append(piece);
    }
  return result;
}

Sequence MovementTerms::reduce(const Sequence& x, std::uint64_t group, std::uint64_t reduction) {
  Sequence result;
  for (const Piece& piece : x.pieces())
    result.append(
        {.term = intern(
             {.kind = TermKind::kReduced, .of = at_rank(piece), .what = group, .reduction = reduction}),
         .first = piece.first,
         .count = piece.count});
  return result;
}

std::optional<Sequence> MovementTerms::scatter(const Sequence& x, std::uint64_t group, std::int64_t ranks) {
  if (ranks < 1 || x.size() % ranks != 0) return {};
  const std::int64_t length = x.size() / ranks;
  std::vector<Sequence> shares(static_cast<std::size_t>(ranks));
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    shares[static_cast<std::size_t>(rank)].append(x, rank * length, length);
  const auto first = shares.front().pieces();
  Sequence result;
  for (std::size_t i = 0; i < first.size(); ++i) {
    std::int64_t stride = 0;
    for (std::size_t rank = 1; rank < shares.size(); ++rank) {
      const auto pieces = shares[rank].pieces();
      if (pieces.size() != first.size()) return {};
      const Piece& piece = pieces[i];
      if (rank == 1) stride = piece.first - first[i].first;
      const bool is_alike = piece.term == first[i].term && piece.rank == first[i].rank &&
                            piece.count == first[i].count &&
                            piece.first == first[i].first + static_cast<std::int64_t>(rank) * stride;
      if (!is_alike) return {};
    }
    const TermId share =
        intern({.kind = TermKind::kShare, .of = at_rank(first[i]), .what = group, .stride = stride});
    result.append({.term = share, .first = first[i].first, .count = first[i].count});
  }
  return result;
}

}  // namespace epweave
