#include "compare/lineage.h"

namespace epweave {
namespace {

bool makes_nodes(ProvenanceRole role) {
  switch (role) {
    case ProvenanceRole::kBody:
    case ProvenanceRole::kSplit:
    case ProvenanceRole::kPartInput:
    case ProvenanceRole::kMaterialize:
    case ProvenanceRole::kSize:
    case ProvenanceRole::kAdded:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool Lineage::is_whole() const {
  return !makes_nodes(role) || (role == ProvenanceRole::kBody && parts == 1);
}

Lineage find_lineage(const Node& node) {
  Lineage lineage{.origins = origins_of(node)};
  for (auto record = node.provenance.rbegin(); record != node.provenance.rend(); ++record) {
    if (!makes_nodes(record->role)) continue;
    lineage.role = record->role;
    lineage.part = record->part;
    lineage.parts = record->parts;
    return lineage;
  }
  if (!node.provenance.empty()) lineage.role = node.provenance.back().role;
  return lineage;
}

}  // namespace epweave
