#include "replay/pairing.h"

#include <map>
#include <optional>
#include <unordered_map>

#include "ir/op.h"

namespace epweave::replay {
namespace {

// How a node of B stands for a node of A.
struct Counterpart {
  StringId origin;
  std::uint32_t part = 0, parts = 0;  // parts 0: all of it
};

std::optional<Counterpart> find_counterpart(const Node& node) {
  if (node.provenance.empty()) return Counterpart{node.name, 0, 0};
  if (node.provenance.back().origins.size() != 1) return std::nullopt;
  Counterpart counterpart{node.provenance.back().origins[0], 0, 0};
  for (const Provenance& record : node.provenance) {
    if (record.role == ProvenanceRole::kMaterialize) return Counterpart{counterpart.origin, 0, 0};
    if (record.role == ProvenanceRole::kSize || record.role == ProvenanceRole::kAdded) return std::nullopt;
    if (record.parts != 0) {
      counterpart.part = record.part;
      counterpart.parts = record.parts;
    } else if (record.role == ProvenanceRole::kSplit || record.role == ProvenanceRole::kPartInput) {
      return std::nullopt;
    }
  }
  return counterpart;
}

}  // namespace

bool is_uninitialised(const Node& node) {
  return node.op != nullptr &&
         (node.op->target.starts_with("aten.empty") || node.op->target.starts_with("aten.new_empty"));
}

std::vector<Group> pair_nodes(const Graph& a, const Graph& b, std::uint64_t& unpaired) {
  std::unordered_map<std::string_view, NodeId> by_name;
  for (NodeId id : a.step().order) by_name[a.text(a.step().nodes[id].name)] = id;
  std::vector<Group> groups;
  std::map<std::pair<NodeId, StringId>, std::size_t> part_groups;  // by origin and region
  for (NodeId id : b.step().order) {
    const Node& node = b.step().nodes[id];
    if (node.kind == NodeKind::kOutput) continue;
    const auto counterpart = find_counterpart(node);
    const auto origin = counterpart ? by_name.find(b.text(counterpart->origin)) : by_name.end();
    if (origin == by_name.end()) {
      ++unpaired;
      continue;
    }
    if (counterpart->parts == 0) {
      groups.push_back({origin->second, {id}, false, false});
      continue;
    }
    // A value may be cut again elsewhere: the op tells the two apart.
    const auto [at, is_new] = part_groups.try_emplace({origin->second, node.target}, groups.size());
    if (is_new)
      groups.push_back({origin->second, std::vector<NodeId>(counterpart->parts), true,
                        node.op != nullptr && node.op->writes});
    Group& group = groups[at->second];
    if (counterpart->part < group.values.size()) group.values[counterpart->part] = id;
  }
  return groups;
}

}  // namespace epweave::replay
