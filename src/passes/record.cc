#include "passes/record.h"

#include <algorithm>

namespace epweave {
namespace {

// A node with records needs one that says what it is before one that says what happened to it.
void record_kept(Node& node, StringId pass) {
  if (node.provenance.empty())
    node.provenance.push_back({.pass = pass, .role = ProvenanceRole::kKept, .origins = {node.name}});
}

}  // namespace

std::vector<StringId> origins_of(const Node& node) {
  return node.provenance.empty() ? std::vector{node.name} : node.provenance.front().origins;
}

void record_merged(Body& body, StringId pass, Merge merge) {
  Node& kept = body.nodes[merge.kept];
  const Node& gone = body.nodes[merge.gone];
  record_kept(kept, pass);
  std::vector<StringId> origins = origins_of(gone);
  for (const Provenance& record : gone.provenance)
    if (record.role == ProvenanceRole::kMerged)
      origins.insert(origins.end(), record.origins.begin(), record.origins.end());
  Provenance& last = kept.provenance.back();
  if (last.role == ProvenanceRole::kMerged && last.pass == pass)
    last.origins.insert(last.origins.end(), origins.begin(), origins.end());
  else
    kept.provenance.push_back({.pass = pass, .role = ProvenanceRole::kMerged, .origins = std::move(origins)});
}

void record_specialized(Node& node, StringId pass, StringId reason) {
  Provenance record{
      .pass = pass, .role = ProvenanceRole::kSpecialized, .origins = origins_of(node), .reason = reason};
  // "kept" is no longer true; the new record says what the node is now.
  if (!node.provenance.empty() && node.provenance.front().role == ProvenanceRole::kKept)
    node.provenance.front() = std::move(record);
  else
    node.provenance.push_back(std::move(record));
}

}  // namespace epweave
