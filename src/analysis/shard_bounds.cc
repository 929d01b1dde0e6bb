#include "analysis/shard_bounds.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/number_calls.h"
#include "ops/op.h"

namespace epweave {
namespace {

constexpr std::array kSides = {BoundSide::kLower, BoundSide::kUpper};

// A comparison, and where its result goes as a mask.
struct Flow {
  ShardBound bound;
  std::set<NodeId> masks;   // itself, and what is made of it
  std::set<NodeId> joined;  // numbers of those that are combined with another mask
};

// Comparisons that are combined with each other.
struct Group {
  std::vector<std::size_t> flows;
  std::set<NodeId> joined;
};

class BoundFinder {
 public:
  BoundFinder(const Graph& graph, const IdNumbers& numbers, const NodeLists& users,
              const IsRightBound& is_right)
      : context_(*graph.context),
        body_(graph.step()),
        numbers_(numbers),
        users_(users),
        is_right_(is_right) {}

  std::vector<ShardBound> find(const std::vector<BoundedLookup>& lookups) {
    list_flows(lookups);
    list_groups();
    std::set<std::size_t> met_anywhere;
    std::vector<std::set<std::size_t>> met;  // groups, by lookup
    for (const BoundedLookup& lookup : lookups) {
      met.push_back(list_met(lookup));
      met_anywhere.insert(met.back().begin(), met.back().end());
    }
    for (std::size_t i = 0; i < lookups.size(); ++i) {
      if (met[i].empty()) met[i] = list_unmet_pairs(lookups[i], met_anywhere);
      choose(lookups[i], met[i]);
    }
    std::vector<ShardBound> found;
    for (const Flow& flow : flows_)
      if (flow.bound.ids) found.push_back(flow.bound);
    return found;
  }

 private:
  // ------------------------------------------------------------------ comparisons

  void list_flows(const std::vector<BoundedLookup>& lookups) {
    std::set<NodeId> wanted;
    for (const BoundedLookup& lookup : lookups) wanted.insert(lookup.ids);
    for (const auto [id, node] : walk(context_, body_)) {
      if (node.op == nullptr || !is_bound(number_use_of(*node.op))) continue;
      const Arg operand = arg_of(context_, node, 0);
      if (!operand.is_node() || !wanted.contains(numbers_[operand.as_node()])) continue;
      Flow flow;
      flow.bound = {.comparison = id, .ids = numbers_[operand.as_node()]};
      follow(flow, id, is_from_below(number_use_of(*node.op)));
      flows_.push_back(std::move(flow));
    }
  }

  // `is_from_below`: the mask holds for ids from the number on.
  void follow(Flow& flow, NodeId mask, bool is_from_below) {
    if (!flow.masks.insert(mask).second) return;
    for (NodeId user : users_[mask]) {
      const Node& node = body_.nodes[user];
      if (node.op == nullptr) continue;
      const Conjunction conjunction = combines(node);
      if (conjunction != Conjunction::kNone) {
        flow.joined.insert(numbers_[user]);
        // In range: at least this and below that; out of range: below this or at least that.
        if (!flow.bound.side)
          flow.bound.side =
              is_from_below == (conjunction == Conjunction::kEither) ? BoundSide::kUpper : BoundSide::kLower;
        follow(flow, user, is_from_below);
      } else if (is_mask_step(node)) {
        follow(flow, user, is_from_below != is_negation(*node.op));
      }
    }
  }

  // A product of masks holds where both do.
  Conjunction combines(const Node& node) const {
    const TensorType* tensor = tensor_of(context_, node.type);
    const bool is_mask = tensor != nullptr && tensor->dtype == DType::kBool;
    return is_mask && is_product(*node.op) ? Conjunction::kBoth : conjunction_of(*node.op);
  }

  bool is_mask_step(const Node& node) const {
    std::size_t inputs = 0;
    for_each_input(context_, node, [&](NodeId) { ++inputs; });
    return keeps_each(node.op->family) && inputs == 1;
  }

  void list_groups() {
    for (std::size_t i = 0; i < flows_.size(); ++i) {
      Group made{{i}, flows_[i].joined};
      for (auto group = groups_.begin(); group != groups_.end();) {
        const bool is_one = std::ranges::any_of(
            group->joined, [&](NodeId joined) { return flows_[i].joined.contains(joined); });
        if (!is_one) {
          ++group;
          continue;
        }
        made.flows.insert(made.flows.end(), group->flows.begin(), group->flows.end());
        made.joined.insert(group->joined.begin(), group->joined.end());
        group = groups_.erase(group);
      }
      groups_.push_back(std::move(made));
    }
  }

