// Faults put into what one rank does, at random places of real graphs: each is found, and by the
// right name.
#include "compare/ranks/verify_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <random>

#include "compare/ranks/rank_groups.h"
#include "io/file.h"
#include "ir/text/text.h"

namespace epweave {
namespace {

constexpr int kSites = 40;

RankProgram program_of(const char* name) {
  return list_rank_program(read_graph(fmt::format("{}/testdata/graphs/{}.epw.gz", EPWEAVE_SOURCE_DIR, name)));
}

// One rank's calls, to be changed.
class Edit {
 public:
  Edit(std::vector<RankProgram> programs, std::mt19937& random)
      : programs_(std::move(programs)),
        random_(random),
        rank_(below(programs_.size())),
        calls_(*programs_[rank_].calls) {}

  std::size_t below(std::size_t n) { return random_() % n; }
  RankCalls& calls() { return calls_; }
  RankProgram& program() { return programs_[rank_]; }
  std::size_t members_of(const RankLaunch& launch) { return program().groups[launch.group].members.size(); }

  // On different groups that share another rank than this one.
  bool meet_twice(const RankLaunch& one, const RankLaunch& other) {
    const auto& members = program().groups[other.group].members;
    const auto shared = std::ranges::count_if(program().groups[one.group].members, [&](std::uint32_t rank) {
      return std::ranges::find(members, rank) != members.end();
    });
    return one.group != other.group && shared > 1;
  }

  // A launch on a group of several ranks that `wanted` accepts.
  template <class Wanted>
  RankLaunch& pick(const Wanted& wanted) {
    std::vector<std::size_t> sites;
    for (std::size_t i = 0; i < calls_.launches.size(); ++i)
      if (members_of(calls_.launches[i]) > 1 && wanted(calls_.launches[i])) sites.push_back(i);
    REQUIRE(!sites.empty());
    return calls_.launches[sites[below(sites.size())]];
  }

  // The events in another order; launches are numbered in theirs.
  void reorder(const std::vector<RankEvent>& events) {
    std::vector<std::uint32_t> place(calls_.launches.size());
    RankCalls ordered{.events = events};
    for (RankEvent& event : ordered.events) {
      if (event.is_wait) continue;
      place[event.launch] = static_cast<std::uint32_t>(ordered.launches.size());
      ordered.launches.push_back(calls_.launches[event.launch]);
    }
    for (RankEvent& event : ordered.events) event.launch = place[event.launch];
    calls_ = std::move(ordered);
  }

  RanksReport verify() {
    programs_[rank_].calls = std::make_shared<const RankCalls>(calls_);
    return verify_ranks(programs_);
  }

