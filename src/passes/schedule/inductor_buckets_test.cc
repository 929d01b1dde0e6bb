// PyTorch's bucketer alone, on steps whose hiding is given: its own tests (B1 to B4, B11, B24, B27
// of the specification). Steps that the scheduler orders first are goldens in testdata/inductor.
#include "passes/schedule/inductor_buckets.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "passes/schedule/decision.h"
#include "passes/schedule/inductor_timeline.h"
#include "passes/test_text.h"

namespace epweave {
namespace {

// Launches by name, and what hides each as a whole; others are exposed.
using Hidden = std::map<std::string, std::vector<std::string>>;

class Step {
 public:
  explicit Step(std::string_view nodes)
      : graph_(parse_test_graph(fmt::format("device cuda:0\n"
                                            "group dp ranks=[0, 1]\n"
                                            "graph\n"
                                            "  %a = placeholder : f32[4, 4]\n"
                                            "  %b = placeholder : f32[4, 4]\n"
                                            "  %c = placeholder : f32[4, 4]\n"
                                            "{}",
                                            nodes))),
        decision_(model_decision(graph_, {})),
        problem_(make_schedule_problem(graph_, decision_, {LaunchOrder::kFree, RecomputeOrder::kFree})),
        facts_(find_inductor_facts(graph_, decision_.step, problem_, GatherKey::kByDtype)) {}

  Place place(std::string_view name) const {
    for (Place i = 0; i < decision_.step.size(); ++i)
      if (this->name(i) == name) return i;
    FAIL("no node " << name);
    return kNoPlace;
  }
  std::string_view name(Place i) const {
    return graph_.text(graph_.step().nodes[decision_.step.nodes[i]].name);
  }

  const ScheduleProblem& problem() const { return problem_; }
  const InductorFacts& facts() const { return facts_; }

  // In the order of the text; all collectives take the same time and memory.
  InductorOrder order(const Hidden& hidden) const {
    InductorOrder order;
    order.order.resize(decision_.step.size());
    std::iota(order.order.begin(), order.order.end(), 0);
    order.scheduled = order.order;
    for (const InductorCollective& collective : facts_.collectives) {
      InductorHiding hiding{.exposed = 1, .hidden_by = {}};
      if (const auto found = hidden.find(std::string(name(collective.start))); found != hidden.end()) {
        hiding.exposed = 0;
        for (const std::string& by : found->second) hiding.hidden_by.push_back(place(by));
      }
      order.hiding.push_back(std::move(hiding));
    }
    return order;
  }

  // "g1 g2; r1 r2", each bucket in its order.
  std::string merge(const Hidden& hidden) {
    for (InductorCollective& collective : facts_.collectives) {
      collective.ms = 1;
      collective.bytes = 64;
    }
    InductorKnobs knobs;
    knobs.bucket_exposed_first = false;
    const std::vector<bool> may_merge(facts_.collectives.size(), true);
    const InductorBuckets found =
        find_inductor_buckets(decision_.step, problem_, facts_, order(hidden), knobs, may_merge);
    std::string text;
    for (const auto& bucket : found.buckets) {
      if (!text.empty()) text += ";";
      for (const std::uint32_t c : bucket)
        text += fmt::format("{}{}", text.empty() ? "" : " ", name(facts_.collectives[c].start));
    }
    return text;
  }

