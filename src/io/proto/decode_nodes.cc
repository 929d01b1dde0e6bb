#include "io/proto/decode_nodes.h"

#include <fmt/format.h>

#include "epweave.pb.h"
#include "io/proto/message_fields.h"
#include "ops/op.h"

namespace epweave {
namespace {

// The name of a node that is not parsed yet: the first field 1, which writers put first. What is no
// node, and a node of two names, is found when it is parsed.
std::uint32_t name_ref_of(std::string_view node) {
  WireReader in(node);
  while (in.next())
    if (in.tag() == number_tag(1)) return in.ref();
  return 0;
}

}  // namespace

Body NodeDecoder::decode_body(std::string_view bytes) {
  std::vector<std::string_view> nodes;
  const auto others = split_fields(bytes, [&](std::uint32_t tag, std::string_view content) {
    const bool is_node = tag == bytes_tag(proto::Graph::kNodesFieldNumber);
    if (is_node) nodes.push_back(content);
    return is_node;
  });
  proto::Graph message;
  if (!others || !parse_message(*others, message)) values_.fail_parse();

  extras_.clear();  // they may name nodes of the body
  Body body;
  body.name = values_.text(message.name());
  body.order.reserve(nodes.size());
  for (std::string_view node : nodes) {
    Node named_only;
    named_only.name = values_.text(name_ref_of(node));
    if (!named_only.name) values_.fail("a node has no name");
    const NodeId id = body.nodes.push_back(std::move(named_only));
    values_.name_node(body.nodes[id].name, id);  // verify reports several of one name
    body.order.push_back(id);
  }
  values_.begin_body();
  for (std::size_t i = 0; i < nodes.size(); ++i) decode_node(nodes[i], body.nodes[body.order[i]]);
  values_.end_body(body);
  body.unknown_fields = unknown_of(message);
  return body;
}

void NodeDecoder::decode_node(std::string_view message, Node& node) {
  parts_.clear();
  values_.for_each_field(message, [&](const WireReader& in) {
    if (!decode_field(in, node)) parts_.extra += in.field();
  });
  if (!node.target) values_.fail(fmt::format("node '{}' has no target", context_.text(node.name)));
  resolve_call(node);
  node.args = context_.args.add(parts_.args);
  node.kwargs = context_.args.add(parts_.kwargs);
  node.provenance = context_.own(parts_.provenance);
  if (!parts_.extra.empty()) node.extra = read_extra(parts_.extra);
  if (parts_.bindings.empty() && parts_.chunk_hints.empty()) return;
  NodeExtra extra = node.extra == nullptr ? NodeExtra() : *node.extra;
  extra.bindings = parts_.bindings;
  extra.chunk_hints = parts_.chunk_hints;
  node.extra = context_.own(std::move(extra));
}

void NodeDecoder::resolve_call(Node& node) {
  if (node.kind != NodeKind::kCall) return;
  std::optional<const OpInfo*>& op = ops_.at(node.target);
  if (!op) op = find_op(context_.text(node.target));
  node.op = *op;
}

const NodeExtra* NodeDecoder::read_extra(const std::string& fields) {
  const auto [known, is_new] = extras_.try_emplace(fields);
  if (!is_new) return known->second;
  NodeExtra extra;
  std::vector<Arg> custom, meta;
  values_.for_each_field(fields, [&](const WireReader& in) {
    switch (in.tag()) {
      case number_tag(7):
        extra.example_type = values_.type(in.ref());
        break;
      case number_tag(9):
        extra.py_type = values_.text(in.ref());
        break;
      case bytes_tag(20):
        values_.add_keyword(in.content(), custom);
        break;
      case bytes_tag(21):
        values_.add_keyword(in.content(), meta);
        break;
      default:
        extra.unknown_fields += in.field();
    }
  });
  extra.custom = context_.args.intern(custom);
  extra.meta = context_.args.intern(meta);
  const bool is_empty = extra == NodeExtra();
  return known->second = is_empty ? nullptr : context_.own(std::move(extra));
}

bool NodeDecoder::decode_field(const WireReader& in, Node& node) {
  switch (in.tag()) {
    case number_tag(1):
      if (values_.text(in.ref()) != node.name)
        values_.fail(fmt::format("node '{}' has two names", context_.text(node.name)));
      return true;
    case number_tag(2):
      node.kind = decode_node_kind(in.number(), node);
      return true;
    case number_tag(3):
      node.target = values_.text(in.ref());
      return true;
    case bytes_tag(4):
      parts_.args.push_back(values_.decode_value(in.content()));
      return true;
    case bytes_tag(5):
      values_.add_keyword(in.content(), parts_.kwargs);
      return true;
    case number_tag(6):
      node.type = values_.type(in.ref());
      return true;
    case bytes_tag(8):
      node.attr = values_.decode_value(in.content());
      return true;
    case number_tag(10):
      node.module = values_.text(in.ref());
      return true;
    case number_tag(11):
      node.backward = in.number() != 0;
      return true;
    case number_tag(12):
      node.seq_nr = in.signed_number();
      return true;
    case number_tag(13):
      node.source = values_.text(in.ref());
      return true;
    case bytes_tag(14):
      decode_ep(in.content(), node.ep);
      return true;
    case bytes_tag(15):
      decode_chunk(in.content(), node.chunk);
      return true;
    case number_tag(16):
      node.recompute = values_.text(in.ref());
      return true;
    case bytes_tag(17):
      parts_.bindings.push_back(decode_binding(in.content()));
      return true;
    case bytes_tag(18):
      parts_.chunk_hints.push_back(decode_hint(in.content()));
      return true;
    case number_tag(19):
      node.has_custom = in.number() != 0;
      return true;
    case bytes_tag(22):
      parts_.provenance.push_back(decode_provenance(in.content()));
      return true;
    default:
      return false;
  }
}

NodeKind NodeDecoder::decode_node_kind(std::uint64_t kind, const Node& node) const {
  switch (kind) {
    case proto::Node::CALL:
      return NodeKind::kCall;
    case proto::Node::PLACEHOLDER:
      return NodeKind::kPlaceholder;
    case proto::Node::GET_ATTR:
      return NodeKind::kGetAttr;
    case proto::Node::OUTPUT:
      return NodeKind::kOutput;
    default:
      values_.fail(
          fmt::format("node '{}' is of a kind that this version does not know", context_.text(node.name)));
  }
}

Binding NodeDecoder::decode_binding(std::string_view message) {
  Binding binding;
  std::vector<Arg> path;
  values_.for_each_field(message, [&](const WireReader& in) {
    if (in.tag() == number_tag(1)) {
      binding.symbol = values_.text(in.ref());
    } else if (in.tag() == bytes_tag(2)) {
      path.push_back(values_.decode_value(in.content()));
    } else {
      values_.fail_unknown("epweave.proto.Binding");
    }
  });
  if (!binding.symbol) values_.fail("a binding names no symbol");
  binding.path = context_.args.add(path);
  return binding;
}

std::pair<StringId, std::int64_t> NodeDecoder::decode_hint(std::string_view message) const {
  std::pair<StringId, std::int64_t> hint;
  values_.for_each_field(message, [&](const WireReader& in) {
    if (in.tag() == number_tag(1)) {
      hint.first = values_.text(in.ref());
    } else if (in.tag() == number_tag(2)) {
      hint.second = in.signed_number();
    } else {
      values_.fail_unknown("epweave.proto.Hint");
    }
  });
  if (!hint.first) values_.fail("a hint names no symbol");
  return hint;
}

void NodeDecoder::decode_ep(std::string_view message, EpLabels& ep) const {
  values_.for_each_field(message, [&](const WireReader& in) {
    switch (in.tag()) {
      case number_tag(1):
        ep.ep = values_.text(in.ref());
        break;
      case number_tag(2):
        ep.token_count_exchange = values_.text(in.ref());
        break;
      case number_tag(3):
        ep.token_count_sync = values_.text(in.ref());
        break;
      case number_tag(4):
        ep.token_exchange = values_.text(in.ref());
        break;
      case number_tag(5):
        ep.token_exchange_wait = values_.text(in.ref());
        break;
      default:
        values_.fail_unknown("epweave.proto.Ep");
    }
  });
}

void NodeDecoder::decode_chunk(std::string_view message, ChunkInfo& chunk) const {
  values_.for_each_field(message, [&](const WireReader& in) {
    switch (in.tag()) {
      case number_tag(1):
        chunk.region = values_.text(in.ref());
        break;
      case number_tag(2):
        chunk.role = values_.text(in.ref());
        break;
      case number_tag(3):
        chunk.part = decode_chunk_part(in.signed_number());
        break;
      case number_tag(4):
        chunk.backward = in.number() != 0;
        break;
      case number_tag(5):
        chunk.producer = values_.text(in.ref());
        break;
      case number_tag(6):
        chunk.original_name = values_.text(in.ref());
        break;
      case number_tag(7):
        chunk.proof = values_.text(in.ref());
        break;
      default:
        values_.fail_unknown("epweave.proto.Chunk");
    }
  });
}

std::int32_t NodeDecoder::decode_chunk_part(std::int64_t part) const {
  if (part < 0 || part > INT32_MAX) values_.fail(fmt::format("chunk part {} is out of range", part));
  return static_cast<std::int32_t>(part);
}

Provenance NodeDecoder::decode_provenance(std::string_view message) {
  Provenance record;
  origins_.clear();
  values_.for_each_field(message, [&](const WireReader& in) {
    switch (in.tag()) {
      case number_tag(1):
        record.pass = values_.text(in.ref());
        break;
      case number_tag(2):
        record.role = decode_role(in.number());
        break;
      case number_tag(3):
        origins_.push_back(values_.text(in.ref()));
        break;
      case bytes_tag(3):  // packed, as writers do
        if (!read_numbers(in.content(), [&](std::uint64_t ref) {
              origins_.push_back(values_.text(static_cast<std::uint32_t>(ref)));
            }))
          values_.fail_parse();
        break;
      case number_tag(4):
        record.part = static_cast<std::uint32_t>(in.number());
        break;
      case number_tag(5):
        record.parts = static_cast<std::uint32_t>(in.number());
        break;
      case number_tag(6):
        record.region = values_.text(in.ref());
        break;
      case number_tag(7):
        record.backward = in.number() != 0;
        break;
      case number_tag(8):
        record.reason = values_.text(in.ref());
        break;
      default:
        values_.fail_unknown("epweave.proto.Provenance");
    }
  });
  record.origins = context_.own(origins_);
  return record;
}

ProvenanceRole NodeDecoder::decode_role(std::uint64_t role) const {
  if (role > proto::Provenance::SPECIALIZED)
    values_.fail(fmt::format("provenance role {} is not known to this version", static_cast<int>(role)));
  return static_cast<ProvenanceRole>(role);
}

}  // namespace epweave
