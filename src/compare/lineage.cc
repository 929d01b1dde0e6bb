#include "compare/lineage.h"

#include <algorithm>

namespace epweave {
bool Lineage::is_whole() const {
  return !makes_nodes(role) || (role == ProvenanceRole::kBody && parts == 1);
}

Lineage find_lineage(const Node& node) {
  Lineage lineage{.origins = origins_of(node)};
  bool is_copy = false;  // of what earlier records say
  for (auto record = node.provenance.rbegin(); record != node.provenance.rend(); ++record) {
    if (!makes_nodes(record->role)) continue;
    lineage.role = record->role;
    lineage.part = record->part;
    lineage.parts = record->parts;
    if (!is_copy_record(*record)) return lineage;
    is_copy = true;
  }
  if (is_copy) return lineage;
  if (!node.provenance.empty()) lineage.role = node.provenance.back().role;
  return lineage;
}

bool is_merged_memory(const Node& node) {
  const Provenance* made = find_maker(node);
  if (made == nullptr || find_lineage(node).role != ProvenanceRole::kAdded) return false;
  return std::ranges::any_of(node.provenance, [&](const Provenance& record) {
    return &record > made && record.role == ProvenanceRole::kMerged;
  });
}

}  // namespace epweave
