#include "passes/schedule/exact_order.h"

#include <algorithm>
#include <utility>

namespace epweave {
namespace {

constexpr std::size_t kMostVisits = 4'000'000;

bool is_movable(PlaceWork work) {
  return work == PlaceWork::kKernel || work == PlaceWork::kLaunch || work == PlaceWork::kWait;
}

class ExactSearch {
 public:
  ExactSearch(const ScheduleProblem& problem, std::int64_t budget, double below)
      : p_(problem),
        budget_(budget),
        best_(below),
        movable_(list_movable(problem)),
        done_(problem.size()),
        placed_(problem.size()),
        tails_(find_tails(problem)) {
    needs_.resize(movable_.size());
    for (std::size_t k = 0; k < movable_.size(); ++k) find_needs(k);
    for (Place i : movable_)
      if (p_.work[i] == PlaceWork::kKernel) load_ += p_.seconds[i];
  }

  std::optional<std::vector<Place>> run() {
    visit({0, std::vector<double>(p_.groups)}, load_);
    return std::move(found_);
  }

 private:
  struct State {
    double compute = 0;
    std::vector<double> streams;
  };

  // Movable nodes that must be placed before the k-th, through those that cost nothing.
  void find_needs(std::size_t k) {
    std::vector<Place> stack(p_.inputs[movable_[k]].begin(), p_.inputs[movable_[k]].end());
    std::vector<char> seen(p_.size());
    while (!stack.empty()) {
      const Place i = stack.back();
      stack.pop_back();
      if (seen[i] != 0) continue;
      seen[i] = 1;
      if (is_movable(p_.work[i])) {
        needs_[k].push_back(i);
      } else {
        stack.insert(stack.end(), p_.inputs[i].begin(), p_.inputs[i].end());
      }
    }
  }

  void visit(const State& state, double load_left) {
    if (++visits_ > kMostVisits) return;
    if (sequence_.size() == movable_.size()) return finish();
    for (std::size_t k = 0; k < movable_.size(); ++k) {
      const Place node = movable_[k];
      if (placed_[node] != 0 || !std::ranges::all_of(needs_[k], [&](Place i) { return placed_[i] != 0; }))
        continue;
      State next = state;
      const double start = execute(node, needs_[k], next);
      const double left = load_left - (p_.work[node] == PlaceWork::kKernel ? p_.seconds[node] : 0);
      if (std::max(next.compute + left, start + tails_[node]) >= best_) continue;
      placed_[node] = 1;
      sequence_.push_back(node);
      visit(next, left);
      sequence_.pop_back();
      placed_[node] = 0;
    }
  }

  double execute(Place node, const std::vector<Place>& needs, State& state) {
    double ready = 0;
    for (Place i : needs) ready = std::max(ready, done_[i]);
    double start = std::max(state.compute, ready);
    switch (p_.work[node]) {
      case PlaceWork::kKernel:
        done_[node] = state.compute = start + p_.seconds[node];
        break;
      case PlaceWork::kLaunch: {
        double& stream = state.streams[p_.group[node]];
        start = std::max(stream, start);
        done_[node] = stream = start + p_.seconds[node];
        break;
      }
      default:
        done_[node] = state.compute = std::max(start, done_[p_.launch[node]]);
        break;
    }
    return start;
  }

  // The whole order, if it is better and within the budget.
  void finish() {
    std::vector<Place> order;
    std::vector<char> has(p_.size());
    for (Place i = 0; i < p_.size(); ++i)
      if (p_.work[i] == PlaceWork::kPinned && p_.inputs[i].empty()) append_with_inputs(i, has, order);
    for (Place i : sequence_) append_with_inputs(i, has, order);
    for (Place i = 0; i < p_.size(); ++i) append_with_inputs(i, has, order);
    const OrderValue value = evaluate_order(p_, order);
    if (value.seconds >= best_ || value.peak > budget_) return;
    best_ = value.seconds;
    found_ = std::move(order);
  }

  // The node, behind what it needs that the order does not have.
  void append_with_inputs(Place last, std::vector<char>& has, std::vector<Place>& order) const {
    struct Begun {
      Place node;
      std::size_t inputs;  // looked at
    };
    std::vector<Begun> stack;
    const auto begin = [&](Place node) {
      if (std::exchange(has[node], 1) == 0) stack.push_back({node, 0});
    };
    begin(last);
    while (!stack.empty()) {
      const auto inputs = p_.inputs[stack.back().node];
      if (stack.back().inputs < inputs.size()) {
        begin(inputs[stack.back().inputs++]);
      } else {
        order.push_back(stack.back().node);
        stack.pop_back();
      }
    }
  }

  const ScheduleProblem& p_;
  std::int64_t budget_;
  double best_, load_ = 0;
  std::vector<Place> movable_, sequence_;
  std::vector<double> done_;
  std::vector<char> placed_;
  std::vector<double> tails_;
  std::vector<std::vector<Place>> needs_;
  std::size_t visits_ = 0;
  std::optional<std::vector<Place>> found_;
};

}  // namespace

std::vector<Place> list_movable(const ScheduleProblem& problem) {
  std::vector<Place> movable;
  for (Place i = 0; i < problem.size(); ++i)
    if (is_movable(problem.work[i])) movable.push_back(i);
  return movable;
}

std::optional<std::vector<Place>> find_exact_order(const ScheduleProblem& problem, std::int64_t budget,
                                                   double below) {
  return ExactSearch(problem, budget, below).run();
}

}  // namespace epweave
