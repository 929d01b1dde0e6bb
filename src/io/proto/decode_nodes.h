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
  // What of a node is put together from several fields, in room that all nodes share.
  struct NodeParts {
    std::vector<Arg> args, kwargs;
    std::vector<Provenance> provenance;
    std::vector<Binding> bindings;
    std::vector<std::pair<StringId, std::int64_t>> chunk_hints;
    std::string extra;  // the other fields that go to NodeExtra, as they are
    void clear() {
      args.clear(), kwargs.clear(), provenance.clear();
      bindings.clear(), chunk_hints.clear(), extra.clear();
    }
  };

  void decode_node(std::string_view message, Node& node);
  // As resolve_op; the op of each target is looked up once.
  void resolve_call(Node& node);
  // Null where they say nothing. All but bindings and hints is the same for many nodes of a body:
  // equal bytes are read once.
  const NodeExtra* read_extra(const std::string& fields);
  // Whether it is a field of Node, not of NodeExtra: those are kept as bytes (read_extra), but for
  // bindings and hints.
  bool decode_field(const WireReader& in, Node& node);
  NodeKind decode_node_kind(std::uint64_t kind, const Node& node) const;
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
  std::unordered_map<std::string, const NodeExtra*> extras_;  // by their fields
  SideTable<StringId, std::optional<const OpInfo*>> ops_;     // by target
  std::vector<StringId> origins_;
};

}  // namespace epweave
