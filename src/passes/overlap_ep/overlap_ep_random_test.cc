// Random chunked regions, scheduled: the result computes what the graph computed. Checked without
// the analyses that the pass uses, by running both orders on made-up values: each value is a hash
// of how it came about, storage and random numbers included.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/users.h"
#include "ir/text/text.h"
#include "passes/overlap_ep/overlap_ep.h"
#include "passes/overlap_ep/overlap_ep_random_region.h"

namespace epweave {
namespace {

using testing::below, testing::Random, testing::RegionGenerator;

// What every node yields in the graph's order, and what is left in every storage.
class Machine {
 public:
  explicit Machine(const Graph& graph)
      : graph_(graph), body_(graph.step()), storage_(body_.nodes.size()), content_(body_.nodes.size()) {}

  std::vector<std::uint64_t> run() {
    std::vector<std::uint64_t> results(body_.nodes.size());
    for (NodeId id : body_.order) results[id.index()] = execute(id);
    results.insert(results.end(), content_.begin(), content_.end());
    return results;
  }

 private:
  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    a = (a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9ULL;
    return a ^ (a >> 31);
  }

  std::uint64_t read(NodeId value) const { return content_[storage_[value.index()]]; }

  std::uint64_t execute(NodeId id) {
    const Node& node = body_.nodes[id];
    const std::string_view target = graph_.text(node.target);
    std::uint64_t hash = mix(id.index(), 17);
    std::vector<NodeId> inputs;
    for_each_input(*graph_.context, node, [&](NodeId input) { inputs.push_back(input); });
    storage_[id.index()] = id.index();
    if (target == "aten.view.default") {
      storage_[id.index()] = storage_[inputs[0].index()];
      return mix(hash, 1);
    }
    for (NodeId input : inputs) hash = mix(hash, read(input));
    if (target == "aten.add_.Tensor") {
      storage_[id.index()] = storage_[inputs[0].index()];
      effects_ += mix(id.index(), 2);
    } else if (target == "aten.rand_like.default") {
      hash = mix(hash, draws_++);
      effects_ += mix(id.index(), 3);
    } else if (target == "mine.odd.default") {
      // May have seen every effect before it, and may change what it was given.
      hash = mix(hash, effects_);
      storage_[id.index()] = storage_[inputs[0].index()];
      effects_ += mix(id.index(), 4);
    } else if (target == "_c10d_functional.wait_tensor.default") {
      // The communication read its operand until now.
      const auto operand = operand_.find(inputs[0].index());
      hash = mix(hash, operand != operand_.end() ? read(operand->second) : 0);
      storage_[id.index()] = storage_[inputs[0].index()];
      effects_ += mix(id.index(), 5);
    } else if (target.starts_with("_c10d_functional.")) {
      operand_[id.index()] = inputs[0];
      effects_ += mix(id.index(), 6);
    } else if (target == "aten._to_copy.default") {
      const Arg* flag = find_kwarg(*graph_.context, node, "non_blocking");
      if (flag != nullptr && flag->as_bool()) {
        unfinished_.insert(id.index());
      } else {
        unfinished_.clear();
      }
    } else if (target == "aten._local_scalar_dense.default") {
      if (unfinished_.contains(storage_[inputs[0].index()])) hash = mix(hash, 7);  // not there yet
      effects_ += mix(id.index(), 8);
    }
    return content_[storage_[id.index()]] = hash;
  }

  const Graph& graph_;
  const Body& body_;
  std::vector<std::uint32_t> storage_;
  std::vector<std::uint64_t> content_;
  std::map<std::uint32_t, NodeId> operand_;  // of launches
  std::set<std::uint32_t> unfinished_;       // non-blocking copies that nothing waited for
  std::uint64_t draws_ = 0, effects_ = 0;
};

std::uint32_t position_of(const Graph& graph, const std::string& name) {
  const auto& order = graph.step().order;
  const auto at = std::find_if(order.begin(), order.end(),
                               [&](NodeId id) { return graph.text(graph.step().nodes[id].name) == name; });
  REQUIRE(at != order.end());
  return static_cast<std::uint32_t>(at - order.begin());
}

// Launch k of each part before that of the next in turn, and all of them before any launch k + 1.
void check_turns(const RegionGenerator& generator, const Graph& graph) {
  std::vector<std::uint32_t> launches;
  for (unsigned k = 0; k < generator.exchanges(); ++k)
    for (unsigned turn = 0; turn < generator.parts(); ++turn)
      launches.push_back(position_of(
          graph, fmt::format("launch{}_{}", k, generator.backward() ? generator.parts() - 1 - turn : turn)));
  CHECK(std::is_sorted(launches.begin(), launches.end()));
}

// Launches that no body node leads to, by group, in order.
std::vector<std::string> list_outside_launches(const Graph& graph) {
  std::vector<std::string> names;
  std::set<NodeId> dependent;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    bool depends = node.chunk.part.has_value();
    for_each_input(*graph.context, node, [&](NodeId input) { depends |= dependent.contains(input); });
    if (depends) dependent.insert(id);
    if (!depends && is_launch(node)) names.emplace_back(graph.text(node.name));
  }
  return names;
}

struct Seen {
  std::map<std::string, int> refusals, phases;
  std::map<OrderReason, int> effects;

