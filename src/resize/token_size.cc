#include "resize/token_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "analysis/token_inputs.h"
#include "analysis/user_inputs.h"
#include "ir/facts.h"
#include "ir/walk.h"
#include "passes/pass.h"
#include "passes/record.h"
#include "placement/scaling/scaling.h"
#include "resize/count_bounds.h"
#include "resize/rescale.h"
#include "resize/token_tables.h"

namespace epweave {
namespace {

// `symbol` and `factor` of factor * symbol.
struct SymbolMultiple {
  StringId symbol;
  std::int64_t factor = 1;
};

std::optional<SymbolMultiple> multiple_of_symbol(const ExprPool& pool, ExprId extent) {
  const Poly& poly = pool[pool.poly(extent)];
  if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) return std::nullopt;
  const Atom& atom = pool[poly.terms[0].atoms[0]];
  const Rational factor = poly.terms[0].coefficient;
  if (atom.kind != AtomKind::kSymbol || !factor.is_integer() || factor.num <= 0) return std::nullopt;
  return SymbolMultiple{atom.name, factor.num};
}

// 8 of Eq(Mod(u0, 8), 0).
std::int64_t recorded_divisor(const Graph& graph, const Facts& facts, StringId symbol) {
  const ExprPool& pool = graph.context->exprs;
  std::int64_t divisor = 1;
  for (const Symbol& row : graph.symbols) {
    if (row.name != symbol || !row.asserts) continue;
    for (ExprId fact : *row.asserts) {
      const Poly& poly = pool[pool.poly(fact)];
      if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) continue;
      const Atom& equality = pool[poly.terms[0].atoms[0]];
      if (equality.kind != AtomKind::kEq) continue;
      const Poly& left = pool[equality.operands[0]];
      if (left.terms.size() != 1 || left.terms[0].atoms.size() != 1) continue;
      const Atom& rest = pool[left.terms[0].atoms[0]];
      if (rest.kind != AtomKind::kMod) continue;
      const auto by = pool.constant(rest.operands[1]);
      if (by && facts.divides(*by, symbol)) divisor = std::max(divisor, *by);
    }
  }
  return divisor;
}

// --------------------------------------------------------------------------- symbols

// Puts another number in place of the one that a token symbol had when the graph was traced.
class SymbolSetter {
 public:
  SymbolSetter(Graph& graph, StringId symbol, std::int64_t before, std::int64_t after,
               std::vector<std::string>& notes)
      : graph_(graph),
        pool_(graph.context->exprs),
        symbol_(symbol),
        before_(before),
        after_(after),
        notes_(notes) {
    numbers_.at(symbol) = after;
    for (bool changed = true; std::exchange(changed, false);)
      for (const Symbol& row : graph.symbols) {
        if (numbers_[row.name] || !row.replaced_by) continue;
        const auto value = number_of(pool_.poly(*row.replaced_by));
        if (!value) continue;
        numbers_.at(row.name) = *value;
        changed = true;
      }
  }

  void run() {
    IdSet<StringId> is_set;
    for (const Symbol& row : graph_.symbols)
      if (numbers_[row.name]) is_set.insert(row.name);
    set_count_bounds(graph_, find_sums(), is_set, before_, after_);
    for (Symbol& row : graph_.symbols) set(row);
    for (NodeId id : graph_.step().order) set_noted(graph_.step().nodes[id]);
  }

 private:
  std::optional<std::int64_t> number_of(PolyId poly) const {
    const auto value = pool_.evaluate(poly, [&](StringId name) { return numbers_[name]; });
    return value && value->is_integer() ? std::optional(value->num) : std::nullopt;
  }

