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

// What an op does with the dimensions of its operands: which elements of them an element of a
// result is made of. What is known of a family stands in its row (ops/family.h), and how its calls
// map dimensions in a function (ops/mapping.h): placement, scaling and the verification of rewrites
// read those.
enum class OpFamily : std::uint8_t {
  // An element of the result is made of the elements of the operands, which broadcast, in the same
  // place.
  kElementwise,
  kIdentity,  // one operand's elements, unchanged: clone, alias, detach
  kCast,      // to another dtype
  kTransfer,  // to another device
  // Over the dimensions `dim`, or all.
  kSum,        // results of parts add up
  kReduce,     // maximum, mean, norm, ..: they do not
  kTruth,      // all, any
  kScan,       // cumsum
  kNormalise,  // softmax and its backward
  kHalve,      // pairs the two halves of one dimension: glu
  kHalveBackward,
  // Over the last dimensions, as many as `normalized_shape` has.
  kNormaliseLast,          // the value, and statistics for each row
  kNormaliseLastBackward,  // the gradients of the value, and of weights, which are sums over the rows
  // Elements keep their order, or move by the dimension.
  kReshape,
  kBitView,  // view_as_real, view_as_complex, view.dtype: a last dimension comes, goes or has another extent
  kUnsqueeze,
  kSqueeze,
  kPermute,
  kExpand,
  kRepeat,
  kSelect,
  kSlice,
  kSplit,
  kUnbind,
  kPad,
  kUnslice,     // zeros around a slice or what was selected
  kSliceWrite,  // a copy with a slice replaced
  kJoin,        // cat
  kStack,
  kReorder,   // flip, roll
  kTriangle,  // tril, triu
  // Rows that data choose.
  kIndex,
  kGather,
  kIndexSelect,
  kEmbedding,
  kEmbeddingBackward,
  kIndexPut,
  kScatter,     // writes over
  kScatterAdd,  // adds
  kRowScatter,
  kIndexAdd,
  kIndexCopy,   // index_copy, index_fill
  kRepeatRows,  // repeat_interleave
  kMaskedRows,  // masked_select, nonzero: as many as there are
  kSearch,      // each element's place among those of a sorted value
  kCount,       // how many elements have each number: counts of parts add up
  kOneHot,
  kTopK,
  kSort,
  // Products.
  kMatmul,
  kAddMatmul,      // a product added to the first operand
  kGroupedMatmul,  // groups of rows by a matrix each, or of columns by rows
  kConvolution,    // windows by a matrix
  kConvolutionBackward,
  kSolve,  // X of A X = B, matrix by matrix
  kAttention,
  kFlexAttention,
  kLoss,  // the elements' losses, or all of them added or averaged
  kLossBackward,
  kClassLoss,  // each row's by the number of its class
  kClassLossBackward,
  // From no element of a tensor.
  kFactory,
  kIota,  // arange, linspace, eye: by place
  kLike,  // zeros_like: as large as an operand
  kNew,   // new_zeros: only dtype and device of an operand
  kRandom,
  kSize,        // sizes, strides
  kNumber,      // arithmetic of the host's numbers
  kComparison,  // of the host's numbers
  kHostRead,    // a number that the device computed
  kCheck,       // assertions
  kElement,     // of a tuple
  // Across ranks.
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kGatherMatmul,   // an all-gather and the products of what it gathers, in one call
  kMatmulScatter,  // a product and the reduce-scatter of it
  kGatherPair,     // all-gathers of two tensors along a dimension, waited for in the call
  kScatterPair,    // reduce-scatters of two tensors, as well
  kWait,           // for a collective or a copy
  kMesh,           // groups, devices, coordinates
  kOpaque,         // nothing is known
};
std::string_view name_of(OpFamily family);

// In which of its tensor operands an op is linear, with numbers, sizes and positions fixed: f(a +
// b) = f(a) + f(b) but for rounding. What reduces across ranks is linear where its argument says
// sum or avg; casts are but where they drop fractions.
enum class Linearity : std::uint8_t {
  kNone,
  kFirst,  // in the first, with the others fixed: neg, mul.Scalar, div, index, the backward of a function
  kEach,   // in each, with the others fixed: products
  kSum,    // in all together: sums, joins
};
std::string_view name_of(Linearity linearity);

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
  OpFamily family = OpFamily::kOpaque;
  Linearity linearity = Linearity::kNone;
  CostClass cost = CostClass::kMemory;
  TypeRule type_rule = nullptr;
  bool is_effectful = false;      // kept by dead-code elimination though it writes nothing
  bool is_random = false;         // draws random numbers
  bool reads_types_only = false;  // reads no element of its arguments: sym_size, zeros_like
  bool makes_zeros = false;       // every element of the result is 0
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

// Fills what follows from the node's target: its row. Whoever makes a node, or gives one another
// target, calls this.
void resolve_op(const Context& context, Node& node);

}  // namespace epweave
