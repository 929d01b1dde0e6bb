#include "console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "io/file.h"
#include "ir/text/text_spelling.h"

namespace epweave::cli {
namespace {

constexpr const char* kRed = "\033[1;31m";
constexpr const char* kYellow = "\033[1;33m";
constexpr const char* kReset = "\033[0m";

bool wants_color(const std::string& choice, bool is_terminal) {
  if (choice != "auto") return choice == "always";
  const char *no_color = std::getenv("NO_COLOR"), *term = std::getenv("TERM");
  return is_terminal && (!no_color || !*no_color) && (!term || std::strcmp(term, "dumb") != 0);
}

bool is_plain(char c) {
  return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t';
}

// How many bytes the character takes that the text begins with; 0: it is not UTF-8.
std::size_t first_character(std::string_view text) {
  const std::size_t valid = text::count_valid_utf8(text.substr(0, 4));
  std::size_t length = std::min<std::size_t>(valid, 1);
  while (length > 0 && length < valid && (text[length] & 0xc0) == 0x80) ++length;
  return length;
}

// Names come from files that others made: what would steer the terminal is shown as \x1b or \u0085,
// and a byte that is not UTF-8 as \xe9. JSON has escaped what is below U+0020
// itself, and takes \u0085 for an escape, too.
std::string shown_text(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const auto plain = static_cast<std::size_t>(std::ranges::find_if_not(text, is_plain) - text.begin());
    shown += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const auto byte = static_cast<unsigned char>(text.front());
    const unsigned control = byte == 0x7f ? byte : text::c1_control(text);
    const std::size_t length = first_character(text);
    if (control != 0)
      shown += fmt::format("\\u{:04x}", control);
    else if (length > 1)
      shown += text.substr(0, length);
    else
      shown += fmt::format("\\x{:02x}", byte);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return shown;
}

}  // namespace

Console::Console(const ConsoleOptions& options)
    : options_(options),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      has_color_(wants_color(options.color, is_terminal_)),
      has_output_color_(wants_color(options.color, ::isatty(STDOUT_FILENO) == 1)) {
  if (options.log_file.empty()) return;
  if (options.log_file == "-")
    throw UsageError("--log-file -: messages go to standard error anyway; give a file");
  log_.reset(std::fopen(options.log_file.c_str(), "we"));
  if (!log_)
    throw InputError(fmt::format("{}: cannot open the log file: {}", options.log_file, std::strerror(errno)));
}

void Console::write(std::string_view label, const char* color, std::string_view text) {
  clear_progress();
  const std::string shown = shown_text(text);
  const std::string_view end = shown.ends_with('\n') ? "" : "\n";
  if (has_color_ && color)
    fmt::print(stderr, "{}{}{}{}{}", color, label, kReset, shown, end);
  else
    fmt::print(stderr, "{}{}{}", label, shown, end);
  if (log_) {
    const std::string line = fmt::format("{}{}{}", label, shown, end);
    const bool is_written =
        std::fwrite(line.data(), 1, line.size(), log_.get()) == line.size() && std::fflush(log_.get()) == 0;
    if (is_written) return;
    const std::string problem = std::strerror(errno);
    log_.reset();
    warn(fmt::format("{}: cannot write the log file: {}", options_.log_file, problem));
  }
}

void Console::error(std::string_view text) {
  write(options_.program + ": error: ", kRed, text);
}
void Console::warn(std::string_view text) {
  if (!options_.quiet) write(options_.program + ": warning: ", kYellow, text);
}
void Console::info(std::string_view text) {
  if (!options_.quiet) write("", nullptr, text);
}
void Console::detail(std::string_view text) {
  if (verbose()) write("", nullptr, text);
}
void Console::requested(std::string_view text) {
  write("", nullptr, text);
}

void Console::progress(std::string_view text) {
  if (!is_terminal_ || options_.quiet) return;
  clear_progress();
  fmt::print(stderr, "{}", shown_text(text));
  std::fflush(stderr);
  has_progress_ = true;
}

void Console::clear_progress() {
  if (has_progress_) fmt::print(stderr, "\r\033[K");
  has_progress_ = false;
}

void Console::print(std::string_view text, Paint paint) {
  clear_progress();
  const std::string shown = shown_text(text);
  write_bytes("-", paint != nullptr && has_output_color_ ? paint(shown) : shown);
}

void open_standard_streams() {
  // Opened the wrong way round, so that using it fails instead of losing data silently.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) std::_Exit(5);
  std::signal(SIGPIPE, SIG_DFL);
}

}  // namespace epweave::cli
