#include "wrap_help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace epweave::cli {
namespace {

constexpr std::size_t kDescriptions = 30;  // the column that CLI11 puts them in
constexpr std::size_t kLeastText = 20;     // narrower, text is not read better for being wrapped

// Where the text of a line begins, behind an option's or an exit code's name; npos: of an example.
std::size_t text_column(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(' ');
  if (begin == 0 || begin == line.npos || begin >= kDescriptions) return begin;
  const std::size_t gap = line.find("  ", begin);
  const std::size_t text = gap == line.npos ? gap : line.find_first_not_of(' ', gap);
  return text != line.npos && text <= kDescriptions ? text : line.npos;
}

std::string wrap_line(std::string_view line, std::size_t columns) {
  const std::size_t column = text_column(line);
  if (column == line.npos || columns < column + kLeastText) return std::string(line);
  std::string text;
  std::size_t begin = 0;  // of what is left of the line
  for (std::size_t room = columns; line.size() - begin > room; room = columns - column) {
    std::size_t space = line.rfind(' ', begin + room);
    if (space == line.npos || space <= std::max(begin, column)) space = line.find(' ', begin + room);
    if (space == line.npos) break;
    text.append(line.substr(begin, space - begin)).append("\n").append(column, ' ');
    begin = space + 1;
  }
  return text.append(line.substr(begin));
}

}  // namespace

std::size_t output_columns() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

std::string wrap_help(std::string_view text, std::size_t columns) {
  if (columns == 0) return std::string(text);
  std::string wrapped;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    wrapped += wrap_line(text.substr(0, end), columns);
    text.remove_prefix(end);
    if (text.empty()) break;
    wrapped += '\n';
    text.remove_prefix(1);
  }
  return wrapped;
}

}  // namespace epweave::cli
