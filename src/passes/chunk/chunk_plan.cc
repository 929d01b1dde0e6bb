#include "passes/chunk/chunk_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "analysis/flex_attention.h"
#include "analysis/row_assumptions.h"
#include "base/parse_number.h"
#include "ir/walk.h"
#include "ops/op.h"
#include "passes/chunk/chunk_attention.h"
#include "placement/rows/positions.h"
#include "placement/sum_moves.h"

namespace epweave {
namespace {

// Decides how many rows of a token symbol the parts have: as many each where their number divides
// it, by a recorded fact, else by the value it had when the graph was traced, which then becomes an
// assumption.
class Divider {
 public:
  Divider(const Graph& graph, Facts& facts, ChunkPlan& plan) : graph_(graph), facts_(facts), plan_(plan) {}

  void divide(Division& division, StringId symbol) {
    division.divided.insert(symbol);
    if (!division.sizes.empty()) return require_sum(division, symbol);
    if (facts_.divides(division.parts, symbol)) {
      division.equal.insert(symbol);
      return;
    }
    const std::string_view name = graph_.text(symbol);
    const auto hint = facts_.hint(symbol);
    if (!hint)
      throw PassError(
          "chunk.unknown-extent",
          fmt::format("nothing recorded says that {} divides the token count {}, and it has no hint",
                      division.parts, name),
          {},
          fmt::format("export the graph with a hint for {}, or with an assertion such as Eq(Mod({}, {}), 0)",
                      name, name, division.parts));
    if (*hint < division.parts)
      throw PassError(
          "chunk.too-many-parts",
          fmt::format("{} parts are more than the token count {} = {} has rows", division.parts, name, *hint),
          {}, fmt::format("choose at most {} parts", *hint));
    if (*hint % division.parts == 0) {
      division.equal.insert(symbol);
      assume_number(symbol, *hint);
    } else if (!has_rows(symbol, division.parts)) {
      const std::string statement = fmt::format("{} <= {}", division.parts, name);
      assume(symbol, statement, statement);
    }
  }

 private:
  void require_sum(const Division& division, StringId symbol) {
    const std::int64_t sum = std::accumulate(division.sizes.begin(), division.sizes.end(), std::int64_t{0});
    const std::string_view name = graph_.text(symbol);
    const auto hint = facts_.hint(symbol);
    if (hint && *hint != sum)
      throw PassError("chunk.sizes",
                      fmt::format("the sizes of the parts add up to {} = {}, the token count {} is {}",
                                  fmt::join(division.sizes, " + "), sum, name, *hint),
                      {}, "give sizes that add up to the token count, or a number of parts instead");
    if (facts_.assumed_value(symbol) != sum) assume_number(symbol, sum);
  }

  bool has_rows(StringId symbol, std::int64_t rows) {
    ExprPool& pool = facts_.pool();
    return facts_.is_nonnegative(pool.sub(pool.poly_symbol(symbol), pool.poly_number(rows)));
  }
  void assume_number(StringId symbol, std::int64_t number) {
    const std::string_view name = graph_.text(symbol);
    assume(symbol, fmt::format("Eq({}, {})", name, number), fmt::format("{} = {}", name, number));
  }
  // Each statement once, whichever division rests on it.
  void assume(StringId symbol, const std::string& statement, std::string text) {
    const ExprId expr = graph_.context->exprs.parse(statement);
    for (const ChunkPlan::Assumed& known : plan_.assumed)
      if (known.symbol == symbol && known.statement == expr) return;
    plan_.assumed.push_back({symbol, expr, std::move(text)});
  }