 private:
  Graph graph_;
  DecisionModel decision_;
  ScheduleProblem problem_;
  InductorFacts facts_;
};

std::string gather(std::string_view name, std::string_view of) {
  return fmt::format("  %{} = _c10d_functional.all_gather_into_tensor.default(%{}, 2, \"dp\") : f32[8, 4]\n",
                     name, of);
}
std::string scatter(std::string_view name, std::string_view of) {
  return fmt::format(
      "  %{} = _c10d_functional.reduce_scatter_tensor.default(%{}, \"sum\", 2, \"dp\") : f32[2, 4]\n", name,
      of);
}
std::string wait(std::string_view name, std::string_view type, std::string_view of) {
  return fmt::format("  %{} = _c10d_functional.wait_tensor.default(%{}) : {}\n", name, of, type);
}
std::string wait(std::string_view name, std::string_view of) {
  return wait(name, "f32[8, 4]", of);
}
std::string product(std::string_view name, std::string_view left, std::string_view right) {
  return fmt::format("  %{} = aten.mm.default(%{}, %{}) : f32[4, 4]\n", name, left, right);
}

// Before of each node what was added for it, by name: "w1: y g1".
std::string print_added(const Step& step, const InductorDependences& dependences,
                        std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    text += fmt::format("{}:", name);
    for (const Place before : dependences.before(step.place(name)))
      text += fmt::format(" {}", step.name(before));
    text += "\n";
  }
  return text;
}

TEST_CASE("gathers hidden by a product each share a bucket") {
  Step step(gather("g1", "a") + gather("g2", "b") + product("m1", "a", "a") + product("m2", "b", "b") +
            wait("w1", "g1") + wait("w2", "g2") + "  output([%w1, %w2, %m1, %m2])\n");
  CHECK(step.merge({{"g1", {"m1"}}, {"g2", {"m2"}}}) == "g1 g2");
}

TEST_CASE("a gather within another, which feeds what hides that one, stays apart") {
  Step step(gather("g1", "a") + gather("g2", "b") + product("m2", "b", "b") + wait("w2", "g2") +
            "  %h = aten.slice.Tensor(%w2, 0, 0, 4) : f32[4, 4]\n"
            "  %s = aten.add.Tensor(%a, %h) : f32[4, 4]\n" +
            product("m1", "s", "s") + wait("w1", "g1") + "  output([%w1, %m1, %m2])\n");
  CHECK(step.merge({{"g1", {"m1"}}, {"g2", {"m2"}}}).empty());
}

TEST_CASE("gathers around a hidden collective stay apart, around an exposed one they do not") {
  Step step(gather("g1", "a") + product("m1", "a", "a") + wait("w1", "g1") + scatter("r", "c") +
            product("m2", "b", "b") + wait("wr", "f32[2, 4]", "r") + gather("g2", "b") +
            product("m3", "c", "c") + wait("w2", "g2") + "  output([%w1, %wr, %w2, %m1, %m2, %m3])\n");
  CHECK(step.merge({{"g1", {"m1"}}, {"r", {"m2"}}, {"g2", {"m3"}}}).empty());
  CHECK(step.merge({{"g1", {"m1"}}, {"g2", {"m3"}}}) == "g1 g2");
}

TEST_CASE("gathers that share what hides them share a bucket") {
  Step step(gather("g1", "a") + gather("g2", "b") + product("m1", "a", "a") + product("m2", "b", "b") +
            product("m3", "c", "c") + wait("w1", "g1") + wait("w2", "g2") +
            "  output([%w1, %w2, %m1, %m2, %m3])\n");
  CHECK(step.merge({{"g1", {"m1", "m2"}}, {"g2", {"m2", "m3"}}}) == "g1 g2");
}

constexpr std::array<std::string_view, 6> kThreeGathers = {"g1", "w1", "g2", "w2", "g3", "w3"};

Step make_three_gathers() {
  return Step(gather("g1", "a") + wait("w1", "g1") + gather("g2", "b") + wait("w2", "g2") +
              gather("g3", "c") + wait("w3", "g3") + "  output([%w1, %w2, %w3])\n");
}

TEST_CASE("an event that leaves its time line and returns: what a trial that fails leaves behind") {
  const Step step = make_three_gathers();
  InductorDependences dependences(step.problem().inputs, [](Place, Place) { return false; });
  InductorTimelines lines(step.facts(), step.order({}), dependences);
  lines.turn_to(lines.groups().front());
  const std::string given = "g1:\nw1: g1\ng2: w1\nw2: g2\ng3: w2\nw3: g3\n";
  CHECK(print_added(step, dependences, kThreeGathers) == given);
  std::vector<std::string_view> passed;
  const auto list_line = [&] {
    passed.clear();
    lines.visit_behind(step.place("g1"), ~0U, [&](Place node) { passed.push_back(step.name(node)); });
    return passed;
  };
  const std::vector<std::string_view> line = {"w1", "g2", "w2", "g3", "w3"};
  CHECK(list_line() == line);

  const auto taken = lines.take_out(step.place("g2"));
  CHECK(print_added(step, dependences, kThreeGathers) == "g1:\nw1: g1\ng2:\nw2: w1\ng3: w2\nw3: g3\n");
  CHECK(list_line() == std::vector<std::string_view>{"w1", "w2", "g3", "w3"});
  lines.put_back(taken);
  CHECK(list_line() == line);
  // As torch 2.15 has it, what follows in the line is not put behind it again, nor is what stood in
  // front of it: its data stays.
  CHECK(print_added(step, dependences, kThreeGathers) == "g1:\nw1: g1\ng2: w1\nw2:\ng3: w2\nw3: g3\n");

  // The first of a line has nothing in front of it, and gets back all that it had.
  lines.put_back(lines.take_out(step.place("g1")));
  CHECK(print_added(step, dependences, kThreeGathers) == "g1:\nw1: g1\ng2: w1\nw2:\ng3: w2\nw3: g3\n");
}

TEST_CASE("an event of merged nodes returns under the name by which it left") {
  const Step step = make_three_gathers();
  InductorDependences dependences(step.problem().inputs, [](Place, Place) { return false; });
  InductorTimelines lines(step.facts(), step.order({}), dependences);
  lines.turn_to(lines.groups().front());
  const Place g1 = step.place("g1"), g2 = step.place("g2"), g3 = step.place("g3");
  lines.take_out(g1);
  dependences.merge(g2, g1);
  lines.join(g2, {g2, g1});
  lines.put_back(lines.take_out(g2));
  // Nothing is added for the one that has no event of its own any more.
  CHECK(print_added(step, dependences, kThreeGathers) == "g1:\nw1:\ng2: w1\nw2:\ng3: w2\nw3: g3\n");
  // A path to one of them is a path to both.
  CHECK(dependences.has_path(g1, g3) == dependences.has_path(g2, g3));
  CHECK(!dependences.has_path(g3, g1));
}

TEST_CASE("what was added for casts and launches holds for what packs and launches all of them") {
  const Step step(
      "  %ca = aten._to_copy.default(%a, dtype=bf16) : bf16[4, 4]\n"
      "  %g1 = _c10d_functional.all_gather_into_tensor.default(%ca, 2, \"dp\") : bf16[8, 4]\n"
      "  %cb = aten._to_copy.default(%b, dtype=bf16) : bf16[4, 4]\n"
      "  %g2 = _c10d_functional.all_gather_into_tensor.default(%cb, 2, \"dp\") : bf16[8, 4]\n" +
      wait("w1", "bf16[8, 4]", "g1") + wait("w2", "bf16[8, 4]", "g2") + product("m", "c", "c") +
      product("n", "c", "c") + "  output([%w1, %w2, %m, %n])\n");
  InductorDependences dependences(step.problem().inputs, [](Place, Place) { return false; });
  const Place ca = step.place("ca"), cb = step.place("cb"), g1 = step.place("g1"), g2 = step.place("g2"),
              m = step.place("m"), n = step.place("n");
  dependences.add(cb, g1);  // in the bucket: what packs comes first
  dependences.add(m, g2);
  dependences.add(ca, n);
  const Place pack = dependences.add_node(), launch = dependences.add_node();
  const std::vector<std::pair<Place, Place>> replaced = {{g1, launch}, {g2, launch}, {ca, pack}, {cb, pack}};
  dependences.transfer(replaced, [&](Place a, Place b) { return a == launch && b == pack; });
  const auto before = [&](Place node) {
    const auto places = dependences.before(node);
    return std::vector<Place>(places.begin(), places.end());
  };
  // The launch takes what is packed, so packing does not wait for the launch.
  CHECK(before(pack) == std::vector{n});
  CHECK(before(launch).empty());
  CHECK(before(m) == std::vector{launch});
  for (const Place old : {ca, cb, g1, g2}) CHECK(before(old).empty());
}

}  // namespace
}  // namespace epweave
