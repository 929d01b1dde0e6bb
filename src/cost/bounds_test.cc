#include "cost/bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "cost/one_machine.h"
#include "cost/simulate.h"
#include "io/file.h"

namespace epweave {
namespace {

// A step without a graph: kernels, and launches with a wait behind each.
class RandomStep {
 public:
  explicit RandomStep(std::uint32_t seed) : dice_(seed) {
    model_.step_groups = {{.name = "a", .ranks = 2}, {.name = "b", .ranks = 2}};
    const std::size_t size = 4 + roll(9);
    while (model_.size() < size) roll(2) == 0 ? add_kernel() : add_collective();
    add_effects();
    model_.after = invert(model_.before);
  }

  const StepModel& model() const { return model_; }

 private:
  std::uint32_t roll(std::uint32_t sides) { return static_cast<std::uint32_t>(dice_() % sides); }

  void add(StepKind kind, double seconds, std::uint32_t group, std::vector<Place> inputs) {
    const auto place = static_cast<Place>(model_.size());
    model_.nodes.emplace_back(place);
    model_.kinds.push_back(kind);
    model_.seconds.push_back(seconds);
    model_.groups.push_back(group);
    model_.launches.push_back(kind == StepKind::kWait ? place - 1 : kNoPlace);
    model_.stops_host.push_back(0);
    if (model_.inputs.begins.empty()) model_.inputs.begins.push_back(0);
    model_.inputs.items.insert(model_.inputs.items.end(), inputs.begin(), inputs.end());
    model_.inputs.begins.push_back(static_cast<std::uint32_t>(model_.inputs.items.size()));
    if (kind != StepKind::kLaunch) values_.push_back(place);
  }
  // A chain with a few more operands, as a step is.
  std::vector<Place> some_inputs() {
    std::vector<Place> inputs;
    for (std::size_t i = 0; i < values_.size(); ++i)
      if (roll(3) == 0 || (i + 1 == values_.size() && roll(2) == 0)) inputs.push_back(values_[i]);
    return inputs;
  }
  // Some nodes must come behind others whose value they do not take, launches among them.
  void add_effects() {
    std::vector<std::pair<Place, Place>> pairs;
    for (Place place = 0; place < model_.size(); ++place)
      for (const Place input : model_.inputs[place]) pairs.emplace_back(place, input);
    for (Place place = 1; place < model_.size(); ++place) {
      const Place before = roll(place);
      if (roll(4) == 0 && std::ranges::find(model_.inputs[place], before) == model_.inputs[place].end())
        pairs.emplace_back(place, before);
    }
    model_.before = list_pairs(model_.size(), pairs);
  }
  void add_kernel() { add(StepKind::kKernel, 1 + roll(6), kNoPlace, some_inputs()); }
  void add_collective() {
    add(StepKind::kLaunch, 1 + roll(6), roll(2), some_inputs());
    add(StepKind::kWait, 0, kNoPlace, {static_cast<Place>(model_.size() - 1)});
  }

  std::mt19937 dice_;
  StepModel model_;
  std::vector<Place> values_;
};

// The shortest makespan of all orders, by trying them.
class BruteForce {
 public:
  explicit BruteForce(const StepModel& model) : model_(model), simulator_(model), missing_(model.size()) {
    for (Place place = 0; place < model.size(); ++place)
      missing_[place] = static_cast<std::uint32_t>(model.before[place].size());
  }

  double run() {
    best_ = simulator_.run(given_order(model_));
    extend();
    return best_;
  }

 private:
  void extend() {
    const double so_far = simulator_.run(order_);  // a prefix takes no longer than the whole
    if (so_far >= best_) return;
    if (order_.size() == model_.size()) {
      best_ = so_far;
      return;
    }
    for (Place place = 0; place < model_.size(); ++place) {
      if (missing_[place] != 0 || std::ranges::find(order_, place) != order_.end()) continue;
      order_.push_back(place);
      for (const Place after : model_.after[place]) --missing_[after];
      extend();
      for (const Place after : model_.after[place]) ++missing_[after];
      order_.pop_back();
    }
  }

