#include "ops/only_index.h"

namespace epweave {

OnlyIndex only_index(const Context& context, Arg indices) {
  OnlyIndex only;
  if (!indices.is_list()) return only;
  std::size_t dim = 0;
  for (const Arg index : context.args.children(indices)) {
    if (!index.is_none()) {
      if (!only.index.is_none()) return {};
      only = {index, dim};
    }
    ++dim;
  }
  return only;
}

}  // namespace epweave