  // ------------------------------------------------------------------ lookups

  // Positions and rows of one lookup.
  struct Places {
    std::set<NodeId> behind;  // the shift and the positions, and what the rows become
    std::set<NodeId> values;  // of which the rows that it writes are made
  };

  Places list_places(const BoundedLookup& lookup) const {
    Places places;
    for (NodeId at = lookup.positions; at; at = first_input(at)) {
      places.behind.insert(at);
      if (at == lookup.shift) break;
    }
    add_rows(lookup.call, places.behind);
    const Node& call = body_.nodes[lookup.call];
    for (const std::string_view param : {"values", "src", "source", "grad_output"})
      if (const auto position = call.op->find_param(param))
        if (const Arg values = arg_of(context_, call, *position); values.is_node())
          add_values(values.as_node(), places.values);
    return places;
  }

  NodeId first_input(NodeId id) const {
    const Arg from = arg_of(context_, body_.nodes[id], 0);
    return from.is_node() ? from.as_node() : NodeId();
  }

  // What the rows become.
  void add_rows(NodeId first, std::set<NodeId>& rows) const {
    add_reached(first, rows, [&](NodeId at, std::vector<NodeId>& next) {
      for (NodeId user : users_[at])
        if (keeps(user)) next.push_back(user);
    });
  }
  // What the values are made of.
  void add_values(NodeId last, std::set<NodeId>& values) const {
    add_reached(last, values, [&](NodeId at, std::vector<NodeId>& next) {
      if (keeps(at)) for_each_input(context_, body_.nodes[at], [&](NodeId input) { next.push_back(input); });
    });
  }
  bool keeps(NodeId id) const {
    const OpInfo* op = body_.nodes[id].op;
    return op != nullptr && keeps_each(op->family);
  }
  template <class Step>
  static void add_reached(NodeId first, std::set<NodeId>& reached, const Step& step) {
    std::vector<NodeId> open = {first};
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      if (reached.insert(at).second) step(at, open);
    }
  }

  std::set<std::size_t> list_met(const BoundedLookup& lookup) const {
    const Places places = list_places(lookup);
    std::set<std::size_t> met;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (flows_[groups_[g].flows.front()].bound.ids == lookup.ids &&
          std::ranges::any_of(groups_[g].flows, [&](std::size_t f) { return meets(flows_[f], places); }))
        met.insert(g);
    return met;
  }

  bool meets(const Flow& flow, const Places& places) const {
    return std::ranges::any_of(flow.masks, [&](NodeId mask) {
      return places.values.contains(mask) || std::ranges::any_of(users_[mask], [&](NodeId user) {
               return places.behind.contains(user) || touches(user, places);
             });
    });
  }
  // A call in place on the positions: masked_fill_(%positions, %mask, 0).
  bool touches(NodeId user, const Places& places) const {
    bool found = false;
    if (keeps(user))
      for_each_input(context_, body_.nodes[user],
                     [&](NodeId input) { found |= places.behind.contains(input); });
    return found;
  }

  std::set<std::size_t> list_unmet_pairs(const BoundedLookup& lookup,
                                         const std::set<std::size_t>& met) const {
    std::set<std::size_t> found;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (flows_[groups_[g].flows.front()].bound.ids != lookup.ids) continue;
      if (met.contains(g)) return {};
      if (is_pair(groups_[g])) found.insert(g);
    }
    return found;
  }

  // ------------------------------------------------------------------ choice

  bool has_side(const Group& group, BoundSide side) const {
    return std::ranges::any_of(group.flows, [&](std::size_t f) { return flows_[f].bound.side == side; });
  }
  bool has_right(const Group& group, BoundSide side) const {
    return std::ranges::any_of(group.flows, [&](std::size_t f) {
      return flows_[f].bound.side == side && is_right_(flows_[f].bound.comparison, side);
    });
  }
  bool is_pair(const Group& group) const {
    return std::ranges::all_of(kSides, [&](BoundSide side) { return has_side(group, side); });
  }
  bool is_right(const Group& group) const {
    return std::ranges::all_of(kSides, [&](BoundSide side) { return has_right(group, side); });
  }

  void choose(const BoundedLookup& lookup, const std::set<std::size_t>& candidates) {
    const auto any = [&](auto&& holds) {
      return std::ranges::any_of(candidates, [&](std::size_t g) { return holds(groups_[g]); });
    };
    const bool is_done = any([&](const Group& group) { return is_right(group); }) || has_local_bounds(lookup);
    const bool has_pair = any([&](const Group& group) { return is_pair(group); });
    for (std::size_t g : candidates) {
      const Group& group = groups_[g];
      if ((is_done && !is_right(group)) || (has_pair && !is_pair(group)) || is_whole(group, lookup)) continue;
      for (std::size_t f : group.flows) {
        ShardBound& bound = flows_[f].bound;
        if (is_further(bound, group)) continue;
        bound.is_proved = true;
        bound.is_shared = is_pair(group) && !joins_pair(bound.comparison, group);
      }
    }
  }

