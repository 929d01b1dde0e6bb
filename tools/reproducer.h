// What a failing pass leaves behind: a folder with the graph that the pass was given and a script that runs
// the rest of the pipeline on it again.
//
//     OUT.reproducer/input.epw    the pass's input
//     OUT.reproducer/run.sh       the command, versions and the error
#pragma once

#include <string>

#include "ir/graph.h"

namespace epweave::cli {

struct Reproducer {
  Graph input;
  std::string pipeline;  // from the failing pass on
  std::string verify;    // the policy
  std::string error;
};

// Writes to the folder `path`, or, if that exists, to the first of path.1, path.2, ... that does not. Returns
// which. Throws InputError.
std::string write_reproducer(const Reproducer& reproducer, const std::string& path);

}  // namespace epweave::cli