  void set(Symbol& row) {
    const auto number = numbers_[row.name];
    if (!number) return;
    if (row.hint) row.hint = *number;
    const auto bound = [&](std::optional<ExprId>& limit, bool is_outside) {
      if (limit && is_outside) limit = pool_.number(*number);
    };
    const auto lower = row.lower ? pool_.constant(*row.lower) : std::nullopt;
    const auto upper = row.upper ? pool_.constant(*row.upper) : std::nullopt;
    const bool is_outside = (lower && *lower > *number) || (upper && *upper < *number);
    if (is_outside && row.name == symbol_)
      notes_.push_back(fmt::format("the graph was traced for {} from {} to {}: the range is widened to {}",
                                   graph_.text(symbol_), lower ? fmt::format("{}", *lower) : "any",
                                   upper ? fmt::format("{}", *upper) : "any", *number));
    bound(row.lower, lower && *lower > *number);
    bound(row.upper, upper && *upper < *number);
    if (row.asserts) check_facts(row, *row.asserts);
    replace_assumed(row.assumptions, row);
  }

  // Bounds that the number is outside of go: the range says what holds. Other facts stay true.
  void check_facts(const Symbol& row, std::vector<ExprId>& facts) {
    std::erase_if(facts, [&](ExprId fact) {
      if (number_of(pool_.poly(fact)) != 0) return false;
      if (is_bound(fact)) return true;
      throw PassError("resize.fact",
                      fmt::format("{}, recorded about {}, does not hold for {} = {}", pool_.text(fact),
                                  graph_.text(row.name), graph_.text(symbol_), after_),
                      {}, "set a size that it holds for; epweave resize --list says what divides sizes");
    });
  }
  bool is_bound(ExprId fact) const {
    const Poly& poly = pool_[pool_.poly(fact)];
    if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) return false;
    const Atom& atom = pool_[poly.terms[0].atoms[0]];
    if (atom.kind < AtomKind::kLt || atom.kind > AtomKind::kGe) return false;
    return pool_.constant(atom.operands[0]).has_value() || pool_.constant(atom.operands[1]).has_value();
  }

  // What `symbolize` recorded: s0 = 8.
  void replace_assumed(std::vector<ExprId>& assumptions, const Symbol& row) {
    for (ExprId& fact : assumptions)
      if (number_of(pool_.poly(fact)) == 0)
        fact = pool_.parse(fmt::format("Eq({}, {})", graph_.text(row.name), *numbers_[row.name]));
  }

  // Sums that are made of the symbol, and what they were.
  std::unordered_map<StringId, std::int64_t> find_sums() {
    std::unordered_map<StringId, std::int64_t> sums;
    const auto number_before = [&](StringId name) {
      return name == symbol_ ? std::optional(before_) : std::nullopt;
    };
    for (const Symbol& row : graph_.symbols) {
      if (!row.asserts || numbers_[row.name]) continue;
      for (ExprId fact : *row.asserts) {
        const Poly& poly = pool_[pool_.poly(fact)];
        if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) continue;
        const Atom atom = pool_[poly.terms[0].atoms[0]];
        if (atom.kind != AtomKind::kEq) continue;
        const auto value = pool_.evaluate(atom.operands[1], number_before);
        if (!value || !value->is_integer() || pool_.constant(atom.operands[1])) continue;
        for (StringId part : pool_.symbols(atom.operands[0])) sums[part] = value->num;
      }
    }
    return sums;
  }

  void set_noted(Node& node) {
    if (!node.extra || node.extra->chunk_hints.empty()) return;
    NodeExtra extra = *node.extra;
    for (auto& [name, value] : extra.chunk_hints) {
      if (!numbers_[name])
        throw PassError("resize.fact",
                        fmt::format("{} is noted as {} on %{}, and how it follows {} is not recorded",
                                    graph_.text(name), value, graph_.text(node.name), graph_.text(symbol_)),
                        site_of(graph_, node), "resize the graph before it is divided");
      value = *numbers_[name];
    }
    node.extra = graph_.context->own(std::move(extra));
  }

  Graph& graph_;
  ExprPool& pool_;
  StringId symbol_;
  std::int64_t before_, after_;
  std::vector<std::string>& notes_;
  SideTable<StringId, std::optional<std::int64_t>> numbers_;  // of the symbol, and of those that are it
};

