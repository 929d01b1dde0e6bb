#include "compare/ranks/verify_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "compare/ranks/rank_groups.h"

namespace epweave {
namespace {

constexpr std::uint32_t kNone = ~0U;

// Where a number is not known it may be any.
bool differ(const std::vector<Sizes>& a, const std::vector<Sizes>& b) {
  const auto may_be = [](const Extent& x, const Extent& y) { return !x || !y || *x == *y; };
  const auto may_be_all = [&](const Sizes& x, const Sizes& y) {
    return !x || !y || std::ranges::equal(*x, *y, may_be);
  };
  return !std::ranges::equal(a, b, may_be_all);
}

bool has_unknown(const std::vector<Extent>& extents) {
  return std::ranges::any_of(extents, [](const Extent& extent) { return !extent.has_value(); });
}

// "[4, 2]", "[4, ?], [8]"
std::string print_sizes(const std::vector<Sizes>& sizes) {
  std::vector<std::string> tensors;
  for (const Sizes& tensor : sizes) {
    std::vector<std::string> numbers;
    for (const Extent& extent : tensor.value_or(std::vector<Extent>()))
      numbers.push_back(extent ? std::to_string(*extent) : "?");
    tensors.push_back(tensor ? fmt::format("[{}]", fmt::join(numbers, ", ")) : "?");
  }
  return fmt::format("{}", fmt::join(tensors, ", "));
}

// A group as all its members see it.
struct SharedGroup {
  std::vector<std::uint32_t> members;
  std::string name;                                   // as the first member calls it
  std::vector<std::vector<std::uint32_t>> sequences;  // of each member: positions of its launches here
  std::uint32_t first_instance = 0;                   // of its first collective, among those of all groups
  std::uint32_t length = 0;                           // collectives: as many as the longest sequence has
};

class RanksVerifier {
 public:
  explicit RanksVerifier(const std::vector<RankProgram>& programs) : programs_(programs) {
    for (std::size_t i = 0; i < programs.size(); ++i)
      program_of_[*programs[i].rank] = static_cast<std::uint32_t>(i);
    collect_groups();
  }

  RanksReport run() {
    report_.ranks = static_cast<std::uint32_t>(programs_.size());
    check_worlds();
    for (const RankProgram& program : programs_) list_faults(program);
    for (const SharedGroup& group : groups_) check_group(group);
    const std::size_t before = report_.violations.size();
    run_asynchronously();
    if (report_.violations.size() == before) run_in_lockstep();
    return std::move(report_);
  }

 private:
  // ------------------------------------------------------------------------- groups

  void collect_groups() {
    GroupMatcher matcher(programs_);
    std::map<std::pair<std::vector<std::uint32_t>, std::string>, std::size_t> known;
    instances_.resize(programs_.size());
    std::set<std::uint32_t> missing;
    for (std::size_t p = 0; p < programs_.size(); ++p) {
      const RankProgram& program = programs_[p];
      std::vector<std::uint32_t> shared(program.groups.size(), kNone);
      instances_[p].assign(program.calls->launches.size(), {kNone, 0});
      for (std::size_t i = 0; i < program.calls->launches.size(); ++i) {
        const std::uint32_t own = program.calls->launches[i].group;
        const std::vector<std::uint32_t>& members = program.groups[own].members;
        if (shared[own] == kNone) {
          auto key = matcher.key_of(program, own);
          const auto [found, is_new] = known.try_emplace(std::move(key), groups_.size());
          if (is_new)
            groups_.push_back(
                {members, program.groups[own].name, std::vector<std::vector<std::uint32_t>>(members.size())});
          shared[own] = static_cast<std::uint32_t>(found->second);
        }
        SharedGroup& group = groups_[shared[own]];
        const auto position = std::ranges::find(members, *program.rank) - members.begin();
        if (position == static_cast<long>(members.size())) {
          complain("ranks-group", {*program.rank}, {program.calls->launches[i].node},
                   fmt::format("launches on group {} {}, of which it is no member", program.groups[own].name,
                               print_members(members)));
          continue;
        }
        auto& sequence = group.sequences[static_cast<std::size_t>(position)];
        instances_[p][i] = {shared[own], static_cast<std::uint32_t>(sequence.size())};
        sequence.push_back(static_cast<std::uint32_t>(i));
      }
    }
    for (SharedGroup& group : groups_) {
      group.first_instance = static_cast<std::uint32_t>(report_.collectives);
      for (const auto& sequence : group.sequences)
        group.length = std::max(group.length, static_cast<std::uint32_t>(sequence.size()));
      report_.collectives += group.length;
      report_.groups += group.members.size() > 1;
      for (std::uint32_t member : group.members)
        if (!program_of_.contains(member)) missing.insert(member);
    }
    report_.not_given.assign(missing.begin(), missing.end());
  }

