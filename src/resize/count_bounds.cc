#include "resize/count_bounds.h"

namespace epweave {
namespace {

// Symbols in extents of tensors: they count elements, as a coordinate of a rank does not.
IdSet<StringId> find_extents(const Graph& graph) {
  Context& context = *graph.context;
  IdSet<StringId> found;
  IdSet<TypeId> seen;
  const auto visit = [&](const auto& self, TypeId id) -> void {
    if (!id || !seen.insert(id)) return;
    const Type& type = context.types[id];
    for (TypeId element : type.elements) self(self, element);
    if (type.kind != TypeKind::kTensor) return;
    for (ExprId size : type.tensor.sizes)
      for (StringId name : context.exprs.symbols(context.exprs.poly(size))) found.insert(name);
  };
  for (NodeId id : graph.step().order) visit(visit, graph.step().nodes[id].type);
  return found;
}

}  // namespace

void set_count_bounds(Graph& graph, const std::unordered_map<StringId, std::int64_t>& sums,
                      const IdSet<StringId>& done, std::int64_t before, std::int64_t after) {
  ExprPool& pool = graph.context->exprs;
  const IdSet<StringId> extents = find_extents(graph);
  for (Symbol& symbol : graph.symbols) {
    const auto upper = symbol.upper ? pool.constant(*symbol.upper) : std::nullopt;
    if (!upper || done.contains(symbol.name)) continue;
    const auto sum = sums.find(symbol.name);
    const bool is_share = sum != sums.end() && sum->second <= *upper;
    const bool counts = sum != sums.end() || extents.contains(symbol.name);
    if (is_share || (counts && after > before))
      symbol.upper = pool.number((*upper * after + before - 1) / before);
  }
}

}  // namespace epweave
