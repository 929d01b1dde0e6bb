// Arguments and recorded types as values, given the values of nodes and symbols.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "ir/graph.h"
#include "replay/kernels/kernel.h"
#include "replay/values/value.h"

namespace epweave::replay {

// The numbers that symbols have in a run; a symbol that was replaced by an expression counts as
// that.
class Symbols {
 public:
  explicit Symbols(const Graph& graph);
  // Returns false if the symbol has another value already.
  bool bind(StringId symbol, std::int64_t value);
  std::optional<std::int64_t> find(StringId symbol) const;
  std::optional<std::int64_t> evaluate(ExprId expr) const;
  // As recorded; none if a symbol has no value yet.
  std::optional<Extents> evaluate(const std::vector<ExprId>& exprs) const;
  // Binds the extents of `type` that are one symbol without a value.
  void learn(const TensorType& type, const Tensor& tensor);

 private:
  std::optional<StringId> bare_symbol(ExprId expr) const;
  const Graph& graph_;
  std::unordered_map<StringId, std::int64_t> values_;
  std::unordered_map<StringId, ExprId> replaced_;
};

// The value of an argument. `value_of` gives the value of a node, `function_of` that of a nested
// graph.
struct Environment {
  const Graph& graph;
  const Symbols& symbols;
  std::function<const Value&(NodeId)> value_of;
};
Value evaluate(const Environment& environment, Arg arg);

// The value of a schema's default (None, 1, 0.5, [], False, "none").
Value parse_default(std::string_view text);

// A constant tensor (ArgKind::kTensor) in host memory. Throws InputError if its values are not in
// the file.
Tensor make_constant(const Graph& graph, const Symbols& symbols, Arg constant, Memory& memory);

// Sizes and strides of a recorded tensor type with numbers for symbols, or none.
std::optional<ResultType> evaluate(const Symbols& symbols, const TensorType& type);

// Writes a number into element `index` of a row-major tensor, converted to its dtype.
void store_number(const Tensor& tensor, std::int64_t index, double value);
void store_integer(const Tensor& tensor, std::int64_t index, std::int64_t value);
// Reads it as double.
double load_number(const std::byte* element, DType dtype);

}  // namespace epweave::replay
