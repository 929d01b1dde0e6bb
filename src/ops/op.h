// The op table: one row for each call target the tool understands.
//
// A row is the operator's schema in torch's notation, whether it has effects beyond its
// schema, its cost class, and its type rule. What a call mutates and what its results
// alias is read off the schema's annotations: `Tensor(a!)` is written, a result
// `Tensor(a)` is a view of the argument `Tensor(a)`.
// Unknown targets have no row: they load, print and pass through, and are refused only
// where something must understand them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/types/type.h"

namespace epweave {

struct Context;
struct Node;
class TypeRuleCall;  // ops/type_rules.h

// The type of a call's result from its arguments; ops/type_rules.h. Null: none yet.
using TypeRule = TypeId (*)(TypeRuleCall&);

enum class CostClass : std::uint8_t {
  kFree,       // no kernel: views, sizes, tuple access
  kMemory,     // moves or maps each element once
  kReduction,  // reads all to make few
  kMatmul,     // mm, grouped mm
  kAttention,
  kSort,        // sort, topk
  kCollective,  // launches communication
  kWait,        // joins communication into the compute stream
  kHostSync,    // makes the host wait for the device
};
std::string_view name_of(CostClass cost);

struct OpParam {
  std::string_view name;
  std::string_view type;           // "Tensor", "SymInt[]", "ScalarType?", without annotation
  std::string_view default_value;  // as written; valid only if has_default
  bool has_default = false;
  bool kwarg_only = false;
  bool is_written = false;     // annotated (x!)
  std::string_view alias_set;  // "a" of Tensor(a), Tensor(a!) and Tensor(a -> *); empty if none
};

struct OpReturn {
  std::string_view type;
  std::string_view name;
  std::string_view alias_set;
  bool is_written = false;
};

struct OpInfo {
  std::string_view target;  // "aten.add.Tensor"
  std::string_view schema;  // "(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
  CostClass cost = CostClass::kMemory;
  TypeRule type_rule = nullptr;
  bool is_effectful = false;      // kept by dead-code elimination though it writes nothing
  bool is_random = false;         // draws random numbers
  bool reads_types_only = false;  // reads no element of its arguments: sym_size, zeros_like
  std::uint16_t index = 0;        // position in ops(): key of tables elsewhere (placement rules, kernels)

  // Read off the schema:
  std::vector<OpParam> params;
  std::vector<OpReturn> returns;
  bool writes = false;   // some parameter is written
  bool is_view = false;  // some result aliases a parameter that is not written

  // Position of the named parameter, or none.
  std::optional<std::size_t> find_param(std::string_view name) const;
};

// All rows, sorted by target.
std::span<const OpInfo> ops();

// The row of a target, or null.
const OpInfo* find_op(std::string_view target);

// Fills what follows from the node's target: its row. Whoever makes a node, or gives one another target,
// calls this.
void resolve_op(const Context& context, Node& node);

}  // namespace epweave
