#include "compare/rewrite/rewrite_assumptions.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace epweave {
namespace {

// "u0 = 4" for Eq(u0, 4); other statements as they are.
std::string print_statement(const ExprPool& pool, ExprId statement) {
  const Poly& poly = pool[pool.poly(statement)];
  if (poly.terms.size() == 1 && poly.terms[0].atoms.size() == 1) {
    const Atom& atom = pool[poly.terms[0].atoms[0]];
    if (atom.kind == AtomKind::kEq)
      return fmt::format("{} = {}", pool.print(atom.operands[0]), pool.print(atom.operands[1]));
  }
  return std::string(pool.text(statement));
}

class Assumptions {
 public:
  std::vector<std::string> list(const Graph& a, const Graph& b, const Numbers& numbers) {
    for (const auto& [symbol, number] : numbers.known_numbers())
      add(fmt::format("{} = {}", b.text(symbol), number));
    add_symbols(a, b);
    add_notes(a, b);
    return std::move(list_);
  }

 private:
  void add(std::string text) {
    if (seen_.insert(text).second) list_.push_back(std::move(text));
  }

  void add_symbols(const Graph& a, const Graph& b) {
    SideTable<StringId, const Symbol*> before;
    for (const Symbol& symbol : a.symbols) before.at(symbol.name) = &symbol;
    for (const Symbol& symbol : b.symbols) {
      for (ExprId statement : symbol.assumptions) {
        const Symbol* known = before[symbol.name];
        if (known == nullptr || std::ranges::find(known->assumptions, statement) == known->assumptions.end())
          add(print_statement(b.context->exprs, statement));
      }
    }
  }

  // Of the passes behind those that made the first graph.
  void add_notes(const Graph& a, const Graph& b) {
    constexpr std::string_view kPrefix = "assumption: ";
    for (std::size_t i = a.passes.size(); i < b.passes.size(); ++i)
      for (const std::string& note : b.passes[i].notes)
        if (note.starts_with(kPrefix)) add(note.substr(kPrefix.size()));
  }

  std::vector<std::string> list_;
  std::unordered_set<std::string> seen_;
};

}  // namespace

std::vector<std::string> list_assumptions(const Graph& a, const Graph& b, const Numbers& numbers) {
  return Assumptions().list(a, b, numbers);
}

}  // namespace epweave
