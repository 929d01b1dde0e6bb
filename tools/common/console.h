// Where the tool writes: stdout carries the artefact or one JSON document, everything else goes to
// stderr and, without colour, to the log file. Control characters in texts are shown as escapes.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace epweave::cli {

struct ConsoleOptions {
  std::string program = "epweave";  // begins each error and warning
  bool json = false;
  bool quiet = false;
  int verbose = 0;
  std::string color = "auto";  // always, never; `auto`: a terminal other than TERM=dumb, and no NO_COLOR
  std::string log_file;
};

class Console {
 public:
  // Throws InputError if the log file cannot be opened.
  explicit Console(const ConsoleOptions& options);

  bool json() const { return options_.json; }
  bool verbose() const { return options_.verbose > 0; }

  void error(std::string_view text);      // always
  void warn(std::string_view text);       // not with -q
  void info(std::string_view text);       // not with -q
  void detail(std::string_view text);     // with -v
  void requested(std::string_view text);  // output that an option asked for on stderr: always

  // A line that the next message replaces; only on a terminal and not with -q.
  void progress(std::string_view text);

  // Whether `progress` shows anything.
  bool shows_progress() const { return is_terminal_ && !options_.quiet; }

  using Paint = std::string (*)(std::string_view text);

  // The artefact, to stdout, painted where colours are asked for or stdout is a terminal that has
  // them. Throws InputError if it cannot be written.
  void print(std::string_view text, Paint paint = nullptr);

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write(std::string_view label, const char* color, std::string_view text);
  void clear_progress();

  ConsoleOptions options_;
  bool is_terminal_, has_color_, has_output_color_, has_progress_ = false;
  std::unique_ptr<std::FILE, CloseFile> log_;
};

// Makes sure that descriptors 0 to 2 are open, so that no file of ours takes their place: writing
// to a closed stdout is an error and not damage to a file. A reader that goes away ends the program
// as it ends cat.
void open_standard_streams();

}  // namespace epweave::cli
