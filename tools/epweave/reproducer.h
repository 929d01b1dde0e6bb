// What a failing pass leaves behind: one file, the graph that the pass was given, with the rest of
// the pipeline, the versions and the error among its `info`. `epweave rewrite --reproducer FILE`
// runs it again; any other command takes it for the graph that it is.
//
//     info reproducer = {"pipeline": "chunk{...},overlap-ep{...}", "verify": "each", "versions": "...",
//     "error": "..."}
#pragma once

#include <optional>
#include <string>

#include "ir/graph.h"

namespace epweave::cli {

struct Reproducer {
  Graph input;
  std::string pipeline;  // from the failing pass on
  std::string verify;    // the policy
  std::string error;
};

// Writes to `path`, or, if that exists, to the first of path.1, path.2, ... (the extension stays)
// that does not. Returns which. Throws InputError.
std::string write_reproducer(Reproducer reproducer, const std::string& path);

// Takes what write_reproducer added out of the graph again; none if it is no reproducer.
std::optional<Reproducer> take_reproducer(Graph graph);

}  // namespace epweave::cli
