// Graph <-> the protobuf message that proto/epweave.proto specifies.
#pragma once

#include <string>

#include "epweave.pb.h"
#include "ir/graph.h"

namespace epweave {

// In canonical form (tables by first use), without the CRC. `file` must be empty.
void encode_proto(const Graph& graph, proto::File& file);

// The graph's strings, types and arguments go into `context`. Throws InputError naming `path`.
Graph decode_proto(const proto::File& file, const std::string& path, std::shared_ptr<Context> context);

}  // namespace epweave
