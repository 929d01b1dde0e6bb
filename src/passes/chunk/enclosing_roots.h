// Which module around a root could be divided where chunk declines the root.
//
//   layers.*.moe.experts     declined: the counts are made outside of it
//   layers.*.moe             divided
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/error.h"
#include "passes/chunk/chunk.h"

namespace epweave {

// The pattern of the smallest module around `options.roots[root]` that chunk divides in its place;
// none: it divides none, up to a block.
std::optional<std::string> find_enclosing_root(const Graph& graph, const ChunkOptions& options,
                                               std::size_t root);

// The error, whose remedy names the smallest module around the declined one that chunk divides, if
// there is one.
PassError name_enclosing_root(const Graph& graph, const ChunkOptions& options, const PassError& error);

}  // namespace epweave
