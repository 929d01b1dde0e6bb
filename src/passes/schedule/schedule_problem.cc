#include "passes/schedule/schedule_problem.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>

#include "analysis/collectives.h"
#include "analysis/recompute_tags.h"
#include "analysis/type_symbols.h"
#include "cost/bounds.h"
#include "passes/coordinates.h"
#include "passes/rank_elements.h"

namespace epweave {

namespace {

class ProblemBuilder {
 public:
  ProblemBuilder(const Graph& graph, const DecisionModel& decision, const ScheduleRules& rules)
      : graph_(graph),
        tags_(graph),
        m_(decision.step),
        rules_(rules),
        rank_nodes_(find_rank_nodes(graph)),
        element_nodes_(count_element_nodes(*graph.context, graph.step())),
        padding_(decision.padding) {}

  ScheduleProblem run() {
    find_works();
    find_roles();
    find_edges();
    hurry_unused();
    find_storages();
    return std::move(p_);
  }

 private:
  const Node& node(Place place) const { return graph_.step().nodes[m_.nodes[place]]; }
  bool is_pinned(Place place) const {
    return node(place).kind == NodeKind::kPlaceholder || node(place).kind == NodeKind::kOutput ||
           is_of_rank(place);
  }
  bool is_of_rank(Place place) const { return rank_nodes_.contains(m_.nodes[place]); }
  // How many nodes it is in the graph of a rank with whole shards.
  Place count_on_rank(Place place) const {
    if (padding_.contains(m_.nodes[place])) return 0;
    return is_of_rank(place) ? 0 : element_nodes_[m_.nodes[place]].value_or(1);
  }

  // ------------------------------------------------------------------------- nodes

  void find_works() {
    const std::size_t n = m_.size();
    p_.work.resize(n);
    p_.seconds = m_.seconds;
    p_.group.resize(n);
    p_.launch = m_.launches;
    p_.part.resize(n);
    p_.is_backward.resize(n);
    p_.groups = static_cast<std::uint32_t>(m_.step_groups.size());
    for (Place i = 0; i < n; ++i) {
      p_.work[i] = work_of(i);
      p_.number.push_back(i == 0 ? 0 : p_.number[i - 1] + count_on_rank(i - 1));
      p_.group[i] = m_.groups[i] == kNoPlace ? 0 : m_.groups[i];
      p_.part[i] = static_cast<std::int16_t>(std::clamp(node(i).chunk.part.value_or(0), 0, 0x7fff));
      p_.is_backward[i] = node(i).is_backward();
    }
  }

  PlaceWork work_of(Place i) const {
    if (is_pinned(i)) return PlaceWork::kPinned;
    switch (m_.kinds[i]) {
      case StepKind::kKernel:
        return PlaceWork::kKernel;
      case StepKind::kLaunch:
        return m_.is_costed_launch(i) ? PlaceWork::kLaunch : PlaceWork::kView;
      case StepKind::kWait: {
        const Place launch = m_.launches[i];
        return launch != kNoPlace && m_.is_costed_launch(launch) ? PlaceWork::kWait : PlaceWork::kView;
      }
      case StepKind::kAllocation:
        return PlaceWork::kStorage;
      case StepKind::kView:
        return takes_one_of_many(i) || frees_memory(i) ? PlaceWork::kEager : PlaceWork::kView;
      default:
        return takes_memory(i) ? PlaceWork::kEager : PlaceWork::kView;
    }
  }

  // A wait for a copy to the host frees what was copied.
  bool frees_memory(Place i) const { return find_freed(*graph_.context, node(i)).valid(); }
  // An element of a computed tuple touches all storages of the tuple.
  bool takes_one_of_many(Place i) const {
    const auto inputs = m_.inputs[i];
    return inputs.size() == 1 && m_.storages[i].size() > 1;
  }
  bool takes_memory(Place i) const {
    return std::ranges::any_of(m_.storages[i], [&](std::uint32_t s) {
      return m_.storage_lives[s] != StorageLife::kInput && m_.storage_bytes[s] > 0;
    });
  }

