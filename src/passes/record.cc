#include "passes/record.h"

#include <algorithm>

namespace epweave {
namespace {

void add_record(Context& context, Node& node, Provenance record) {
  record.origins = origins_of(node);
  // That it was kept as it was is no longer true.
  std::vector<Provenance> records;
  std::copy_if(node.provenance.begin(), node.provenance.end(), std::back_inserter(records),
               [](const Provenance& r) { return r.role != ProvenanceRole::kKept; });
  records.push_back(std::move(record));
  node.provenance = context.own(std::move(records));
}

}  // namespace

void record_merged(Context& context, Body& body, StringId pass, Merge merge) {
  Node& kept = body.nodes[merge.kept];
  const std::vector<StringId> absorbed = origins_of(body.nodes[merge.gone]);
  const bool is_continued = !kept.provenance.empty() && kept.provenance.back().pass == pass &&
                            kept.provenance.back().role == ProvenanceRole::kMerged;
  Provenance record{.pass = pass, .role = ProvenanceRole::kMerged, .origins = origins_of(kept)};
  record.origins.insert(record.origins.end(), absorbed.begin(), absorbed.end());
  if (is_continued) {
    replace_last_provenance(context, kept, std::move(record));
  } else {
    append_provenance(context, kept, std::move(record));
  }
}

void record_specialized(Context& context, Node& node, StringId pass, StringId reason) {
  record_specialized(context, node, Provenance{.pass = pass, .reason = reason});
}

void record_specialized(Context& context, Node& node, Provenance record) {
  record.role = ProvenanceRole::kSpecialized;
  add_record(context, node, std::move(record));
}

void record_moved(Context& context, Node& node, Provenance record) {
  record.role = ProvenanceRole::kMoved;
  add_record(context, node, std::move(record));
}

}  // namespace epweave
