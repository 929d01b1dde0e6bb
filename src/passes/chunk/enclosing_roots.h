// Which module around a root could be divided where chunk declines the root.
//
//   layers.*.moe.experts     declined: the counts are made outside of it
//   layers.*.moe             divided
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "passes/chunk/chunk.h"

namespace epweave {

// The patterns around one, the smallest first, up to that of a block: "layers.*.moe", "layers.*" of
// layers.*.moe.experts.
std::vector<std::string> list_enclosing_roots(std::string_view pattern);

// The error, whose remedy names the smallest module around the declined one that chunk divides, if
// there is one.
PassError name_enclosing_root(const Graph& graph, const ChunkOptions& options, const PassError& error);

}  // namespace epweave