  void complain(std::string invariant, std::vector<std::uint32_t> ranks, std::vector<std::string> nodes,
                std::string what) {
    RankViolation& violation = report_.violations.emplace_back();
    violation.invariant = std::move(invariant);
    violation.message = std::move(what);
    violation.ranks = std::move(ranks);
    violation.nodes = std::move(nodes);
  }

  std::string describe(const SharedGroup& group) const {
    return fmt::format("group {} {}", group.name, print_members(group.members));
  }
  const RankLaunch& launch(const SharedGroup& group, std::size_t member, std::size_t n) const {
    return programs_[program_of_.at(group.members[member])].calls->launches[group.sequences[member][n]];
  }
  bool is_given(const SharedGroup& group, std::size_t member) const {
    return program_of_.contains(group.members[member]);
  }

  void check_worlds() {
    for (const RankProgram& program : programs_) {
      const RankProgram& first = programs_.front();
      if (!program.world_size || !first.world_size || *program.world_size == *first.world_size) continue;
      return complain("ranks-group", {*first.rank, *program.rank}, {"", ""},
                      fmt::format("one is of a world of {} ranks, the other of {}", *first.world_size,
                                  *program.world_size));
    }
  }

  // Ranks that run one graph share its calls, and name them once.
  void list_faults(const RankProgram& program) {
    if (!listed_.insert(program.calls.get()).second) return;
    for (const RankFault& fault : program.calls->faults)
      complain(fault.invariant, {*program.rank}, {fault.node}, fault.why);
  }

  // The first difference of each kind on the group; more would follow from it.
  void check_group(const SharedGroup& group) {
    std::size_t first = 0;
    while (first < group.members.size() && !is_given(group, first)) ++first;
    check_group_size(group);
    for (std::size_t m = first + 1; m < group.members.size(); ++m)
      if (is_given(group, m) && !check_sequence(group, first, m)) return;
    for (std::size_t m = first + 1; m < group.members.size(); ++m)
      if (is_given(group, m) && !check_sizes(group, first, m)) break;
    check_splits(group);
    for (std::size_t n = 0; n < group.length; ++n) {
      const RankLaunch& one = launch(group, first, n);
      const auto is_unknown_size = [](const Sizes& sizes) { return !sizes || has_unknown(*sizes); };
      const bool is_unknown = std::ranges::any_of(one.sizes, is_unknown_size) || has_unknown(one.sends) ||
                              has_unknown(one.receives);
      report_.not_compared += is_unknown;
      report_.as_traced += one.is_as_traced && !is_unknown;
    }
  }

  void check_group_size(const SharedGroup& group) {
    for (std::size_t m = 0; m < group.members.size(); ++m) {
      for (std::size_t n = 0; n < group.sequences[m].size(); ++n) {
        const RankLaunch& one = launch(group, m, n);
        if (one.is_faulty || !one.group_size ||
            *one.group_size == static_cast<std::int64_t>(group.members.size()))
          continue;
        return complain(
            "ranks-group", {group.members[m]}, {one.node},
            fmt::format("{} states {} members for {}", one.kind, *one.group_size, describe(group)));
      }
    }
  }

