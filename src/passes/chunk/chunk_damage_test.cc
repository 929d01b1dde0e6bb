// A real mixture-of-experts region with one fault in its routing: each is refused, naming what is
// wrong and where.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/text/text.h"
#include "passes/chunk/chunk.h"
#include "passes/chunk/chunk_graphs_test.h"

namespace epweave {
namespace {

struct Damage {
  const char *node, *from, *to;  // in the line of the node
  const char *refused_at, *id, *message;
};

constexpr const char* kDispatcher = "torchtitan/models/common/token_dispatcher.py";

// Of layers.2.moe in dsv3_debug_ep2.
constexpr Damage kDamages[] = {
    {"index_9", "%floor_divide_1", "%floor_divide", "all_to_all_single_4", "chunk.split-sizes",
     "its split sizes count 'getitem_54', and the rows are sorted by 'getitem_31'"},
    {"index_8", "%getitem_56", "%getitem_33", "mul_43", "chunk.mixed-orders",
     "it pairs the rows of '_to_copy_65', which were put into one order, with those of 'view_127', which "
     "were put "
     "into another. A part pairs others than the whole"},
    {"all_to_all_single_4", "[%_local_scalar_dense_4, %_local_scalar_dense_5]",
     "[%_local_scalar_dense_5, %_local_scalar_dense_4]", "all_to_all_single_4", "chunk.split-sizes",
     "its split sizes are the entries of '_to_copy_57' in another order than the ranks'"},
    {"all_to_all_single_5", "[%_local_scalar_dense_6, %_local_scalar_dense_7]",
     "[%_local_scalar_dense_7, %_local_scalar_dense_6]", "all_to_all_single_5", "chunk.split-sizes",
     "its split sizes are those of the exchange that brought its rows, in another order"},
    {"view_96", "%sum_5", "%sum_1", "all_to_all_single_4", "chunk.split-sizes",
     "its split sizes count 'getitem_31', and the rows are sorted by 'getitem_54'"},
    {"view_94", "%sum_5", "%sum_1", "all_to_all_single_4", "chunk.split-sizes",
     "it receives by counts of 'getitem_31', and the rows are sorted by 'getitem_54'"},
    {"sum_6", "[1]", "[0]", "sum_6", "chunk.no-type",
     "it is recorded as i64[2]{1}@cuda:0, and its arguments give i64[4]{1}@cuda:0"},
    {"sort_1", "stable=True", "stable=True, descending=True", "all_to_all_single_4", "chunk.split-sizes",
     "its split sizes count ids upwards, and the rows are sorted downwards"},
    {"index_12", "%sub_5", "%add_9", "index_12", "chunk.unproved-rows",
     "nothing shows that 'add_9' names each row once, and 'deterministic_scatter_add_1' needs the rows of "
     "the same "
     "tokens as in the whole"},
    {"index_put__1", "%sub_5", "%add_9", "index_12", "chunk.unproved-rows",
     "nothing shows that 'sub_5' names each row once, and 'deterministic_scatter_add_1' needs the rows of "
     "the same "
     "tokens as in the whole"},
};

std::string damaged(std::string text, const Damage& damage) {
  const std::size_t line = text.find(fmt::format("\n  %{} = ", damage.node));
  REQUIRE(line != text.npos);
  const std::size_t at = text.find(damage.from, line + 1);
  REQUIRE(at < text.find('\n', line + 1));
  return text.replace(at, std::string_view(damage.from).size(), damage.to);
}

TEST_CASE("faults in the routing of a real graph") {
  const Graph whole = read_real_graph("dsv3_debug_ep2.1b_remat");
  const std::string text = print_text(whole);
  const ChunkOptions options{.roots = {{"layers.*.moe"}}};
  for (const Damage& damage : kDamages) {
    INFO(damage.node << ": " << damage.from << " -> " << damage.to);
    const Graph graph = parse_text(damaged(text, damage), "test");
    try {
      chunk(graph, options);
      FAIL("accepted");
    } catch (const PassError& refused) {
      CHECK(refused.id() == damage.id);
      CHECK(refused.problem().find(damage.message) != std::string::npos);
      const Site& site = refused.site();
      CHECK(site.node == damage.refused_at);
      CHECK(site.module.starts_with("layers.2.moe"));
      CHECK(site.source.starts_with(kDispatcher));
      CHECK_FALSE(refused.remedy().empty());
    }
  }
}

}  // namespace
}  // namespace epweave
