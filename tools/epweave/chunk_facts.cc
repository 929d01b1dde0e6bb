#include "chunk_facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/op.h"
#include "passes/chunk/chunk_joins.h"

namespace epweave::cli {
namespace {

// The last record that is about a part, a cut or a join; a later pass only moves such a node. None
// of what is computed again.
const Provenance* find_record(const Node& node) {
  const Provenance* found = nullptr;
  for (const Provenance& record : node.provenance) {
    const bool is_about_parts =
        record.role == ProvenanceRole::kBody || record.role == ProvenanceRole::kMaterialize ||
        record.role == ProvenanceRole::kSplit || record.role == ProvenanceRole::kPartInput;
    if (is_copy_record(record)) {  // a part that is computed again is no further part; what is may be divided
      found = nullptr;
      continue;
    }
    if (is_about_parts && !record.origins.empty()) found = &record;
  }
  return found;
}

std::string join_names(const Graph& graph, const Body& body, std::span<const NodeId> nodes) {
  std::string text;
  for (NodeId id : nodes)
    text += fmt::format("{}%{}", text.empty() ? "" : ", ", graph.text(body.nodes[id].name));
  return text;
}

bool is_real_tensor(const Graph& graph, const Node& node) {
  const TensorType* type = tensor_of(*graph.context, node.type);
  return type != nullptr && is_inexact(type->dtype);
}

// Each part writes on in what the part before wrote.
bool is_chain(const Graph& graph, const Body& body, const std::vector<NodeId>& parts) {
  if (parts.size() < 2 || body.nodes[parts[0]].op == nullptr || !body.nodes[parts[0]].op->writes)
    return false;
  bool reads = false;
  for_each_input(*graph.context, body.nodes[parts[1]], [&](NodeId input) { reads |= input == parts[0]; });
  return reads;
}

void place_by_join(const Graph& graph, const Body& body, ChunkFacts& facts) {
  const Node& join = body.nodes[facts.whole];
  if (const auto dim = find_joined_dim(*graph.context, body, facts.whole)) {
    facts.placement = fmt::format("Split({})", *dim);
    facts.why = "the parts are rows of the whole, in order";
    facts.numerics = "chunk-equal";
  } else {
    facts.placement = "Partial";
    facts.why = "the whole is the sum of the parts";
    facts.numerics = is_real_tensor(graph, join) ? "sum-order" : "chunk-equal";
  }
}

}  // namespace

std::optional<std::string> divided_origin(const Graph& graph, const Node& node) {
  const Provenance* record = find_record(node);
  if (record == nullptr) return std::nullopt;
  return std::string(graph.text(record->origins.front()));
}

std::optional<ChunkFacts> find_chunk_facts(const Graph& graph, const Body& body, std::string_view origin,
                                           const NodeLists& users) {
  ChunkFacts facts{.origin = std::string(origin)};
  std::vector<std::pair<std::uint32_t, NodeId>> parts;
  for (NodeId id : body.order) {
    const Provenance* record = find_record(body.nodes[id]);
    if (record == nullptr || graph.text(record->origins.front()) != origin) continue;
    if (record->role == ProvenanceRole::kBody) {
      parts.emplace_back(record->part, id);
      facts.region = graph.text(record->region);
      facts.direction = record->backward.value_or(false) ? "backward" : "forward";
    }
    if (record->role == ProvenanceRole::kMaterialize) facts.whole = id;
  }
  if (parts.empty()) return std::nullopt;
  std::sort(parts.begin(), parts.end());
  for (const auto& [part, id] : parts) facts.parts.push_back(id);
  if (facts.whole) {
    place_by_join(graph, body, facts);
  } else if (is_chain(graph, body, facts.parts)) {
    facts.placement = "Carried";
    facts.why = "each part goes on from the part before; the last one's is the whole";
    facts.numerics = is_real_tensor(graph, body.nodes[facts.parts[0]]) ? "sum-order" : "chunk-equal";
  } else {
    facts.why = users[facts.parts[0]].empty()
                    ? "nothing takes it"
                    : "it is only taken part by part; `rewrite --print-plan` on the "
                      "graph before says how it is placed";
    facts.numerics = "chunk-equal";
  }
  return facts;
}

std::vector<std::string> print_chunk_facts(const Graph& graph, const Body& body, const ChunkFacts& facts) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("%{} runs in {} parts in {} {}: {}", facts.origin, facts.parts.size(),
                              facts.region, facts.direction, join_names(graph, body, facts.parts)));
  if (facts.whole)
    lines.push_back(fmt::format("rejoined by %{} ({})", graph.text(body.nodes[facts.whole].name),
                                graph.text(body.nodes[facts.whole].target)));
  lines.push_back(facts.placement.empty() ? fmt::format("not rejoined: {}", facts.why)
                                          : fmt::format("placed {}: {}", facts.placement, facts.why));
  lines.push_back(fmt::format("numerics: {}", facts.numerics));
  return lines;
}

Json chunk_facts_report(const Graph& graph, const Body& body, const ChunkFacts& facts) {
  Json parts = Json::array();
  for (NodeId id : facts.parts) parts.push_back(graph.text(body.nodes[id].name));
  return {{"origin", facts.origin},
          {"region", facts.region},
          {"direction", facts.direction},
          {"parts", std::move(parts)},
          {"rejoined_by", facts.whole ? Json(graph.text(body.nodes[facts.whole].name)) : Json()},
          {"placement", facts.placement.empty() ? Json() : Json(facts.placement)},
          {"why", facts.why},
          {"numerics", facts.numerics}};
}

}  // namespace epweave::cli
