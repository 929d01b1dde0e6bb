#include "placement/region_updates.h"

#include <fmt/format.h>

#include <utility>

#include "analysis/effects.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "placement/rules/placement_rules.h"

namespace epweave {

void RegionUpdates::note_placed(NodeId id, const Placement& placement) {
  if (placement.any_order) equal_rows_.at(placements_.effects->storage_of(id)).push_back(id);
}

void RegionUpdates::check_before(NodeId id, RegionId region) const {
  for_each_input(*graph_.context, step_.nodes[id], [&](NodeId input) {
    const NodeId storage = placements_.effects->storage_of(input);
    if (updated_in_[storage] != region) return;
    const bool are_zeros = step_.nodes[storage].op != nullptr && step_.nodes[storage].op->makes_zeros;
    throw PlacementRefusal{
        "chunk.read-after-update",
        fmt::format("it reads '{}', which the region updates", graph_.text(step_.nodes[input].name)),
        are_zeros ? "add to the zeros out of place, so that each part has its own (scatter_add for "
                    "scatter_add_, index_add for index_add_)"
                  : "read the buffer before its update, or outside the selected module"};
  });
}

void RegionUpdates::note_writes(NodeId id) {
  for (const StorageAccess& access : placements_.effects->accesses_of(id))
    if (access.writes && !written_by_[access.storage]) written_by_.at(access.storage) = id;
}

void RegionUpdates::check_content(const ReliedOn& relied_on) const {
  const NodeId writer = written_by_[placements_.effects->storage_of(relied_on.value)];
  if (!writer) return;
  const std::string_view name = graph_.text(step_.nodes[relied_on.value].name),
                         written_by = graph_.text(step_.nodes[writer].name);
  switch (relied_on.content) {
    case ReliedContent::kZeros:
      throw PlacementRefusal{
          "chunk.written-zeros",
          fmt::format("each part would add its rows to '{}', which is not zeros any more: '{}' writes it",
                      name, written_by),
          "add the rows into zeros, and the sum to the other values after that"};
    case ReliedContent::kSortedOrder:
      throw PlacementRefusal{
          "chunk.foreign-positions",
          fmt::format("it writes rows to the places in '{}', which is not the order that a "
                      "sort gave any more: '{}' writes it",
                      name, written_by),
          "write a copy of the order"};
  }
}

void RegionUpdates::check_after(NodeId id, const Placement& placement, RegionId region) {
  const Node& node = step_.nodes[id];
  if (!node.op->writes) return;
  for (std::size_t i = 0; i < node.op->params.size(); ++i) {
    const Arg written = arg_of(*graph_.context, node, i);
    if (!node.op->params[i].is_written || !written.is_node()) continue;
    const NodeId value = written.as_node(), owner = placements_.effects->storage_of(value);
    const std::string_view owner_name = graph_.text(step_.nodes[owner].name);
    if (placement.is(PlacementKind::kCarried)) {
      // A value that was placed before the update, whichever way it is taken, would miss it.
      if (owner != value)
        throw PlacementRefusal{"chunk.update-of-view",
                               fmt::format("it updates a view of '{}', not the buffer itself", owner_name),
                               {}};
      updated_in_.at(owner) = region;
    } else if (!placement.is_divided()) {
      if (placements_.of(value).is_divided())
        throw PlacementRefusal{"chunk.update-of-parts",
                               fmt::format("it writes all of '{}', which exists in parts", owner_name),
                               "use the form of the operation that makes a new value"};
    } else if (!placements_.has_parts_for(owner, region)) {
      throw PlacementRefusal{
          "chunk.update-outside",
          fmt::format("it writes rows of '{}', which no part has a copy of its own of", owner_name),
          "write to a value made inside the selected module"};
    } else if (!has_place_of(value, placement)) {
      throw PlacementRefusal{
          "chunk.update-changes-rows",
          fmt::format("'{}' is placed {}, and what is written to it {}", graph_.text(step_.nodes[value].name),
                      print_placement(placements_.of(value)), print_placement(placement)),
          "use the form of the operation that makes a new value"};
    } else {
      end_equal_rows(value, placement);
    }
  }
}

// Rows of the value's storage that were equal until now, whose blocks did not matter, are not any
// more.
void RegionUpdates::end_equal_rows(NodeId value, const Placement& written) {
  for (NodeId id : std::exchange(equal_rows_.at(placements_.effects->storage_of(value)), {})) {
    if (id != value)
      throw PlacementRefusal{
          "chunk.update-of-view",
          fmt::format("it writes rows of '{}', which are rows of '{}', too: until now all were equal, and "
                      "whether parts of that have the same ones is not known",
                      graph_.text(step_.nodes[value].name), graph_.text(step_.nodes[id].name)),
          "use the form of the operation that makes a new value"};
    Placement known = placements_.placement[id];
    known.blocks = written.blocks;
    known.any_order = written.any_order;
    placements_.placement.set(id, known);
  }
}

// Whether what was placed before a write is placed so after it. Of rows in an order of the part's
// own nothing was known that rows in the order of the tokens are not.
bool RegionUpdates::has_place_of(NodeId value, const Placement& written) const {
  const Placement& before = placements_.of(value);
  if (before.dim != written.dim) return false;
  if (before.is_local() && before.is_rows() && written.is(PlacementKind::kSplit)) return true;
  return before.kind == written.kind && (before.any_order || before.blocks == written.blocks);
}

}  // namespace epweave
