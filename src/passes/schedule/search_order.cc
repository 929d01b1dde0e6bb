#include "passes/schedule/search_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "passes/schedule/critical_blocks.h"
#include "passes/schedule/exact_order.h"
#include "passes/schedule/late_starts.h"
#include "passes/schedule/list_schedule.h"

namespace epweave {
namespace {

constexpr double kUnlimited = 1e30;
constexpr double kSlack = 3e-4;  // by how much a step may be longer, at first

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The same numbers on every machine.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(mix(seed)) {}
  double draw(double from, double to) { return from + (to - from) * next(); }
  // As likely between 1 and 2 as between 2 and 4.
  double draw_scale(double from, double to) { return std::exp(draw(std::log(from), std::log(to))); }
  bool happens(double share) { return next() < share; }
  std::uint64_t seed() { return state_ = mix(state_); }

 private:
  double next() { return static_cast<double>(seed() >> 11) * 0x1p-53; }
  std::uint64_t state_;
};

// In [-1, 1).
double noise_of(std::uint64_t seed, Place node) {
  return static_cast<double>(mix(seed ^ (std::uint64_t{node} * 0x2545f4914f6cdd1d)) >> 11) * 0x1p-52 - 1;
}

// What a list schedule is made with; times as shares of all compute, memory as a share of the
// budget.
struct Setting {
  double window = kUnlimited;
  double loyalty = 0;
  double patience = 0;  // no share: seconds for seconds
  double lead = 0;      // priority of each part over the next: the first leads forward, the last backward
  double noise = 0;     // largest random change of a priority
  double budget = 1;
  std::uint64_t seed = 0;
};

// Tried first: what came out best on one graph or another. Order matters where few are tried.
constexpr Setting kProven[] = {
    {.window = 0.0115, .loyalty = 0, .lead = 0.0028, .noise = 0.0002},
    {.window = 0.04, .loyalty = 0.0025, .lead = 0.0023, .noise = 0.004},
    {.window = 0.012, .loyalty = 0.0003, .lead = 0.005, .noise = 0.0002, .budget = 1.02},
    {.window = 0.015, .loyalty = 0.0002, .lead = 0.0001, .noise = 0.0006},
    {.window = 0.065, .loyalty = 0.0006, .patience = 0.07, .lead = 0.0027},
    {.window = 0.007, .loyalty = 0.0005, .lead = 0.012, .noise = 0.0003, .budget = 1.05},
    {.window = 0.07, .loyalty = 0.0001, .lead = 0.002, .noise = 0.0006},
    {.window = kUnlimited, .loyalty = 0.001, .lead = 0.0007},
    {.window = 0.003, .loyalty = 0, .lead = 0.001},
};

class OrderSearch {
 public:
  OrderSearch(const ScheduleProblem& problem, const SearchOptions& options)
      : p_(problem),
        options_(options),
        live_(find_live_bytes(problem)),
        tails_(find_tails(problem)),
        remaining_(problem, tails_) {
    for (std::size_t i = 0; i < p_.size(); ++i)
      if (p_.work[i] == PlaceWork::kKernel) compute_ += p_.seconds[i];
    best_.order.resize(p_.size());
    std::iota(best_.order.begin(), best_.order.end(), Place{0});
    best_.value = evaluate_order(p_, best_.order);
    best_.least_peak = best_.value.peak;
    best_.fits = best_.value.peak <= options.budget;
  }

  FoundOrder run() {
    for (std::size_t i = 0; i < options_.settings && !(options_.any && best_.fits); ++i) try_setting(i);
    if (has_schedule_) rebase();
    for (std::size_t i = 0; i < options_.steps; ++i) step(i);
    if (list_movable(p_).size() <= kMovable) search_exactly();
    return std::move(best_);
  }

 private:
  void search_exactly() {
    const double below = best_.fits ? best_.value.seconds : kUnlimited;
    auto order = find_exact_order(p_, options_.budget, below);
    if (!order) return;
    best_.value = evaluate_order(p_, *order);
    best_.order = std::move(*order);
    best_.least_peak = std::min(best_.least_peak, best_.value.peak);
    best_.fits = true;
  }

