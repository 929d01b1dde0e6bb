// The symbols that a recorded type mentions: in sizes, strides, offsets and numbers, elements of
// tuples included.
#pragma once

#include <algorithm>
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

// Calls visit(ExprId) for each expression that the type mentions; not for those of its elements.
template <class Visit>
void for_each_expr(const Type& type, const Visit& visit) {
  for (ExprId size : type.tensor.sizes) visit(size);
  for (ExprId stride : type.tensor.strides) visit(stride);
  if (type.tensor.offset) visit(type.tensor.offset);
  if (type.expr) visit(type.expr);
}

// Whether has(StringId) is true of every symbol that the type mentions.
template <class Has>
bool mentions_only(Context& context, TypeId id, const Has& has) {
  const Type& type = context.types[id];
  bool only = true;
  for_each_expr(type,
                [&](ExprId expr) { only = only && std::ranges::all_of(context.exprs.symbols(expr), has); });
  for (TypeId element : type.elements) only = only && (!element || mentions_only(context, element, has));
  return only;
}

// Symbols that nodes of any body mention: in types, arguments and bindings; and those that what is
// known of these mentions.
IdSet<StringId> mentioned_symbols(const Graph& graph);

}  // namespace epweave