  const Graph& graph_;
  Facts& facts_;
  ChunkPlan& plan_;
};

// The division of each root, by number, and the different ones.
std::vector<std::uint32_t> list_divisions(const ChunkOptions& options, std::vector<Division>& divisions) {
  std::vector<std::uint32_t> of_root;
  const auto sizes = static_cast<std::int64_t>(options.sizes.size());
  for (const ChunkRoot& root : options.roots) {
    Division division{.parts = root.parts.value_or(sizes > 0 ? sizes : options.parts)};
    if (division.parts == sizes) division.sizes = options.sizes;
    const auto known = std::find(divisions.begin(), divisions.end(), division);
    of_root.push_back(static_cast<std::uint32_t>(known - divisions.begin()));
    if (known == divisions.end()) divisions.push_back(std::move(division));
  }
  return of_root;
}

// Whether a region of the division has a value with an extent that counts the symbol.
class SymbolUses {
 public:
  SymbolUses(const Graph& graph, Facts& facts, const ChunkPlan& plan)
      : graph_(graph), facts_(facts), used_(plan.divisions.size()), seen_(plan.divisions.size()) {
    for (const auto [id, node] : walk(*graph.context, graph.step(), plan.placements.divided)) {
      const RegionId region = plan.placements.region[id];
      const std::size_t division = plan.placements.regions[region.index()].division;
      add(node.type, division);
      for_each_input(*graph.context, node,
                     [&](NodeId input) { add(graph.step().nodes[input].type, division); });
    }
  }
  bool uses(std::size_t division, StringId symbol) const { return used_[division].contains(symbol); }

 private:
  void add(TypeId id, std::size_t division) {
    if (!id || !seen_[division].insert(id)) return;
    const Type& type = graph_.context->types[id];
    auto add_extent = [&](ExprId extent) {
      if (!extent) return;
      for (StringId symbol : graph_.context->exprs.symbols(extent)) used_[division].insert(symbol);
      for (StringId symbol : facts_.pool().symbols(facts_.normalize(extent))) used_[division].insert(symbol);
    };
    add_extent(type.expr);
    for (ExprId extent : type.tensor.sizes) add_extent(extent);
    for (TypeId element : std::vector<TypeId>(type.elements)) add(element, division);
  }

  const Graph& graph_;
  Facts& facts_;
  std::vector<IdSet<StringId>> used_;
  std::vector<IdSet<TypeId>> seen_;
};

// That every part has a whole number of rows where a row is made of several: [u, 8] to [u/2, 16];
// and that the rows of the parts are as many as the whole's where their number was rounded: u//8.
class Shares {
 public:
  Shares(const Graph& graph, TokenExtents& tokens, Facts& facts, const ChunkPlan& plan)
      : graph_(graph), tokens_(tokens), facts_(facts), plan_(plan) {}

  void check() {
    for (const auto [id, node] : walk(graph_.step(), plan_.placements.divided)) {
      const RegionId region = plan_.placements.region[id];
      const Placement& p = plan_.placements.placement[id];
      const TensorType* type = tensor_of(*graph_.context, node.type);
      if (type == nullptr || !p.is(PlacementKind::kSplit)) continue;
      const ExprId extent = type->sizes[static_cast<std::size_t>(p.dim)];
      if (tokens_.scales(extent) && !tokens_.is_linear(extent)) check(id, extent, plan_.division(region));
    }
  }

  // Of the sums over rows of which nothing is known.
  void check_sums() {
    for (const FrameClaims::Open& open : plan_.claims.open)
      if (open.summed) check_sum(open.node, open.summed);
  }

 private:
  PolyId share_of(PolyId extent, const Division& division, std::size_t part) {
    return facts_.pool().substitute(extent, [&](StringId symbol) -> std::optional<PolyId> {
      if (!division.divided.contains(symbol)) return std::nullopt;
      return division.rows(facts_.pool(), symbol, part);
    });
  }

  void check(NodeId id, ExprId extent, const Division& division) {
    for (std::size_t k = 0; k < division.count(); ++k)
      if (!is_whole(share_of(facts_.normalize(extent), division, k), division)) decline(id, extent, k);
  }

