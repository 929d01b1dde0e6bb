#include "analysis/rank_literals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "analysis/shard_bounds.h"
#include "analysis/shard_lookups.h"
#include "analysis/users.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/number_calls.h"
#include "ops/op.h"

namespace epweave {
namespace {

class LiteralFinder {
 public:
  LiteralFinder(const Graph& graph, std::uint32_t rank)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        rank_(rank),
        facts_(graph),
        shards_(graph, facts_),
        lookups_(graph, shards_) {}

  RankLiterals find() {
    if (!lookups_.all().empty()) prove();
    if (!shards_.all().empty()) find_similar();
    find_like_rows();
    return take();
  }

 private:
  // Made when they are first asked for: most graphs look nothing up in a shard.
  const IdNumbers& number_ids() {
    if (!effects_) effects_.emplace(graph_, body_);
    if (!ids_) ids_.emplace(graph_, *effects_);
    return *ids_;
  }

  void prove() {
    const IdNumbers& numbers = number_ids();
    const NodeLists users = list_users(context_, body_);
    std::vector<BoundedLookup> shifted;
    for (const ShardLookup& lookup : lookups_.all()) {
      const NodeId shift = find_shift(context_, body_, lookup.positions);
      if (!shift) {
        prove_missing(numbers, users, lookup);
        continue;
      }
      const NodeId from = arg_of(context_, body_.nodes[shift], 0).as_node();
      const std::vector<RankAxis> axes = fitting_axes(lookup.shard);
      if (axes.empty() || !comes_from_inputs(from)) continue;
      const bool is_added = number_use_of(*body_.nodes[shift].op) == NumberUse::kAdded;
      const std::int64_t rows = lookup.shard.local;
      add_proved(shift, numbers[from], axes, {0, is_added ? -rows : rows});
      shifted.push_back({lookup.call, lookup.positions, shift, numbers[from], rows, lookup.shard.global});
      auto& known = places_[numbers[from]];
      if (std::ranges::none_of(known, [&](const IdLookup& k) {
            return k.axes.front().name == axes.front().name && k.rows == rows;
          }))
        known.push_back({axes, rows});
    }
    prove_bounds(numbers, users, shifted);
  }

  // Ids that this rank's bounds of the shard say to be of the whole table, and that choose its rows
  // as they are. On the first rank nothing shows it.
  void prove_missing(const IdNumbers& numbers, const NodeLists& users, const ShardLookup& lookup) {
    NodeId from = lookup.positions;
    while (const NodeId next = source_of_ids(context_, body_, from)) from = next;
    const IdLookup place{fitting_axes(lookup.shard), lookup.shard.local};
    if (place.axes.empty() || !comes_from_inputs(from)) return;
    const auto is_right = [&](NodeId id, std::optional<BoundSide> side) {
      const RankLiteral bound = make_bound(id, place, side.value_or(BoundSide::kLower));
      return side && bound.value.is_int() && bound.values_at(rank_) == std::set{bound.value.as_int()} &&
             bound.value.as_int() != bound.offset;
    };
    std::set<BoundSide> sides;
    for (const ShardBound& bound : find_shard_bounds(
             graph_, numbers, users,
             {{lookup.call, lookup.positions, from, numbers[from], place.rows, lookup.shard.global}},
             is_right))
      if (bound.is_proved && is_right(bound.comparison, bound.side)) sides.insert(*bound.side);
    if (sides.size() != 2) return;
    RankLiteral missing{.node = lookup.call, .axes = place.axes, .scale = place.rows};
    missing.value = Arg::integer(0);
    missing.is_missing = true;
    add_proved(std::move(missing), numbers[from]);
  }

  void prove_bounds(const IdNumbers& numbers, const NodeLists& users, std::vector<BoundedLookup> lookups) {
    std::erase_if(lookups, [&](const BoundedLookup& lookup) { return places_[lookup.ids].size() != 1; });
    const auto is_right = [&](NodeId id, std::optional<BoundSide> side) {
      const Arg number = arg_of(context_, body_.nodes[id], 1);
      const IdLookup& place = places_[numbers[arg_of(context_, body_.nodes[id], 0).as_node()]].front();
      return !number.is_int() ||
             (side && make_bound(id, place, *side).values_at(rank_).contains(number.as_int()));
    };
    std::vector<RankLiteral> others;
    for (const ShardBound& bound : find_shard_bounds(graph_, numbers, users, lookups, is_right)) {
      const IdLookup& place = places_[bound.ids].front();
      RankLiteral made =
          make_bound(bound.comparison, place, bound.side.value_or(guess_side(bound.comparison, place)));
      made.is_shared = bound.is_shared;
      if (bound.is_proved)
        add_proved(std::move(made), bound.ids);
      else if (made.value.is_int())
        others.push_back(std::move(made));
    }
    for (RankLiteral& other : others)
      if (is_known_.insert(other.node)) found_.push_back(std::move(other));
  }

