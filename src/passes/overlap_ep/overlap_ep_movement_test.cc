// The order with the fewest moves against all orders, on small random graphs.
#include "passes/overlap_ep/overlap_ep_movement.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "ir/text/text.h"

namespace epweave {
namespace {

constexpr unsigned kNodes = 7;

struct Case {
  Graph graph;
  std::vector<OrderEdge> edges;
  std::vector<RegionSchedule> schedules;
};

// n0 ... n6, each taking one or two of those before it or the input; some of them in the phases of
// a region.
Case make_case(std::mt19937& random, unsigned regions) {
  std::string text = "epweave text 1\ngraph\n  %x = placeholder : f32[8]\n";
  const auto input = [&](unsigned i) {
    const unsigned from = static_cast<unsigned>(random()) % (i + 3);
    return from < i ? fmt::format("n{}", from) : std::string("x");
  };
  for (unsigned i = 0; i < kNodes; ++i)
    text += fmt::format("  %n{} = aten.add.Tensor(%{}, %{}) : f32[8]\n", i, input(i), input(i));
  Case c{parse_text(text + "  output([])\n", "test.txt"), {}, {}};
  const auto node = [](unsigned i) { return NodeId(i + 1); };
  for (unsigned i = 1; i < kNodes; ++i)
    if (random() % 4 == 0)
      c.edges.push_back(
          {node(static_cast<unsigned>(random()) % i), node(i), OrderReason::kWriteAfterRead, {}});
  for (unsigned r = 0; r < regions; ++r) {
    RegionSchedule schedule;
    schedule.phases.resize(2 + random() % 2);
    if (random() % 4 == 0) schedule.phases[1].kind = PhaseKind::kCopy;
    for (unsigned i = 0; i < kNodes; ++i)
      if (i % regions == r && random() % 3 != 0)
        schedule.phases[random() % schedule.phases.size()].nodes.push_back(node(i));
    std::erase_if(schedule.phases, [](const Phase& phase) { return phase.nodes.empty(); });
    if (!schedule.phases.empty()) c.schedules.push_back(schedule);
  }
  return c;
}

using Positions = IdVector<NodeId, std::uint32_t>;

bool keeps_phases(const RegionSchedule& schedule, const Positions& at) {
  std::int64_t passed = -1;
  for (const Phase& phase : schedule.phases) {
    std::int64_t last = passed;
    for (NodeId id : phase.nodes) {
      if (at[id] <= passed) return false;
      if (phase.kind == PhaseKind::kCopy && at[id] < last) return false;
      last = std::max<std::int64_t>(last, at[id]);
    }
    passed = last;
  }
  return true;
}

bool is_allowed(const Case& c, const NodeLists& inputs, const std::vector<NodeId>& order) {
  const Positions at = find_positions(c.graph.step(), order);
  for (NodeId id : order)
    for (NodeId input : inputs[id])
      if (at[input] > at[id]) return false;
  for (const OrderEdge& edge : c.edges)
    if (at[edge.before] > at[edge.after]) return false;
  return std::all_of(c.schedules.begin(), c.schedules.end(),
                     [&](const RegionSchedule& s) { return keeps_phases(s, at); });
}

// Nodes outside the longest ascending subsequence; ids are in the old order.
std::size_t count_moved(const std::vector<NodeId>& order) {
  std::vector<std::size_t> longest;
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::size_t best = 0;
    for (std::size_t j = 0; j < i; ++j)
      if (order[j] < order[i]) best = std::max(best, longest[j]);
    longest.push_back(best + 1);
  }
  return order.size() - *std::max_element(longest.begin(), longest.end());
}

// The fewest moves of all allowed orders, or none.
std::optional<std::size_t> find_fewest(const Case& c, const NodeLists& inputs) {
  std::optional<std::size_t> fewest;
  std::vector<NodeId> order = c.graph.step().order;
  do {
    if (is_allowed(c, inputs, order)) fewest = std::min(fewest.value_or(order.size()), count_moved(order));
  } while (std::next_permutation(order.begin() + 1, order.end() - 1));  // not the input, not the output
  return fewest;
}

}  // namespace

TEST_CASE("no order that meets the phases of a region moves fewer nodes") {
  std::mt19937 random(11);
  std::map<std::size_t, int> seen;
  int contradictory = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    const Case c = make_case(random, 1);
    const NodeLists inputs = list_inputs(*c.graph.context, c.graph.step());
    const auto fewest = find_fewest(c, inputs);
    const auto order = order_with_fewest_moves(c.graph.step(), inputs, c.edges, c.schedules);
    CAPTURE(print_text(c.graph));
    REQUIRE(order.has_value() == fewest.has_value());
    if (!order) {
      ++contradictory;
      continue;
    }
    REQUIRE(is_allowed(c, inputs, *order));
    CHECK(count_moved(*order) == *fewest);
    ++seen[*fewest];
  }
  CHECK(contradictory > 10);
  CHECK(seen.size() >= 4);  // 0, 1, 2, 3 moves
}

TEST_CASE("the phases of several regions that overlap all hold") {
  std::mt19937 random(5);
  int orders = 0, contradictory = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const Case c = make_case(random, 2);
    const NodeLists inputs = list_inputs(*c.graph.context, c.graph.step());
    const auto order = order_with_fewest_moves(c.graph.step(), inputs, c.edges, c.schedules);
    REQUIRE(order.has_value() == find_fewest(c, inputs).has_value());
    if (order) CHECK(is_allowed(c, inputs, *order));
    ++(order ? orders : contradictory);
  }
  CHECK(orders > 20);
  CHECK(contradictory > 5);
}

TEST_CASE("how far nodes moved") {
  const Graph graph = parse_text(
      "epweave text 1\ngraph\n  %a = placeholder : f32[8]\n  %b = placeholder : f32[8]\n"
      "  %c = placeholder : f32[8]\n  %d = placeholder : f32[8]\n  output([])\n",
      "test.txt");
  const NodeId a(0U), b(1U), c(2U), d(3U), output(4U);
  const std::vector<NodeId> moved = find_moved(graph.step(), {d, b, c, a, output});
  CHECK(moved == std::vector{a, d});
  const MoveCount count = count_moves(graph.step(), {d, b, c, a, output}, moved);
  CHECK(count.moved == 2);
  CHECK(count.passed == 4);  // each passes b and c
  CHECK(count.farthest == 2);
}

}  // namespace epweave