  // By the numbers of tokens that were traced.
  void check_sum(NodeId sum, NodeId summed) {
    const RegionId region = plan_.placements.region[sum];
    const Placement& p = plan_.placements.seen_from(summed, region);
    const TensorType* type = tensor_of(*graph_.context, graph_.step().nodes[summed].type);
    if (type == nullptr || !p.is_rows()) return;
    const ExprId extent = type->sizes[static_cast<std::size_t>(p.dim)];
    if (!tokens_.scales(extent)) return;
    const Division& division = plan_.division(region);
    const PolyId rounded = facts_.pool().poly(extent);  // normalised, u//8 is u/8 where 8 divides u
    const auto whole = facts_.hint(rounded);
    std::int64_t rows = 0;
    for (std::size_t k = 0; k < division.count(); ++k) {
      const auto share = facts_.hint(share_of(rounded, division, k));
      if (!whole || !share) return;
      rows += *share;
    }
    if (rows != *whole)
      decline_sum(sum, summed,
                  fmt::format("which are {} in the whole and {} in the parts together", *whole, rows));
    if (!division.sizes.empty() && !tokens_.is_linear(extent))
      decline_sum(sum, summed, "whose number is a rounded one, in parts of given sizes");
    if (is_rounded(extent)) decline_sum(sum, summed, "whose number is a rounded one");
  }
  // Also where the traced number of tokens leaves no remainder: another one may.
  bool is_rounded(ExprId extent) {
    ExprPool& pool = facts_.pool();
    const Poly whole = pool[facts_.normalize(extent)];
    return std::ranges::any_of(whole.terms, [&](const Term& term) {
      return std::ranges::any_of(term.atoms, [&](AtomId atom) {
        return pool[atom].kind != AtomKind::kSymbol && tokens_.scales(pool.from_atom(atom));
      });
    });
  }
  [[noreturn]] void decline_sum(NodeId sum, NodeId summed, std::string_view rows) const {
    const Node& node = graph_.step().nodes[sum];
    throw PassError(
        "chunk.rounded-rows",
        fmt::format("{} cannot run on parts of the tokens: it adds up the rows of '{}', {}",
                    graph_.text(node.target), graph_.text(graph_.step().nodes[summed].name), rows),
        site_of(graph_, node),
        "choose parts whose numbers of tokens divide as the rows do, or select roots that leave "
        "this operation outside");
  }

  bool is_whole(PolyId share, const Division& division) {
    ExprPool& pool = facts_.pool();
    for (const Term& term : Poly(pool[facts_.normalize(share)]).terms) {
      if (term.coefficient.is_integer()) continue;
      const bool is_symbol = term.atoms.size() == 1 && pool[term.atoms[0]].kind == AtomKind::kSymbol;
      if (is_symbol && facts_.divides(term.coefficient.den, pool[term.atoms[0]].name)) continue;
      return hint_is_whole(share) && (is_equal(share, division) || is_number(share));
    }
    return true;
  }
  // Whether the parts are equal: then the number of tokens that was traced stands for all that the
  // parts divide.
  bool is_equal(PolyId share, const Division& division) {
    const std::vector<StringId> symbols = facts_.pool().symbols(share);
    return std::ranges::all_of(symbols, [&](StringId symbol) {
      return !division.divided.contains(symbol) || division.equal.contains(symbol);
    });
  }
  // Whether the plan rests on the number of each symbol.
  bool is_number(PolyId share) {
    const std::vector<StringId> symbols = facts_.pool().symbols(share);
    return std::ranges::all_of(symbols, [&](StringId symbol) {
      const auto number = facts_.hint(symbol);
      return number && (facts_.assumed_value(symbol) == number ||
                        std::ranges::any_of(plan_.assumed, [&](const ChunkPlan::Assumed& assumed) {
                          return assumed.symbol == symbol &&
                                 assumed.text == fmt::format("{} = {}", graph_.text(symbol), *number);
                        }));
    });
  }
  bool hint_is_whole(PolyId share) {
    ExprPool& pool = facts_.pool();
    const PolyId number = pool.substitute(share, [&](StringId symbol) -> std::optional<PolyId> {
      return pool.poly_number(facts_.hint(symbol).value_or(0));
    });
    return pool.constant(number).has_value();  // none for a fraction
  }

