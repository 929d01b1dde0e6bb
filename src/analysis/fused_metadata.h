// Metadata `fused_from` of a call, which says what the call was written for, as it is read back.
// Its form: analysis/fused_products.h.
#pragma once

#include <optional>
#include <vector>

#include "base/id.h"
#include "ir/graph.h"
#include "ops/op.h"

namespace epweave {

struct FusedNode {
  StringId name;
  const OpInfo* op = nullptr;
  std::vector<Arg> numbers;
  std::vector<Provenance> records;
};

struct FusedText {
  struct Product {
    std::optional<FusedNode> front, call, back;
  };
  std::optional<FusedNode> launch, wait;
  std::vector<std::optional<FusedNode>> cuts;
  std::vector<Product> products;
};

// Of metadata that says something else nothing is read.
FusedText read_fused(Context& context, const Node& call);

}  // namespace epweave