  // "layers.3.moe" and "layers.4.moe" have one name, numbers aside; a role is the k-th call of an
  // op in a module.
  void find_roles() {
    std::unordered_map<StringId, std::uint32_t> names;
    std::unordered_map<std::string, std::uint32_t> known_names;
    std::unordered_map<std::uint64_t, std::uint32_t> counts, roles;
    p_.role.resize(m_.size());
    for (Place i = 0; i < m_.size(); ++i) {
      if (!p_.is_timed(i)) continue;
      const Node& call = node(i);
      const auto [name, is_new] = names.try_emplace(call.module);
      if (is_new)
        name->second = known_names.try_emplace(without_numbers(graph_.text(call.module)), known_names.size())
                           .first->second;
      const std::uint64_t kind = mix_bits(
          call.target.index(), static_cast<std::uint64_t>(p_.part[i]) * 4 + (p_.is_backward[i] ? 2U : 0U) +
                                   (tags_.is_repeated(graph_, call) ? 1U : 0U));
      const std::uint32_t count = counts[mix_bits(kind, call.module.index())]++;
      p_.role[i] =
          roles.try_emplace(mix_bits(mix_bits(kind, name->second), count), roles.size()).first->second;
    }
    p_.roles = static_cast<std::uint32_t>(roles.size());
  }

  static std::string without_numbers(std::string_view module) {
    std::string text;
    for (char c : module)
      if (c < '0' || c > '9') text += c;
    return text;
  }
  static std::uint64_t mix_bits(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15 + b + 0x7f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    return x ^ (x >> 27);
  }

  // ------------------------------------------------------------------------- edges

  void find_edges() {
    add_host_reads();
    add_symbol_order();
    add_barriers();
    if (rules_.launches != LaunchOrder::kFree) add_launch_order();
    if (rules_.recompute == RecomputeOrder::kBehindForward) add_recompute_order();
    for (auto& [before, after] : pairs_) std::swap(before, after);
    const PlaceLists more = list_pairs(m_.size(), pairs_);
    std::vector<Place> last(m_.size(), kNoPlace);
    p_.inputs.begins.assign(1, 0);
    p_.inputs.items.reserve(m_.before.items.size() + pairs_.size());
    for (Place i = 0; i < m_.size(); ++i) {
      for (const PlaceLists* lists : {&m_.before, &more})
        for (Place before : (*lists)[i])
          if (!is_of_rank(i) && std::exchange(last[before], i) != i) p_.inputs.items.push_back(before);
      p_.inputs.begins.push_back(static_cast<std::uint32_t>(p_.inputs.items.size()));
    }
    p_.users = invert(p_.inputs);
  }

  // The model puts what completes a non-blocking copy between it and who reads it on the host.
  // Where parts are interleaved, that may be a copy of another part; one of the same part does as
  // well, and keeps the parts apart.
  void add_host_reads() {
    std::vector<Place> completed_by(m_.size(), kNoPlace);
    for (const auto& [copy, wait] : m_.host_reads)
      if (is_open_copy(copy)) completed_by[copy] = find_own_wait(copy, wait);
    for (const auto& [before, after] : m_.host_reads) {
      if (is_open_copy(before)) {
        pairs_.emplace_back(before, completed_by[before]);
        continue;
      }
      const Place copy = find_copy_read_by(after);
      const Place wait = copy == kNoPlace ? kNoPlace : completed_by[copy];
      pairs_.emplace_back(wait == kNoPlace || wait >= after ? before : wait, after);
    }
  }
  bool is_open_copy(Place i) const { return m_.kinds[i] == StepKind::kKernel && m_.stops_host[i] == 0; }

  // The next blocking copy of the same part that no reader comes before, or `wait`.
  Place find_own_wait(Place copy, Place wait) const {
    constexpr Place kReach = 64;
    const Place end = static_cast<Place>(std::min<std::size_t>(m_.size(), wait + kReach));
    for (Place i = wait; i < end && m_.kinds[i] != StepKind::kItem; ++i)
      if (m_.stops_host[i] != 0 && m_.kinds[i] == StepKind::kKernel && p_.part[i] == p_.part[copy]) return i;
    return wait;
  }
  Place find_copy_read_by(Place reader) const {
    for (Place i = reader; !m_.inputs[i].empty();) {
      i = m_.inputs[i].front();
      if (m_.kinds[i] == StepKind::kKernel) return is_open_copy(i) ? i : kNoPlace;
    }
    return kNoPlace;
  }

  // What binds a symbol stays in front of the values whose recorded types mention it.
  void add_symbol_order() {
    std::unordered_map<StringId, Place> bound_at;
    TypeSymbols symbols(*graph_.context);
    for (Place i = 0; i < m_.size(); ++i) {
      if (is_pinned(i)) continue;
      if (!bound_at.empty() && node(i).type)
        for (StringId symbol : symbols.of(node(i).type))
          if (const auto at = bound_at.find(symbol); at != bound_at.end()) pairs_.emplace_back(at->second, i);
      if (node(i).extra)
        for (const Binding& binding : node(i).extra->bindings) bound_at.try_emplace(binding.symbol, i);
    }
  }

