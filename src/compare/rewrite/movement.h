// Values as sequences of elements of other values: what moving data, on a rank and between ranks,
// makes of them.
//
//   %w = wait(all_gather(cast(%p), 2, "dp"))     p as bf16 of rank 0, then of rank 1: [(gathered p, 0) 0..n, (gathered p, 1) 0..n]
//   %g = wait(reduce_scatter(%x, "sum", 2, "dp"))  [share of the ranks' sum of x: from place * n/2 on]
//
// A sequence lists elements row-major, whatever the strides. Two values whose sequences are equal
// have the same elements: the rules know no packing by name, only what each step does with places.
//
// Terms are numbered; equal terms have the same number.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/id.h"
#include "compare/rewrite/numbers.h"
#include "ir/types/type.h"

namespace epweave {

// No device holds more elements than this; products with kMaxPieces stay far from the ends of 64
// bits.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;
// What is in more pieces, is not followed: real buckets have some pieces for each tensor and rank,
// while a transposed matrix has one for each element, and a piece takes 40 bytes.
inline constexpr std::int64_t kMaxPieces = std::int64_t{1} << 20;
// Of all values together.
inline constexpr std::int64_t kMaxAllPieces = std::int64_t{1} << 24;

// How many elements a tensor of these sizes has; none for a negative size, or more elements than
// are followed.
std::optional<std::int64_t> count_of(std::span<const std::int64_t> sizes);
// The sizes of a tensor; none: there is no tensor, or some size has no number, or there are more
// elements than are followed.
std::optional<std::vector<std::int64_t>> find_sizes(Numbers& numbers, const TensorType* type);
// Of sizes that count_of counts.
std::vector<std::int64_t> row_major(std::span<const std::int64_t> sizes);

// Neighbouring elements of storage.
struct Run {
  std::int64_t first = 0, count = 0;
};
// What a view shows of storage that has `extent` elements, in row-major order. None: it lies
// outside, or is in too many runs.
std::optional<std::vector<Run>> runs_of(std::span<const std::int64_t> sizes,
                                        std::span<const std::int64_t> strides, std::int64_t offset,
                                        std::int64_t extent);

// What elements are taken from.
using TermId = Id<struct MovementTermTag>;

enum class TermKind : std::uint8_t {
  kValue,     // a value of the first graph
  kUnknown,   // memory that nothing wrote
  kCast,      // `of` as another dtype
  kGathered,  // `of`, of each rank of a group: a piece says which
  kAtRank,    // `of` at one rank, where that is gathered again
  kReduced,   // `of`, reduced over a group
  kShare,     // `of` from (this rank's place in a group) * stride on
};

struct MovedTerm {
  TermKind kind = TermKind::kUnknown;
  TermId of;
  std::uint64_t what = 0;  // node, dtype, group or rank
  std::uint64_t reduction = 0;
  std::int64_t stride = 0;
  friend auto operator<=>(const MovedTerm&, const MovedTerm&) = default;
};

// A result of a launch.
using LaunchedId = Id<struct LaunchedTag>;

// Elements first .. first + count of a term, row-major; of a gathered one, of that rank. Which
// launch brought them, from which place of its result on, is no part of what they are.
struct Piece {
  TermId term;
  LaunchedId launched;
  std::int64_t rank = 0, first = 0, count = 0;
  std::int64_t place = 0;  // 0 without a launch
};

class Sequence {
 public:
  // False once it was to have too many elements or pieces, or elements that are nowhere: it is
  // equal to none.
  bool is_followed() const { return is_followed_; }
  std::int64_t size() const { return pieces_.empty() ? 0 : begins_.back() + pieces_.back().count; }
  std::span<const Piece> pieces() const { return pieces_; }
  void append(const Piece& piece);  // together with the last one where they continue each other
  void append(const Sequence& other, std::int64_t first, std::int64_t count);
  friend bool operator==(const Sequence& a, const Sequence& b) {
    return a.is_followed_ && b.is_followed_ && a.has_elements_of(b);
  }

 private:
  void give_up();
  bool has_elements_of(const Sequence& other) const;

  std::vector<Piece> pieces_;
  std::vector<std::int64_t> begins_;  // of each
  bool is_followed_ = true;
};

class MovementTerms {
 public:
  TermId intern(const MovedTerm& term);
  const MovedTerm& operator[](TermId id) const { return terms_[id]; }

  // Whether nothing wrote any of these elements.
  bool is_unknown(const Sequence& x) const;

  // Whether there is room for so many more pieces of values that are kept.
  bool reserve(std::int64_t pieces);

  // Of sequences that are followed, and 1 .. kMaxPieces ranks.
  Sequence cast(const Sequence& x, DType dtype);
  Sequence gather(const Sequence& x, std::uint64_t group, std::int64_t ranks);
  Sequence reduce(const Sequence& x, std::uint64_t group, std::uint64_t reduction);
  // One of `ranks` equal shares; none where they are not cut alike.
  std::optional<Sequence> scatter(const Sequence& x, std::uint64_t group, std::int64_t ranks);

 private:
  TermId at_rank(const Piece& piece);

  IdVector<TermId, MovedTerm> terms_;
  std::map<MovedTerm, TermId> ids_;
  std::int64_t pieces_ = 0;  // of all sequences that are kept
};

}  // namespace epweave
