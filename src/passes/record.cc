#include "passes/record.h"

namespace epweave {
namespace {

void add_record(Node& node, Provenance record) {
  record.origins = origins_of(node);
  // That it was kept as it was is no longer true.
  std::erase_if(node.provenance, [](const Provenance& r) { return r.role == ProvenanceRole::kKept; });
  node.provenance.push_back(std::move(record));
}

}  // namespace

void record_merged(Body& body, StringId pass, Merge merge) {
  Node& kept = body.nodes[merge.kept];
  std::vector<StringId> absorbed = origins_of(body.nodes[merge.gone]);
  const bool is_continued = !kept.provenance.empty() && kept.provenance.back().pass == pass &&
                            kept.provenance.back().role == ProvenanceRole::kMerged;
  if (!is_continued)
    kept.provenance.push_back({.pass = pass, .role = ProvenanceRole::kMerged, .origins = origins_of(kept)});
  std::vector<StringId>& origins = kept.provenance.back().origins;
  origins.insert(origins.end(), absorbed.begin(), absorbed.end());
}

void record_specialized(Node& node, StringId pass, StringId reason) {
  add_record(node, {.pass = pass, .role = ProvenanceRole::kSpecialized, .reason = reason});
}

void record_moved(Node& node, StringId pass, StringId reason) {
  add_record(node, {.pass = pass, .role = ProvenanceRole::kMoved, .reason = reason});
}

}  // namespace epweave
