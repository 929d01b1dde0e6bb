// Which comparisons of ids with numbers are the bounds of the shard in which the ids are looked up.
//
//   %in = bitwise_and(ge(%ids, 0), lt(%ids, 1024))      masks what the lookup gave: bounds
//   %e = mul(embedding(%w, clamp(sub(%ids, 0), 0, 1023)), cast(%in))
//   %n = sum(ge(%ids, 0))                               counts ids: no bound, though it looks like one
//
// The mask of a bound (through and, or, not, casts and views) meets the rows that the lookup gives
// or writes, or its positions behind the shift. Where bounds that are right for this rank are
// there already, further comparisons are none, nor are bounds of the whole table. Masks that meet
// no lookup in this graph (they are outputs of half a step) are taken where no other of these ids
// does, as a pair of a lower and an upper bound.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "analysis/users.h"
#include "analysis/value_numbers.h"
#include "ir/graph.h"

namespace epweave {

bool holds_whole_numbers(const Context& context, const Body& body, NodeId id);

// Numbers of ids: copies, views, and casts between whole numbers hold the same ids.
class IdNumbers {
 public:
  IdNumbers(const Graph& graph, const Effects& effects)
      : context_(*graph.context), body_(graph.step()), effects_(effects), numbers_(graph, effects) {}
  NodeId operator[](NodeId id) const;

 private:
  bool holds_ids_of_first(const Node& node) const;

  const Context& context_;
  const Body& body_;
  const Effects& effects_;
  ValueNumbers numbers_;
};

struct BoundedLookup {
  NodeId call, positions;
  NodeId shift;  // in front of the positions
  NodeId ids;    // number of the value that it shifts
  std::int64_t rows = 0, global = 0;
};

enum class BoundSide : std::uint8_t { kLower, kUpper };

struct ShardBound {
  NodeId comparison, ids;
  std::optional<BoundSide> side;  // none: nothing combines it with another one
  bool is_proved = false;         // else it is a comparison of the ids for something else
  bool is_shared = false;         // is used for something else, too
};

// Whether the number that stands in a comparison is this rank's bound of that side.
using IsRightBound = std::function<bool(NodeId comparison, std::optional<BoundSide> side)>;

// Of all comparisons of ids that are looked up, in the order of their nodes.
std::vector<ShardBound> find_shard_bounds(const Graph& graph, const IdNumbers& numbers,
                                          const NodeLists& users, const std::vector<BoundedLookup>& lookups,
                                          const IsRightBound& is_right);

}  // namespace epweave