  void note(const Graph& result) {
    static constexpr std::array<const char*, 7> kPhases = {
        ") needs it",          "the token-count copies need it",
        "copies token counts", "behind the token-count copies",
        "launches exchange",   "fills the time",
        "follows exchange"};
    for (NodeId id : result.step().order)
      for (const Provenance& record : result.step().nodes[id].provenance)
        for (const char* phase : kPhases)
          if (result.text(record.reason).find(phase) != std::string_view::npos) ++phases[phase];
  }
};

}  // namespace

TEST_CASE("random regions compute what they computed, in turns") {
  Random random(2024);
  Seen seen;
  for (int trial = 0; trial < 4000; ++trial) {
    RegionGenerator generator(random);
    const std::string text = generator.write();
    const Graph graph = parse_text(text, "random.txt");
    const Effects effects(graph, graph.step());
    for (const OrderEdge& edge : effects.order_edges()) ++seen.effects[edge.reason];
    const OverlapEpOptions options{.movement = trial % 2 == 0 ? Movement::kDelay : Movement::kMinimal};
    std::optional<Graph> result;
    try {
      result = overlap_ep(graph, options).graph;
    } catch (const PassError& error) {
      ++seen.refusals[error.id()];
      CAPTURE(text, error.problem());
      REQUIRE(generator.is_tangled());
      continue;
    }
    CAPTURE(text);
    seen.note(*result);
    REQUIRE(std::is_permutation(result->step().order.begin(), result->step().order.end(),
                                graph.step().order.begin(), graph.step().order.end()));
    REQUIRE(Machine(*result).run() == Machine(graph).run());
    REQUIRE(list_outside_launches(*result) == list_outside_launches(graph));
    if (!generator.is_tangled()) check_turns(generator, *result);
    if (trial % 16 == 0) CHECK(print_text(overlap_ep(graph, options).graph) == print_text(*result));
  }
  for (const auto& [refusal, count] : seen.refusals) fmt::print("{:40} {}\n", refusal, count);
  for (const auto& [phase, count] : seen.phases) fmt::print("{:40} {}\n", phase, count);
  for (const auto& [reason, count] : seen.effects) fmt::print("{:40} {}\n", name_of(reason), count);
  CHECK(seen.phases.size() == 7);
  CHECK(seen.refusals.size() == 2);
  CHECK(seen.refusals.contains("overlap-ep.count-copies"));
  CHECK(seen.refusals.contains("overlap-ep.contradiction"));
  for (const OrderReason reason :
       {OrderReason::kReadAfterWrite, OrderReason::kWriteAfterRead, OrderReason::kWriteAfterWrite,
        OrderReason::kRandom, OrderReason::kUnknownEffect})
    CHECK(seen.effects[reason] > 100);
}

TEST_CASE("the made-up values tell orders apart that effects forbid") {
  Random random(3);
  int tried = 0, noticed = 0;
  for (int trial = 0; trial < 500; ++trial) {
    Graph graph = parse_text(RegionGenerator(random).write(), "random.txt");
    const Effects effects(graph, graph.step());
    if (effects.order_edges().empty()) continue;
    const OrderEdge edge = effects.order_edges()[below(random, effects.order_edges().size())];
    const auto before = Machine(graph).run();
    auto& order = graph.step().order;
    order.erase(std::find(order.begin(), order.end(), edge.after));
    order.insert(std::find(order.begin(), order.end(), edge.before), edge.after);
    ++tried;
    noticed += Machine(graph).run() != before;
  }
  CHECK(tried > 300);
  CHECK(noticed == tried);
}

}  // namespace epweave
