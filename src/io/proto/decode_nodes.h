// The nodes of a file, which are nearly all of it: read where they lie.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/proto/decode_values.h"
#include "io/proto/wire_reader.h"
#include "ir/graph.h"

namespace epweave {

class NodeDecoder {
 public:
  explicit NodeDecoder(ValueDecoder& values) : values_(values), context_(values.context()) {}

  // A graph of the file.
  Body decode_body(std::string_view bytes);

 private:
  using Metadata = std::pair<ArgRange, ArgRange>;  // custom, meta

  // What of a node is put together from several fields, in room that all nodes share.
  struct NodeParts {
    std::vector<Arg> args, kwargs;
    std::vector<Provenance> provenance;
    NodeExtra extra;
    std::string metadata;  // fields `custom` and `meta`, as they are
    void clear() {
      args.clear(), kwargs.clear(), provenance.clear(), metadata.clear();
      extra = NodeExtra();
    }
  };

  void decode_node(std::string_view message, Node& node);
  // As resolve_op; the op of each target is looked up once.
  void resolve_call(Node& node);
  // Fields `custom` and `meta` are the same for many nodes of a body: equal bytes are read once.
  const Metadata& read_metadata(const std::string& fields);
  // Whether it is a field of Node that most nodes have.
  bool decode_field(const WireReader& in, Node& node);
  NodeKind decode_node_kind(std::uint64_t kind, const Node& node) const;
  // Whether it is a field of Node that goes to NodeExtra.
  bool decode_extra(const WireReader& in);
  Binding decode_binding(std::string_view message);
  std::pair<StringId, std::int64_t> decode_hint(std::string_view message) const;
  void decode_ep(std::string_view message, EpLabels& ep) const;
  void decode_chunk(std::string_view message, ChunkInfo& chunk) const;
  std::int32_t decode_chunk_part(std::int64_t part) const;
  Provenance decode_provenance(std::string_view message);
  ProvenanceRole decode_role(std::uint64_t role) const;

  ValueDecoder& values_;
  Context& context_;
  NodeParts parts_;
  std::unordered_map<std::string, Metadata> metadata_;
  SideTable<StringId, std::optional<const OpInfo*>> ops_;  // by target
  std::vector<StringId> origins_;
};

}  // namespace epweave
