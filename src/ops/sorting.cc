#include "ops/sorting.h"

#include <cstdint>

#include "ops/named_arg.h"

namespace epweave {

bool sorts_upwards(const Context& context, const Node& sort) {
  const Arg descending = named_arg(context, sort, "descending");
  return descending.is_none() || (descending.is(ArgKind::kBool) && !descending.as_bool());
}

int sorted_dimension(const Context& context, const Node& sort, std::size_t rank) {
  const Arg given = named_arg(context, sort, "dim");
  const std::int64_t dim = given.is_int() ? given.as_int() : -1;
  return static_cast<int>(dim < 0 ? dim + static_cast<std::int64_t>(rank) : dim);
}

bool sorts_whole_rows(const Context& context, const Node& sort, const TensorType& keys) {
  const int along = sorted_dimension(context, sort, keys.rank());
  for (std::size_t i = 0; i < keys.rank(); ++i)
    if (static_cast<int>(i) != along && context.exprs.constant(keys.sizes[i]) != 1) return false;
  return true;
}

}  // namespace epweave
