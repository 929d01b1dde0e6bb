// What a graph records about its values, held against the values of a run.
//
// Dtype, sizes and strides (of extents above 1) of a result are those recorded, with the run's
// numbers for symbols; a symbolic scalar is what its recorded expression says. On the way symbols
// get their numbers: a node's bindings, and extents that are recorded as one symbol.
#pragma once

#include "ir/graph.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {

class RecordedValues {
 public:
  RecordedValues(const Context& context, Symbols& symbols) : context_(context), symbols_(symbols) {}
  // Throws KernelError where the value of the node contradicts what is recorded.
  void check(const Node& node, const Value& value);

 private:
  void bind_symbol(const Binding& binding, const Value& value);
  void check_value(TypeId id, const Value& value);
  void check_scalar(const Type& type, const Value& value) const;
  void check_tensor(const TensorType& type, const Tensor& tensor);

  const Context& context_;
  Symbols& symbols_;
};

}  // namespace epweave::replay
