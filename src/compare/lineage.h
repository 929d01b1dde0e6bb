// How a node came to be, read off its provenance records.
//
// Later passes add records (moved, specialized) to a node that the chunker made; what the node *is*
// stays what the record says that made it.
#pragma once

#include "ir/graph.h"

namespace epweave {

struct Lineage {
  ProvenanceRole role = ProvenanceRole::kKept;
  NameList origins;  // nodes of the input that it stands for; first the one whose place it has
  std::uint32_t part = 0, parts = 0;

  // The node is its origin: kept, moved, merged with others, made a special case, or computed once
  // more.
  bool is_whole() const;
  bool is_part() const { return role == ProvenanceRole::kBody && parts != 1; }
};

// A node without records stands for itself. One that is computed again is what the node is that it
// was copied of.
Lineage find_lineage(const Node& node);

// Made by the rewrite, and stands for what was merged into it since. Later passes may have added
// records.
bool is_merged_memory(const Node& node);

}  // namespace epweave
