// verify_rewrite accepts what the passes make of real graphs and finds faults put into it at random
// places.
//
// EPWEAVE_FAULTS=N: sites per kind of fault and graph (4). EPWEAVE_FAULT_TABLE=FILE: write the
// table of docs/rewrite_verification.md there.
#include "compare/rewrite/verify_rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "compare/rewrite/host_copies.h"
#include "compare/rewrite/run_passes_test.h"
#include "io/file.h"
#include "pipeline/runner.h"
#include "testing/rewrite_lies.h"

namespace epweave {
namespace {

Graph read(const std::string& name) {
  return read_graph(fmt::format("{}/testdata/graphs/{}.epw.gz", EPWEAVE_SOURCE_DIR, name));
}

std::string first_of(const RewriteReport& report, const Graph& b) {
  return report.violations.empty() ? "" : print_violation(b, report.violations.front());
}

}  // namespace

TEST_CASE("rewrites of real graphs are accepted") {
  const std::string name = GENERATE("dsv3_debug_ep2.1b_remat", "qwen3_moe_ep2.1b_remat",
                                    "dsv3_debug_ep2_allflags_ce.1b_remat", "dsv3_debug_ep2_full.1b_remat");
  const std::string pipeline = GENERATE(
      "chunk{parts=2}", "chunk{parts=4}", "chunk{parts=8}", "chunk{parts=3}", "chunk{sizes=[700,324]}",
      "chunk{roots=[layers.1.moe:4,layers.2.moe:3,layers.3.moe]},concretize", "ep-overlap{parts=2}",
      "ep-overlap{parts=3,grad-accumulation=eager}", "chunk{roots=layers.*,join=regions}",
      "dce,canonicalize,dedup-unshard");
  const Graph a = read(name);
  const Graph b = rewrite(a, pipeline);
  const RewriteReport report = verify_rewrite(a, b);
  INFO(name << " " << pipeline);
  CHECK(first_of(report, b) == "");
  CHECK(!report.outputs.empty());
}

TEST_CASE("rewrites of traces and of ranks that share tokens are accepted") {
  const std::string name =
      GENERATE("dsv3_debug_ep2.0_traced", "dsv3_debug_ep2_r030.0_traced", "dsv3_debug_fsdp2_tp2_ep4.0_traced",
               "dsv3_debug_fsdp2_tp2_ep4.1b_remat", "llama3_debug_fsdp2_tp2.0_traced");
  const std::string pipeline = GENERATE("symbolize,chunk{roots=layers.*,parts=2,dense=true}",
                                        "symbolize,chunk{roots=layers.*,parts=4,dense=true},concretize",
                                        "symbolize,chunk{roots=layers.*.attention.wo,parts=2,dense=true}");
  const Graph a = read(name);
  const Graph b = rewrite(a, pipeline);
  const RewriteReport report = verify_rewrite(a, b);
  INFO(name << " " << pipeline);
  CHECK(first_of(report, b) == "");
  CHECK(report.divided > 0);
}

// Schedulers put backward's calls among forward's: what a copy frees must still be there for all of
// forward.
TEST_CASE("copies to the host are accepted in any order of the step") {
  const auto [name, front] = GENERATE(
      table<const char*, const char*>({{"llama3_debug_fsdp4.1_norm", "schedule,"},
                                       {"llama3_debug_fsdp2_tp2.1_norm", "bucket,"},
                                       {"qwen3_moe_ep2.1_norm", "schedule,"},
                                       {"dsv3_debug_ep2.1_norm", "chunk{roots=[layers.*]},overlap-ep,"},
                                       {"dsv3_debug_ep2.4_bucket", ""}}));
  const char* const options = GENERATE("", "{prefetch=0,defer=0}", "{prefetch=2,defer=3}");
  const Graph a = read(name);
  const std::string pipeline =
      fmt::format("{}memory-policy{{policy=sac-and-offload}},recompute,cpu-offload{}", front, options);
  const Graph b = rewrite(a, pipeline);
  INFO(name << " " << pipeline);
  CHECK(first_of(verify_rewrite(a, b), b) == "");
  CHECK(has_host_copies(b));
}

// Extents that become 1 change strides, and what is a view.
TEST_CASE("one sequence of a grid to a part") {
  const std::string name =
      GENERATE("dsv3_debug_ep2_r030.0_traced", "dsv3_debug_ep2_r030.1_norm", "dsv3_debug_ep2_r030.1b_remat",
               "dsv3_debug_ep2_sdpa_r030.1b_remat", "dsv3_debug_ep2_seq_r030.1b_remat");
  const std::string options =
      GENERATE("parts=4", "roots=layers.*,parts=4", "roots=layers.*,parts=4,attention=independent");
  Graph a = read(name);
  if (name.find("seq") != name.npos)
    a = rewrite(a, "concretize,symbolize{inputs=[tokens:0,labels:0,positions:0]}");
  const Graph b = run_pipeline(a, expand_preset(fmt::format("ep-overlap{{{}}}", options)),
                               {.verify = VerifyPolicy::kEach});
  INFO(name << " " << options);
  CHECK(first_of(verify_rewrite(a, b), b) == "");
}

TEST_CASE("rewrites of rewrites are accepted, from each to each") {
  const char* const stages[] = {"dce,canonicalize,dedup-unshard", "chunk{parts=2}",
                                "isolate-ep-pg,dce,overlap-ep", "concretize"};
  std::vector<Graph> graphs = {read("dsv3_debug_ep2.1b_remat")};
  for (const char* stage : stages) graphs.push_back(rewrite(graphs.back(), stage));
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    for (std::size_t j = i + 1; j < graphs.size(); ++j) {
      const RewriteReport report = verify_rewrite(graphs[i], graphs[j]);
      INFO(i << " to " << j);
      CHECK(first_of(report, graphs[j]) == "");
      CHECK(report.divided == (i < 2 && j >= 2 ? report.divided : 0));
    }
  }
  CHECK(verify_rewrite(graphs[1], graphs[4]).divided > 1000);
}