  const StepModel& model_;
  Simulator simulator_;
  std::vector<std::uint32_t> missing_;
  std::vector<Place> order_;
  double best_ = 0;
};

TEST_CASE("no order of a random step beats a bound") {
  std::size_t tight = 0, stronger = 0;
  constexpr std::uint32_t kSteps = 3000;
  for (std::uint32_t seed = 0; seed < kSteps; ++seed) {
    const RandomStep step(seed);
    const StepBounds bounds = find_bounds(step.model());
    const double best = BruteForce(step.model()).run();
    CAPTURE(seed, best, bounds.critical_path, bounds.load, bounds.head_load_tail, bounds.joints);
    REQUIRE(bounds.critical_path <= best + 1e-9);
    REQUIRE(bounds.load <= best + 1e-9);
    REQUIRE(bounds.head_load_tail <= best + 1e-9);
    REQUIRE(bounds.joints <= best + 1e-9);
    REQUIRE(bounds.joints >= bounds.head_load_tail);
    REQUIRE(bounds.lower_bound == std::max({bounds.critical_path, bounds.load, bounds.joints}));
    std::vector<Place> waists(step.model().size());
    std::iota(waists.begin(), waists.end(), Place{0});
    const StepBounds more = find_bounds(step.model(), {}, nullptr, waists);
    REQUIRE(more.joints <= best + 1e-9);
    REQUIRE(more.joints >= bounds.joints - 1e-9);
    tight += bounds.lower_bound >= best - 1e-9;
    stronger += bounds.joints > std::max({bounds.critical_path, bounds.load, bounds.head_load_tail}) + 1e-9;
  }
  CHECK(tight > kSteps / 2);
  CHECK(stronger > 0);
}

TEST_CASE("one machine: the released job with the longest tail runs, and gives way") {
  MachineHeap heap;
  std::vector<MachineJob> two = {{0, 4, 0}, {1, 2, 5}};
  CHECK(one_machine_bound(two, heap) == 8);
  std::vector<MachineJob> apart = {{10, 1, 0}, {0, 4, 1}};
  CHECK(one_machine_bound(apart, heap) == 11);
  CHECK(one_machine_bound(apart, heap, 20) == 20);
  CHECK(one_machine_bound({}, heap) == 0);
}

// Of the judge: the largest of its bounds. Joints give more where a path forks between its cuts.
TEST_CASE("real graphs: bounds are those of the judge, or larger") {
  struct Row {
    std::string graph, cluster, text;  // lower bound, with recomputation behind the forward; ms
  };
  const auto [graph, cluster, text] = GENERATE(Row{"dsv3_debug_ep2.1b_remat", "h100", "4.62 4.72"},
                                               Row{"dsv3_debug_ep2.5_schedule", "h100", "5.63 5.63"},
                                               Row{"qwen3_moe_ep2.1b_remat", "h100", "9.53 9.53"},
                                               Row{"dsv3_debug_L96.1b_remat", "h100", "69.78 69.93"},
                                               Row{"dsv3_16b_ep8.1b_remat", "h100", "858.09 876.92"},
                                               Row{"dsv3_16b_ep8.1b_remat", "h100-2x4", "1027.81 1074.90"},
                                               Row{"dsv3_671b_ep64.1b_remat", "h100", "15672.09 15672.67"});
  CAPTURE(graph);
  const Graph step = read_graph(fmt::format("{}/testdata/graphs/{}.epw.gz", EPWEAVE_SOURCE_DIR, graph));
  const StepModel model = model_step(step, parse_cluster(cluster, read_bytes));
  HeadsAndTails known;
  const double free = find_bounds(model, {}, &known).lower_bound;
  const double behind = find_bounds(model, keep_recomputation_behind(step, model), &known).lower_bound;
  CHECK(fmt::format("{:.2f} {:.2f}", free * 1e3, behind * 1e3) == text);
}

}  // namespace
}  // namespace epweave
