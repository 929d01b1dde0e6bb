#include "ir/facts.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <random>

namespace epweave {
namespace {

struct Given {
  std::string name, lower, upper;
  std::vector<std::string> asserts;
  std::string replaced_by;
};

Graph graph_with(const std::vector<Given>& symbols) {
  Graph graph;
  graph.bodies.emplace_back();
  ExprPool& pool = graph.context->exprs;
  for (const Given& given : symbols) {
    Symbol symbol;
    symbol.name = graph.intern(given.name);
    if (!given.lower.empty()) symbol.lower = pool.parse(given.lower), symbol.upper = pool.parse(given.upper);
    symbol.asserts.emplace();
    for (const std::string& text : given.asserts) symbol.asserts->push_back(pool.parse(text));
    if (!given.replaced_by.empty()) symbol.replaced_by = pool.parse(given.replaced_by);
    graph.symbols.push_back(symbol);
  }
  return graph;
}

bool equal(const Graph& graph, std::string_view a, std::string_view b) {
  Facts facts(graph);
  ExprPool& pool = graph.context->exprs;
  return facts.equal(pool.parse(a), pool.parse(b));
}

// The token count of a real graph and two data-dependent extents that sum to a multiple of it.
Graph tokens() {
  return graph_with({{"u0", "512", "1024", {"512 <= u0", "u0 <= 1024", "Eq(Mod(u0, 8), 0)"}, ""},
                     {"u1", "512", "1024", {"Eq(u1, u0)"}, "u0"},
                     {"u4", "0", "3072", {"0 <= u4"}, ""},
                     {"u5", "0", "3072", {"0 <= u5", "Eq(u4 + u5, 3*u0)"}, ""},
                     {"u6", "0", "int_oo", {"0 <= u6"}, ""}});
}

TEST_CASE("facts make expressions equal") {
  const Graph graph = tokens();
  const auto [a, b] = GENERATE(table<std::string, std::string>({
      {"2*(u0//2)", "u0"},
      {"u0//2 + u0//2", "u0"},
      {"8*(u0//8)", "u0"},
      {"(3*u0)//2", "3*(u0//2)"},
      {"Mod(u0, 4)", "0"},
      {"u1", "u0"},
      {"u4 + u5", "3*u0"},
      {"2*u5", "6*u0 - 2*u4"},
      {"Max(1, u0)", "u0"},
      {"Min(u0, 5*(u0//8))", "5*(u0//8)"},
      {"Max(0, -4*((u0//8)) + Min(u0, 5*((u0//8))))", "u0//8"},
      {"Max(0, 8*((u0//8)) - Min(u0, 7*((u0//8))))", "u0//8"},
      {"(u0//2)*256", "128*u0"},
  }));
  CHECK(equal(graph, a, b));
}

TEST_CASE("facts do not make equal what is not") {
  const Graph graph = tokens();
  CHECK_FALSE(equal(graph, "16*(u0//16)", "u0"));
  CHECK_FALSE(equal(graph, "2*(u4//2)", "u4"));
  CHECK_FALSE(equal(graph, "u4", "u5"));
  CHECK_FALSE(equal(graph, "Max(1, u6)", "u6"));
  CHECK_FALSE(equal(graph, "Min(u6, 5)", "5"));
}

TEST_CASE("known differences and orders") {
  const Graph graph = tokens();
  Facts facts(graph);
  ExprPool& pool = graph.context->exprs;
  auto e = [&](std::string_view text) { return pool.parse(text); };
  CHECK(facts.differ(e("u0"), e("u0 + 1")));
  CHECK(facts.differ(e("u0"), e("256")));
  CHECK(facts.differ(e("u4 + u5"), e("u0")));
  CHECK_FALSE(facts.differ(e("u0"), e("600")));
  CHECK_FALSE(facts.differ(e("u0"), e("u4")));
  CHECK_FALSE(facts.differ(e("u4 + u5"), e("3*u0")));
  CHECK(facts.at_least(e("u0"), e("512")));
  CHECK(facts.at_least(e("3*u0"), e("u0")));
  CHECK(facts.at_least(e("u6"), e("0")));
  CHECK_FALSE(facts.at_least(e("u6"), e("1")));
  CHECK_FALSE(facts.at_least(e("u0"), e("513")));
  CHECK(facts.at_least(e("Min(16, 8*u6)"), e("0")));
  CHECK(facts.at_least(e("Min(16, 8*u6 + 8)"), e("Min(16, 8*u6)")));
  CHECK(facts.at_least(e("16"), e("Min(16, 8*u6)")));
  CHECK(facts.at_least(e("Max(u6, u0)"), e("Max(u0, 512)")));
  CHECK_FALSE(facts.at_least(e("Min(16, 8*u6)"), e("Min(16, 8*u6 + 8)")));
  CHECK_FALSE(facts.at_least(e("Min(16, 8*u6)"), e("16")));
  CHECK_FALSE(facts.at_least(e("Max(2, u6)"), e("Max(3, u6)")));
  CHECK_FALSE(facts.at_least(e("15"), e("Min(16, 8*u6)")));
  CHECK(facts.at_least(e("16*Max(2, u4 - u5)"), e("32")));
  CHECK_FALSE(facts.at_least(e("16*Max(2, u4 - u5)"), e("33")));
}

// Rows of three experts, u2 + u3 in all: what torch.split says of a list of numbers.
TEST_CASE("a part of a sum is no more than the sum") {
  const Graph graph = graph_with({{"u2", "0", "int_oo", {}, ""},
                                  {"u3", "0", "int_oo", {}, ""},
                                  {"u4", "0", "int_oo", {}, ""},
                                  {"u5", "0", "int_oo", {}, ""},
                                  {"u6", "0", "int_oo", {"Eq(u4 + u5 + u6, u2 + u3)"}, ""},
                                  {"u7", "0", "int_oo", {"2*u7 < u2 + 4"}, ""}});
  Facts facts(graph);
  const auto is_at_least = [&](std::string_view a, std::string_view b) {
    return facts.at_least(graph.context->exprs.parse(a), graph.context->exprs.parse(b));
  };
  CHECK(equal(graph, "Min(u4, u2 + u3)", "u4"));
  CHECK(equal(graph, "Min(u4 + u5, u2 + u3)", "u4 + u5"));
  CHECK(is_at_least("3*u2 + 3*u3", "3*u4 + u5"));
  CHECK(is_at_least("u2 + 3", "2*u7"));
  CHECK_FALSE(is_at_least("u2 + u3", "2*u4"));
  CHECK_FALSE(is_at_least("u2 + u3", "u4 + 1"));
  CHECK_FALSE(is_at_least("u2 + 2", "2*u7"));
  CHECK_FALSE(is_at_least("u2", "u4"));
  facts.assume_number(graph.intern("u5"), 2);
  CHECK(is_at_least("u2 + u3", "u4 + 2"));
}

TEST_CASE("facts of graphs that say the same are shared until some take more for granted") {
  Graph graph = tokens();
  ExprPool& pool = graph.context->exprs;
  const ExprId sum = pool.parse("u4 + u5"), number = pool.parse("24"), rest = pool.parse("24 - u4");
  const StringId u0 = graph.intern("u0"), u5 = graph.intern("u5");
  const Graph copy = graph;
  Facts first(graph), second(copy), third(graph);
  CHECK_FALSE(first.equal(sum, number));
  second.assume_number(u0, 8);
  third.take_hints(second);
  CHECK(second.equal(sum, number));
  CHECK(second.equal(pool.parse("u5"), rest));
  CHECK_FALSE(first.equal(sum, number));
  CHECK_FALSE(third.equal(sum, number));
  CHECK(third.hint(u0) == 8);
  CHECK(first.hint(u0) == std::nullopt);
  CHECK_FALSE(Facts(copy).equal(sum, number));

  graph.symbols[3].hint = 5;  // says more than the copy
  CHECK(Facts(graph).hint(u5) == 5);
  CHECK(Facts(copy).hint(u5) == std::nullopt);
  CHECK(first.hint(u5) == std::nullopt);
}

TEST_CASE("numbers that add up to a part of the tokens are known by it") {
  const Graph graph = graph_with({{"u0", "2", "64", {}, ""},
                                  {"u3", "0", "64", {}, ""},
                                  {"u4", "0", "64", {"Eq(u3 + u4, (2*u0)//3 - u0//3)"}, ""},
                                  {"u5", "0", "64", {"Eq(u5, Max(u0//3, 1))"}, ""}});
  CHECK(equal(graph, "u3 + u4 + u0//3", "(2*u0)//3"));
  CHECK_FALSE(equal(graph, "u5", "Max(1, u0//3)"));  // such equations are not used
}

TEST_CASE("strides count an extent of 0 as 1") {
  const Graph graph = tokens();
  Facts facts(graph);
  ExprPool& pool = graph.context->exprs;
  CHECK(facts.equal_strides(pool.parse("16*Max(1, u6)"), pool.parse("16*u6")));
  CHECK(facts.equal_strides(pool.parse("Max(1, u4 + u5)"), pool.parse("3*u0")));
  CHECK_FALSE(facts.equal_strides(pool.parse("16*Max(1, u6)"), pool.parse("8*u6")));
  CHECK_FALSE(facts.equal(pool.parse("16*Max(1, u6)"), pool.parse("16*u6")));
}

TEST_CASE("relations that contain each other end") {
  const Graph graph = graph_with({{"u0", "", "", {"Eq(u0, u1)"}, ""},
                                  {"u1", "", "", {"Eq(u1, u2)"}, ""},
                                  {"u2", "", "", {"Eq(u2, u0)", "Eq(u2, u2 + u0 - u1)"}, "u0"}});
  CHECK(equal(graph, "u0 + u1 + u2", "3*u2"));
}

TEST_CASE("normal forms keep the value") {
  const Graph graph = tokens();
  Facts facts(graph);
  ExprPool& pool = graph.context->exprs;
  std::mt19937 random(3);
  const std::vector<std::string> atoms = {"u0",         "u1",         "u4",          "u5",
                                          "u6",         "u0//2",      "(3*u0)//8",   "Mod(u0, 3)",
                                          "u4//2",      "Max(1, u6)", "Min(u0, u4)", "Max(0, u0 - 600)",
                                          "Mod(u5, 2)", "(u0*u4)//8"};
  for (int i = 0; i < 3000; ++i) {
    std::string text = "0";
    for (int k = 0; k < 4; ++k)
      text += fmt::format(" + {}*({})*({})", static_cast<int>(random() % 7) - 3,
                          atoms[random() % atoms.size()], atoms[random() % atoms.size()]);
    // Values that satisfy the facts.
    const std::int64_t u0 = 512 + 8 * static_cast<std::int64_t>(random() % 65);
    const std::int64_t u4 = static_cast<std::int64_t>(random() % static_cast<unsigned>(3 * u0 + 1));
    const std::int64_t u6 = static_cast<std::int64_t>(random() % 4);
    auto value_of = [&](StringId name) -> std::optional<std::int64_t> {
      const std::string_view s = graph.text(name);
      if (s == "u0" || s == "u1") return u0;
      if (s == "u4") return u4;
      if (s == "u5") return 3 * u0 - u4;
      return u6;
    };
    const PolyId poly = pool.poly(pool.parse(text)), normal = facts.normalize(poly);
    INFO(text << " normal " << pool.print(normal));
    const auto before = pool.evaluate(poly, value_of);
    REQUIRE(before.has_value());
    REQUIRE(pool.evaluate(normal, value_of) == before);
    REQUIRE(pool.evaluate(pool.poly(facts.expr(normal)), value_of) == before);
    if (facts.is_nonnegative(poly)) REQUIRE(before->num >= 0);
    if (facts.is_nonpositive(poly)) REQUIRE(before->num <= 0);
  }
}

}  // namespace
}  // namespace epweave
