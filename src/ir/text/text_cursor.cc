#include "ir/text/text_cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "ir/text/text_spelling.h"

namespace epweave::text {
namespace {

bool begins_character(char c) {
  return (c & 0xc0) != 0x80;  // UTF-8
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void Cursor::fail_at(std::size_t position, std::string_view what) const {
  // Of a long line only the surroundings are shown.
  constexpr std::size_t kBefore = 60, kAfter = 40;
  const auto characters = [](std::string_view text) {
    return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
  };
  position = std::min(position, text_.size());
  std::size_t begin = position > kBefore ? position - kBefore : 0;
  while (begin < position && !begins_character(text_[begin])) ++begin;
  std::size_t end = std::min(text_.size(), position + kAfter);
  while (end < text_.size() && !begins_character(text_[end])) ++end;
  const std::string_view before = begin > 0 ? "..." : "", after = end < text_.size() ? "..." : "";
  std::string shown(text_.substr(begin, end - begin));
  // Control characters would move the caret or the terminal.
  std::ranges::replace_if(
      shown, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  const std::size_t caret = before.size() + characters(text_.substr(begin, position - begin));
  throw InputError(fmt::format("{}:{}:{}: {}\n  {}{}{}\n  {}^", *path_, line_,
                               characters(text_.substr(0, position)) + 1, what, before, shown, after,
                               std::string(caret, ' ')));
}

void Cursor::skip_spaces() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
}

bool Cursor::skip_to_end() {
  skip_spaces();
  return at_end() || text_[at_] == '#';
}

bool Cursor::accept(char c) {
  if (peek() != c || at_end()) return false;
  ++at_;
  return true;
}

bool Cursor::accept(std::string_view token) {
  if (!text_.substr(std::min(at_, text_.size())).starts_with(token)) return false;
  at_ += token.size();
  return true;
}

void Cursor::expect(char c) {
  skip_spaces();
  if (!accept(c)) fail(fmt::format("expected '{}'", c));
}

template <class Matches>
std::string_view Cursor::scan(const Matches& matches) {
  const std::size_t begin = at_;
  while (at_ < text_.size() && matches(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

std::string_view Cursor::scan_name() {
  return scan(is_name_char);
}
std::string_view Cursor::scan_word() {
  return scan(is_word_char);
}
std::string_view Cursor::scan_number() {
  return scan([](char c) { return is_name_char(c) || c == '+' || c == '-'; });
}

std::string_view Cursor::scan_expr() {
  int depth = 0;
  std::string_view text = scan([&](char c) {
    if (c == '(') ++depth;
    if (c == ')' && depth-- == 0) return false;
    return c != ']' && c != '}' && c != '#' && (c != ',' || depth > 0);
  });
  return text.substr(0, text.find_last_not_of(" \t") + 1);
}

std::string Cursor::read_quoted() {
  const std::size_t begin = at_;
  if (peek() != '"') fail("expected a string in double quotes");
  ++at_;
  std::string text;
  while (peek() != '"') {
    if (at_end()) fail_at(begin, "this string has no closing quote");
    const char c = text_[at_++];
    if (c == '\\')
      read_escape(text);
    else
      text += c;
  }
  ++at_;
  return text;
}

void Cursor::read_escape(std::string& text) {
  const std::size_t begin = at_ - 1;
  const char c = peek();
  ++at_;
  if (c == '"' || c == '\\') {
    text += c;
  } else if (c == 'n') {
    text += '\n';
  } else if (c == 't') {
    text += '\t';
  } else if (const auto ascii = c == 'x' ? read_hex_number(2) : std::nullopt; ascii && *ascii < 0x80) {
    text += static_cast<char>(*ascii);
  } else if (const auto c1 = c == 'u' ? read_hex_number(4) : std::nullopt; c1 && *c1 >= 0x80 && *c1 < 0xa0) {
    text += '\xc2';
    text += static_cast<char>(*c1);
  } else {
    fail_at(begin, "unknown escape: \\\" \\\\ \\n \\t, \\x00 to \\x7f and \\u0080 to \\u009f are known");
  }
}

std::optional<unsigned> Cursor::read_hex_number(std::size_t digits) {
  unsigned number = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    const int digit = hex_value(peek());
    if (digit < 0) return std::nullopt;
    number = number * 16 + static_cast<unsigned>(digit);
    ++at_;
  }
  return number;
}

std::int64_t Cursor::read_integer() {
  std::int64_t value = 0;
  const char* end = text_.data() + text_.size();
  const auto [after, error] = std::from_chars(text_.data() + std::min(at_, text_.size()), end, value);
  if (error == std::errc::result_out_of_range) fail("number does not fit in 64 bits");
  if (error != std::errc()) fail("expected an integer");
  at_ = static_cast<std::size_t>(after - text_.data());
  return value;
}

std::uint32_t Cursor::read_unsigned() {
  const std::size_t begin = at_;
  const std::int64_t value = read_integer();
  if (value < 0 || value > UINT32_MAX) fail_at(begin, "expected a number from 0 to 4294967295");
  return static_cast<std::uint32_t>(value);
}

std::string Cursor::read_hex() {
  const std::size_t begin = at_;
  const std::string_view digits = scan([](char c) { return hex_value(c) >= 0; });
  if (digits.empty() || digits.size() % 2 != 0)
    fail_at(begin, "expected bytes of two hexadecimal digits each");
  std::string bytes;
  bytes.reserve(digits.size() / 2);
  for (std::size_t i = 0; i < digits.size(); i += 2)
    bytes += static_cast<char>(hex_value(digits[i]) * 16 + hex_value(digits[i + 1]));
  if (!is_wire_format(bytes)) fail_at(begin, "these bytes are not protobuf fields");
  return bytes;
}

}  // namespace epweave::text