Graph set_symbol(const Graph& before, const TokenDim& dim, std::int64_t value,
                 std::vector<std::string>& notes) {
  Graph graph = before;
  if (value % dim.per_symbol != 0 || value / dim.per_symbol % dim.divisor != 0)
    throw PassError(
        "resize.size",
        fmt::format("{} = {} is not a multiple of {}", dim.name, value, dim.per_symbol * dim.divisor),
        site_of(graph, graph.step().nodes[dim.node]),
        fmt::format("set a multiple of it; {} is {} now", dim.name, dim.value));
  SymbolSetter(graph, dim.symbol, dim.value / dim.per_symbol, value / dim.per_symbol, notes).run();
  set_token_tables(before, graph, fmt::format("{} = {}", dim.name, value), notes);
  return graph;
}

// --------------------------------------------------------------------------- inputs

// Those with dimensions.
std::vector<UserInput> find_user_inputs(const Graph& graph) {
  std::vector<UserInput> users = list_user_inputs(graph);
  std::erase_if(users, [](const UserInput& user) { return user.type->rank() == 0; });
  return users;
}

// Those that have the extent in the same dimension: labels have one for each token, too.
std::vector<TokenInput> token_inputs(const Graph& graph, const TokenDim& dim) {
  std::vector<TokenInput> inputs = {{dim.node, dim.dim, dim.input}};
  for (const UserInput& user : find_user_inputs(graph))
    for (std::string_view name : kTokenInputs)
      if (user.which == name && user.node != dim.node && dim.dim < user.type->rank() &&
          user.type->sizes[dim.dim] == dim.extent)
        inputs.push_back({user.node, dim.dim, std::string(name)});
  return inputs;
}

}  // namespace

std::vector<TokenDim> find_token_dims(const Graph& graph) {
  const Context& context = *graph.context;
  Facts facts(graph);
  const std::vector<UserInput> users = find_user_inputs(graph);
  const auto dim_of = [&](const UserInput& input, std::size_t dim, std::string_view name) {
    TokenDim result{
        .name = std::string(name), .input = std::string(input.which), .node = input.node, .dim = dim};
    result.extent = input.type->sizes[dim];
    if (const auto number = context.exprs.constant(result.extent)) {
      result.value = *number;
      return std::optional(result);
    }
    const auto multiple = multiple_of_symbol(context.exprs, result.extent);
    const auto hint = multiple ? facts.hint(multiple->symbol) : std::nullopt;
    if (!hint) return std::optional<TokenDim>();
    result.symbol = multiple->symbol;
    result.per_symbol = multiple->factor;
    result.value = *hint * multiple->factor;
    result.divisor = recorded_divisor(graph, facts, multiple->symbol);
    return std::optional(result);
  };
  std::vector<TokenDim> found;
  const auto add = [&](const std::optional<TokenDim>& dim) {
    if (dim) found.push_back(*dim);
  };
  for (std::string_view name : kTokenInputs)
    for (const UserInput& user : users) {
      if (user.which != name || user.type->rank() > 2) continue;
      const bool is_grid = user.type->rank() == 2 && is_integral(user.type->dtype);
      add(dim_of(user, 0, is_grid ? "batch" : "tokens"));
      if (is_grid) add(dim_of(user, 1, "sequence"));
      return found;
    }
  // A part of a step: activations whose rows a symbol counts.
  for (const UserInput& user : users)
    for (std::size_t dim = 0; dim < user.type->rank(); ++dim)
      if (!context.exprs.constant(user.type->sizes[dim]))
        if (const auto known = dim_of(user, dim, "tokens")) return {*known};
  return found;
}

Graph set_tokens(const Graph& graph, const TokenDim& dim, std::int64_t value,
                 std::vector<std::string>& notes) {
  if (dim.symbol) return set_symbol(graph, dim, value, notes);
  const std::vector<TokenInput> inputs = token_inputs(graph, dim);
  Graph result =
      rescale(graph, inputs, {.equal_pieces = true}, {.name = dim.name, .before = dim.value, .after = value});
  set_token_tables(graph, result, fmt::format("{} = {}", dim.name, value), notes);
  return result;
}

}  // namespace epweave
