#include "passes/record.h"

#include <algorithm>
#include <iterator>

namespace epweave {
namespace {

void add_record(Context& context, Node& node, Provenance record) {
  record.origins = origins_of(node);
  // That it was kept as it was is no longer true.
  std::vector<Provenance> records;
  std::copy_if(node.provenance.begin(), node.provenance.end(), std::back_inserter(records),
               [](const Provenance& r) { return r.role != ProvenanceRole::kKept; });
  records.push_back(std::move(record));
  node.provenance = context.own(records);
}

}  // namespace

void record_merged(Context& context, Body& body, StringId pass, Merge merge) {
  Node& kept = body.nodes[merge.kept];
  const NameList own = origins_of(kept), absorbed = origins_of(body.nodes[merge.gone]);
  std::vector<StringId> all(own.begin(), own.end());
  all.insert(all.end(), absorbed.begin(), absorbed.end());
  const bool is_continued = !kept.provenance.empty() && kept.provenance.back().pass == pass &&
                            kept.provenance.back().role == ProvenanceRole::kMerged;
  const Provenance record{.pass = pass, .role = ProvenanceRole::kMerged, .origins = context.own(all)};
  if (is_continued) {
    replace_last_provenance(context, kept, record);
  } else {
    append_provenance(context, kept, record);
  }
}

void record_specialized(Context& context, Node& node, StringId pass, StringId reason) {
  record_specialized(context, node, Provenance{.pass = pass, .reason = reason});
}

void record_specialized(Context& context, Node& node, Provenance record) {
  record.role = ProvenanceRole::kSpecialized;
  add_record(context, node, record);
}

void record_moved(Context& context, Node& node, Provenance record) {
  record.role = ProvenanceRole::kMoved;
  add_record(context, node, record);
}

}  // namespace epweave
