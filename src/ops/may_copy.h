// Ops whose result shows the operand's storage, or is a copy of it, as the operand lies in memory:
// what PyTorch decides when the call executes.
//
//   reshape(%x, [6])        a view where the strides of %x allow it
//   resolve_conj(%x)        %x itself, but where its conjugation is still to be done
#pragma once

#include "ops/op.h"

namespace epweave {

bool may_copy(const OpInfo& op);

// view, _unsafe_view and reshape: one op under three names, which canonicalize writes as the last.
bool is_reshape(const OpInfo& op);

}  // namespace epweave