  // Beside one of its side that is right, or that the graph computes.
  bool is_further(const ShardBound& bound, const Group& group) const {
    if (!bound.side || !number_of(bound).is_int()) return false;
    if (has_right(group, *bound.side) && !is_right_(bound.comparison, bound.side)) return true;
    return std::ranges::any_of(group.flows, [&](std::size_t f) {
      const ShardBound& other = flows_[f].bound;
      return other.side == bound.side && !number_of(other).is_int();
    });
  }
  Arg number_of(const ShardBound& bound) const { return arg_of(context_, body_.nodes[bound.comparison], 1); }

  // All of the table that the ranks share.
  bool is_whole(const Group& group, const BoundedLookup& lookup) const {
    return is_pair(group) && std::ranges::all_of(group.flows, [&](std::size_t f) {
             const ShardBound& bound = flows_[f].bound;
             const Node& node = body_.nodes[bound.comparison];
             const Arg number = number_of(bound);
             const std::int64_t border = bound.side == BoundSide::kUpper ? lookup.global : 0;
             return number.is_int() && number.as_int() == border + number_of_bound_0(number_use_of(*node.op));
           });
  }

  // Whether nothing else is made of the comparison than masks of both sides.
  bool joins_pair(NodeId mask, const Group& group) const {
    return !users_[mask].empty() && std::ranges::all_of(users_[mask], [&](NodeId user) {
      const Node& node = body_.nodes[user];
      if (node.op == nullptr) return false;
      const bool is_joined = combines(node) != Conjunction::kNone;
      if (is_joined && std::ranges::all_of(kSides, [&](BoundSide side) {
            return std::ranges::any_of(group.flows, [&](std::size_t f) {
              return flows_[f].bound.side == side && flows_[f].joined.contains(numbers_[user]);
            });
          }))
        return true;
      return (is_joined || is_mask_step(node)) && joins_pair(user, group);
    });
  }

  // Whether the code compares the ids behind the shift: 0 and the number of rows are every rank's.
  bool has_local_bounds(const BoundedLookup& lookup) const {
    bool is_below = false, is_above = false;
    for (const auto [id, node] : walk(context_, body_)) {
      if (node.op == nullptr || !is_bound(number_use_of(*node.op))) continue;
      const Arg operand = arg_of(context_, node, 0);
      if (!operand.is_node() || numbers_[operand.as_node()] != numbers_[lookup.shift]) continue;
      (is_from_below(number_use_of(*node.op)) ? is_below : is_above) = true;
    }
    return is_below && is_above;
  }

  const Context& context_;
  const Body& body_;
  const IdNumbers& numbers_;
  const NodeLists& users_;
  const IsRightBound& is_right_;
  std::vector<Flow> flows_;
  std::vector<Group> groups_;
};

}  // namespace

bool holds_whole_numbers(const Context& context, const Body& body, NodeId id) {
  const TensorType* tensor = tensor_of(context, body.nodes[id].type);
  return tensor != nullptr && is_integral(tensor->dtype);
}

NodeId IdNumbers::operator[](NodeId id) const {
  // What is written after it was copied is other ids.
  while (holds_ids_of_first(body_.nodes[id])) {
    const NodeId from = arg_of(context_, body_.nodes[id], 0).as_node();
    if (effects_.is_written(effects_.storage_of(from)) || effects_.is_written(effects_.storage_of(id))) break;
    id = from;
  }
  return numbers_[id];
}

bool IdNumbers::holds_ids_of_first(const Node& node) const {
  if (node.op == nullptr || !arg_of(context_, node, 0).is_node()) return false;
  const NodeId from = arg_of(context_, node, 0).as_node();
  const TensorType* made = tensor_of(context_, node.type);
  return keeps_numbers(node.op->family) && made != nullptr && is_integral(made->dtype) &&
         holds_whole_numbers(context_, body_, from);
}

std::vector<ShardBound> find_shard_bounds(const Graph& graph, const IdNumbers& numbers,
                                          const NodeLists& users, const std::vector<BoundedLookup>& lookups,
                                          const IsRightBound& is_right) {
  return BoundFinder(graph, numbers, users, is_right).find(lookups);
}

}  // namespace epweave