  static Setting draw_setting(std::size_t round, Dice& dice) {
    if (round < std::size(kProven)) return kProven[round];
    Setting s;
    if (!dice.happens(0.1)) s.window = dice.draw_scale(0.002, 0.1);
    if (!dice.happens(0.2)) s.loyalty = dice.draw_scale(1e-5, 3e-3);
    if (!dice.happens(0.2)) s.lead = dice.draw_scale(1e-4, 1e-2);
    if (!dice.happens(0.3)) s.noise = dice.draw_scale(1e-5, 1e-2);
    if (!dice.happens(0.4)) s.budget = dice.draw(1, 1.08);
    if (dice.happens(0.5)) s.patience = dice.draw_scale(0.05, 3);
    s.seed = dice.seed();
    return s;
  }

  static Setting vary(Setting s, Dice& dice) {
    for (double* value : {&s.window, &s.loyalty, &s.lead, &s.noise, &s.patience})
      if (dice.happens(0.4)) *value *= dice.draw_scale(0.7, 1.4);
    if (dice.happens(0.4)) s.budget = dice.happens(0.8) ? dice.draw(0.995, 1.08) : dice.draw(0.94, 1);
    if (s.noise == 0 && dice.happens(0.3)) s.noise = dice.draw_scale(1e-5, 1e-2);
    if (dice.happens(0.5)) s.seed = dice.seed();
    return s;
  }

  // A schedule by longest paths, and those by what it leaves: forward and backward by turns.
  void try_setting(std::size_t round) {
    constexpr int kTurns = 2;
    constexpr double kHopeless = 1.01;
    const bool is_near = round >= options_.settings / 2 && round >= std::size(kProven) && has_schedule_;
    Dice dice(round);
    const Setting setting = is_near ? vary(first_setting_, dice) : draw_setting(round, dice);
    std::vector<double> priority = tails_;
    add_lead_and_noise(setting, priority);
    double before = kUnlimited;
    for (int turn = 0;; ++turn) {
      // What takes longer is neither kept nor followed by another turn. Nor is the last turn, where
      // it needs more than the budget; what it needs counts as long as no order fits.
      double limit = std::max(at_.seconds, std::min(before, kHopeless * best_.value.seconds));
      if (turn == 0 && varies_first()) limit = std::max(limit, first_seconds_);
      ListOptions list = options_of(setting, limit);
      if (turn == kTurns && best_.fits) list.most = options_.budget;
      ListSchedule found = schedule_list(p_, live_, priority, list);
      const bool is_last = options_.any || turn == kTurns || found.seconds >= before ||
                           (best_.fits && found.seconds > kHopeless * best_.value.seconds);
      before = found.seconds;
      if (turn == 0 && found.peak <= options_.budget && found.seconds <= first_seconds_) {
        first_seconds_ = found.seconds;
        first_setting_ = setting;
      }
      std::vector<double> late;
      if (!is_last) late = find_late_tails(p_, found.starts);
      keep(std::move(found), setting, std::move(priority), 0);
      if (is_last) return;
      priority = std::move(late);
    }
  }

  // Whether there are settings behind the proven ones, of which those near the first are.
  bool varies_first() const { return options_.settings > std::size(kProven); }

  ListOptions options_of(const Setting& setting, double limit) const {
    return {.budget = static_cast<std::int64_t>(static_cast<double>(options_.budget) * setting.budget),
            .window = compute_ * setting.window,
            .loyalty = compute_ * setting.loyalty,
            .patience = setting.patience,
            .limit = limit,
            .remaining = has_schedule_ ? &remaining_ : nullptr};
  }

  // What steps start from, beside the priorities of the schedule.
  void rebase() {
    late_ = find_late_tails(p_, at_.starts);
    blocks_ = find_critical_blocks(p_, at_.order);
  }

