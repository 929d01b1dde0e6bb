#include "paint.h"

#include <algorithm>

namespace epweave::cli {
namespace {

constexpr std::string_view kReset = "\033[0m", kBold = "\033[1m";

// Of a line of a difference; "" for none. The marks are those of compare/diff/diff_text.h.
std::string_view color_of(std::string_view line) {
  if (line.starts_with("--- ") || line.starts_with("+++ ")) return kBold;
  if (line.starts_with("@@ ")) return "\033[36m";
  if (line.size() < 2 || line[1] != ' ') return "";
  switch (line[0]) {
    case '-':
      return "\033[31m";
    case '+':
      return "\033[32m";
    case '/':
      return "\033[35m";
    case '~':
      return "\033[33m";
    case '>':
      return "\033[34m";
    default:
      return "";
  }
}

template <class Paint>
std::string paint_lines(std::string_view text, const Paint& paint) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    paint(text.substr(at, end - at), out);
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

}  // namespace

std::string paint_difference(std::string_view text) {
  return paint_lines(text, [](std::string_view line, std::string& out) {
    const std::string_view color = line.starts_with("- removed ") ? "" : color_of(line);
    out += color;
    out += line;
    if (!color.empty()) out += kReset;
  });
}

std::string paint_nodes(std::string_view text) {
  return paint_lines(text, [](std::string_view line, std::string& out) {
    const std::size_t begin = line.find_first_not_of(' ');
    if (begin == line.npos || line[begin] != '%') {
      out += line;
      return;
    }
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    out += line.substr(0, begin);
    out += kBold;
    out += line.substr(begin, end - begin);
    out += kReset;
    out += line.substr(end);
  });
}

}  // namespace epweave::cli