  // A call that has no row in the op table may do anything.
  bool is_barrier(Place i) const { return node(i).kind == NodeKind::kCall && node(i).op == nullptr; }

  void add_barriers() {
    Place last = kNoPlace, first = 0;
    for (Place i = 0; i < m_.size(); ++i) {
      if (is_pinned(i)) continue;
      if (last != kNoPlace) pairs_.emplace_back(last, i);
      if (!is_barrier(i)) continue;
      for (Place before = first; before < i; ++before)
        if (!is_pinned(before)) pairs_.emplace_back(before, i);
      last = i;
      first = i + 1;
    }
  }

  // Of what is launch and wait in one, too, as the proof of the order has it (analysis/order.h).
  void add_launch_order() {
    std::vector<Place> places(graph_.step().nodes.size());
    for (Place i = 0; i < m_.size(); ++i) places[m_.nodes[i].index()] = i;
    std::vector<std::pair<Arg, Place>> last;  // of each group
    for (const Launch& launch : find_all_launches(*graph_.context, graph_.step())) {
      const Arg group = rules_.launches == LaunchOrder::kAllKept ? Arg() : launch.group;
      const Place place = places[launch.node.index()];
      const auto known = std::ranges::find(last, group, &std::pair<Arg, Place>::first);
      if (known == last.end()) {
        last.emplace_back(group, place);
      } else {
        pairs_.emplace_back(std::exchange(known->second, place), place);
      }
    }
  }

  // Where the step has them so.
  void add_recompute_order() {
    const auto pairs = keep_recomputation_behind(graph_, m_);
    pairs_.insert(pairs_.end(), pairs.begin(), pairs.end());
  }

  // What has no user to stand in front of would stand at the end, and keep what it shows until
  // then.
  void hurry_unused() {
    for (Place i = 0; i < m_.size(); ++i)
      if (p_.users[i].empty() && (p_.work[i] == PlaceWork::kView || p_.work[i] == PlaceWork::kStorage))
        p_.work[i] = PlaceWork::kEager;
  }

  // ------------------------------------------------------------------------- memory

  void find_storages() {
    std::vector<std::uint32_t> number(m_.storage_bytes.size(), kNoPlace);
    for (std::size_t s = 0; s < number.size(); ++s) {
      if (m_.storage_lives[s] == StorageLife::kInput || m_.storage_bytes[s] == 0) continue;
      number[s] = static_cast<std::uint32_t>(p_.home.size());
      p_.home.push_back(m_.storage_homes[s]);
      p_.bytes.push_back(m_.storage_bytes[s]);
      p_.stays.push_back(m_.storage_lives[s] == StorageLife::kOutput);
    }
    p_.input_bytes = m_.input_bytes;
    p_.touches.begins.assign(1, 0);
    std::vector<std::uint32_t> counts(p_.home.size() + 1);
    for (Place i = 0; i < m_.size(); ++i) {
      for (std::uint32_t s : m_.storages[i])
        if (number[s] != kNoPlace && (p_.work[i] != PlaceWork::kView || p_.home[number[s]] == i)) {
          p_.touches.items.push_back(number[s]);
          ++counts[number[s] + 1];
        }
      p_.touches.begins.push_back(static_cast<std::uint32_t>(p_.touches.items.size()));
    }
    find_touchers(std::move(counts));
  }

  void find_touchers(std::vector<std::uint32_t> begins) {
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    std::vector<std::uint32_t> next(begins.begin(), begins.end() - 1);
    p_.touchers.begins = std::move(begins);
    p_.touchers.items.resize(p_.touches.items.size());
    for (Place i = 0; i < m_.size(); ++i)
      for (std::uint32_t s : p_.touches[i]) p_.touchers.items[next[s]++] = i;
  }

  const Graph& graph_;
  const RecomputeTags tags_;
  const StepModel& m_;
  const ScheduleRules& rules_;
  IdSet<NodeId> rank_nodes_;                                       // stand behind the inputs
  SideTable<NodeId, std::optional<std::uint32_t>> element_nodes_;  // how many such slices are on a rank
  const IdSet<NodeId>& padding_;
  std::vector<std::pair<Place, Place>> pairs_;  // before, after
  ScheduleProblem p_;
};

}  // namespace

ScheduleProblem make_schedule_problem(const Graph& graph, const DecisionModel& decision,
                                      const ScheduleRules& rules) {
  return ProblemBuilder(graph, decision, rules).run();
}

}  // namespace epweave
