#include "compare/rewrite/rewrite_assumptions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "analysis/row_assumptions.h"

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
  Assumptions(const RewriteClaims& claims, const Numbers& numbers)
      : claims_(claims), numbers_(numbers), pool_(claims.graph_a().context->exprs) {
    for (const Symbol& symbol : claims.graph_a().symbols) before_.at(symbol.name) = &symbol;
    const Body& body = claims.graph_b().step();
    SideTable<StringId, StringId> part_of;
    for (const Symbol& symbol : claims.graph_b().symbols) part_of.at(symbol.name) = symbol.part_of;
    for (NodeId id : body.order) {
      if (body.nodes[id].extra == nullptr || claims[id].kind != ClaimKind::kPart) continue;
      for (const Binding& binding : body.nodes[id].extra->bindings) {
        shares_.at(binding.symbol) = claims.share_of(id);
        if (const StringId whole = part_of[binding.symbol]) twins_[{whole, claims[id].part}] = binding.symbol;
      }
    }
  }

  std::vector<std::string> list() {
    const Graph &a = claims_.graph_a(), &b = claims_.graph_b();
    for (const auto& [symbol, number] : numbers_.known_numbers())
      add(fmt::format("{} = {}", b.text(symbol), number));
    add_hints(b);
    add_symbols(b);
    add_notes(a, b);
    for (const Symbol& symbol : b.symbols)
      if (before_[symbol.name] == nullptr) add_own(symbol);
    return std::move(list_);
  }

 private:
  void add(std::string text) {
    if (seen_.insert(text).second) list_.push_back(std::move(text));
  }

  // What inputs of B say that symbols were when they were divided.
  void add_hints(const Graph& b) {
    for (NodeId id : b.step().order) {
      const Node& node = b.step().nodes[id];
      if (node.kind != NodeKind::kPlaceholder || node.extra == nullptr) continue;
      for (const auto& [symbol, number] : node.extra->chunk_hints)
        if (claims_.facts_a().assumed_value(symbol) != number)
          add(fmt::format("{} = {}", b.text(symbol), number));
    }
  }

  void add_symbols(const Graph& b) {
    for (const Symbol& symbol : b.symbols) {
      for (ExprId statement : symbol.assumptions) {
        const Symbol* known = before_[symbol.name];
        if (known == nullptr || std::ranges::find(known->assumptions, statement) == known->assumptions.end())
          add(print_statement(b.context->exprs, statement));
      }
    }
  }

  // What B says of a symbol of its own. Of a number that each part reads for itself it says what A
  // says of the number.
  void add_own(const Symbol& symbol) {
    const Symbol* whole = symbol.part_of ? before_[symbol.part_of] : nullptr;
    const auto same = [](const std::optional<ExprId>& bound, const std::optional<ExprId>& other) {
      return !bound || (other && *bound == *other);
    };
    const bool is_as_said =
        whole != nullptr && same(symbol.lower, whole->lower) && same(symbol.upper, whole->upper);
    const std::string name(claims_.graph_b().text(symbol.name));
    const std::string_view subject = is_as_said ? claims_.graph_b().text(whole->name) : name;
    if (const std::string range = print_range(subject, symbol); !range.empty())
      add(is_as_said ? fmt::format("in each part, {}", range) : range);
    if (symbol.replaced_by) add(fmt::format("{} = {}", name, pool_.print(pool_.poly(*symbol.replaced_by))));
    if (!symbol.asserts) return;
    for (std::size_t i = 0; i < symbol.asserts->size(); ++i) {
      const ExprId statement = (*symbol.asserts)[i];
      const std::optional<ExprId> said =
          whole != nullptr ? find_in_whole(symbol, *whole, statement, i) : std::nullopt;
      add(said ? fmt::format("in each part, {}", print_statement(pool_, *said))
               : print_statement(pool_, statement));
    }
  }

  // "u4 is from 0 to 3072", "0 <= u4"; nothing where both sides are open.
  std::string print_range(std::string_view name, const Symbol& symbol) const {
    const auto bound = [&](const std::optional<ExprId>& expr) {
      const std::string text = expr ? pool_.print(pool_.poly(*expr)) : "";
      return text.ends_with("int_oo") ? "" : text;
    };
    const std::string lower = bound(symbol.lower), upper = bound(symbol.upper);
    if (lower.empty()) return upper.empty() ? "" : fmt::format("{} <= {}", name, upper);
    if (upper.empty()) return fmt::format("{} <= {}", lower, name);
    return fmt::format("{} is from {} to {}", name, lower, upper);
  }

  // The statement of A that this is, with the part's own numbers for those of the whole: mostly the
  // one at its place.
  std::optional<ExprId> find_in_whole(const Symbol& own, const Symbol& whole, ExprId statement,
                                      std::size_t place) {
    if (!whole.asserts) return std::nullopt;
    const Share share = shares_[own.name];
    const auto in_part = [&](StringId symbol) -> std::optional<PolyId> {
      if (const auto twin = twins_.find({symbol, share.part}); twin != twins_.end())
        return pool_.poly_symbol(twin->second);
      return numbers_.find_share(symbol, share);
    };
    const std::vector<ExprId>& all = *whole.asserts;
    const PolyId wanted = pool_.poly(statement);
    const auto is_said = [&](ExprId said) { return pool_.substitute(pool_.poly(said), in_part) == wanted; };
    if (place < all.size() && is_said(all[place])) return all[place];
    const auto found = std::ranges::find_if(all, is_said);
    return found == all.end() ? std::nullopt : std::optional(*found);
  }

  // Of the passes behind those that made the first graph. What they say of counts of rows,
  // FrameCheck proves or says itself.
  void add_notes(const Graph& a, const Graph& b) {
    constexpr std::string_view kPrefix = "assumption: ";
    for (std::size_t i = a.passes.size(); i < b.passes.size(); ++i)
      for (const std::string& note : b.passes[i].notes)
        if (note.starts_with(kPrefix) && !note.ends_with(kGroupSizesCountRows) &&
            !note.ends_with(kSplitSizesMayNotCount))
          add(note.substr(kPrefix.size()));
  }

  const RewriteClaims& claims_;
  const Numbers& numbers_;
  ExprPool& pool_;
  SideTable<StringId, const Symbol*> before_;                     // of A
  SideTable<StringId, Share> shares_;                             // of B, that parts bind
  std::map<std::pair<StringId, std::uint32_t>, StringId> twins_;  // of B, by symbol of A and part
  std::vector<std::string> list_;
  std::unordered_set<std::string> seen_;
};

}  // namespace

std::vector<std::string> list_assumptions(const RewriteClaims& claims, const Numbers& numbers) {
  return Assumptions(claims, numbers).list();
}

}  // namespace epweave
