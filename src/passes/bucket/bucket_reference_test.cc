// Against torchtitan: bucket on each NAME.3_pg graph, without the numbers that nothing reads, gives
// NAME.4_bucket: the same nodes in the same order, up to names and to what torch notes for
// debugging.
//
// The folder is $EPWEAVE_GRAPHS, or testdata/graphs; graphs are files of any form that io reads.
// scripts/dev/bucket_table.py does the same on dumps, from other stages too.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "analysis/users.h"
#include "analysis/verify.h"
#include "io/file.h"
#include "ir/text/text.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "passes/bucket/bucket.h"
#include "passes/dce.h"
#include "passes/reassign_pgs.h"
#include "passes/reference_graphs_test.h"

namespace epweave {
namespace {

// torchtitan drops numbers that nothing reads; our dce keeps those that types name.
void drop_unread_numbers(Graph& ours, const Graph& theirs) {
  IdSet<StringId> names;
  for (NodeId id : theirs.step().order) names.insert(theirs.step().nodes[id].name);
  const NodeLists users = list_users(*ours.context, ours.step());
  std::erase_if(ours.step().order, [&](NodeId id) {
    const Node& node = ours.step().nodes[id];
    return has_family(node, OpFamily::kHostRead) && users[id].empty() && !names.contains(node.name);
  });
}

// One line per node; names are places.
std::vector<std::string> print_numbered(Graph graph) {
  Body& body = graph.step();
  const StringId bucket_key = graph.intern("fsdp_bucket");
  for (std::size_t i = 0; i < body.order.size(); ++i) {
    Node& node = body.nodes[body.order[i]];
    node.name = graph.intern(fmt::format("n{}", i));
    node.provenance = {};
    if (node.extra == nullptr) continue;
    NodeExtra extra = *node.extra;
    const auto meta = graph.context->args[extra.meta];
    std::vector<Arg> kept;
    bool is_of_bucket = false;
    for (std::size_t k = 0; k + 1 < meta.size(); k += 2)
      if (meta[k].as_name() == bucket_key) {
        kept = {meta[k], meta[k + 1]};
        is_of_bucket = true;
      }
    if (is_of_bucket) extra.meta = graph.context->args.add(kept);
    node.extra = graph.context->own(std::move(extra));
  }
  std::vector<std::string> lines;
  for (NodeId id : body.order) lines.push_back(print_node(graph, body, id, TextMode::kFull));
  return lines;
}

TEST_CASE("bucket gives torchtitan's buckets, node by node") {
  const auto before = find_graphs("3_pg"), after = find_graphs("4_bucket");
  int compared = 0;
  for (const auto& [name, path] : before) {
    if (!after.contains(name)) continue;
    const Graph start = read_graph(path);
    const Graph theirs = read_graph(after.at(name), std::nullopt, start.context);
    Graph ours =
        bucket(name.find("allflags") != name.npos ? reassign_pgs(dce(start)).graph : dce(start)).graph;
    drop_unread_numbers(ours, theirs);
    const auto x = print_numbered(ours), y = print_numbered(theirs);
    const auto [p, q] = std::ranges::mismatch(x, y);
    INFO(name << ": " << x.size() << " and " << y.size() << " nodes\n  ours   " << (p == x.end() ? "" : *p)
              << "\n  theirs " << (q == y.end() ? "" : *q));
    CHECK((x == y));
    ++compared;
  }
  CHECK(compared > 0);
}

// Traces have the copies of an exchange's counts one by one: only the last makes the host wait, for
// all.
TEST_CASE("bucket leaves no copy to the host that is read too early") {
  const auto paths = find_graphs("0_traced");
  for (const char* const name :
       {"dsv3_debug_fsdp2_tp2_ep4", "dsv3_debug_ep2", "dsv3_debug_ep2_r030", "llama3_debug_fsdp2_tp2"}) {
    INFO(name);
    REQUIRE(paths.contains(name));
    const Graph graph = read_graph(paths.at(name));
    std::vector<Violation> violations;
    verify_host_reads(bucket(graph, {}).graph, violations);
    CHECK(violations.empty());
  }
}

TEST_CASE("what is bucketed is not bucketed again") {
  for (const auto& [name, path] : find_graphs("3_pg")) {
    const Graph once = bucket(dce(read_graph(path))).graph;
    const Graph twice = bucket(once).graph;
    INFO(name);
    const auto launches = [](const Graph& graph) {
      return std::ranges::count_if(graph.step().order, [&](NodeId id) {
        const Node& node = graph.step().nodes[id];
        return node.op != nullptr && node.op->cost == CostClass::kCollective;
      });
    };
    CHECK(launches(once) == launches(twice));
    break;
  }
}

}  // namespace
}  // namespace epweave