  // The schedule again, with other priorities of some roles, or of what ends a block of its
  // critical path.
  void step(std::size_t round) {
    if (!has_schedule_) return;
    Dice dice(0x5eed0000 + round);
    std::vector<double> priority = dice.happens(0.6) ? priority_ : late_;
    if (!blocks_.empty() && dice.happens(0.3)) {
      hurry_blocks(dice, priority);
    } else {
      change_roles(dice, priority);
    }
    Setting setting = dice.happens(0.3) ? vary(setting_, dice) : setting_;
    setting.lead = 0;  // the priorities have it
    if (!dice.happens(0.1)) setting.noise = 0;
    add_lead_and_noise(setting, priority);
    // At first it may get a little longer, on the way to what is shorter.
    const double left = 1 - static_cast<double>(round) / static_cast<double>(options_.steps);
    const double slack = kSlack * left;
    ListOptions list = options_of(setting, at_.seconds * (1 + slack));
    list.most = options_.budget;
    ListSchedule found = schedule_list(p_, live_, priority, list);
    if (keep(std::move(found), setting, std::move(priority), slack)) rebase();
  }

  void hurry_blocks(Dice& dice, std::vector<double>& priority) {
    const double change = compute_ * dice.draw_scale(1e-5, 1e-2);
    const std::size_t count = static_cast<std::size_t>(dice.draw_scale(1, 8));
    for (std::size_t k = 0; k < count; ++k) {
      const auto i = static_cast<std::size_t>(dice.draw(0, static_cast<double>(blocks_.size())));
      for (Place node : list_what_ends(p_, blocks_[i])) priority[node] += change;
    }
  }

  void change_roles(Dice& dice, std::vector<double>& priority) {
    const double share = dice.draw_scale(0.01, 0.5);
    const double change = compute_ * dice.draw_scale(2e-5, 5e-3);
    std::vector<double> offsets(p_.roles);
    for (double& offset : offsets)
      if (dice.happens(share)) offset = change * dice.draw(-1, 1);
    for (Place i = 0; i < p_.size(); ++i)
      if (p_.is_timed(i)) priority[i] += offsets[p_.role[i]];
  }

  void add_lead_and_noise(const Setting& setting, std::vector<double>& priority) const {
    if (setting.lead == 0 && setting.noise == 0) return;
    for (Place i = 0; i < p_.size(); ++i) {
      if (!p_.is_timed(i)) continue;
      const double place = p_.is_backward[i] ? p_.part[i] : -p_.part[i];
      priority[i] += compute_ * (setting.lead * place + setting.noise * noise_of(setting.seed, p_.number[i]));
    }
  }

  // Whether it is finished, within the budget and at most `slack` longer than where the search is,
  // which it then replaces.
  bool keep(ListSchedule found, const Setting& setting, std::vector<double> priority, double slack) {
    ++best_.schedules;
    if (std::isinf(found.seconds)) return false;
    best_.least_peak = std::min(best_.least_peak, found.peak);
    if (found.peak > options_.budget) return false;
    if (has_schedule_ && found.seconds > at_.seconds * (1 + slack)) return false;
    const OrderValue value = evaluate_order(p_, found.order);
    if (value.peak > options_.budget) return false;
    if (!best_.fits || value.seconds <= best_.value.seconds) {
      best_.order = found.order;
      best_.value = value;
      best_.fits = true;
    }
    at_ = std::move(found);
    priority_ = std::move(priority);
    setting_ = setting;
    has_schedule_ = true;
    return true;
  }

  const ScheduleProblem& p_;
  const SearchOptions& options_;
  const std::vector<std::int64_t> live_;
  const std::vector<double> tails_;
  const RemainingTime remaining_;
  double compute_ = 0;
  FoundOrder best_;
  ListSchedule at_;  // where the search is, if it has a schedule: the best, or a little longer
  Setting setting_;
  Setting first_setting_;  // whose schedule by longest paths is best
  double first_seconds_ = kUnlimited;
  bool has_schedule_ = false;
  std::vector<double> priority_, late_;  // of that schedule: its own, and what its order leaves
  std::vector<CriticalBlock> blocks_;
};

}  // namespace

FoundOrder search_order(const ScheduleProblem& problem, const SearchOptions& options) {
  return OrderSearch(problem, options).run();
}

}  // namespace epweave
