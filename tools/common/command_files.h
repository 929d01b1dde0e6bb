// The files that a command line names, for both programs.
#pragma once

#include <string>
#include <string_view>
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

// Throws UsageError where two inputs are standard input, two files that are written are standard
// output, or a file beside the result would replace an input, the result or another such file.
void check_files(const CommandFiles& files);

// Throws InputError where the result or a file beside it cannot be written: asked before the work.
void require_all_writable(const CommandFiles& files);

// The bytes of a file that an option names. Throws InputError that says which option.
std::string read_file_of(std::string_view option, const std::string& path);
std::string read_cluster_file(const std::string& path);  // of --cluster

// Throws UsageError where the folder that an option names is "-". `why` says what the folder gets.
void require_no_stream(std::string_view option, std::string_view folder, std::string_view why);

}  // namespace epweave::cli
