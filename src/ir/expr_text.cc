// Expressions as text, printed and parsed in sympy's notation.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <span>
#include <utility>

#include "ir/expr.h"

namespace epweave {
namespace {

// Digits compare as numbers: u4 before u10.
bool natural_less(std::string_view a, std::string_view b) {
  auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      std::size_t i0 = i, j0 = j;
      while (i < a.size() && digit(a[i])) ++i;
      while (j < b.size() && digit(b[j])) ++j;
      if (i - i0 != j - j0) return i - i0 < j - j0;
      if (int order = a.substr(i0, i - i0).compare(b.substr(j0, j - j0)); order != 0) return order < 0;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

bool has_letter(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
}

// Of the parser's calls: eight for each of the 64 operations that may stand within one another.
constexpr std::uint32_t kMaxNesting = 512;
// Sizes of all that is built on the way to one expression. What is printed takes less: 256 factors
// are multiplied one by one, and 64 applications built around one another, of at most 65,536 atoms.
constexpr std::uint64_t kMaxParsed = 1 << 25;

struct Spelling {
  AtomKind kind;
  std::string_view name;
  std::string_view infix;  // how sympy writes it between operands, if it does
};

constexpr Spelling kSpellings[] = {
    {AtomKind::kFloorDiv, "FloorDiv", "//"},
    {AtomKind::kMod, "Mod", ""},
    {AtomKind::kMin, "Min", ""},
    {AtomKind::kMax, "Max", ""},
    {AtomKind::kEq, "Eq", ""},
    {AtomKind::kNe, "Ne", ""},
    {AtomKind::kLt, "Lt", "<"},
    {AtomKind::kLe, "Le", "<="},
    {AtomKind::kGt, "Gt", ">"},
    {AtomKind::kGe, "Ge", ">="},
    {AtomKind::kAnd, "And", "&"},
    {AtomKind::kOr, "Or", "|"},
    {AtomKind::kNot, "Not", "~"},
};

const Spelling* spelling_of(AtomKind kind) {
  for (const Spelling& s : kSpellings)
    if (s.kind == kind) return &s;
  return nullptr;
}

// Whether the operation can have so many operands.
bool takes_operands(AtomKind kind, std::size_t count) {
  switch (kind) {
    case AtomKind::kNot:
      return count == 1;
    case AtomKind::kMin:
    case AtomKind::kMax:
    case AtomKind::kAnd:
    case AtomKind::kOr:
      return count > 0;
    default:
      return count == 2;
  }
}

// Whether it is a single comparison of order, which is written with a sign and not as a function.
bool is_order(const ExprPool& pool, PolyId id) {
  const std::vector<Term>& terms = pool[id].terms;
  if (terms.size() != 1 || terms[0].atoms.size() != 1 || !(terms[0].coefficient == Rational{1, 1}))
    return false;
  const AtomKind kind = pool[terms[0].atoms[0]].kind;
  return kind == AtomKind::kLt || kind == AtomKind::kLe || kind == AtomKind::kGt || kind == AtomKind::kGe;
}

// Sums over ranks have hundreds of terms: their text is put together piece by piece, not formatted.
std::string join_factors(const std::vector<std::string>& factors) {
  std::string text;
  for (const std::string& factor : factors) {
    if (!text.empty()) text += '*';
    text += factor;
  }
  return text;
}

// Adds a term whose factors have these texts, with the sign that joins it to the terms before it.
void append_term(std::string& text, Rational coefficient, std::span<const std::string> factors) {
  const std::int64_t num = coefficient.num;
  const std::uint64_t magnitude =
      num < 0 ? 0 - static_cast<std::uint64_t>(num) : static_cast<std::uint64_t>(num);
  const bool has_number = magnitude != 1 || factors.empty();
  text += text.empty() ? (num < 0 ? "-" : "") : (num < 0 ? " - " : " + ");
  if (has_number) text += std::to_string(magnitude);
  bool is_first = !has_number;
  for (const std::string& factor : factors) {
    if (!std::exchange(is_first, false)) text += '*';
    // sympy puts a FloorDiv in a product into a second pair of parentheses.
    if (factor.front() == '(' && factors.size() + (has_number ? 1 : 0) > 1) {
      text.append("(").append(factor).append(")");
    } else {
      text += factor;
    }
  }
  if (coefficient.den != 1) text.append("/").append(std::to_string(coefficient.den));
}

}  // namespace

std::string ExprPool::print_atom(AtomId id) const {
  const Atom& atom = atoms_[id];
  if (atom.kind == AtomKind::kSymbol) return std::string(strings_[atom.name]);
  if (atom.kind == AtomKind::kInfinity) return "int_oo";
  std::vector<std::string> operands;
  for (PolyId operand : atom.operands) operands.push_back(print(operand));
  // Operands of these are kept by id, and their text must not depend on it. As sympy: numbers, then
  // the simpler ones.
  if (atom.kind == AtomKind::kMin || atom.kind == AtomKind::kMax || atom.kind == AtomKind::kAnd ||
      atom.kind == AtomKind::kOr)
    std::sort(operands.begin(), operands.end(), [](const std::string& x, const std::string& y) {
      const bool x_symbolic = has_letter(x), y_symbolic = has_letter(y);
      if (x_symbolic != y_symbolic) return y_symbolic;
      return x.size() != y.size() ? x.size() < y.size() : natural_less(x, y);
    });
  if (atom.kind == AtomKind::kFunction)
    return fmt::format("{}({})", strings_[atom.name], fmt::join(operands, ", "));
  if (atom.kind == AtomKind::kFloorDiv) {
    auto operand = [&](std::size_t i) {
      const PolyId p = atom.operands[i];
      const Poly& poly = polys_[p];
      bool simple = poly.terms.empty() ||
                    (poly.terms.size() == 1 && operands[i].find_first_of("+*/ ") == std::string::npos) ||
                    (poly.terms.size() == 1 && poly.terms[0].atoms.size() == 1 &&
                     poly.terms[0].coefficient == Rational{1, 1} && !is_order(*this, p));
      return simple ? operands[i] : fmt::format("({})", operands[i]);
    };
    return fmt::format("({}//{})", operand(0), operand(1));
  }
  return fmt::format("{}({})", spelling_of(atom.kind)->name, fmt::join(operands, ", "));
}

std::string ExprPool::print(PolyId id) const {
  // Ordered by text, not by id, so that the result does not depend on what was interned before.
  if (is_order(*this, id)) {
    // A comparison by itself, as sympy writes it: `0 <= u4`. They do not chain.
    const Atom& atom = atoms_[polys_[id].terms[0].atoms[0]];
    auto operand = [&](PolyId p) { return is_order(*this, p) ? fmt::format("({})", print(p)) : print(p); };
    return fmt::format("{} {} {}", operand(atom.operands[0]), spelling_of(atom.kind)->infix,
                       operand(atom.operands[1]));
  }
  struct Printed {
    Rational coefficient;
    std::string key;                   // its factors without the coefficient
    std::vector<std::string> factors;  // where they are several
  };
  std::vector<Printed> terms;
  terms.reserve(polys_[id].terms.size());
  std::optional<Rational> constant;
  for (const Term& term : polys_[id].terms) {
    if (term.atoms.empty()) {
      constant = term.coefficient;
      continue;
    }
    Printed& printed = terms.emplace_back();
    printed.coefficient = term.coefficient;
    if (term.atoms.size() == 1) {
      printed.key = print_atom(term.atoms.front());
      continue;
    }
    for (AtomId atom : term.atoms) printed.factors.push_back(print_atom(atom));
    std::sort(printed.factors.begin(), printed.factors.end(), natural_less);
    printed.key = join_factors(printed.factors);
  }
  // Long sums over ranks most often lie in that order.
  const auto less = [](const Printed& a, const Printed& b) { return natural_less(a.key, b.key); };
  if (!std::is_sorted(terms.begin(), terms.end(), less)) std::sort(terms.begin(), terms.end(), less);
  std::string text;
  for (const Printed& term : terms)
    append_term(text, term.coefficient,
                term.factors.empty() ? std::span(&term.key, 1) : std::span<const std::string>(term.factors));
  if (constant) append_term(text, *constant, {});  // a constant last, as people write it
  return text.empty() ? "0" : text;
}

// Recursive descent over sympy's notation. Precedence, lowest first: | & ~ comparison +- */ // %
// unary- **.
class ExprParser {
 public:
  ExprParser(ExprPool& pool, std::string_view text) : pool_(pool), text_(text) {}

