#include "compare/diff/diff_html.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "compare/lineage.h"
#include "io/file.h"
#include "ir/text/text.h"
#include "pipeline/pipeline.h"
#include "pipeline/runner.h"

namespace epweave {
namespace {

using nlohmann::json;

constexpr std::string_view kOpening = R"(<script type="application/json" id="data">)";

// What the script of a page reads.
json data_of(const std::string& page) {
  const std::size_t begin = page.find(kOpening) + kOpening.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

std::string page_of(const Graph& a, const Graph& b) {
  return print_diff_html({a, b, "a.epw", "b.epw"}, diff_graphs(a, b, {}));
}

Graph debug_graph() {
  return read_graph(EPWEAVE_SOURCE_DIR "/testdata/graphs/dsv3_debug_ep2.1b_remat.epw.gz", std::nullopt,
                    nullptr);
}

TEST_CASE("the page shows every node of both graphs once, and links each part to its node") {
  const Graph before = debug_graph();
  const Graph after = run_pipeline(before, expand_preset("ep-overlap"));
  const json data = data_of(page_of(before, after));
  const json& step = data["graphs"][0];
  REQUIRE(step["a"]["name"].size() == before.step().order.size());
  REQUIRE(step["b"]["name"].size() == after.step().order.size());
  for (const char* column : {"call", "type", "module", "part", "backward"})
    REQUIRE(step["b"][column].size() == after.step().order.size());
  std::size_t parts = 0;
  for (std::size_t i = 0; i < after.step().order.size(); ++i) {
    const Node& node = after.step().nodes[after.step().order[i]];
    REQUIRE(step["b"]["name"][i] == after.text(node.name));
    const Lineage lineage = find_lineage(node);
    if (!lineage.is_part()) continue;
    ++parts;
    REQUIRE(step["b"]["part"][i] == lineage.part);
    const auto origin = step["origin"][i].get<std::size_t>();
    REQUIRE(step["a"]["name"][origin] == after.text(lineage.origins.front()));
  }
  REQUIRE(parts > 1000);
  std::size_t divided = 0;
  for (const json& diff : step["diffs"]) divided += diff[0].get<unsigned>() & 1U;
  REQUIRE(divided * 2 == parts);
}

TEST_CASE("the page needs nothing else") {
  const Graph graph = debug_graph();
  const std::string page = page_of(graph, graph);
  for (const char* reference : {"http:", "https:", "src=", "<link", "@import", "url(", "fetch("})
    REQUIRE(page.find(reference) == page.npos);
  REQUIRE(data_of(page)["graphs"].size() >= 1);
}

TEST_CASE("a name cannot end the script that holds it") {
  const std::string text =
      "epweave text 1\n\ngraph\n  %x = placeholder : f32[2]@cpu @\"</script><b>\"\n  output([%x])\n";
  const Graph a = parse_text(text, "a.txt");
  const std::string page = page_of(a, a);
  REQUIRE(page.find("</script><b>") == page.npos);
  REQUIRE(data_of(page)["texts"].dump().find("</script><b>") != std::string::npos);
}

}  // namespace
}  // namespace epweave
