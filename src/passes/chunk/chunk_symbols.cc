#include "passes/chunk/chunk_symbols.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/walk.h"
#include "passes/chunk/chunk_site.h"
#include "passes/fresh_symbols.h"

namespace epweave {
PartSymbols::PartSymbols(const Graph& graph, const ChunkPlan& plan) : graph_(graph), plan_(plan) {
  FreshSymbols fresh_symbols(graph);
  for (const auto [id, node] : walk(graph.step(), plan.placements.divided)) {
    if (!node.extra) continue;
    const RegionId region = plan.placements.region[id];
    const std::size_t parts = plan.division(region).count();
    if (twins_.size() < parts) twins_.resize(parts);
    for (const Binding& binding : node.extra->bindings) {
      bound_in_.at(binding.symbol) = region;
      for (std::size_t k = 0; k < parts; ++k)
        twins_[k].at(binding.symbol) = fresh_symbols.like(binding.symbol);
    }
  }
}

Graph PartSymbols::declare() const {
  Graph result = graph_;
  for (Symbol& symbol : result.symbols)
    for (const auto& assumed : plan_.assumed)
      if (assumed.symbol == symbol.name) symbol.assumptions.push_back(assumed.statement);
  Facts facts(result);
  std::vector<Symbol> fresh;
  for (const Symbol& symbol : graph_.symbols) {
    if (!is_divided(symbol.name)) continue;
    const std::size_t parts = plan_.division(bound_in_[symbol.name]).count();
    for (std::size_t k = 0; k < parts; ++k) fresh.push_back(part_symbol(facts, symbol, k));
  }
  result.symbols.insert(result.symbols.end(), fresh.begin(), fresh.end());
  return result;
}

// The polynomial for one part: token symbols become the part's share, symbols bound inside their
// twins.
PolyId PartSymbols::part_poly(ExprPool& pool, PolyId poly, const Part& part) const {
  const std::vector<StringId>& tokens = plan_.token_symbols;
  return pool.substitute(poly, [&](StringId symbol) -> std::optional<PolyId> {
    if (StringId other = twin(symbol, part.number)) return pool.poly_symbol(other);
    if (std::find(tokens.begin(), tokens.end(), symbol) != tokens.end())
      return part.division.rows(pool, symbol, part.number);
    return std::nullopt;
  });
}

ExprId PartSymbols::with_twins(Facts& facts, ExprId expr, std::size_t part) const {
  ExprPool& pool = facts.pool();
  return facts.expr(pool.substitute(pool.poly(expr), [&](StringId symbol) -> std::optional<PolyId> {
    if (StringId other = twin(symbol, part)) return pool.poly_symbol(other);
    return std::nullopt;
  }));
}

Symbol PartSymbols::part_symbol(Facts& facts, const Symbol& symbol, std::size_t part) const {
  ExprPool& pool = facts.pool();
  Symbol result = symbol;
  result.name = twin(symbol.name, part);
  result.part_of = symbol.name;
  const Division& division = plan_.division(bound_in_[symbol.name]);
  if (symbol.hint) result.hint = share_of_hint(facts, division, part, *symbol.hint);
  if (symbol.asserts) {
    std::erase_if(*result.asserts, [&](ExprId said) { return rounds_tokens(facts, pool.poly(said)); });
    for (ExprId& statement : *result.asserts)
      statement = facts.expr(part_poly(pool, pool.poly(statement), {division, part}));
  }
  result.assumptions.clear();
  result.unknown_fields.clear();
  return result;
}

// Whether a statement rounds what the number of tokens determines: Eq((u0 + u1)//4, 32), where
// u0 + u1 is 32 for each of 4 tokens. What it says follows from that number, and a part has
// another.
bool PartSymbols::rounds_tokens(Facts& facts, PolyId said) const {
  ExprPool& pool = facts.pool();
  const auto is_of_part = [&](PolyId poly) {
    return std::ranges::any_of(pool.symbols(poly), [&](StringId symbol) { return is_divided(symbol); });
  };
  if (!is_of_part(said)) return false;
  for (std::size_t i = 0; i < pool[said].terms.size(); ++i)
    for (std::size_t j = 0; j < pool[said].terms[i].atoms.size(); ++j) {
      const Atom atom = pool[pool[said].terms[i].atoms[j]];  // the pool may grow
      const bool rounds = atom.kind == AtomKind::kFloorDiv || atom.kind == AtomKind::kMod;
      for (PolyId operand : atom.operands) {
        if (rounds && is_of_part(operand) && !is_of_part(facts.normalize(operand))) return true;
        if (rounds_tokens(facts, operand)) return true;
      }
    }
  return false;
}

// As large a share of the number as the part has of the tokens.
std::int64_t PartSymbols::share_of_hint(Facts& facts, const Division& division, std::size_t part,
                                        std::int64_t hint) const {
  for (StringId symbol : plan_.token_symbols) {
    if (!division.divided.contains(symbol) || division.equal.contains(symbol)) continue;
    const auto tokens = facts.hint(symbol), rows = facts.hint(division.rows(facts.pool(), symbol, part));
    if (tokens && rows && *tokens > 0) return hint * *rows / *tokens;
  }
  return hint / division.parts;
}

bool PartSymbols::mentioned(TypeId id) const {
  Context& context = *graph_.context;
  const Type& type = context.types[id];
  auto mentions = [&](ExprId e) {
    if (!e) return false;
    const auto& symbols = context.exprs.symbols(e);
    return std::any_of(symbols.begin(), symbols.end(), [&](StringId s) { return is_divided(s); });
  };
  return mentions(type.expr) || std::any_of(type.tensor.sizes.begin(), type.tensor.sizes.end(), mentions) ||
         std::any_of(type.elements.begin(), type.elements.end(), [&](TypeId e) { return e && mentioned(e); });
}

void PartSymbols::drop_from(Graph& chunked) const {
  std::erase_if(chunked.symbols, [&](const Symbol& s) { return is_divided(s.name); });
}

void PartSymbols::require_unmentioned(const Graph& chunked) const {
  IdSet<TypeId> checked;
  for (const auto [id, node] : walk(chunked.step())) {
    if (!node.type || !checked.insert(node.type)) continue;
    if (mentioned(node.type))
      throw PassError(
          "chunk.outside-symbol",
          fmt::format(
              "the recorded size of {} depends on a number that is read inside a divided region, once "
              "per part",
              name_for_user(chunked, node)),
          site_for_user(chunked, node), "select roots that contain this operation, or leave the module out");
  }
}

}  // namespace epweave
