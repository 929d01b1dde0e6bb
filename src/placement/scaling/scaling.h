// Which extents scale with the token count, in a graph where it is a plain number.
//
// Every extent of every value is a variable. An op's shape rule equates extents (the result of
// `add` has its operands' extents), relates products (a reshape), multiplies by a number (an
// all-gather by its group's size) or sums (a concatenation). The token count enters at marked
// inputs, what does not scale at parameters and buffers, and both follow the relations forwards and
// backwards:
//
//   %x = placeholder : i64[8]   (marked: u)        %e = embedding(%w, %x) : [8, 4]        8 = u
//   %g = reduce_scatter(%e, group of 2) : [4, 4]   4 = u/2, and the extent 4 beside it is that of %w: fixed
//   %z = zeros([4, 4]);  add(%z, %g)               backwards: the literal 4 in front is u/2
//
// No extent is ever compared with the token count. An extent that nothing reaches stays a number.
//
// Linear: each relation is looked at once for each extent in it that becomes known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

struct TokenInput {
  NodeId node;  // a placeholder of the step
  std::size_t dim = 0;
  std::string name;          // as the user knows it
  Rational factor = {1, 1};  // its extent is factor * token count; of the first one 1
};

struct ScalingOptions {
  // Pieces of equal length that something is cut into stay equal, though their lengths are numbers.
  // Else they stay those numbers.
  bool equal_pieces = false;
  // Parameters and buffers do not scale. Else what is marked is theirs, and follows the relations
  // to others; other inputs do not scale.
  bool fixed_parameters = true;
  // So many lie along the marked dimensions, one behind the other: a view may show the tokens of
  // one.
  std::int64_t micro_batches = 1;
};

// A number among a call's arguments that is an extent: item `item` of parameter `param`, or the
// parameter itself.
struct SizeArgument {
  NodeId node;
  std::size_t param = 0;
  std::optional<std::size_t> item;
  Rational factor;  // it is factor * token count
};

struct ScalingFactors {
  std::int64_t tokens = 0;  // the token count when the graph was traced
  // Per node: for each tensor of its value (a tensor itself, or the elements of a tuple), for each
  // dimension, the factor c of an extent c * tokens; none: a number.
  struct Dimensions {
    std::vector<std::vector<std::optional<Rational>>> tensors;
  };
  SideTable<NodeId, Dimensions> of;
  std::vector<SizeArgument> arguments;
  // Expressions of other symbols that are a multiple of the token count: u4 + u5 is 3 * tokens.
  std::vector<std::pair<PolyId, Rational>> sums;
};

// Throws PassError "symbolize.conflict" where an extent is both c * tokens and something else.
ScalingFactors infer_scaling(const Graph& graph, Facts& facts, const std::vector<TokenInput>& inputs,
                             ScalingOptions options = {});

}  // namespace epweave