  bool check_sequence(const SharedGroup& group, std::size_t a, std::size_t b) {
    const auto& left = group.sequences[a];
    const auto& right = group.sequences[b];
    for (std::size_t n = 0; n < std::min(left.size(), right.size()); ++n) {
      const RankLaunch& x = launch(group, a, n);
      const RankLaunch& y = launch(group, b, n);
      if (x.kind == y.kind && x.agreement == y.agreement) continue;
      complain("ranks-sequence", {group.members[a], group.members[b]}, {x.node, y.node},
               fmt::format("launch {} on {} is {} ({}) here and {} ({}) there", n, describe(group), x.kind,
                           x.agreement, y.kind, y.agreement));
      return false;
    }
    if (left.size() == right.size()) return true;
    const bool is_left_longer = left.size() > right.size();
    const std::size_t longer = is_left_longer ? a : b;
    const RankLaunch& extra = launch(group, longer, std::min(left.size(), right.size()));
    complain("ranks-sequence", {group.members[a], group.members[b]},
             {is_left_longer ? extra.node : "", is_left_longer ? "" : extra.node},
             fmt::format("{} and {} launches on {}; the first without a partner is {}", left.size(),
                         right.size(), describe(group), extra.kind));
    return false;
  }

  bool check_sizes(const SharedGroup& group, std::size_t a, std::size_t b) {
    for (std::size_t n = 0; n < group.sequences[a].size(); ++n) {
      const RankLaunch& x = launch(group, a, n);
      const RankLaunch& y = launch(group, b, n);
      if (differ(x.sizes, y.sizes)) {
        const std::string_view rows = x.kind == "all_to_all_single" ? " in a row" : "";
        complain("ranks-size", {group.members[a], group.members[b]}, {x.node, y.node},
                 fmt::format("{}, launch {} on {}: sizes{} {} here and {} there{}", x.kind, n,
                             describe(group), rows, print_sizes(x.sizes), print_sizes(y.sizes),
                             x.is_as_traced || y.is_as_traced ? ", as traced" : ""));
        return false;
      }
    }
    return true;
  }

  void check_splits(const SharedGroup& group) {
    const std::size_t size = group.members.size();
    for (std::size_t n = 0; n < group.length; ++n) {
      for (std::size_t from = 0; from < size; ++from) {
        if (!is_given(group, from)) continue;
        const RankLaunch& sender = launch(group, from, n);
        if (sender.is_faulty || (sender.sends.empty() && sender.receives.empty())) continue;
        if (sender.sends.size() != size || sender.receives.size() != size)
          return complain("ranks-splits", {group.members[from]}, {sender.node},
                          fmt::format("{} lists {} sizes to send and {} to receive for {} members",
                                      sender.kind, sender.sends.size(), sender.receives.size(), size));
        for (std::size_t to = 0; to < size; ++to) {
          if (!is_given(group, to)) continue;
          const RankLaunch& receiver = launch(group, to, n);
          if (receiver.is_faulty || receiver.receives.size() != size) continue;
          const Extent sent = sender.sends[to], expected = receiver.receives[from];
          if (!sent || !expected || *sent == *expected) continue;
          return complain(
              "ranks-splits", {group.members[from], group.members[to]}, {sender.node, receiver.node},
              fmt::format("{}, launch {} on {}: rank {} sends {} rows, rank {} expects {}", sender.kind, n,
                          describe(group), group.members[from], *sent, group.members[to], *expected));
        }
      }
    }
  }

  // ------------------------------------------------------------------------- running the ranks

  struct Instance {
    std::uint32_t group = kNone, n = 0;
  };