  // Where ids are looked up: axes that it may be along, and rows.
  struct IdLookup {
    std::vector<RankAxis> axes;
    std::int64_t rows = 0;
  };

  RankLiteral make_bound(NodeId id, const IdLookup& place, BoundSide side) const {
    const std::int64_t border = side == BoundSide::kUpper ? place.rows : 0;
    return make(id, place.axes, {border + number_of_bound_0(number_use_of(*body_.nodes[id].op)), place.rows});
  }

  // Of a comparison that nothing combines with another one: by this rank's own bounds, along
  // whichever of the axes.
  BoundSide guess_side(NodeId id, const IdLookup& place) const {
    const RankLiteral lower = make_bound(id, place, BoundSide::kLower);
    return lower.value.is_int() && lower.values_at(rank_).contains(lower.value.as_int()) ? BoundSide::kLower
                                                                                         : BoundSide::kUpper;
  }

  // Whether the ids are an input's, chosen, moved and masked, but not computed.
  bool comes_from_inputs(NodeId at) const {
    for (std::size_t steps = 0; steps < body_.order.size(); ++steps) {
      const Node& node = body_.nodes[at];
      if (node.kind == NodeKind::kPlaceholder) return true;
      if (node.kind != NodeKind::kCall || node.op == nullptr || is_shift(number_use_of(*node.op)))
        return false;
      // The operand with as many elements: where(mask, ids, 0).
      NodeId next;
      for_each_input(context_, node, [&](NodeId input) {
        const TypeId type = body_.nodes[input].type;
        const bool is_tuple = type && !context_.types[type].elements.empty();
        const TensorType* tensor = tensor_of(context_, type);
        const bool is_ids =
            is_tuple || (tensor != nullptr && is_integral(tensor->dtype) && tensor->rank() != 0);
        if (!next && is_ids) next = input;
      });
      if (!next) return false;
      at = next;
    }
    return false;
  }

  // `ids`: the value number of what is looked up.
  void add_proved(NodeId id, NodeId ids, const std::vector<RankAxis>& axes,
                  std::pair<std::int64_t, std::int64_t> expression) {
    add_proved(make(id, axes, expression), ids);
  }
  void add_proved(RankLiteral literal, NodeId ids) {
    if (!is_known_.insert(literal.node)) return;
    found_.push_back(std::move(literal));
    found_.back().is_proved = true;
    const auto next = static_cast<std::uint32_t>(lookups_of_.size());
    const std::tuple key(ids, body_.nodes[found_.back().node].module, std::abs(found_.back().scale));
    found_.back().lookup = lookups_of_.try_emplace(key, next).first->second;
  }

  RankLiteral make(NodeId id, std::vector<RankAxis> axes,
                   std::pair<std::int64_t, std::int64_t> expression) const {
    return {.node = id,
            .argument = 1,
            .value = arg_of(context_, body_.nodes[id], 1),
            .axes = std::move(axes),
            .scale = expression.second,
            .offset = expression.first};
  }

  // Shifts and bounds of whole numbers by what would be this rank's place among a parameter's
  // shards.
  void find_similar() {
    std::map<std::int64_t, std::pair<RankAxis, std::pair<std::int64_t, std::int64_t>>> looks;
    for (const ShardedDim& shard : shards_.all()) {
      for (const RankAxis& axis : shard.axes) {
        if (shard.global % axis.extent != 0) continue;
        const std::int64_t rows = shard.global / axis.extent;
        const std::int64_t place = rows * axis.coordinate(rank_);
        looks.emplace(place, std::pair(axis, std::pair<std::int64_t, std::int64_t>(0, rows)));
        looks.emplace(place + rows, std::pair(axis, std::pair<std::int64_t, std::int64_t>(rows, rows)));
      }
    }
    looks.erase(0);  // the most frequent number of all
    for (const auto [id, node] : walk(context_, body_)) {
      if (node.op == nullptr || number_use_of(*node.op) == NumberUse::kNone) continue;
      const Arg operand = arg_of(context_, node, 0), number = arg_of(context_, node, 1);
      if (!number.is_int() || !operand.is_node() || !holds_whole_numbers(context_, body_, operand.as_node()))
        continue;
      const auto look = looks.find(number.as_int());
      if (look == looks.end() || !is_known_.insert(id)) continue;
      found_.push_back(make(id, {look->second.first}, look->second.second));
    }
  }