TEST_CASE("faults in the second of two rewrites are found", "[repetitive]") {
  const Graph a = read("dsv3_debug_ep2.1b_remat");
  const Graph b = rewrite(a, "canonicalize,chunk{parts=2}");
  const Graph c = rewrite(b, "overlap-ep,concretize");
  FaultMaker maker(b, c, 11);
  for (const char* kind :
       {"part takes another part's value", "kept node with another argument", "cat in another order",
        "constant changed", "wait dropped", "moved across a write", "host does not wait for a copy"}) {
    for (int i = 0; i < 4; ++i) {
      const std::optional<Fault> fault = maker.make(kind);
      REQUIRE(fault);
      INFO(kind << " at " << fault->where);
      CHECK(!verify_rewrite(b, fault->graph).violations.empty());
    }
  }
}

// What a later command merges, buckets or divides may be there several times: each claim is of the
// one whose place it has.
TEST_CASE("chains with what is computed, bucketed or merged once more are accepted, and faults in them found",
          "[repetitive]") {
  static const char* const kTp = "llama3_debug_fsdp2_tp2.0_traced";
  static const char* const kMoe = "dsv3_debug_ep2.1b_remat";
  const auto [graph, front, then] = GENERATE(table<const char*, const char*, const char*>(
      {{kMoe, "", "chunk,bucket,memory-policy{policy=full},recompute"},
       {kMoe, "chunk", "bucket,canonicalize"},
       {kMoe, "bucket", "bucket,canonicalize"},
       {kMoe, "memory-policy{policy=full},recompute,bucket", "canonicalize"},
       {kMoe, "memory-policy{policy=full},recompute", "dedup-unshard"},
       // of some parts only
       {kMoe, "chunk", "memory-policy{policy=eager},recompute"},
       // names of calls that are gone are given to others
       {kMoe, "bucket", "memory-policy{policy=full},recompute,bucket,canonicalize"},
       {kMoe, "memory-policy{policy=full},recompute", "chunk,bucket,canonicalize"},
       // views of copies, which are gone, are merged
       {kTp, "memory-policy{policy=full},recompute", "canonicalize"},
       {kTp, "memory-policy{policy=eager}", "recompute,bucket{plan=blocks},canonicalize"},
       {kTp, "memory-policy{policy=eager},recompute", "bucket{plan=blocks},canonicalize"},
       {kTp, "memory-policy{policy=eager},recompute,bucket{plan=blocks}", "canonicalize"},
       // copies stand before what the first were merged into
       {kTp, "memory-policy{policy=eager},recompute,schedule{like=inductor}", "bucket{plan=overlap}"}}));
  const Graph traced = read(graph);
  const Graph b = *front == 0 ? traced : rewrite(traced, front);
  const Graph c = rewrite(b, then);
  INFO(front << " | " << then);
  CHECK(first_of(verify_rewrite(b, c), c) == "");
  CHECK(first_of(verify_rewrite(traced, c), c) == "");
  FaultMaker maker(b, c, 11);
  for (const char* kind : {"kept node with another argument", "operands swapped", "another op",
                           "collective on another group", "another piece of a split", "constant changed"}) {
    // Bucketed collectives may run on any of the groups with the same ranks, of which it has three.
    if (graph == kTp && kind == std::string_view("collective on another group")) continue;
    for (int i = 0; i < 4; ++i) {
      const std::optional<Fault> fault = maker.make(kind);
      if (!fault) continue;
      INFO(kind << " at " << fault->where);
      CHECK(!verify_rewrite(b, fault->graph).violations.empty());
    }
  }
}