 private:
  std::vector<RankProgram> programs_;
  std::mt19937& random_;
  std::size_t rank_;
  RankCalls calls_;
};

bool any(const RankLaunch&) {
  return true;
}
bool has_splits(const RankLaunch& launch) {
  return std::ranges::any_of(launch.sends, [](const Extent& e) { return e.has_value(); });
}

// A dimension of the first tensor whose extent is known.
std::optional<std::size_t> knows_size(const RankLaunch& launch) {
  for (std::size_t i = 0; launch.sizes[0] && i < launch.sizes[0]->size(); ++i)
    if (launch.sizes[0]->at(i)) return i;
  return std::nullopt;
}

struct RankFault {
  const char* name;
  const char* invariant;
  std::function<void(Edit&)> put;
};

// A launch and all waits for it, gone from the rank.
void drop_launch(Edit& edit) {
  const std::string node = edit.pick(any).node;
  std::vector<RankEvent> events;
  for (const RankEvent& event : edit.calls().events)
    if (edit.calls().launches[event.launch].node != node) events.push_back(event);
  edit.reorder(events);
}

void swap_kinds(Edit& edit) {
  RankLaunch& one = edit.pick(any);
  RankLaunch& other = edit.pick([&](const RankLaunch& launch) {
    return launch.group == one.group && (launch.kind != one.kind || launch.agreement != one.agreement);
  });
  std::swap(one, other);
}

// A launch goes in front of the launch on another group that came before it.
void swap_neighbours(Edit& edit) {
  std::vector<RankEvent> events = edit.calls().events;
  std::vector<std::pair<std::size_t, std::size_t>> sites;
  const auto launch = [&](std::size_t i) -> const RankLaunch& {
    return edit.calls().launches[events[i].launch];
  };
  std::size_t before = events.size();
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (events[i].is_wait || edit.members_of(launch(i)) == 1) continue;
    if (before != events.size() && edit.meet_twice(launch(before), launch(i))) sites.emplace_back(before, i);
    before = i;
  }
  REQUIRE(!sites.empty());
  const auto [first, second] = sites[edit.below(sites.size())];
  const auto at = events.begin();
  std::rotate(at + static_cast<long>(first), at + static_cast<long>(second),
              at + static_cast<long>(second) + 1);
  edit.reorder(events);
}

// A launch and its wait go behind the first launch on another group that came after that wait, and
// its wait.
void delay_launch(Edit& edit) {
  const std::vector<RankEvent> events = edit.calls().events;
  const auto group = [&](const RankEvent& event) { return edit.calls().launches[event.launch].group; };
  for (int tries = 0; tries < 1000; ++tries) {
    const std::string node = edit.pick(any).node;
    const auto is_it = [&](const RankEvent& e) { return edit.calls().launches[e.launch].node == node; };
    const auto first = std::ranges::find_if(events, is_it);
    auto last = first;
    for (auto at = first; at != events.end(); ++at)
      if (is_it(*at)) last = at;
    auto other = std::find_if(last, events.end(), [&](const RankEvent& e) {
      return !e.is_wait && edit.members_of(edit.calls().launches[e.launch]) > 1;
    });
    if (first == last || other == events.end() ||
        !edit.meet_twice(edit.calls().launches[first->launch], edit.calls().launches[other->launch]))
      continue;
    const auto behind = std::find_if(
        other, events.end(), [&](const RankEvent& e) { return e.is_wait && e.launch == other->launch; });
    const bool overtakes = std::any_of(
        first, behind, [&](const RankEvent& e) { return !is_it(e) && group(e) == group(*first); });
    if (behind == events.end() || overtakes) continue;
    std::vector<RankEvent> ordered(events.begin(), first);
    std::copy_if(first, behind + 1, std::back_inserter(ordered),
                 [&](const RankEvent& e) { return !is_it(e); });
    std::copy_if(first, behind + 1, std::back_inserter(ordered), is_it);
    ordered.insert(ordered.end(), behind + 1, events.end());
    return edit.reorder(ordered);
  }
  FAIL("no place");
}

std::vector<RankFault> faults() {
  return {
      {"launch dropped", "ranks-sequence", drop_launch},
      {"another collective", "ranks-sequence", [](Edit& e) { e.pick(any).kind = "broadcast"; }},
      {"another dtype", "ranks-sequence", [](Edit& e) { e.pick(any).agreement += "x"; }},
      {"launches swapped on a group", "ranks-sequence", swap_kinds},
      {"on another group", "ranks-sequence",
       [](Edit& e) {
         RankLaunch& one = e.pick(any);
         one.group = e.pick([&](const RankLaunch& l) { return l.group != one.group; }).group;
         one.group_size.reset();
       }},
      {"another size", "ranks-size",
       [](Edit& e) {
         RankLaunch& one = e.pick([](const RankLaunch& l) { return knows_size(l).has_value(); });
         ++*one.sizes[0]->at(*knows_size(one));
       }},
      {"sends another number of rows", "ranks-splits",
       [](Edit& e) {
         RankLaunch& one = e.pick(has_splits);
         ++*one.sends[e.below(one.sends.size())];
       }},
      {"expects another number of rows", "ranks-splits",
       [](Edit& e) {
         RankLaunch& one = e.pick(has_splits);
         ++*one.receives[e.below(one.receives.size())];
       }},
      {"a split too few", "ranks-splits",
       [](Edit& e) { e.pick([](const RankLaunch& l) { return !l.sends.empty(); }).sends.pop_back(); }},
      {"states another group size", "ranks-group",
       [](Edit& e) { ++*e.pick([](const RankLaunch& l) { return l.group_size.has_value(); }).group_size; }},
      {"launch behind another's wait", "ranks-deadlock", delay_launch},
      {"launches on two groups swapped", "ranks-interleaving", swap_neighbours},
  };
}

TEST_CASE("real graphs taken as all ranks agree with themselves") {
  for (const char* name :
       {"dsv3_debug_ep2.1b_remat", "dsv3_debug_ep2.5_schedule", "dsv3_debug_ep2_coor.1_norm"}) {
    const RanksReport report = verify_ranks(spread_over_ranks(program_of(name)));
    INFO(name);
    REQUIRE(report.violations.empty());
    REQUIRE(report.ranks == 4);
    REQUIRE(report.groups == 5);  // the world, two of efsdp, two of ep
    REQUIRE(report.collectives > 150);
  }
}

TEST_CASE("faults of one rank are found") {
  for (const char* name : {"dsv3_debug_ep2.1b_remat", "dsv3_debug_ep2.5_schedule"}) {
    const std::vector<RankProgram> programs = spread_over_ranks(program_of(name));
    std::mt19937 random(7);
    for (const RankFault& fault : faults()) {
      for (int i = 0; i < kSites; ++i) {
        Edit edit(programs, random);
        fault.put(edit);
        const RanksReport report = edit.verify();
        INFO(name << ": " << fault.name << ", site " << i);
        REQUIRE(!report.violations.empty());
        REQUIRE(std::ranges::any_of(report.violations,
                                    [&](const RankViolation& v) { return v.invariant == fault.invariant; }));
      }
    }
  }
}

TEST_CASE("a cycle names each rank once, and each waits for the next") {
  const std::vector<RankProgram> programs = spread_over_ranks(program_of("dsv3_debug_ep2.5_schedule"));
  std::mt19937 random(3);
  for (int i = 0; i < kSites; ++i) {
    Edit edit(programs, random);
    delay_launch(edit);
    const RanksReport report = edit.verify();
    const auto found = std::ranges::find(report.violations, "ranks-deadlock", &RankViolation::invariant);
    REQUIRE(found != report.violations.end());
    const std::vector<StuckRank>& cycle = found->cycle;
    REQUIRE(cycle.size() >= 2);
    for (std::size_t k = 0; k < cycle.size(); ++k) {
      REQUIRE(cycle[k].misses == cycle[(k + 1) % cycle.size()].rank);
      REQUIRE(!cycle[k].never);
    }
  }
}

TEST_CASE("groups move with the rank") {
  using Ranks = std::vector<std::uint32_t>;
  REQUIRE(translate_members({0, 2}, 1, 4) == Ranks{1, 3});
  REQUIRE(translate_members({0, 1}, 3, 4) == Ranks{2, 3});
  REQUIRE(translate_members({1, 3, 5, 7}, 10, 16) == Ranks{8, 10, 12, 14});
  REQUIRE(translate_members({2}, 1, 4) == Ranks{1});
  REQUIRE(translate_members({0, 64, 128, 192}, 70, 256) == Ranks{6, 70, 134, 198});
  REQUIRE(!translate_members({0, 1, 3}, 1, 4));
  REQUIRE(!translate_members({0, 1, 2}, 1, 4));  // 3 would be left over
  REQUIRE(!translate_members({1, 2}, 1, 4));     // not where such groups begin
}

// ----------------------------------------------------------------------------------------------
// small ranks

constexpr std::string_view kHead =
    "epweave text 1\ninfo rank = {}\ninfo world_size = 2\ngroup a ranks=[0, 1]\ngroup b ranks=[0, 1]\n"
    "symbol u range=[2, 8] hint={} unbacked\nsymbol v range=[2, 8] unbacked\n\ngraph\n"
    "  %x = placeholder : f32[u]\n  %y = placeholder : f32[4]\n  %z = placeholder : f32[v]\n";

// Rank `rank` with these nodes between inputs and output; u has this many elements there.
RankProgram small_rank(int rank, std::string_view nodes, int u = 4) {
  const std::string head = fmt::format(kHead, rank, u);
  const std::size_t nested = nodes.find("graph ");
  return list_rank_program(parse_text(fmt::format("{}{}  output([%y])\n{}", head, nodes.substr(0, nested),
                                                  nested == nodes.npos ? "" : nodes.substr(nested)),
                                      "rank"));
}

std::string broken(const RankProgram& first, const RankProgram& second) {
  std::string names;
  for (const RankViolation& violation : verify_ranks({first, second}).violations)
    names += (names.empty() ? "" : ", ") + violation.invariant;
  return names;
}

TEST_CASE("a collective in place is waited for through what it writes") {
  const std::string first =
      "  %p = _c10d_functional.all_reduce_.default(%x, \"sum\", \"a\") : f32[u]\n"
      "  %p_done = _c10d_functional.wait_tensor.default(%x) : f32[u]\n";
  const std::string second =
      "  %q = _c10d_functional.all_reduce_.default(%y, \"sum\", \"b\") : f32[4]\n"
      "  %v = aten.view.default(%y, [2, 2]) : f32[2, 2]\n"
      "  %q_done = _c10d_functional.wait_tensor.default(%v) : f32[2, 2]\n";
  CHECK(broken(small_rank(0, first + second), small_rank(1, first + second)) == "");
  const RanksReport report = verify_ranks({small_rank(0, first + second), small_rank(1, second + first)});
  REQUIRE(report.violations.size() == 1);
  CHECK(report.violations[0].invariant == "ranks-deadlock");
  REQUIRE(report.violations[0].cycle.size() == 2);
  CHECK(report.violations[0].cycle[0].at == "p_done");
  CHECK(report.violations[0].cycle[1].at == "q_done");
}

TEST_CASE("an operation on symmetric memory is a launch and its wait") {
  const std::string one = "  %s = symm_mem.one_shot_all_reduce.default(%y, \"sum\", \"a\") : f32[4]\n";
  const std::string two =
      "  %q = _c10d_functional.all_reduce.default(%y, \"sum\", \"b\") : f32[4]\n"
      "  %q_done = _c10d_functional.wait_tensor.default(%q) : f32[4]\n";
  CHECK(broken(small_rank(0, one), small_rank(1, one)) == "");
  CHECK(broken(small_rank(0, one), small_rank(1, "")) == "ranks-sequence, ranks-deadlock");
  CHECK(broken(small_rank(0, one + two), small_rank(1, two + one)) == "ranks-deadlock");
}

TEST_CASE("collectives in nested graphs") {
  const std::string body =
      "\ngraph sub\n  %i = placeholder : f32[4]\n"
      "  %r = _c10d_functional.all_reduce.default(%i, \"sum\", \"a\") : f32[4]\n  output([%r])\n";
  const auto call = [&](std::string_view target) {
    return fmt::format(
        "  %g = get_attr : _ attr=graph(sub)\n  %c = {}(%g, \"sub\", %y) : [f32[4]]\n"
        "  %e = operator.getitem(%c, 0) : f32[4]\n"
        "  %w = _c10d_functional.wait_tensor.default(%e) : f32[4]\n{}",
        target, body);
  };
  const std::string once = call("higher_order.invoke_subgraph");
  CHECK(broken(small_rank(0, once), small_rank(1, once)) == "");
  CHECK(broken(small_rank(0, once), small_rank(1, "")) == "ranks-sequence, ranks-deadlock");
  const RankProgram program = small_rank(0, once);
  REQUIRE(program.calls->launches.size() == 1);
  CHECK(program.calls->launches[0].node == "c/r");
  REQUIRE(program.calls->events.size() == 2);  // the wait outside is for the launch inside
  const std::string perhaps = call("higher_order.cond");
  CHECK(broken(small_rank(0, perhaps), small_rank(1, perhaps)) == "ranks-unknown, ranks-unknown");
}

TEST_CASE("a nested graph waits for what was launched outside, and the other way round") {
  const auto called = [](std::string_view outside, std::string_view behind, std::string_view body) {
    return fmt::format(
        "  %g = get_attr : _ attr=graph(sub)\n{}  %c = higher_order.invoke_subgraph(%g, \"sub\", {}) : "
        "[f32[4], f32[4]]\n  %e = operator.getitem(%c, 1) : f32[4]\n{}\ngraph sub\n"
        "  %i = placeholder : f32[4]\n{}",
        outside, outside.empty() ? "%y" : "%p", behind, body);
  };
  const std::string p = "  %p = _c10d_functional.all_reduce.default(%y, \"sum\", \"a\") : f32[4]\n",
                    p_done = "  %p_done = _c10d_functional.wait_tensor.default(%p) : f32[4]\n",
                    q = "  %q = _c10d_functional.all_reduce.default(%y, \"sum\", \"b\") : f32[4]\n"
                        "  %q_done = _c10d_functional.wait_tensor.default(%q) : f32[4]\n",
                    in_place = "  %r = _c10d_functional.all_reduce_.default(%i, \"sum\", \"a\") : f32[4]\n";
  const auto events = [](const RankProgram& program) {
    std::string text;
    for (const RankEvent& event : program.calls->events)
      text += (event.is_wait ? " wait " : " launch ") + program.calls->launches[event.launch].node;
    return text;
  };
  const RankProgram inside = small_rank(
      0, called(p, q, "  %w = _c10d_functional.wait_tensor.default(%i) : f32[4]\n  output([%w, %i])\n"));
  CHECK(events(inside) == " launch p wait p launch q wait q");
  CHECK(broken(inside, small_rank(1, p + p_done + q)) == "");
  CHECK(broken(inside, small_rank(1, q + p + p_done)) == "ranks-deadlock");
  // The result is waited for, and the memory that was reduced; of two results, the one.
  const std::string wait_e = "  %w = _c10d_functional.wait_tensor.default(%e) : f32[4]\n",
                    wait_y = "  %w = _c10d_functional.wait_tensor.default(%y) : f32[4]\n",
                    two =
                        "  %s = _c10d_functional.all_reduce.default(%i, \"sum\", \"a\") : f32[4]\n"
                        "  %t = _c10d_functional.all_reduce.default(%i, \"sum\", \"b\") : f32[4]\n"
                        "  output([%s, %t])\n";
  CHECK(events(small_rank(0, called("", wait_e, in_place + "  output([%r, %r])\n"))) ==
        " launch c/r wait c/r");
  CHECK(events(small_rank(0, called("", wait_y, in_place + "  output([%r, %r])\n"))) ==
        " launch c/r wait c/r");
  CHECK(events(small_rank(0, called("", wait_e, two))) == " launch c/s launch c/t wait c/t");
}

TEST_CASE("a coalesced reduction in place is over where any of its tensors is waited for") {
  const std::string launched =
      "  %c = _c10d_functional.all_reduce_coalesced_.default([%x, %y], \"sum\", \"a\") : [f32[u], f32[4]]\n";
  for (const std::string_view waited : {"%x", "%y"}) {
    const RankProgram program =
        small_rank(0, launched + fmt::format("  %w = _c10d_functional.wait_tensor.default({})\n", waited));
    REQUIRE(program.calls->events.size() == 2);
    CHECK(program.calls->events[1].is_wait);
  }
}

TEST_CASE("unknown ops that may communicate") {
  const std::string on_group = "  %c = mylib.exchange.default(%y, \"a\") : f32[4]\n";
  const std::string of_library = GENERATE(
      "  %c = _c10d_functional.gossip.default(%y) : f32[4]\n",
      "  %c = _dtensor.shard_dim_alltoall.default(%y, 0, 1, \"c\") : f32[4]\n",
      "  %c = deepep.combine.default(%y) : f32[4]\n", "  %c = hybridep.dispatch.default(%y) : f32[4]\n");
  const std::string other = "  %c = mylib.scale.default(%y, \"c\") : f32[4]\n";
  CHECK(broken(small_rank(0, on_group), small_rank(1, "")) == "ranks-unknown");
  CHECK(broken(small_rank(0, of_library), small_rank(1, "")) == "ranks-unknown");
  CHECK(broken(small_rank(0, other), small_rank(1, "")) == "");
}

TEST_CASE("symbolic sizes are compared as traced") {
  const auto reduce = [](std::string_view value, std::string_view type) {
    return fmt::format("  %p = _c10d_functional.all_reduce.default({}, \"sum\", \"a\") : {}\n", value, type);
  };
  const std::string known = reduce("%x", "f32[u]"), unknown = reduce("%z", "f32[v]");
  CHECK(broken(small_rank(0, known), small_rank(1, known, 8)) == "ranks-size");
  CHECK(broken(small_rank(0, known), small_rank(1, reduce("%y", "f32[4]"))) == "");
  const RanksReport report = verify_ranks({small_rank(0, known), small_rank(1, known)});
  CHECK(report.violations.empty());
  CHECK(report.as_traced == 1);
  CHECK(report.not_compared == 0);
  CHECK(verify_ranks({small_rank(0, unknown), small_rank(1, unknown)}).not_compared == 1);
}

TEST_CASE("ranks of worlds of different sizes") {
  RankProgram other = small_rank(1, "");
  other.world_size = 4;
  CHECK(broken(small_rank(0, ""), other) == "ranks-group");
}

}  // namespace
}  // namespace epweave
