#include "resize/count_bounds.h"

namespace epweave {

void set_count_bounds(Graph& graph, const std::unordered_map<StringId, std::int64_t>& sums,
                      const IdSet<StringId>& done, std::int64_t before, std::int64_t after) {
  ExprPool& pool = graph.context->exprs;
  for (Symbol& symbol : graph.symbols) {
    const auto upper = symbol.upper ? pool.constant(*symbol.upper) : std::nullopt;
    if (!upper || done.contains(symbol.name)) continue;
    const auto sum = sums.find(symbol.name);
    const bool is_share = sum != sums.end() && sum->second <= *upper;
    if (is_share || after > before) symbol.upper = pool.number((*upper * after + before - 1) / before);
  }
}

}  // namespace epweave
