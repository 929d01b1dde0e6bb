// Random chunked regions, scheduled: the result computes what the graph computed. Checked without the
// analyses that the pass uses, by running both orders on made-up values: each value is a hash of how it came
// about, storage and random numbers included.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/users.h"
#include "ir/text.h"
#include "passes/overlap_ep.h"

namespace epweave {
namespace {

using Random = std::mt19937;

unsigned below(Random& random, std::size_t bound) {
  return static_cast<unsigned>(random() % bound);
}

// Writes a graph: the parts of one region, each a sequence of computations and exchanges, traced in a random
// mix, with code outside in between.
class Generator {
 public:
  explicit Generator(Random& random) : random_(random) {}

  std::string write() {
    parts_ = 2 + below(random_, 3);
    exchanges_ = 1 + below(random_, 3);
    backward_ = below(random_, 2) == 0;
    root_ = below(random_, 2) == 0 ? "layers.0" : "layers.0.moe";
    counts_ = below(random_, 2) == 0;
    is_tangled_ = below(random_, 2) == 0;
    text_ = "epweave text 1\ndevice cuda:0\ngroup ep ranks=[0, 1]\ngroup dp ranks=[0, 1]\ngraph\n";
    for (const char* input : {"x", "buffer", "counts"})
      text_ += fmt::format("  %{} = placeholder : f32[4, 8]\n", input);
    values_.assign(parts_, {"x"});
    std::vector<std::vector<std::string>> left(parts_);
    for (auto& steps : left) steps = plan_part();
    while (std::any_of(left.begin(), left.end(), [](const auto& steps) { return !steps.empty(); })) {
      const unsigned part = below(random_, parts_);
      if (below(random_, 8) == 0) write_outside();
      if (left[part].empty()) continue;
      write_step(part, left[part].front());
      left[part].erase(left[part].begin());
    }
    return text_ + "  output([])\n";
  }

  bool is_tangled() const { return is_tangled_; }  // parts may depend on each other
  unsigned parts() const { return parts_; }
  unsigned exchanges() const { return exchanges_; }
  bool backward() const { return backward_; }

 private:
  std::vector<std::string> plan_part() {
    std::vector<std::string> steps;
    const auto add_some = [&] {
      for (unsigned i = below(random_, 4); i-- > 0;) steps.push_back(plan_computation());
    };
    for (unsigned k = 0; k < exchanges_; ++k) {
      add_some();
      if (k == 0 && counts_) steps.push_back("counts");
      steps.push_back(fmt::format("launch{}", k));
      add_some();
      steps.push_back(fmt::format("wait{}", k));
    }
    add_some();
    return steps;
  }

  std::string plan_computation() {
    static constexpr std::array<const char*, 4> kPlain = {"add", "add", "all_reduce", "hidden"};
    static constexpr std::array<const char*, 7> kTangled = {"update", "read", "view",   "draw",
                                                            "odd",    "add",  "foreign"};
    if (is_tangled_ && below(random_, 3) == 0) return kTangled[below(random_, kTangled.size())];
    return kPlain[below(random_, kPlain.size())];
  }

  std::string pick(unsigned part) {
    const bool is_foreign = is_tangled_ && below(random_, 12) == 0;
    const auto& from = values_[is_foreign ? below(random_, parts_) : part];
    // The latest, more often than not.
    return "%" + (below(random_, 3) == 0 ? from[below(random_, from.size())] : from.back());
  }

  std::string line(const std::string& call, const std::string& rest, const std::string& name = "") {
    const std::string result = name.empty() ? fmt::format("v{}", next_++) : name;
    text_ += fmt::format("  %{} = {} : {}\n", result, call, rest);
    return result;
  }

