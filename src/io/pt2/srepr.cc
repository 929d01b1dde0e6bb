#include "io/pt2/srepr.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"

namespace epweave {
namespace {

constexpr int kMaxExprDepth = 100;
constexpr std::size_t kMaxText = 1 << 20;

// How tightly what is printed binds, loosest first: what stands within something tighter needs
// parentheses.
enum class Binding { kOr, kAnd, kComparison, kSum, kProduct, kPower, kAtom };

struct Piece {
  std::string text;
  Binding binding = Binding::kAtom;

  std::string within(Binding outer) const { return binding < outer ? "(" + text + ")" : text; }
};

struct Infix {
  std::string_view name;
  std::string_view sign;
  Binding binding;
};
constexpr std::array kInfix = {
    Infix{"StrictLessThan", " < ", Binding::kComparison},
    Infix{"LessThan", " <= ", Binding::kComparison},
    Infix{"StrictGreaterThan", " > ", Binding::kComparison},
    Infix{"GreaterThan", " >= ", Binding::kComparison},
    Infix{"And", " & ", Binding::kAnd},
    Infix{"Or", " | ", Binding::kOr},
};

// Names under which the expression language knows functions that sympy's constructors are named
// otherwise.
struct Renamed {
  std::string_view constructor;
  std::string_view name;
};
constexpr std::array kRenamed = {Renamed{"Equality", "Eq"}, Renamed{"Unequality", "Ne"}};

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::string parse() {
    if (text_.size() > kMaxText) fail("is too long");
    std::string result = read().text;
    if (at_ != text_.size()) fail("has more behind its end");
    return result;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(fmt::format("expression {} at column {}: {}", what, at_ + 1, text_.substr(0, 200)));
  }

  bool accept(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("lacks '{}'", c));
  }
  void skip_separator() {
    expect(',');
    while (accept(' ')) {
    }
  }

  template <class Matches>
  std::string_view scan(const Matches& matches) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && matches(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  std::string_view read_quoted() {
    expect('\'');
    const std::string_view text = scan([](char c) { return c != '\'' && c != '\\'; });
    expect('\'');
    return text;
  }

  Piece read() {
    if (++depth_ > kMaxExprDepth) fail("nests too deeply");
    const std::string_view name = scan(is_name_char);
    if (name.empty()) fail("lacks a name");
    Piece piece;
    if (!accept('(')) {
      piece = {constant(name)};
    } else if (name == "Integer") {
      piece = read_integer();
      expect(')');
    } else if (name == "Symbol" || name == "Float") {
      piece = {std::string(read_quoted())};
      if (piece.text.empty()) fail("has an empty name");
      while (!accept(')')) skip_assumption();
    } else {
      piece = apply(name, read_operands());
    }
    --depth_;
    return piece;
  }

  static std::string constant(std::string_view name) {
    if (name == "true") return "True";
    return name == "false" ? "False" : std::string(name);
  }

  Piece read_integer() {
    const bool is_negative = accept('-');
    const std::string_view digits = scan([](char c) { return c >= '0' && c <= '9'; });
    if (digits.empty()) fail("lacks digits");
    if (is_negative) return {fmt::format("-{}", digits), Binding::kSum};
    return {std::string(digits)};
  }

  // `, positive=True`
  void skip_assumption() {
    skip_separator();
    if (scan(is_name_char).empty() || !accept('=') || scan(is_name_char).empty()) fail("lacks an assumption");
  }

  std::vector<Piece> read_operands() {
    std::vector<Piece> operands;
    if (accept(')')) return operands;
    for (;;) {
      const bool is_number =
          at_ < text_.size() && (text_[at_] == '-' || (text_[at_] >= '0' && text_[at_] <= '9'));
      operands.push_back(is_number ? read_integer() : read());
      if (accept(')')) return operands;
      skip_separator();
    }
  }

  Piece apply(std::string_view name, const std::vector<Piece>& operands) {
    if (name == "Add") return add(operands);
    if (name == "Mul") return join(operands, "*", Binding::kProduct);
    if (name == "Pow" && operands.size() == 2)
      return {operands[0].within(Binding::kAtom) + "**" + operands[1].within(Binding::kAtom),
              Binding::kPower};
    if (name == "Rational" && operands.size() == 2)
      return {operands[0].text + "/" + operands[1].text, Binding::kProduct};
    if (name == "FloorDiv" || name == "CleanDiv")
      return {"(" + join(operands, "//", Binding::kPower).text + ")"};
    if (name == "Not" && operands.size() == 1)
      return {"~" + operands[0].within(Binding::kAtom), Binding::kPower};
    if (const auto infix = std::ranges::find(kInfix, name, &Infix::name); infix != kInfix.end()) {
      // Comparisons do not chain.
      const auto inner = infix->binding == Binding::kComparison ? Binding::kSum : infix->binding;
      return {join(operands, infix->sign, inner).text, infix->binding};
    }
    const auto renamed = std::ranges::find(kRenamed, name, &Renamed::constructor);
    std::string text = std::string(renamed == kRenamed.end() ? name : renamed->name) + "(";
    for (std::size_t i = 0; i < operands.size(); ++i) text += (i > 0 ? ", " : "") + operands[i].text;
    return {text + ")"};
  }

  static Piece add(const std::vector<Piece>& operands) {
    Piece sum{operands.empty() ? "0" : operands[0].within(Binding::kSum), Binding::kSum};
    for (std::size_t i = 1; i < operands.size(); ++i) {
      const std::string term = operands[i].within(Binding::kSum);
      sum.text += term.starts_with('-') ? " - " + term.substr(1) : " + " + term;
    }
    return sum;
  }

  // An operand that begins with a sign needs parentheses only behind the first.
  static Piece join(const std::vector<Piece>& operands, std::string_view sign, Binding binding) {
    Piece joined{"", binding};
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (i > 0 && joined.text != "-") joined.text += sign;
      if (i == 0 && binding == Binding::kProduct && operands.size() > 1 && operands[0].text == "-1") {
        joined.text = "-";
        continue;
      }
      const bool is_leading_number =
          i == 0 && binding == Binding::kProduct && is_negative_number(operands[i]);
      joined.text += is_leading_number ? operands[i].text : operands[i].within(binding);
    }
    return joined;
  }
  static bool is_negative_number(const Piece& piece) {
    return piece.text.starts_with('-') &&
           std::all_of(piece.text.begin() + 1, piece.text.end(), [](char c) { return c >= '0' && c <= '9'; });
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string expression_of_srepr(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace epweave
