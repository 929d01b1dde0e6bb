// Names for nodes that a pass adds to a body: none is taken twice.
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/graph.h"

namespace epweave {

class NodeNames {
 public:
  NodeNames(Graph& graph, const Body& body);

  // `wanted`, or with the first free number behind it: mm, mm_1, mm_2.
  StringId make(std::string_view wanted);
  // As torch.fx names what has this target: "a.mask0" is a_mask0, then a_mask0_1; "sum.dim_IntList"
  // is sum_dim_int_list.
  StringId make_like(std::string_view target);

 private:
  Graph& graph_;
  IdSet<StringId> taken_;
  SideTable<StringId, std::uint32_t> last_number_;  // by base, of make_like
};

}  // namespace epweave