  PolyId parse_all() {
    PolyId result = parse_or();
    skip_spaces();
    if (at_ != text_.size()) fail("unexpected text");
    return result;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(
        fmt::format("bad expression: {} at column {}\n  {}\n  {:>{}}", what, at_ + 1, text_, "^", at_ + 1));
  }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(std::string_view token) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != token.front() || !text_.substr(at_).starts_with(token))
      return false;
    at_ += token.size();
    return true;
  }
  // A limit on all that is built, so that hostile text cannot exhaust time or memory.
  PolyId built(PolyId poly) {
    parsed_ += pool_.shape(poly).size;
    if (parsed_ > kMaxParsed) fail("it takes too many operations on long sums or products");
    return poly;
  }
  // A limit on nesting, so that hostile text cannot exhaust the stack. What is printed of a
  // polynomial has at most three parentheses, two levels each, for every application within
  // another: it parses again.
  struct Depth {
    explicit Depth(ExprParser& p) : parser(p) {
      if (++parser.depth_ > kMaxNesting) parser.fail("nested too deeply");
    }
    ~Depth() { --parser.depth_; }
    ExprParser& parser;
  };

  PolyId parse_or() {
    const PolyId first = parse_and();
    return accept("|") ? parse_others(AtomKind::kOr, "|", first) : first;
  }
  PolyId parse_and() {
    const PolyId first = parse_not();
    return accept("&") ? parse_others(AtomKind::kAnd, "&", first) : first;
  }
  // Behind the first sign.
  PolyId parse_others(AtomKind kind, std::string_view sign, PolyId first) {
    std::vector<PolyId> operands{first};
    do operands.push_back(kind == AtomKind::kOr ? parse_and() : parse_not());
    while (accept(sign));
    return pool_.apply(kind, std::move(operands));
  }
  PolyId parse_not() {
    Depth depth(*this);
    if (accept("~")) return pool_.apply(AtomKind::kNot, {parse_not()});
    return parse_comparison();
  }
  PolyId parse_comparison() {
    PolyId left = parse_sum();
    for (auto [token, kind] : {std::pair{"<=", AtomKind::kLe},
                               {">=", AtomKind::kGe},
                               {"==", AtomKind::kEq},
                               {"!=", AtomKind::kNe},
                               {"<", AtomKind::kLt},
                               {">", AtomKind::kGt}})
      if (accept(token)) return pool_.apply(kind, {left, parse_sum()});
    return left;
  }
  PolyId parse_sum() {
    const PolyId first = parse_product();
    skip_spaces();
    if (at_ == text_.size() || (text_[at_] != '+' && text_[at_] != '-')) return built(first);
    std::vector<PolyId> terms{first};
    for (;;) {
      if (accept("+")) {
        terms.push_back(parse_product());
      } else if (accept("-")) {
        terms.push_back(built(pool_.scale(parse_product(), Rational{-1, 1})));
      } else {
        return built(pool_.sum(terms));
      }
    }
  }
  PolyId parse_product() {
    PolyId product = parse_unary();
    for (;;) {
      skip_spaces();
      if (text_.substr(at_).starts_with("**")) return product;
      if (accept("//")) {
        product = built(pool_.floordiv(product, parse_unary()));
      } else if (accept("*")) {
        product = built(pool_.mul(product, parse_unary()));
      } else if (accept("/")) {
        auto divisor = pool_.constant(parse_unary());
        if (!divisor || *divisor == 0)
          fail("'/' needs a number other than 0 behind it; write '//' for floor division");
        product = built(pool_.scale(product, Rational::of(1, *divisor)));
      } else if (accept("%")) {
        product = built(pool_.mod(product, parse_unary()));
      } else {
        return product;
      }
    }
  }
  PolyId parse_unary() {
    Depth depth(*this);
    if (accept("-")) return built(pool_.scale(parse_unary(), Rational{-1, 1}));
    if (accept("+")) return parse_unary();
    return parse_power();
  }
  PolyId parse_power() {
    PolyId base = parse_primary();
    if (!accept("**")) return base;
    auto exponent = pool_.constant(parse_unary());
    if (!exponent || *exponent < 0 || *exponent > 16) fail("only whole powers from 0 to 16");
    PolyId power = pool_.poly_number(1);
    for (std::int64_t i = 0; i < *exponent; ++i) power = built(pool_.mul(power, base));
    return power;
  }
  PolyId parse_primary() {
    skip_spaces();
    if (at_ == text_.size()) fail("expression ends early");
    if (accept("(")) {
      PolyId inner = parse_or();
      if (!accept(")")) fail("expected ')'");
      return inner;
    }
    const char c = text_[at_];
    if (std::isdigit(static_cast<unsigned char>(c))) {
      std::int64_t value = 0;
      auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (error != std::errc()) fail("number does not fit in 64 bits");
      at_ = static_cast<std::size_t>(end - text_.data());
      return pool_.poly_number(parse_decimals(value));
    }
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') return parse_name();
    fail("expected a number, a symbol or '('");
  }
  // Behind the digits of a number: `.25` and `e-3`, as sympy writes the numbers of floating-point
  // scalars. Exact.
  Rational parse_decimals(std::int64_t whole) {
    const auto is_digit = [&](std::size_t at) {
      return at < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at])) != 0;
    };
    Rational value{whole, 1};
    const auto scale = [&](Rational factor, std::int64_t times) {
      if (times > 18 && value.num != 0) fail("number does not fit in 64 bits");
      for (std::int64_t i = 0; i < times && value.num != 0; ++i) value = value * factor;
    };
    if (at_ < text_.size() && text_[at_] == '.') {
      Rational unit{1, 1};
      for (++at_; is_digit(at_); ++at_) {
        if (text_[at_] == '0' && !has_more_digits(at_)) continue;
        unit = unit * Rational{1, 10};
        value = value + Rational::of(text_[at_] - '0') * unit;
      }
    }
    if (at_ == text_.size() || text_[at_] != 'e') return value;
    const bool is_negative = at_ + 1 < text_.size() && text_[at_ + 1] == '-';
    const std::size_t first = at_ + (is_negative || text_.substr(at_ + 1).starts_with('+') ? 2 : 1);
    if (!is_digit(first)) fail("expected an exponent");
    std::int64_t exponent = 0;
    const auto [end, error] = std::from_chars(text_.data() + first, text_.data() + text_.size(), exponent);
    if (error != std::errc()) fail("number does not fit in 64 bits");
    at_ = static_cast<std::size_t>(end - text_.data());
    scale(is_negative ? Rational{1, 10} : Rational{10, 1}, exponent);
    return value;
  }
  // A digit other than 0 from here on.
  bool has_more_digits(std::size_t at) const {
    while (at < text_.size() && text_[at] == '0') ++at;
    return at < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at])) != 0;
  }
  // Piecewise((value, condition), ...): the value of the first condition that holds. A condition is
  // 1 or 0, so that it is a sum of products.
  // 0, 1, or what is one of these whatever its symbols are.
  bool is_truth_value(PolyId id) const {
    if (pool_.is_constant(id, 0) || pool_.is_constant(id, 1)) return true;
    const std::vector<Term>& terms = pool_[id].terms;
    if (terms.size() != 1 || terms[0].atoms.size() != 1 || terms[0].coefficient != Rational{1, 1})
      return false;
    switch (pool_[terms[0].atoms[0]].kind) {
      case AtomKind::kEq:
      case AtomKind::kNe:
      case AtomKind::kLt:
      case AtomKind::kLe:
      case AtomKind::kGt:
      case AtomKind::kGe:
      case AtomKind::kAnd:
      case AtomKind::kOr:
      case AtomKind::kNot:
        return true;
      default:
        return false;
    }
  }
  PolyId parse_pieces() {
    PolyId earlier_fail = pool_.poly_number(1), result = pool_.poly_number(0);
    do {
      if (!accept("(")) fail("expected a pair '(value, condition)'");
      const PolyId value = parse_or();
      if (!accept(",")) fail("expected ',' and a condition");
      const PolyId condition = parse_or();
      if (!is_truth_value(condition)) fail("expected a condition: a comparison, And, Or or Not");
      if (!accept(")")) fail("expected ')'");
      const PolyId holds = built(pool_.mul(earlier_fail, condition));
      result = built(pool_.add(result, built(pool_.mul(value, holds))));
      earlier_fail = built(pool_.sub(earlier_fail, holds));
    } while (accept(","));
    if (!accept(")")) fail("expected ')'");
    return result;
  }
  PolyId parse_name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.'))
      ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (accept("(")) {
      if (name == "Piecewise") return parse_pieces();
      std::vector<PolyId> operands;
      if (!accept(")")) {
        do operands.push_back(parse_or());
        while (accept(","));
        if (!accept(")")) fail("expected ')'");
      }
      for (const Spelling& s : kSpellings)
        if (s.name == name) {
          if (!takes_operands(s.kind, operands.size()))
            fail(fmt::format("{} does not take {} operands", name, operands.size()));
          return pool_.apply(s.kind, std::move(operands));
        }
      if (name == "CleanDiv" && operands.size() == 2) return pool_.floordiv(operands[0], operands[1]);
      if (name == "PythonMod" && operands.size() == 2) return pool_.mod(operands[0], operands[1]);
      return pool_.apply(AtomKind::kFunction, std::move(operands), pool_.strings().intern(name));
    }
    if (name == "int_oo" || name == "oo") return pool_.apply(AtomKind::kInfinity, {});
    if (name == "True") return pool_.poly_number(1);
    if (name == "False") return pool_.poly_number(0);
    return pool_.poly_symbol(pool_.strings().intern(name));
  }

  ExprPool& pool_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::uint32_t depth_ = 0;
  std::uint64_t parsed_ = 0;
};

ExprId ExprPool::parse(std::string_view text) {
  StringId text_id = strings_.intern(text);
  if (ExprId known = expr_of_text_[text_id]) return known;
  PolyId poly = ExprParser(*this, strings_[text_id]).parse_all();
  ExprId id = exprs_.push_back({text_id, poly});
  expr_of_text_.at(text_id) = id;
  return id;
}

}  // namespace epweave
