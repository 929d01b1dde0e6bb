#include "passes/record.h"

#include <algorithm>
#include <array>

namespace epweave {
namespace {

void add_record(Context& context, Node& node, Provenance record) {
  record.origins = origins_of(node);
  // That it was kept as it was is no longer true.
  std::array<Provenance, 4> few;
  std::vector<Provenance> many(node.provenance.size() < few.size() ? 0 : node.provenance.size() + 1);
  Provenance* const first = many.empty() ? few.data() : many.data();
  Provenance* const last = std::copy_if(node.provenance.begin(), node.provenance.end(), first,
                                        [](const Provenance& r) { return r.role != ProvenanceRole::kKept; });
  *last = record;
  node.provenance = context.own(std::span<const Provenance>(first, last + 1));
}

// What was added for a node of the input does not stand for it, unless something was merged into
// it.
NameList list_stood_for(const Node& node) {
  const Provenance* maker = find_maker(node);
  const bool is_added = maker != nullptr && maker->role == ProvenanceRole::kAdded;
  const bool is_joined = std::ranges::any_of(node.provenance, [&](const Provenance& record) {
    return record.role == ProvenanceRole::kMerged && &record > maker;
  });
  return is_added && !is_joined ? NameList() : origins_of(node);
}

}  // namespace

void record_merged(Context& context, Body& body, StringId pass, Merge merge) {
  Node& kept = body.nodes[merge.kept];
  const NameList own = origins_of(kept), absorbed = list_stood_for(body.nodes[merge.gone]);
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