TEST_CASE("parts of the sequence of a real grid are accepted") {
  const std::string pipeline = GENERATE("chunk{dim=seq,parts=2}", "chunk{dim=seq,parts=3}",
                                        "chunk{dim=seq,sizes=[100,156]},concretize");
  const Graph a = read("dsv3_debug_ep2_seq_r030.1b_remat");
  const Graph b = rewrite(a, pipeline);
  INFO(pipeline);
  CHECK(first_of(verify_rewrite(a, b), b) == "");
}

TEST_CASE("a graph is not a rewrite of another one") {
  const Graph a = read("dsv3_debug_ep2.1b_remat");
  const Graph b =
      read_graph(fmt::format("{}/testdata/graphs/qwen3_moe_ep2.1b_remat.epw.gz", EPWEAVE_SOURCE_DIR),
                 std::nullopt, a.context);
  const RewriteReport report = verify_rewrite(a, b);
  REQUIRE(report.violations.size() == 1);
  CHECK(report.violations.front().invariant == "rewrite-derived");
}

TEST_CASE("injected faults are found", "[repetitive]") {
  struct OfKind {
    std::size_t made = 0, found = 0;
    std::map<std::string, std::size_t> by;
    std::set<std::string> places;
  };
  const char* env = std::getenv("EPWEAVE_FAULTS");
  const std::size_t sites = env != nullptr ? std::strtoul(env, nullptr, 10) : 4;
  std::map<std::string, OfKind> counts;
  std::vector<std::string> kinds = fault_kinds();
  kinds.insert(kinds.end(), LieMaker::kinds().begin(), LieMaker::kinds().end());
  const std::pair<const char*, const char*> kCases[] = {
      {"dsv3_debug_ep2.1b_remat", "ep-overlap{parts=2}"},
      {"qwen3_moe_ep2.1b_remat", "ep-overlap{parts=2}"},
      {"dsv3_debug_ep2.1b_remat", "chunk{parts=4}"},
      {"dsv3_debug_ep2.1b_remat", "chunk{parts=3}"},
      {"dsv3_debug_ep2_seq_r030.1b_remat", "chunk{dim=seq,sizes=[100,156]}"}};
  for (const auto& [name, pipeline] : kCases) {
    const Graph a = BufferReads(read(name)).add();
    const Graph b = rewrite(a, pipeline);
    REQUIRE(first_of(verify_rewrite(a, b), b) == "");
    LieMaker maker(a, b, 7);
    for (const std::string& kind : kinds) {
      for (std::size_t i = 0; i < sites; ++i) {
        const std::optional<Fault> fault = maker.make(kind);
        if (!fault) break;
        OfKind& count = counts[kind];
        ++count.made;
        count.places.insert(fmt::format("{} {} {}", name, pipeline, fault->where));
        const RewriteReport report = verify_rewrite(a, fault->graph);
        if (!report.violations.empty()) {
          ++count.found;
          ++count.by[report.violations.front().invariant];
        } else {
          UNSCOPED_INFO("missed: " << kind << " at " << fault->where << " of " << name << " " << pipeline);
        }
      }
    }
  }
  std::string table =
      "| fault | made | nodes | found | missed | first violation |\n|---|---|---|---|---|---|\n";
  bool all_found = true;
  for (const std::string& kind : kinds) {
    const OfKind& count = counts[kind];
    std::string by;
    for (const auto& [invariant, n] : count.by)
      by += fmt::format("{}{} ({})", by.empty() ? "" : ", ", invariant, n);
    table += fmt::format("| {} | {} | {} | {} | {} | {} |\n", kind, count.made, count.places.size(),
                         count.found, count.made - count.found, by);
    all_found = all_found && count.made == count.found && count.made > 0;
  }
  if (const char* path = std::getenv("EPWEAVE_FAULT_TABLE")) std::ofstream(path) << table;
  UNSCOPED_INFO(table);
  CHECK(all_found);
}

}  // namespace epweave