  std::uint32_t index_of(Instance instance) const {
    return groups_[instance.group].first_instance + instance.n;
  }
  // Members that were given; the others take part at once.
  std::size_t count_given(const SharedGroup& group) const {
    std::size_t n = 0;
    for (std::size_t m = 0; m < group.members.size(); ++m) n += is_given(group, m);
    return n;
  }

  struct Run {
    std::vector<std::size_t> position;                 // of each rank: its next event
    std::vector<std::uint32_t> arrived;                // of each collective: members that launched it
    std::vector<std::uint32_t> finished;               // of each group: collectives that finished, in order
    std::vector<std::vector<std::uint32_t>> sleepers;  // of each collective: ranks that wait for it
    std::vector<std::uint32_t> ready;                  // ranks to go on with
  };
  Run start() const {
    Run run{.position = std::vector<std::size_t>(programs_.size()),
            .arrived = std::vector<std::uint32_t>(report_.collectives),
            .finished = std::vector<std::uint32_t>(groups_.size()),
            .sleepers = std::vector<std::vector<std::uint32_t>>(report_.collectives)};
    for (std::size_t p = programs_.size(); p-- > 0;) run.ready.push_back(static_cast<std::uint32_t>(p));
    return run;
  }

  void arrive(Run& run, Instance instance) const {
    const SharedGroup& group = groups_[instance.group];
    ++run.arrived[index_of(instance)];
    const auto given = static_cast<std::uint32_t>(count_given_[instance.group]);
    std::uint32_t& done = run.finished[instance.group];
    while (done < group.length && run.arrived[group.first_instance + done] == given) {
      for (std::uint32_t p : run.sleepers[group.first_instance + done]) run.ready.push_back(p);
      ++done;
    }
  }
  bool is_finished(const Run& run, Instance instance) const {
    return instance.n < run.finished[instance.group];
  }

  void count_members() {
    count_given_.clear();
    for (const SharedGroup& group : groups_) count_given_.push_back(count_given(group));
  }

  void run_asynchronously() {
    count_members();
    Run run = start();
    while (!run.ready.empty()) {
      const std::uint32_t p = run.ready.back();
      run.ready.pop_back();
      const RankProgram& program = programs_[p];
      for (; run.position[p] < program.calls->events.size(); ++run.position[p]) {
        const RankEvent& event = program.calls->events[run.position[p]];
        const Instance instance = instances_[p][event.launch];
        if (instance.group == kNone) continue;
        if (!event.is_wait) {
          arrive(run, instance);
        } else if (!is_finished(run, instance)) {
          run.sleepers[index_of(instance)].push_back(p);
          break;
        }
      }
    }
    report_stuck(run, "ranks-deadlock");
  }

  // As if every launch were a wait for itself.
  void run_in_lockstep() {
    Run run = start();
    std::vector<std::uint8_t> has_arrived(programs_.size());
    while (!run.ready.empty()) {
      const std::uint32_t p = run.ready.back();
      run.ready.pop_back();
      const RankProgram& program = programs_[p];
      for (; run.position[p] < program.calls->events.size(); ++run.position[p], has_arrived[p] = 0) {
        const RankEvent& event = program.calls->events[run.position[p]];
        const Instance instance = instances_[p][event.launch];
        if (instance.group == kNone || event.is_wait) continue;
        if (std::exchange(has_arrived[p], std::uint8_t{1}) == 0) {
          run.sleepers[index_of(instance)].push_back(p);
          arrive(run, instance);
        }
        if (!is_finished(run, instance)) break;
      }
    }
    report_stuck(run, "ranks-interleaving");
  }

