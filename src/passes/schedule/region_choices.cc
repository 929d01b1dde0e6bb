#include "passes/schedule/region_choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "analysis/module_path.h"
#include "ir/walk.h"
#include "passes/schedule/module_classes.h"

namespace epweave {
namespace {

constexpr double kLeastStake = 0.002;    // of the step
constexpr std::size_t kMostClasses = 4;  // that are tried otherwise

std::vector<std::int64_t> list_counts(const ChooseChunksOptions& options) {
  return options.parts ? std::vector<std::int64_t>{*options.parts} : std::vector<std::int64_t>{2, 4};
}

// What is done to a module: it stays whole, or is divided, or what exchanges tokens in it is.
struct RegionKind {
  std::string_view below;  // of the module: what is divided
  std::int64_t parts = 1;
  friend bool operator==(const RegionKind&, const RegionKind&) = default;
};

class RegionSearch {
 public:
  RegionSearch(ChunkTrials& trials, const UniformTrials& uniform)
      : trials_(trials),
        options_(trials.options()),
        blocks_(trials.blocks()),
        moe_(blocks_.exchanging),
        uniform_(uniform) {
    for (const std::string& root : options_.roots) roots_.push_back(parse_chunk_root(root));
    if (roots_.empty()) roots_.push_back({blocks_.pattern});
    for (const ChunkRoot& root : roots_) patterns_.push_back(root.pattern);
    list_modules();
    kinds_ = kinds_of(uniform.best.choice);
  }

  std::optional<ChunkTrial> run() {
    if (uniform_.too_large) divide_what_fits(kinds_of(*uniform_.too_large));
    if (classes_.size() > 1) try_classes();
    return std::move(best_);
  }

 private:
  // ------------------------------------------------------------------------- modules

  void list_modules() {
    const Graph& graph = uniform_.whole.result.graph;
    classes_ = list_module_classes(graph, patterns_, uniform_.whole.times);
    for (std::size_t c = 0; c < classes_.size(); ++c)
      for (const std::string& module : classes_[c].modules) class_of_.try_emplace(module, c);
    if (!options_.roots.empty()) return;
    if (moe_.empty()) return;
    const std::vector<std::string> below = {fmt::format("{}{}", blocks_.pattern, moe_)};
    for (const ModuleClass& same : list_module_classes(graph, below, uniform_.whole.times))
      if (same.exchanges) exchanging_.insert(same.modules.begin(), same.modules.end());
  }

  bool has_moe(const std::string& module) const {
    return exchanging_.contains(fmt::format("{}{}", module, moe_));
  }
  // As chunk selects modules.
  bool may_divide(const ModuleClass& same) const {
    return options_.roots.empty() || same.exchanges || options_.chunk.dense;
  }
  // The root that selects a module says how many parts it has, or leaves it open.
  std::optional<std::int64_t> own_parts(const std::string& module) const {
    for (const ChunkRoot& root : roots_)
      if (match_module(root.pattern, module) == module) return root.parts;
    return {};
  }

  using Kinds = std::map<std::string, RegionKind>;  // by module

  // What a choice that is the same for all modules does to each.
  Kinds kinds_of(const ChunkChoice& choice) const {
    Kinds kinds;
    const bool is_moe =
        !choice.roots.empty() && options_.roots.empty() && choice.roots.front().pattern != blocks_.pattern;
    for (const ModuleClass& same : classes_)
      for (const std::string& module : same.modules) {
        RegionKind& kind = kinds[module];
        if (choice.roots.empty() || !may_divide(same) || (is_moe && !has_moe(module))) continue;
        kind = {is_moe ? moe_ : std::string_view(), own_parts(module).value_or(choice.parts)};
      }
    return kinds;
  }

  std::vector<RegionKind> list_kinds(const ModuleClass& same) const {
    std::vector<RegionKind> kinds = {{}};
    if (!may_divide(same)) return kinds;
    const std::string& module = same.modules.front();
    for (const std::int64_t count : list_counts(options_)) {
      if (has_moe(module)) kinds.push_back({moe_, count});
      const RegionKind kind = {"", own_parts(module).value_or(count)};
      if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
    }
    return kinds;
  }

