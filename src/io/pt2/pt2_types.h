// Recorded types, symbols and enumerations of a torch.export program.
#pragma once

#include <string_view>
#include <unordered_map>

#include "io/pt2/pt2_json.h"
#include "ir/graph.h"

namespace epweave {

// torch.export's numbers as torch's names: "torch.bfloat16". Fail on others.
std::string_view pt2_dtype(const JsonReader& json, const Json& value);
std::string_view pt2_layout(const JsonReader& json, const Json& value);
std::string_view pt2_memory_format(const JsonReader& json, const Json& value);
std::string pt2_device(const JsonReader& json, const Json& value);  // "cuda:0"

// The types of a program's values. Symbols are gathered in order of first use.
class Pt2Types {
 public:
  Pt2Types(const JsonReader& json, Context& context) : json_(json), context_(context) {}

  // Of a tensor's meta, or of what stands in sym_int_values, sym_float_values and sym_bool_values.
  TypeId tensor(const Json& meta);
  TypeId scalar(const Json& value, std::string_view py_type);

  // The symbols met so far, with the bounds of `range_constraints`.
  std::vector<Symbol> symbols(const Json& range_constraints);

 private:
  ExprId expression(const Json& value);  // {"expr_str": .., "hint": ..}
  ExprId extent(const Json& value);
  void note_symbols(ExprId expr, const Json* hint);

  const JsonReader& json_;
  Context& context_;
  std::vector<Symbol> symbols_;
  std::unordered_map<StringId, std::size_t> symbol_of_;
};

}  // namespace epweave