  // The collective that keeps this one from finishing: the first on its group that did not.
  StuckRank explain(const Run& run, std::uint32_t p) const {
    const RankProgram& program = programs_[p];
    const RankEvent& event = program.calls->events[run.position[p]];
    const Instance instance = instances_[p][event.launch];
    const SharedGroup& group = groups_[instance.group];
    const std::uint32_t n = run.finished[instance.group];
    const auto own =
        static_cast<std::size_t>(std::ranges::find(group.members, *program.rank) - group.members.begin());
    StuckRank stuck{.rank = *program.rank, .at = event.node, .group = describe(group)};
    stuck.launch = launch(group, own, n).node;
    for (std::size_t m = 0; m < group.members.size(); ++m) {
      if (!is_given(group, m) || has_launched(run, group, m, n)) continue;
      stuck.misses = group.members[m];
      stuck.never = group.sequences[m].size() <= n;
      break;
    }
    return stuck;
  }
  bool has_launched(const Run& run, const SharedGroup& group, std::size_t member, std::uint32_t n) const {
    if (group.sequences[member].size() <= n) return false;
    const std::uint32_t p = program_of_.at(group.members[member]);
    const std::uint32_t position = group.sequences[member][n];
    // Launches at or behind the event the rank is stuck in: not yet, unless it is stuck in this
    // very one.
    const std::size_t at = run.position[p];
    if (at >= programs_[p].calls->events.size()) return true;
    const RankEvent& event = programs_[p].calls->events[at];
    if (!event.is_wait) return position <= event.launch;
    for (std::size_t i = at; i < programs_[p].calls->events.size(); ++i)
      if (!programs_[p].calls->events[i].is_wait) return position < programs_[p].calls->events[i].launch;
    return true;
  }

  void report_stuck(const Run& run, std::string_view invariant) {
    for (std::uint32_t p = 0; p < programs_.size(); ++p) {
      if (run.position[p] >= programs_[p].calls->events.size()) continue;
      return report_cycle(find_cycle(run, p), invariant);
    }
  }

  // From a stuck rank along what each waits for, until a rank comes again or never launches what is
  // missing.
  std::vector<StuckRank> find_cycle(const Run& run, std::uint32_t p) const {
    std::vector<StuckRank> chain;
    while (true) {
      const auto again = std::ranges::find(chain, *programs_[p].rank, &StuckRank::rank);
      if (again != chain.end()) return {again, chain.end()};
      chain.push_back(explain(run, p));
      if (chain.back().never) return chain;
      p = program_of_.at(chain.back().misses);
    }
  }

  void report_cycle(std::vector<StuckRank> cycle, std::string_view invariant) {
    std::string text, lines;
    std::vector<std::uint32_t> ranks;
    std::vector<std::string> nodes;
    for (const StuckRank& stuck : cycle) {
      ranks.push_back(stuck.rank);
      nodes.push_back(stuck.at);
      text += fmt::format("{} -> ", stuck.rank);
      lines += fmt::format("\n  rank {} is stuck at %{}: %{} on {} needs rank {}, which {}", stuck.rank,
                           stuck.at, stuck.launch, stuck.group, stuck.misses,
                           stuck.never ? "never launches it" : "has not launched it yet");
    }
    const bool is_cycle = !cycle.back().never;
    const std::string what = is_cycle
                                 ? fmt::format("ranks {}{} wait for each other", text, cycle.front().rank)
                                 : fmt::format("rank {} waits for what rank {} never launches",
                                               cycle.front().rank, cycle.back().misses);
    complain(std::string(invariant), std::move(ranks), std::move(nodes), what + lines);
    report_.violations.back().cycle = std::move(cycle);
  }

  const std::vector<RankProgram>& programs_;
  std::map<std::uint32_t, std::uint32_t> program_of_;  // of a rank
  std::vector<SharedGroup> groups_;
  std::vector<std::size_t> count_given_;          // members of each group that were given
  std::vector<std::vector<Instance>> instances_;  // of each rank's launches
  std::set<const RankCalls*> listed_;
  RanksReport report_;
};

}  // namespace

RanksReport verify_ranks(const std::vector<RankProgram>& programs) {
  for (const RankProgram& program : programs) EPWEAVE_CHECK(program.rank.has_value());
  return RanksVerifier(programs).run();
}

}  // namespace epweave