  // ------------------------------------------------------------------------- choices

  // Modules of one kind together, in the order of the step.
  std::string name_of(const Kinds& kinds) const {
    std::vector<std::pair<RegionKind, std::vector<std::string>>> sorted;
    for (const ModuleClass& same : classes_)
      for (const std::string& module : same.modules) {
        const RegionKind& kind = kinds.at(module);
        auto entry = std::ranges::find(sorted, kind, [](const auto& pair) { return pair.first; });
        if (entry == sorted.end()) entry = sorted.insert(sorted.end(), {kind, {}});
        entry->second.push_back(module + std::string(kind.below));
      }
    std::vector<std::string> parts;
    for (const auto& [kind, modules] : sorted)
      parts.push_back(kind.parts == 1 ? print_modules(modules) + " whole"
                                      : fmt::format("{} in {} parts", print_modules(modules), kind.parts));
    return fmt::format("{}", fmt::join(parts, "; "));
  }

  // None: as the whole is.
  std::optional<ChunkChoice> choice_of(const Kinds& kinds) const {
    ChunkChoice choice{.dense = true, .name = name_of(kinds)};
    for (const ModuleClass& same : classes_)
      for (const std::string& module : same.modules)
        if (const RegionKind& kind = kinds.at(module); kind.parts > 1)
          choice.roots.push_back({module + std::string(kind.below), kind.parts});
    if (choice.roots.empty()) return {};
    return choice;
  }

  // Keeps what is better than all before it.
  void keep_better(const Kinds& kinds, ChunkTrial trial) {
    if (!trial.is_better_than(best_ ? *best_ : uniform_.best)) return;
    best_ = std::move(trial);
    kinds_ = kinds;
  }

  // As many of the last modules as fit get what would take less if it fitted.
  void divide_what_fits(const Kinds& large) {
    const Kinds small = kinds_;
    std::vector<std::string> changed;
    for (const ModuleClass& same : classes_)
      for (const std::string& module : same.modules)
        if (large.at(module) != small.at(module)) changed.push_back(module);
    std::ranges::reverse(changed);
    std::size_t fit = 0, too_many = changed.size();
    while (too_many - fit > 1) {
      const std::size_t half = std::midpoint(fit, too_many);
      Kinds kinds = small;
      for (std::size_t i = 0; i < half; ++i) kinds[changed[i]] = large.at(changed[i]);
      const std::optional<ChunkChoice> choice = choice_of(kinds);
      std::optional<ChunkTrial> trial = choice ? trials_.make(*choice) : std::nullopt;
      (trial && trial->predicted.fits ? fit : too_many) = half;
      if (trial) keep_better(kinds, std::move(*trial));
    }
  }

  // ------------------------------------------------------------------------- classes

  std::vector<double> sum_by_class(const Graph& graph, const SideTable<NodeId, double>& seconds) const {
    ModuleMatcher matcher(patterns_, graph.context->strings);
    std::vector<double> sums(classes_.size());
    for (const auto [id, node] : walk(graph.step())) {
      const StringId root = matcher.root_of(node.module);
      if (!root) continue;
      if (const auto entry = class_of_.find(graph.text(root)); entry != class_of_.end())
        sums[entry->second] += seconds[id];
    }
    return sums;
  }

  struct Stake {
    std::size_t place;
    double seconds;  // that the class can gain
    double others;   // that all other classes take
  };
  // The largest first.
  std::vector<Stake> list_stakes() const {
    const Graph &best = uniform_.best.result.graph, &whole = uniform_.whole.result.graph;
    const std::vector<double> exposed = sum_by_class(best, uniform_.best.times.exposed);
    const std::vector<double> divided = sum_by_class(best, uniform_.best.times.kernel);
    const std::vector<double> undivided = sum_by_class(whole, uniform_.whole.times.kernel);
    double all = 0;
    for (std::size_t c = 0; c < classes_.size(); ++c) all += exposed[c] + divided[c];
    std::vector<Stake> stakes;
    for (std::size_t c = 0; c < classes_.size(); ++c)
      stakes.push_back({c, std::max(exposed[c], divided[c] - undivided[c]), all - exposed[c] - divided[c]});
    std::ranges::stable_sort(stakes, [](const Stake& a, const Stake& b) { return a.seconds > b.seconds; });
    return stakes;
  }

