// The files that a command line names, for both programs.
#pragma once

#include <string>
#include <vector>

namespace epweave::cli {

struct NamedFile {
  std::string option;  // "--trace"
  std::string path;    // empty: not given
};

struct CommandFiles {
  std::vector<std::string> inputs;
  std::string result;             // the graph that is written; it may replace an input
  std::vector<NamedFile> beside;  // what else is written
};

// Throws UsageError where two inputs are standard input, or a file beside the result would replace
// an input, the result or another such file.
void check_files(const CommandFiles& files);

// Throws InputError where the result or a file beside it cannot be written: asked before the work.
void require_writable(const CommandFiles& files);

}  // namespace epweave::cli
