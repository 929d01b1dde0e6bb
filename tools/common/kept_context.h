// The context of the graphs that a command works on from start to end.
#pragma once

#include <memory>

#include "ir/graph.h"

namespace epweave::cli {

// Lives until the process ends: taking a large graph's context apart, piece by piece, takes as long
// as a pass, and nothing needs the memory any more. Each call gives the same one.
std::shared_ptr<Context> kept_context();

}  // namespace epweave::cli
