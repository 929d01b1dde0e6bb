#include "testing/paired_nodes.h"

#include <algorithm>
#include <map>

namespace epweave {
namespace {

void put(std::vector<NodeId>& parts, const Lineage& lineage, NodeId id) {
  if (lineage.part >= lineage.parts) return;
  parts.resize(std::max<std::size_t>(parts.size(), lineage.parts));
  parts[lineage.part] = id;
}

}  // namespace

PairedNodes::PairedNodes(const Graph& a, const Graph& b)
    : whole_(a.step().nodes.size()),
      kept_(a.step().nodes.size()),
      parts_(a.step().nodes.size()),
      pieces_(a.step().nodes.size()) {
  std::map<StringId, NodeId> named;
  for (NodeId id : a.step().order) named[a.step().nodes[id].name] = id;
  for (NodeId id : b.step().order) {
    const Lineage lineage = find_lineage(b.step().nodes[id]);
    for (StringId name : lineage.origins) {
      const auto origin = named.find(name);
      if (origin == named.end()) continue;
      if (lineage.is_whole()) kept_[origin->second] = true;
      if (lineage.is_whole() || lineage.role == ProvenanceRole::kMaterialize) whole_[origin->second] = id;
      if (lineage.is_part()) put(parts_[origin->second], lineage, id);
      if (lineage.role == ProvenanceRole::kSplit) put(pieces_[origin->second], lineage, id);
    }
  }
  for (NodeId id : a.step().order) {
    std::vector<NodeId>& parts = parts_[id];
    if (std::ranges::find(parts, NodeId()) != parts.end()) parts.clear();
    if (!parts.empty()) divided_.push_back(id);
  }
}

NodeId PairedNodes::part(NodeId a, std::uint32_t part) const {
  if (part < parts_[a].size()) return parts_[a][part];
  return part < pieces_[a].size() ? pieces_[a][part] : NodeId();
}

std::vector<NodeId> PairedNodes::computed(NodeId a) const {
  std::vector<NodeId> nodes = parts_[a];
  if (kept_[a]) nodes.push_back(whole_[a]);
  return nodes;
}

}  // namespace epweave
