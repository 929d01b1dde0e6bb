// A command whose device was lost, run once more where each launch waits for its kernel, so that
// the error is at the kernel's node.
#pragma once

#include "common/console.h"
#include "common/report.h"

namespace epweave::cli {

struct BlockingRun {
  std::string text;  // for people
  Json report;       // exit code and message; null where it was not run
};

// The same command in a process of its own, with CUDA_LAUNCH_BLOCKING=1; it writes no files. Where
// that cannot be, says why: ranks that are processes start together, standard input or a pipe is
// read, or the launches have waited already.
BlockingRun run_blocking(int argc, char** argv, Console& console);

}  // namespace epweave::cli