  // Shifts of ids by a multiple of the rows that they then choose among, and bounds of the same ids
  // by that number and by as many rows more.
  void find_like_rows() {
    std::vector<std::pair<NodeId, std::int64_t>> shifts;  // and rows
    for (const PlainLookup& lookup : lookups_.plain())
      if (const NodeId shift = find_shift(context_, body_, lookup.positions);
          shift && is_multiple(shift, lookup.rows))
        shifts.emplace_back(shift, lookup.rows);
    if (shifts.empty()) return;
    const IdNumbers& numbers = number_ids();
    std::map<std::pair<NodeId, std::int64_t>, std::int64_t> rows_of;  // by ids and bound
    for (const auto& [shift, rows] : shifts) {
      const Node& node = body_.nodes[shift];
      const NodeId ids = numbers[arg_of(context_, node, 0).as_node()];
      const std::int64_t place = std::abs(arg_of(context_, node, 1).as_int());
      for (const std::int64_t bound : {place, place + rows}) rows_of.emplace(std::pair(ids, bound), rows);
      if (is_known_.insert(shift)) found_.push_back(make(shift, {}, {0, rows}));
    }
    for (const auto [id, node] : walk(context_, body_)) {
      if (node.op == nullptr || !is_bound(number_use_of(*node.op))) continue;
      const Arg operand = arg_of(context_, node, 0), number = arg_of(context_, node, 1);
      if (!number.is_int() || !operand.is_node()) continue;
      const std::int64_t bound = number.as_int() - number_of_bound_0(number_use_of(*node.op));
      const auto rows = rows_of.find({numbers[operand.as_node()], bound});
      if (rows != rows_of.end() && is_known_.insert(id)) found_.push_back(make(id, {}, {0, rows->second}));
    }
  }
  // Whether the ids of an input are shifted down by a multiple of that number, or by 0.
  bool is_multiple(NodeId shift, std::int64_t rows) const {
    const Node& node = body_.nodes[shift];
    const Arg from = arg_of(context_, node, 0), number = arg_of(context_, node, 1);
    if (!number.is_int() || number.as_int() % rows != 0 || !from.is_node()) return false;
    const bool is_down = (number_use_of(*node.op) == NumberUse::kAdded) == (number.as_int() < 0);
    return (is_down || number.as_int() == 0) && comes_from_inputs(from.as_node());
  }

  RankLiterals take() {
    const auto positions = find_positions(body_, body_.order);
    std::ranges::sort(found_, {}, [&](const RankLiteral& literal) { return positions[literal.node]; });
    RankLiterals result;
    for (RankLiteral& literal : found_)
      (literal.is_proved ? result.proved : result.similar).push_back(std::move(literal));
    return result;
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  std::uint32_t rank_;
  Facts facts_;
  ShardFinder shards_;
  LookupFinder lookups_;
  std::map<NodeId, std::vector<IdLookup>> places_;  // by number of the ids
  std::optional<Effects> effects_;
  std::optional<IdNumbers> ids_;
  IdSet<NodeId> is_known_;
  std::vector<RankLiteral> found_;
  // By ids, module and rows: numbers of code that looks ids up in one shard.
  std::map<std::tuple<NodeId, StringId, std::int64_t>, std::uint32_t> lookups_of_;
};

}  // namespace

std::set<std::int64_t> RankLiteral::values_at(std::uint32_t rank) const {
  std::set<std::int64_t> values;
  for (const RankAxis& axis : axes) values.insert(offset + scale * axis.coordinate(rank));
  return values;
}

std::string print_expression(const Graph& graph, const RankLiteral& literal) {
  if (literal.axes.empty()) return fmt::format("an offset of a shard of {} rows", literal.scale);
  std::string text;
  for (const RankAxis& axis : literal.axes) {
    if (!text.empty()) text += " or ";
    if (literal.offset != 0) text += fmt::format("{} + ", literal.offset);
    if (literal.scale != 1) text += fmt::format("{} * ", literal.scale);
    text += fmt::format("c_{}", graph.text(axis.name));
  }
  return text;
}

std::string print_values(const RankLiteral& literal, std::uint32_t rank) {
  return fmt::format("{}", fmt::join(literal.values_at(rank), " or "));
}

RankLiterals find_rank_literals(const Graph& graph, std::uint32_t rank) {
  return LiteralFinder(graph, rank).find();
}

SplitShards describe_shards(const Graph& graph, std::span<const NodeId> saved) {
  SplitShards described;
  Context& context = *graph.context;
  Facts facts(graph);
  const ShardFinder shards(graph, facts);
  if (shards.all().empty()) return described;
  const LookupFinder lookups(graph, shards);
  if (lookups.all().empty()) return described;
  IdSet<NodeId> is_saved;
  for (NodeId id : saved) {
    is_saved.insert(id);
    if (const auto record = shards.describe(id)) described.values.at(id) = record;
  }
  for (const ShardLookup& lookup : lookups.all()) {
    const NodeId shift = find_shift(context, graph.step(), lookup.positions);
    for (NodeId at = lookup.positions; shift && at; at = source_of_ids(context, graph.step(), at)) {
      if (is_saved.contains(at)) described.places.at(at) = write_shard(context, lookup.shard);
      if (at == shift) break;
    }
  }
  std::vector<Arg> tables;
  for (const auto& [module, shard] : lookups.tables()) {
    const Arg row[] = {Arg::text(module), write_shard(context, shard)};
    tables.push_back(context.args.intern_tree(ArgKind::kList, row));
  }
  if (!tables.empty()) described.tables = context.args.intern_tree(ArgKind::kList, tables);
  return described;
}

}  // namespace epweave
