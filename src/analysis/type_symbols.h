// The symbols that a recorded type mentions: in sizes, strides, offsets and numbers, elements of
// tuples included.
#pragma once

#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace epweave {

class TypeSymbols {
 public:
  explicit TypeSymbols(Context& context) : context_(context) {}

  // Each once, by id. Valid until the next call.
  const std::vector<StringId>& of(TypeId type);

 private:
  std::vector<StringId> collect(const Type& type) const;

  Context& context_;
  std::unordered_map<TypeId, std::vector<StringId>> symbols_;
};

// Symbols that nodes of any body mention: in types, arguments and bindings; and those that what is
// known of these mentions.
IdSet<StringId> mentioned_symbols(const Graph& graph);

}  // namespace epweave
