// Whether nodes of a graph, executed alone, find in storage what they find there in the whole
// graph.
//
//   %a = mul(%x, 2)    inside            %a is read anew after the write: alone, %b would double the old %a
//   add_(%a, 1)        outside
//   %b = mul(%a, 2)    inside            refused
//
// An input stands for what its storage holds when the first node inside uses it; that is sound as
// long as nothing outside writes it between two uses inside, and nothing inside writes storage that
// two values inside stand for.
#pragma once

#include <optional>
#include <string>

#include "analysis/effects.h"
#include "ir/graph.h"

namespace epweave {

struct StorageConflict {
  NodeId node;   // that would find something else
  NodeId other;  // on the other side of the border, because of which
  std::string problem;
};

// `inside`: by node, whether it is executed alone. The first conflict in the order of execution; or
// none.
std::optional<StorageConflict> find_storage_conflict(const Graph& graph, const Effects& effects,
                                                     const IdSet<NodeId>& inside);

}  // namespace epweave
