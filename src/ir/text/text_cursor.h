// Reads one line of the text form from left to right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace epweave::text {

class Cursor {
 public:
  Cursor(const std::string& path, std::size_t line, std::string_view text)
      : path_(&path), line_(line), text_(text) {}

  // Throws InputError "PATH:LINE:COLUMN: what", with the line and a caret below.
  [[noreturn]] void fail(std::string_view what) const { fail_at(at_, what); }
  [[noreturn]] void fail_at(std::size_t position, std::string_view what) const;

  std::size_t position() const { return at_; }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool at_end() const { return at_ >= text_.size(); }  // of the line or before a comment
  // Skips spaces; whether nothing but a comment follows.
  bool skip_to_end();
  void skip_spaces();

  // Takes what follows directly, if it is this.
  bool accept(char c);
  bool accept(std::string_view token);
  // Takes what must follow, perhaps after spaces.
  void expect(char c);

  // Runs of characters; empty where none follows.
  std::string_view scan_name();
  std::string_view scan_word();
  std::string_view scan_number();  // or what begins like one
  // The text of an expression, up to a comma or bracket that it does not open itself.
  std::string_view scan_expr();

  std::string read_quoted();
  std::int64_t read_integer();
  std::uint32_t read_unsigned();
  std::string read_hex();  // of protobuf fields

 private:
  template <class Matches>
  std::string_view scan(const Matches& matches);
  void read_escape(std::string& text);
  std::optional<unsigned> read_hex_number(std::size_t digits);

  const std::string* path_;
  std::size_t line_;
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace epweave::text
