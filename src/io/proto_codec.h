// Graph <-> the protobuf message that proto/epweave.proto specifies.
#pragma once

#include <string>

#include "epweave.pb.h"
#include "ir/graph.h"

namespace epweave {

// In canonical form (tables by first use), without the CRC. `file` must be empty.
void encode_proto(const Graph& graph, proto::File& file);

// Throws InputError naming `path`.
Graph decode_proto(const proto::File& file, const std::string& path);

}  // namespace epweave
