#include "passes/chunk/chunk_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ops/type_rules.h"

namespace epweave {

PartSizes::PartSizes(const Graph& graph, const Graph& chunked, const ChunkPlan& plan, ChunkWriter& writer)
    : in_(graph), out_(chunked), plan_(plan), writer_(writer), tokens_(chunked, writer.facts(), plan.dim) {}

std::optional<PartSizes::Shares> PartSizes::of_extent(ExprId extent, RegionId region) {
  const auto known = tokens_.multiple(extent);
  if (!known || !tokens_.source(known->symbol).node) return std::nullopt;
  const bool is_equal = plan_.division(region).equal.contains(known->symbol);
  if (is_equal && tokens_.source(known->symbol).factor != 1) return std::nullopt;
  return multiple(*known, plan_.placements.regions[region.index()].division);
}

// The rows of the parts before it, added up.
std::optional<Arg> PartSizes::first_row(ExprId extent, RegionId region, std::size_t part) {
  const auto known = tokens_.multiple(extent);
  const auto shares = of_extent(extent, region);
  if (!known || !shares) return std::nullopt;
  const Key key{known->symbol.index(), known->factor, plan_.placements.regions[region.index()].division};
  Shares& rows = first_rows_[key];
  if (rows.empty()) rows.push_back(shares->front());
  while (rows.size() < part) {
    const Arg before = rows.back(), share = (*shares)[rows.size()];
    const std::string name = fmt::format("{}_row{}", out_.text(known->symbol), rows.size() + 1);
    rows.push_back(before.is_int() && share.is_int()
                       ? Arg::integer(before.as_int() + share.as_int())
                       : Arg::node(add_for_graph({name, "operator.add", before, share}, known->symbol)));
  }
  return rows[part - 1];
}

// The shares of `factor * symbol`.
const PartSizes::Shares& PartSizes::multiple(TokenMultiple multiple, std::uint32_t number) {
  const Key key{multiple.symbol.index(), multiple.factor, number};
  if (auto found = multiples_.find(key); found != multiples_.end()) return found->second;
  const Division& division = plan_.divisions[number];
  Shares shares;
  if (multiple.factor == 1) {
    const StringId symbol = multiple.symbol;
    shares = !division.sizes.empty()           ? given_shares(symbol, division)
             : division.equal.contains(symbol) ? equal_shares(symbol, division)
                                               : nearly_equal_shares(symbol, division);
  } else {
    const Shares& ones = this->multiple({multiple.symbol, 1}, number);
    for (const Arg& one : ones) {
      if (one.is_int()) {
        shares.push_back(Arg::integer(one.as_int() * multiple.factor));
      } else if (!shares.empty() && one == ones.front()) {
        shares.push_back(shares.front());
      } else {
        shares.push_back(
            Arg::node(add_for_graph({fmt::format("{}_x{}", writer_.name(one.as_node()), multiple.factor),
                                     "operator.mul", one, Arg::integer(multiple.factor)},
                                    multiple.symbol)));
      }
    }
  }
  return multiples_.emplace(key, std::move(shares)).first->second;
}

PartSizes::Shares PartSizes::equal_shares(StringId symbol, const Division& division) {
  const NodeId part = add_for_graph({fmt::format("{}_part", out_.text(symbol)), "operator.floordiv",
                                     Arg::node(tokens_of(symbol)), Arg::integer(division.parts)},
                                    symbol);
  return Shares(division.count(), Arg::node(part));
}

PartSizes::Shares PartSizes::given_shares(StringId symbol, const Division& division) {
  Shares shares(division.sizes.size());
  std::transform(division.sizes.begin(), division.sizes.end(), shares.begin(), Arg::integer);
  const std::int64_t others =
      std::accumulate(division.sizes.begin(), division.sizes.end() - 1, std::int64_t{0});
  shares.back() = Arg::node(add_for_graph({fmt::format("{}_rest", out_.text(symbol)), "operator.sub",
                                           Arg::node(tokens_of(symbol)), Arg::integer(others)},
                                          symbol));
  return shares;
}

PartSizes::Shares PartSizes::nearly_equal_shares(StringId symbol, const Division& division) {
  const std::string_view name = out_.text(symbol);
  const Arg tokens = Arg::node(tokens_of(symbol));
  Shares shares;
  Arg begin = Arg::none();
  for (std::int64_t k = 1; k <= division.parts; ++k) {
    Arg end = tokens;
    if (k < division.parts) {
      const Arg scaled =
          k == 1 ? tokens
                 : Arg::node(add_for_graph(
                       {fmt::format("{}_x{}", name, k), "operator.mul", tokens, Arg::integer(k)}, symbol));
      end = Arg::node(add_for_graph(
          {fmt::format("{}_cut{}", name, k), "operator.floordiv", scaled, Arg::integer(division.parts)},
          symbol));
    }
    shares.push_back(k == 1
                         ? end
                         : Arg::node(add_for_graph(
                               {fmt::format("{}_part{}", name, k - 1), "operator.sub", end, begin}, symbol)));
    begin = end;
  }
  return shares;
}

NodeId PartSizes::tokens_of(StringId symbol) {
  if (NodeId known = token_nodes_[symbol]) return known;
  const TokenExtents::Source& source = tokens_.source(symbol);
  const std::string name =
      fmt::format("{}_{}", out_.text(symbol), tokens_.is_token(symbol) ? "tokens" : "size");
  const Operation read{name, "aten.sym_size.int", Arg::node(source.node), Arg::integer(source.dim)};
  NodeId tokens = add_for_graph(read, symbol);
  if (source.factor != 1)
    tokens =
        add_for_graph({name, "operator.floordiv", Arg::node(tokens), Arg::integer(source.factor)}, symbol);
  return token_nodes_.at(symbol) = tokens;
}

std::optional<StringId> PartSizes::unequal_symbol(NodeId number, SizeUse place) {
  const ExprId extent = out_.context->types[out_.step().nodes[number].type].expr;
  const Division& division = plan_.division(plan_.placements.region[place.user]);
  std::vector<StringId> symbols;
  for (StringId symbol : writer_.facts().pool().symbols(writer_.facts().normalize(extent)))
    if (tokens_.is_token(symbol)) symbols.push_back(symbol);
  const bool is_equal = std::all_of(symbols.begin(), symbols.end(),
                                    [&](StringId symbol) { return division.equal.contains(symbol); });
  if (is_equal) return std::nullopt;
  if (symbols.size() == 1 && tokens_.source(symbols[0]).node) return symbols[0];
  const Node& node = in_.step().nodes[place.user];
  throw PassError(
      "chunk.uneven",
      fmt::format("'{}' is {}, of which parts of different sizes have no known share",
                  in_.text(in_.step().nodes[place.origin].name), out_.context->exprs.text(extent)),
      site_of(in_, node), "choose a number of parts that divides the token count");
}

PartSizes::Shares PartSizes::of_number(NodeId whole, SizeUse place) {
  const RegionId region = plan_.placements.region[place.user];
  const Division& division = plan_.division(region);
  const auto symbol = unequal_symbol(whole, place);
  if (!symbol) {
    const NodeId part = add_for_use({fmt::format("{}_part", writer_.name(whole)), "operator.floordiv",
                                     Arg::node(whole), Arg::integer(division.parts)},
                                    place);
    return Shares(division.count(), Arg::node(part));
  }
  // n = rows * (n//rows): as many per row of the part as per row of the whole.
  const NodeId per_row = add_for_use({fmt::format("{}_per_row", writer_.name(whole)), "operator.floordiv",
                                      Arg::node(whole), Arg::node(tokens_of(*symbol))},
                                     place);
  Shares shares;
  for (const Arg& rows : multiple({*symbol, 1}, plan_.placements.regions[region.index()].division))
    shares.push_back(Arg::node(add_for_use({fmt::format("{}_part{}", writer_.name(whole), shares.size()),
                                            "operator.mul", Arg::node(per_row), rows},
                                           place)));
  return shares;
}

PartSizes::Shares PartSizes::of_dimension(NodeId tensor, int dim, SizeUse place) {
  return of_number(read_size(tensor, dim, {place.origin, plan_.placements.region[place.user]}), place);
}

NodeId PartSizes::read_size(NodeId tensor, int dim, SizeReader reader) {
  return writer_.append(writer_.make({.name = fmt::format("{}_size{}", writer_.name(tensor), dim),
                                      .target = "aten.sym_size.int",
                                      .args = {Arg::node(tensor), Arg::integer(dim)},
                                      .chunk_role = "split_boundary",
                                      .role = ProvenanceRole::kSize,
                                      .origin = reader.origin,
                                      .region = reader.region}));
}

Arg PartSizes::of_inputs(PolyId number, NodeId wanted_for) {
  ExprPool& pool = writer_.facts().pool();
  if (const auto constant = pool.constant(number)) return Arg::integer(*constant);
  if (NodeId known = input_numbers_[number]) return Arg::node(known);
  const Poly& poly = pool[number];
  if (poly.terms.size() == 1 && poly.terms[0].atoms.size() == 1 && poly.terms[0].coefficient.is_integer()) {
    const StringId symbol = pool[poly.terms[0].atoms[0]].name;
    const std::int64_t factor = poly.terms[0].coefficient.num;
    if (symbol && tokens_.source(symbol).node) {
      NodeId node = tokens_of(symbol);
      if (factor != 1)
        node = add_for_graph({fmt::format("{}_x{}", writer_.name(node), factor), "operator.mul",
                              Arg::node(node), Arg::integer(factor)},
                             symbol);
      input_numbers_.at(number) = node;
      return Arg::node(node);
    }
  }
  const Node& node = in_.step().nodes[wanted_for];
  throw PassError(
      "chunk.blocks",
      fmt::format(
          "'{}' is divided block by block, and the number of blocks, {}, is no multiple of an input's extent",
          in_.text(node.name), pool.text(pool.from_poly(number))),
      site_of(in_, node), "select roots that contain what merges the dimensions");
}

Arg PartSizes::rounded_up(ExprId extent, std::int64_t step, NodeId wanted_for) {
  ExprPool& pool = writer_.facts().pool();
  Facts& facts = writer_.facts();
  const Arg number = of_inputs(pool.poly(extent), wanted_for);
  const ExprId steps = pool.floordiv(pool.add(extent, pool.number(step - 1)), pool.number(step));
  const ExprId rounded = pool.mul(steps, pool.number(step));
  const auto known = tokens_.multiple(extent);
  const bool is_multiple = known && (known->factor % step == 0 || facts.divides(step, known->symbol));
  if (is_multiple || facts.equal(rounded, extent)) return number;
  if (number.is_int()) return Arg::integer(pool.constant(rounded).value());
  NodeId& made = input_numbers_.at(pool.poly(rounded));
  if (made) return Arg::node(made);
  const StringId symbol = tokens_.multiple(extent).value().symbol;
  const std::string name(writer_.name(number.as_node()));
  auto then = [&](std::string_view what, std::string_view target, Arg left, std::int64_t right) {
    return Arg::node(
        add_for_graph({fmt::format("{}_{}", name, what), target, left, Arg::integer(right)}, symbol));
  };
  const Arg count = then("steps", "operator.floordiv", then("up", "operator.add", number, step - 1), step);
  made = then("rounded", "operator.mul", count, step).as_node();
  return Arg::node(made);
}

NodeId PartSizes::add_for_graph(const Operation& operation, StringId symbol) {
  behind_inputs_.push_back(writer_.add(writer_.make({.name = operation.name,
                                                     .target = operation.target,
                                                     .args = {operation.left, operation.right},
                                                     .role = ProvenanceRole::kSize,
                                                     .origin = tokens_.source(symbol).node})));
  return behind_inputs_.back();
}

NodeId PartSizes::add_for_use(const Operation& operation, SizeUse place) {
  return writer_.append(writer_.make({.name = operation.name,
                                      .target = operation.target,
                                      .args = {operation.left, operation.right},
                                      .chunk_role = "chunk_input",
                                      .role = ProvenanceRole::kSize,
                                      .origin = place.origin,
                                      .region = plan_.placements.region[place.user]}));
}

void PartSizes::place_behind_inputs() {
  std::vector<NodeId>& order = writer_.order();
  const auto first_call = std::find_if(order.begin(), order.end(), [&](NodeId id) {
    return out_.step().nodes[id].kind != NodeKind::kPlaceholder;
  });
  order.insert(first_call, behind_inputs_.begin(), behind_inputs_.end());
}

}  // namespace epweave