  void write_step(unsigned part, const std::string& step) {
    const std::string chunk = fmt::format(" chunk(@{} body {} {})", root_, part, backward_ ? "bwd" : "fwd");
    const std::string type = "f32[4, 8]" + chunk;
    auto& values = values_[part];
    if (step.starts_with("launch")) {
      const std::string k = step.substr(6);
      const std::string splits = k == "0" && counts_ ? fmt::format("[%i{0}], [%j{0}]", part) : "[], []";
      line(fmt::format("_c10d_functional.all_to_all_single.default({}, {}, \"ep\")", pick(part), splits),
           fmt::format("f32[4, 8] token_exchange={}{}", k == "1" ? "combine" : "dispatch", chunk),
           fmt::format("launch{}_{}", k, part));
    } else if (step.starts_with("wait")) {
      values.push_back(line(
          fmt::format("_c10d_functional.wait_tensor.default(%launch{}_{})", step.substr(4), part), type));
    } else if (step == "counts") {
      write_counts(part, chunk);
    } else if (step == "add") {
      values.push_back(line(fmt::format("aten.add.Tensor({}, {})", pick(part), pick(part)), type));
    } else if (step == "all_reduce") {
      const std::string sum =
          line(fmt::format("_c10d_functional.all_reduce.default({}, \"sum\", \"dp\")", pick(part)), type);
      values.push_back(line(fmt::format("_c10d_functional.wait_tensor.default(%{})", sum), type));
    } else if (step == "hidden") {
      values.push_back(line(fmt::format("aten.neg.default({})", pick(part)), "f32[4, 8]"));
    } else if (step == "foreign") {
      values.push_back(line(fmt::format("aten.neg.default({})", pick(part)),
                            fmt::format("f32[4, 8] chunk(@layers.9.moe body {} fwd)", part)));
    } else if (step == "update") {
      line(fmt::format("aten.add_.Tensor(%buffer, {})", pick(part)), type);
    } else if (step == "read") {
      values.push_back(line("aten.neg.default(%buffer)", type));
    } else if (step == "view") {
      values.push_back(line("aten.view.default(%buffer, [4, 8])", type));
    } else if (step == "draw") {
      values.push_back(line(fmt::format("aten.rand_like.default({})", pick(part)), type));
    } else {
      values.push_back(line(fmt::format("mine.odd.default({})", pick(part)), type));
    }
  }

  void write_counts(unsigned part, const std::string& chunk) {
    const std::string a =
        line(fmt::format("aten.neg.default({})", below(random_, 2) == 0 ? "%counts" : pick(part)),
             "f32[4, 8]" + chunk);
    const std::string copied = "f32[4, 8]@cpu token_count_sync=dispatch" + chunk;
    // Rarely, one copy needs the other: such a region is declined.
    const bool is_chained = is_tangled_ && below(random_, 12) == 0;
    line(fmt::format("aten._to_copy.default(%{}, device=@cpu)", a), copied, fmt::format("k{}", part));
    line(fmt::format("aten._to_copy.default(%{}, device=@cpu)", is_chained ? fmt::format("k{}", part) : a),
         copied, fmt::format("l{}", part));
    for (const auto& [item, copy] : {std::pair('i', 'k'), std::pair('j', 'l')})
      line(fmt::format("aten._local_scalar_dense.default(%{}{})", copy, part),
           fmt::format("SymInt(u{}{}){}", item, part, chunk), fmt::format("{}{}", item, part));
  }

  void write_outside() {
    const unsigned part = below(random_, parts_);
    if (below(random_, 3) == 0) {
      const std::string sum = line("_c10d_functional.all_reduce.default(%x, \"sum\", \"dp\")", "f32[4, 8]");
      line(fmt::format("_c10d_functional.wait_tensor.default(%{})", sum), "f32[4, 8]");
    } else {
      line(fmt::format("aten.neg.default({})", pick(part)), "f32[4, 8]");
    }
  }

  Random& random_;
  std::string text_, root_;
  unsigned parts_ = 2, exchanges_ = 1, next_ = 0;
  bool backward_ = false, counts_ = false, is_tangled_ = false;
  std::vector<std::vector<std::string>> values_;  // by part
};

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
void check_turns(const Generator& generator, const Graph& graph) {
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
    Generator generator(random);
    const std::string text = generator.write();
    const Graph graph = parse_text(text, "random.txt");
    const Effects effects(*graph.context, graph.step());
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
    Graph graph = parse_text(Generator(random).write(), "random.txt");
    const Effects effects(*graph.context, graph.step());
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
