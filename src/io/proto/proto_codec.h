// Graph <-> the bytes of the protobuf message that proto/epweave.proto specifies.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace epweave {

// In canonical form (tables by first use), without the CRC; one piece behind the other.
std::vector<std::string> encode_proto(const Graph& graph);

// Of at most INT32_MAX bytes. The graph's strings, types and arguments go into `context`. Throws
// InputError naming `path`.
Graph decode_proto(std::string_view bytes, const std::string& path, std::shared_ptr<Context> context);

}  // namespace epweave
