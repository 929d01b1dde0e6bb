// A recorded type beside the one that a call's rule gives, merged tensor by tensor.
//
//   recorded (f32[8], i64[8]), inferred (f32[s0], none)     (merge(0, f32[8], f32[s0]), merge(1, i64[8], none))
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace epweave {

// `inferred` may be none, or have fewer elements. merge(element, recorded, inferred) -> TypeId; of
// what is no tuple or list, element 0. Elements without a recorded type stay so.
template <class Merge>
TypeId merge_types(Context& context, TypeId recorded, TypeId inferred, const Merge& merge) {
  const Type& type = context.types[recorded];
  if (type.kind != TypeKind::kTuple && type.kind != TypeKind::kList) return merge(0, recorded, inferred);
  Type merged = type;
  const std::vector<TypeId> found = inferred ? context.types[inferred].elements : std::vector<TypeId>();
  for (std::size_t e = 0; e < merged.elements.size(); ++e)
    if (merged.elements[e])
      merged.elements[e] = merge(e, merged.elements[e], e < found.size() ? found[e] : TypeId());
  return merged.elements == context.types[recorded].elements ? recorded
                                                             : context.types.intern(std::move(merged));
}

}  // namespace epweave