  // Whether all modules alike took so much longer that these cannot take less by it.
  bool is_known_longer(const ModuleClass& same, const RegionKind& kind, double others) const {
    const double least = uniform_.best.predicted.seconds + others / 2;
    return std::ranges::any_of(uniform_.seconds, [&](const auto& entry) {
      return entry.second > least && kinds_of(entry.first).at(same.modules.front()) == kind;
    });
  }

  void try_classes() {
    std::size_t tried = 0;
    for (const Stake& stake : list_stakes()) {
      const ModuleClass& same = classes_[stake.place];
      if (stake.seconds < kLeastStake * uniform_.best.predicted.seconds || tried == kMostClasses) {
        trials_.notes().push_back(fmt::format("trial: {}: at most {:.2f} ms to gain, not tried otherwise",
                                              print_modules(same.modules), stake.seconds * 1e3));
        continue;
      }
      ++tried;
      try_otherwise(same, stake.others);
    }
  }

  void try_otherwise(const ModuleClass& same, double others) {
    const Kinds before = kinds_;
    std::vector<Kinds> tried;
    std::vector<ChunkChoice> choices;
    std::size_t longer = 0;
    for (const RegionKind& kind : list_kinds(same)) {
      Kinds kinds = before;
      for (const std::string& module : same.modules) kinds[module] = kind;
      if (kinds == before) continue;
      if (is_known_longer(same, kind, others)) {
        ++longer;
      } else if (std::optional<ChunkChoice> choice = choice_of(kinds)) {
        tried.push_back(std::move(kinds));
        choices.push_back(std::move(*choice));
      }
    }
    std::size_t next = 0;
    trials_.make_each(choices, [&](const ChunkChoice&, std::optional<ChunkTrial> trial) {
      const Kinds& kinds = tried[next++];
      if (trial) keep_better(kinds, std::move(*trial));
    });
    if (longer > 0)
      trials_.notes().push_back(fmt::format(
          "trial: {}: longer for all modules, and not tried for these alone: {} of the other divisions",
          print_modules(same.modules), longer));
  }

  ChunkTrials& trials_;
  const ChooseChunksOptions& options_;
  const BlockNames& blocks_;
  std::string_view moe_;  // behind a block's path: what exchanges tokens in it; may be empty
  const UniformTrials& uniform_;
  std::vector<ChunkRoot> roots_;
  std::vector<std::string> patterns_;
  std::vector<ModuleClass> classes_;
  std::map<std::string, std::size_t, std::less<>> class_of_;
  std::set<std::string> exchanging_;  // MoE modules of blocks
  Kinds kinds_;                       // of the best
  std::optional<ChunkTrial> best_;    // better than uniform_.best
};

}  // namespace

std::vector<ChunkChoice> list_uniform_choices(const ChunkTrials& trials) {
  const ChooseChunksOptions& options = trials.options();
  const BlockNames& blocks = trials.blocks();
  std::vector<ChunkChoice> choices;
  const auto add = [&](const std::vector<std::string>& roots, std::int64_t parts, bool dense) {
    ChunkChoice& choice = choices.emplace_back();
    for (const std::string& root : roots) choice.roots.push_back(parse_chunk_root(root));
    choice.parts = parts;
    choice.dense = dense;
    choice.name = fmt::format("{} in {} parts", fmt::join(roots, ", "), parts);
  };
  for (const std::int64_t parts : list_counts(options)) {
    if (!options.roots.empty()) {
      add(options.roots, parts, options.chunk.dense);
      continue;
    }
    if (!blocks.exchanging.empty())
      add({fmt::format("{}{}", blocks.pattern, blocks.exchanging)}, parts, options.chunk.dense);
    add({blocks.pattern}, parts, true);
  }
  return choices;
}

std::optional<ChunkTrial> choose_regions(ChunkTrials& trials, const UniformTrials& uniform) {
  return RegionSearch(trials, uniform).run();
}

}  // namespace epweave