  [[noreturn]] void decline(NodeId id, ExprId extent, std::size_t part) {
    const Node& node = graph_.step().nodes[id];
    throw PassError(
        "chunk.part-type",
        fmt::format("'{}' has {} rows along dimension {}, and nothing shows that part {} has a whole "
                    "number of them",
                    graph_.text(node.name), graph_.context->exprs.text(extent),
                    plan_.placements.placement[id].dim, part),
        site_of(graph_, node), "choose parts whose numbers of tokens divide as the rows do");
  }

  const Graph& graph_;
  TokenExtents& tokens_;
  Facts& facts_;
  const ChunkPlan& plan_;
};

}  // namespace

ChunkPlan plan_chunks(const Graph& graph, const ChunkOptions& options) {
  ChunkPlan plan;
  Facts facts(graph);
  plan.dim = options.dim;
  plan.grad_accumulation = options.grad_accumulation;
  plan.join = options.join;
  TokenExtents tokens(graph, facts, options.dim);
  plan.token_symbols = tokens.symbols();
  PlacementOptions placing{.divisions = list_divisions(options, plan.divisions),
                           .require_exchange = options.require_exchange,
                           .dense = options.dense,
                           .exact_casts = options.exact_casts,
                           .attention = options.attention,
                           .grad_accumulation = options.grad_accumulation,
                           .join = options.join,
                           .own_sums = options.own_sums};
  for (const ChunkRoot& root : options.roots) placing.roots.push_back(root.pattern);
  plan.placements = infer_placements(graph, placing, tokens, facts);
  move_sums_once(graph, plan.placements);
  const SymbolUses uses(graph, facts, plan);
  for (std::size_t i = 0; i < plan.divisions.size(); ++i)
    for (StringId symbol : plan.token_symbols)
      if (uses.uses(i, symbol)) Divider(graph, facts, plan).divide(plan.divisions[i], symbol);
  Shares shares(graph, tokens, facts, plan);
  shares.check();
  check_attention_borders(graph, tokens, facts, plan);
  check_positions(graph, plan.placements, placing, facts);
  plan.claims = prove_frames(graph, plan.placements, facts);
  shares.check_sums();
  return plan;
}

namespace {

// `parts of u0 = 1024: 341 + 341 + 342`, where they differ.
void describe_unequal(const Graph& graph, const ChunkPlan& plan, const Division& division,
                      std::vector<std::string>& lines) {
  std::vector<StringId> unequal;
  for (StringId symbol : plan.token_symbols)
    if (division.divided.contains(symbol) && !division.equal.contains(symbol)) unequal.push_back(symbol);
  if (unequal.empty()) return;
  Facts facts(graph);
  for (StringId symbol : unequal) {
    const auto hint = facts.hint(symbol);
    if (!hint) continue;
    std::vector<std::int64_t> rows;
    for (std::size_t k = 0; k < division.count(); ++k)
      rows.push_back(facts.hint(division.rows(facts.pool(), symbol, k)).value_or(0));
    lines.push_back(fmt::format("parts of {} = {}: {}", graph.text(symbol), *hint, fmt::join(rows, " + ")));
  }
}

bool has_divided_groups(const Graph& graph, const ChunkPlan& plan) {
  static const OpInfo* const grouped_mm = find_op("aten._grouped_mm.default");
  for (const auto [id, node] : walk(graph.step(), plan.placements.divided))
    if (node.op == grouped_mm) return true;
  return false;
}

// Whether a part leaves out keys by its mask function's word alone: blocks that are seen altogether
// are not masked.
bool rests_on_full_blocks(const Graph& graph, const ChunkPlan& plan) {
  return std::ranges::any_of(plan.placements.attention, [&](const auto& call) {
    return call.second.prefix && FlexCall::read(graph, graph.step().nodes[call.first])->has_full_blocks();
  });
}

}  // namespace

std::string print_proved(std::size_t count) {
  return count == 1 ? "1 row write or sum over rows" : fmt::format("{} row writes and sums over rows", count);
}

std::vector<std::string> print_plan(const Graph& graph, const ChunkPlan& plan) {
  std::vector<std::string> lines;
  const Body& step = graph.step();
  std::vector<std::size_t> divided(plan.placements.regions.size());
  for (NodeId id : plan.placements.divided) ++divided[plan.placements.region[id].index()];
  for (std::size_t i = 0; i < plan.placements.regions.size(); ++i) {
    const ChunkRegion& region = plan.placements.regions[i];
    lines.push_back(fmt::format("region {} {}: {} nodes in {} parts", graph.text(region.root),
                                region.backward ? "backward" : "forward", divided[i],
                                plan.division(RegionId(i)).parts));
  }
  for (const std::string& pattern : plan.placements.unused_patterns)
    lines.push_back(fmt::format(
        "unused: '{}' selects no module that exchanges tokens (dense=true takes the others, too)", pattern));
  for (const UnmatchedPattern& pattern : plan.placements.unmatched_patterns)
    lines.push_back(fmt::format("unused: {}", print_unmatched(pattern)));
  for (const ChunkRegion& region : plan.placements.undivided)
    lines.push_back(fmt::format("unused: '{}' ({}): no value that enters it has a token extent",
                                graph.text(region.root), region.backward ? "backward" : "forward"));
  for (const Division& division : plan.divisions) describe_unequal(graph, plan, division, lines);
  if (auto masks = describe_causal_masks(graph, plan)) lines.push_back(std::move(*masks));
  for (const ChunkPlan::Assumed& assumed : plan.assumed)
    lines.push_back(fmt::format("assumption: {}", assumed.text));
  if (plan.claims.proved > 0)
    lines.push_back(fmt::format("proved: rows keep to their tokens in {}", print_proved(plan.claims.proved)));
  for (const Assumption& assumption : plan.placements.assumptions)
    if (assumption.is_open)
      lines.push_back(fmt::format("assumption: {} is right in parts, though it {}",
                                  graph.text(step.nodes[assumption.node].name), assumption.text));
  for (const FrameClaims::Open& open : plan.claims.open)
    lines.push_back(fmt::format("assumption: {} is right in parts, though {}",
                                graph.text(step.nodes[open.node].name), open.why));
  if (std::any_of(plan.placements.attention.begin(), plan.placements.attention.end(),
                  [](const auto& call) { return call.second.keys; }))
    lines.push_back(fmt::format("assumption: {}", kOwnKeys));
  if (rests_on_full_blocks(graph, plan)) lines.push_back(fmt::format("assumption: {}", kFlexFullBlocks));
  if (has_divided_groups(graph, plan)) lines.push_back(fmt::format("assumption: {}", kGroupSizesCountRows));
  return lines;
}

ChunkRoot parse_chunk_root(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  ChunkRoot root{.pattern = std::string(text.substr(0, colon))};
  if (colon == text.npos && !root.pattern.empty()) return root;
  const std::string_view count = colon == text.npos ? "" : text.substr(colon + 1);
  const auto parts = parse_number<std::int64_t>(count);
  if (root.pattern.empty() || !parts || *parts < 2)
    throw UsageError(
        fmt::format("option 'roots' of 'chunk': '{}'\n  expected PATTERN or PATTERN:PARTS with at least 2 "
                    "parts, as in layers.*.moe:4",
                    text));
  root.parts = parts;
  return root;
}

PassResult chunk(const Graph& graph, const ChunkOptions& options) {
  const ChunkPlan plan = plan_chunks(graph, options);
  return {lower_chunks(graph, plan), print_plan(graph, plan)};
}

}  // namespace epweave
