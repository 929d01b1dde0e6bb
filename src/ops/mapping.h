// How the dimensions of a call's operands and results go together, in factors, as Shardy's sharding
// rules say it (openxla/shardy, "sharding rule"). Tensors that are cut along a factor are cut along
// all their dimensions that have it.
//
//   %y = mm(%x: [m, k], %w: [k, n])         x: (0, 2)  w: (2, 1)  y: (0, 1)    2 is summed
//   %y = softmax(%x: [r, c], 1)             x: (0, 1)             y: (0, 1)    1 is needed whole
//   %y = add(%x: [r, c], %b: [c])           x: (0, 1)  b: (1)     y: (0, 1)
//   %y = view(%x: [b * s, d], [b, s, d])    x: (0 1, 2)           y: (0, 1, 2)
//   %y = add(%x: [r, c], %b: [1, c])        x: (0, 1)  b: (-, 1)  y: (0, 1)
//
// A dimension of extent 1 has no factor: it is broadcast, or there is nothing to cut. One function
// per family of ops makes the factors from the schema's arguments and the tensors' extents
// (ops/mapping_rules.h). What each says of a factor is tested by execution
// (replay/kernels/host/mapping_test.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/facts.h"
#include "ir/graph.h"
#include "ops/op.h"

namespace epweave {

namespace mapping {
class Builder;
}

using Factor = std::uint16_t;

// What a result is, where the operands are cut along a factor.
enum class FactorUse : std::uint8_t {
  kPassed,   // of each piece, a piece of the result along that factor
  kSummed,   // the sum of what the pieces give; results that have the factor are pieces along it
  kReduced,  // made of all pieces, but no sum of theirs: a maximum, a mean
  kWhole,    // made of all, or of an element's place among all: softmax, cumsum, flip, arange
  kIndexed,  // data say which elements: the positions of an index, the table that it reads, exchanged rows
};
std::string_view name_of(FactorUse use);

// A call as far as its mapping depends on it: an argument per parameter of the schema. An extent
// below 0 is not known.
struct MappedCall {
  enum class Kind : std::uint8_t { kNone, kTensor, kNumber, kTensors, kNumbers, kOther };
  struct Argument {
    Kind kind = Kind::kNone;
    std::int64_t number = 0;           // kNumber; kOther and unknown numbers: 0
    std::uint32_t begin = 0, end = 0;  // of `tensors` or `numbers`
  };
  using Sizes = std::vector<std::int64_t>;

  const OpInfo* op = nullptr;
  std::vector<Argument> arguments;
  std::vector<Sizes> tensors;         // operands in the order of the parameters, items of lists one by one
  std::vector<bool> is_mask;          // of each: a tensor of bools
  std::vector<std::uint32_t> places;  // of each: which item of its list it is, None counted
  std::vector<std::int64_t> numbers;  // items of lists
  std::vector<Sizes> results;         // each tensor of the value; what is none is left out
};

class CallMapping {
 public:
  // False: nothing is known (attention, random numbers, opaque ops, tensors that do not fit the op)
  // or there is nothing to say (no tensors).
  bool is_known() const { return is_known_; }
  std::size_t factor_count() const { return uses_.size(); }
  FactorUse use(Factor factor) const { return uses_[factor]; }

  std::size_t operand_count() const { return operands_.size(); }
  std::size_t result_count() const { return results_.size(); }
  // Of one dimension, outermost first.
  std::span<const Factor> operand(std::size_t tensor, std::size_t dim) const {
    return at(operands_, tensor, dim);
  }
  std::span<const Factor> result(std::size_t tensor, std::size_t dim) const {
    return at(results_, tensor, dim);
  }
  std::size_t operand_rank(std::size_t tensor) const {
    return operands_[tensor].end - operands_[tensor].begin;
  }
  std::size_t result_rank(std::size_t tensor) const { return results_[tensor].end - results_[tensor].begin; }
  // The extent of a factor; -1: not known.
  std::int64_t extent(Factor factor) const { return extents_[factor]; }
  // The dimension of a tensor that is this factor and no other.
  std::optional<std::size_t> result_dim(std::size_t tensor, Factor factor) const;

 private:
  friend class mapping::Builder;
  struct Range {
    std::uint32_t begin = 0, end = 0;
  };
  std::span<const Factor> at(const std::vector<Range>& tensors, std::size_t tensor, std::size_t dim) const {
    const Range range = dims_[tensors[tensor].begin + dim];
    return {items_.data() + range.begin, range.end - range.begin};
  }
  bool is_known_ = false;
  std::vector<FactorUse> uses_;
  std::vector<std::int64_t> extents_;
  std::vector<Factor> items_;              // of dimensions
  std::vector<Range> dims_;                // in items_
  std::vector<Range> operands_, results_;  // in dims_
};

CallMapping map_dimensions(const MappedCall& call);

// Whether every factor of every call of the family is passed, so that there is no need to map one.
bool passes_all(OpFamily family);

// A node's call by its recorded types. Extents that are not plain numbers are those that were
// traced.
struct MappedNode {
  MappedCall call;
  std::vector<NodeId> operands;  // of call.tensors
};
std::optional<MappedNode> mapped_node(const Graph& graph, const Node& node, Facts& facts);
// Its operands alone. The node's op has a row in the op table.
std::vector<NodeId> mapped_operands(const Graph& graph, const Node& node);

// "x: (0, 2)  w: (2, 1)  -> (0, 1)    2 is summed". Operands by the names of their parameters.
std::string print_mapping(const MappedCall& call, const CallMapping& mapping);

}  // namespace epweave
