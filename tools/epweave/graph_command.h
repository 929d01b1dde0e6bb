// A command that the user gives behind --, run on graphs: `reduce` and `bisect` ask it about one
// graph after another.
//
// Each lane has a folder of its own with the graph's file, so that commands that run at once, and
// what they write beside the file, do not meet. All folders go away at the end. A command runs in a
// process group of its own: an interrupt ends our search, which ends the command and never the file
// it works on.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/graphs.h"
#include "ir/graph.h"

namespace epweave::cli {

// How a run of the command ended that did not exit: killed by a signal, or stopped after the time
// it may take.
inline constexpr int kNoExit = -1;

struct GraphCommandOptions {
  std::vector<std::string> words;  // {}: the file; without, it is the last word
  double timeout = 0;              // seconds for each run; 0: any number
  bool is_verbose = false;         // what the command says goes to standard error; else nowhere
  std::string extension = ".epw";  // of the file
  std::optional<Format> format;    // none: by extension
  std::size_t lanes = 1;
};

class GraphCommand {
 public:
  explicit GraphCommand(GraphCommandOptions options);  // throws InputError where the folder cannot be made
  ~GraphCommand();
  GraphCommand(const GraphCommand&) = delete;
  GraphCommand& operator=(const GraphCommand&) = delete;

  void put(std::size_t lane, const Graph& graph) const;
  // The exit status on lane 0's graph, or kNoExit. Throws UsageError where the command cannot be
  // run.
  int run() const;
  // The first of lanes 0 to `lanes` - 1 whose graph the command exits 0 on. All run at once, and
  // those that cannot be the first any more are ended.
  std::optional<std::size_t> find_first(std::size_t lanes) const;

 private:
  std::string file(std::size_t lane) const;
  std::vector<std::string> words_on(const std::string& file) const;
  pid_t spawn(std::size_t lane) const;

  GraphCommandOptions options_;
  std::string folder_;
};

// From now on SIGINT, SIGTERM and SIGHUP end running commands and are only remembered.
void catch_interrupts();
bool is_interrupted();

// ".epw.gz" of "a.b/out.epw.gz"; ".epw" where the name has no extension.
std::string extension_of_path(const std::string& path);

}  // namespace epweave::cli
