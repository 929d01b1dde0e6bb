#include "ir/expr.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <random>

namespace epweave {
namespace {

struct Pool {
  StringTable strings;
  ExprPool pool{strings};

  std::string normal(std::string_view text) { return pool.print(pool.poly(pool.parse(text))); }
  PolyId poly(std::string_view text) { return pool.poly(pool.parse(text)); }
};

TEST_CASE("expressions are brought to one form") {
  Pool p;
  const auto [text, normal] = GENERATE(table<std::string, std::string>({
      {"3*u0 + u0", "4*u0"},
      {"u0 + u1 - u0", "u1"},
      {"u0 - u0", "0"},
      {"(2*u0)//2", "u0"},
      {"u0//2 + u0//2", "2*((u0//2))"},
      {"(u0 + 1)*(u0 - 1)", "u0*u0 - 1"},
      {"u0**2", "u0*u0"},
      {"2*(u0 + 3) - 6", "2*u0"},
      {"Mod(6*u0, 3)", "0"},
      {"Max(1, u0, 1)", "Max(1, u0)"},
      {"Max(3, 5)", "5"},
      {"Min(-3, 5)", "-3"},
      {"(-7)//2", "-4"},
      {"Mod(-7, 2)", "1"},
      {"7 % 4", "3"},
      {"Eq(3, 3)", "1"},
      {"2 < 3", "1"},
      {"~(2 < 3)", "0"},
      {"u0*0", "0"},
      {"Piecewise((3, 2 < 1), (u0, True))", "u0"},
      {"Piecewise((1, Eq(u0, -3) & (u0 < 0)), (0, True))", "And(Eq(u0, -3), Lt(u0, 0))"},
      {"Piecewise((3, u0 < 0), (5, True))", "-2*Lt(u0, 0) + 5"},
      {"6*u0/3", "2*u0"},
  }));
  CHECK(p.normal(text) == p.normal(normal));
}

TEST_CASE("what differs stays apart") {
  Pool p;
  CHECK(p.poly("u0//2") != p.poly("u0/2"));
  CHECK(p.poly("u0//2 + u0//2") != p.poly("u0"));
  CHECK(p.poly("Max(0, u0)") != p.poly("Max(1, u0)"));
  CHECK(p.poly("Mod(u0, 2)") != p.poly("Mod(u0, 3)"));
  CHECK(p.poly("f(u0)") != p.poly("g(u0)"));
}

TEST_CASE("an expression keeps its text") {
  Pool p;
  for (std::string_view text :
       {"3*((u0//2))", "u26 + u27", "Max(1, u0)", "-4*((u0//8)) + Min(u0, 5*((u0//8)))"}) {
    CHECK(p.pool.text(p.pool.parse(text)) == text);
    CHECK(p.pool.text(p.pool.from_poly(p.poly(text))) == text);
  }
}

TEST_CASE("decimal numbers are exact") {
  Pool p;
  CHECK(p.poly("2.5*zuf0 + 1.0") == p.poly("5*zuf0/2 + 1"));
  CHECK(p.poly("FloatTrueDiv(zuf0, 3.250)") == p.poly("FloatTrueDiv(zuf0, 13/4)"));
  CHECK(p.poly("1.25e-2") == p.poly("1/80"));
  CHECK(p.poly("5e+3 + 0.0e-300") == p.poly("5000"));
  CHECK(p.pool.text(p.pool.parse("2.5*zuf0 + 1.0")) == "2.5*zuf0 + 1.0");
  for (std::string_view text : {"1e", "1.5e-", "1.0e-30", "1e19", "0.1234567890123456789", "1.5.2"})
    CHECK_THROWS_AS(p.pool.parse(text), InputError);
}

TEST_CASE("a bad expression is refused with its column") {
  Pool p;
  for (std::string_view text :
       {"", "u0 +", "(u0", "u0)", "u0 u1", "1/0", "u0/u1", "u0**u1", "99999999999999999999",
        "9223372036854775807*4", "$", "Piecewise((3, 2), (5, True))", "Piecewise((3, u0), (5, True))"})
    CHECK_THROWS_AS(p.pool.parse(text), InputError);
  CHECK_THROWS_WITH(p.pool.parse("u0 + $"), Catch::Contains("column 6"));
  CHECK_THROWS_AS(p.pool.parse(std::string(100000, '(')), InputError);
  CHECK_THROWS_AS(p.pool.parse(std::string(100000, '-') + "1"), InputError);
}

TEST_CASE("a sum of many symbols is the sum of them one by one") {
  Pool p;
  std::vector<ExprId> terms;
  ExprId sum = p.pool.number(0);
  for (int i = 0; i < 70; ++i) {
    terms.push_back(p.pool.parse(fmt::format("u{}", i % 60)));
    sum = p.pool.add(sum, terms.back());
  }
  CHECK(p.pool.sum(terms) == sum);
  terms.push_back(p.pool.sub(p.pool.number(0), sum));
  CHECK(p.pool.constant(p.pool.sum(terms)) == 0);
}

// A random expression over u0, u1 as text.
std::string random_text(std::mt19937& random, int depth) {
  auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  if (depth == 0) return pick(2) == 0 ? fmt::format("u{}", pick(2)) : fmt::format("{}", pick(7));
  const std::string a = random_text(random, depth - 1), b = random_text(random, depth - 1);
  const int divisor = 1 + pick(4);
  switch (pick(7)) {
    case 0:
      return fmt::format("({} + {})", a, b);
    case 1:
      return fmt::format("({} - {})", a, b);
    case 2:
      return fmt::format("({})*({})", a, b);
    case 3:
      return fmt::format("(({})//{})", a, divisor);
    case 4:
      return fmt::format("Mod({}, {})", a, divisor);
    case 5:
      return fmt::format("Max({}, {})", a, b);
    default:
      return fmt::format("Min({}, {})", a, b);
  }
}

TEST_CASE("printing and parsing again gives the same polynomial") {
  Pool p;
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const PolyId poly = p.poly(random_text(random, 4));
    const std::string text = p.pool.print(poly);
    INFO(text);
    REQUIRE(p.poly(text) == poly);
  }
}

TEST_CASE("operations have their number of operands") {
  Pool p;
  for (const std::string text : {"FloorDiv()", "FloorDiv(1)", "Mod(a)", "Mod(1, 2, 3)", "Min()", "Not(a, b)",
                                 "Eq(a)", "Lt(a, b, c)", "And()"})
    CHECK_THROWS_WITH(p.poly(text), Catch::Contains("does not take"));
}

TEST_CASE("a comparison within another or within a division is printed among parentheses") {
  Pool p;
  for (const std::string text : {"(a <= 3) & (b > (c > 13))", "(a < b) <= c", "(a <= b)//c", "c//(a <= b)"}) {
    const PolyId poly = p.poly(text);
    INFO(p.pool.print(poly));
    CHECK(p.poly(p.pool.print(poly)) == poly);
  }
}

std::string repeat(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST_CASE("divisions within one another are printed once each") {
  Pool p;
  const std::string text = repeat("((", 63) + "a" + repeat(" + 1)//3)", 63);
  const PolyId poly = p.poly(text);
  CHECK(p.pool.print(poly) == text);
  CHECK(p.pool.shape(poly).depth == 63);
}

TEST_CASE("what is too large to write out is refused") {
  Pool p;
  std::string sum = "s0";
  for (int i = 1; i < 130; ++i) sum += fmt::format(" + s{}", i);
  const std::string product =
      "(" + sum.substr(0, sum.find(" + s120")) + ")*(" + sum.substr(0, sum.find(" + s100")) + ")";
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"(" + sum + ")*(" + sum + ")", "expression has more than 16384 terms"},
           {"(a**16)**16*a", "expression multiplies more than 256 factors"},
           {repeat("(", 5) + "a//2" + repeat(")**16//2", 5),
            "expression has more than 65536 symbols and numbers"},
           {"a" + repeat("//2//b", 200), "expression has more than 64 operations within one another"},
           {product + repeat("*3/3", 2000), "it takes too many operations on long sums or products"}}) {
    INFO(text);
    CHECK_THROWS_WITH(p.poly(text), Catch::Contains(message));
  }
  // In products, whose factors are printed within a second pair of parentheses, up to the limit.
  const PolyId deepest = p.poly(repeat("(2*((", 64) + "a" + repeat(" + 1)//3))", 64));
  CHECK(p.pool.shape(deepest).depth == 64);
  CHECK(p.poly(p.pool.print(deepest)) == deepest);
  CHECK(p.pool[p.poly("(a**16)**16")].terms[0].atoms.size() == 256);
  CHECK(p.pool[p.poly(product)].terms.size() == 120 * 100 - 100 * 99 / 2);
}

TEST_CASE("substituting numbers agrees with evaluating") {
  Pool p;
  std::mt19937 random(2);
  const StringId u0 = p.strings.intern("u0");
  for (int i = 0; i < 2000; ++i) {
    const PolyId poly = p.poly(random_text(random, 4));
    const std::int64_t a = static_cast<std::int64_t>(random() % 20),
                       b = static_cast<std::int64_t>(random() % 20);
    auto number = [&](StringId name) { return std::optional(name == u0 ? a : b); };
    const auto value = p.pool.evaluate(poly, number);
    const PolyId substituted = p.pool.substitute(
        poly, [&](StringId name) { return std::optional(p.pool.poly_number(*number(name))); });
    REQUIRE(value.has_value());
    REQUIRE(p.pool.constant(substituted) == value->num);
  }
}

}  // namespace
}  // namespace epweave
