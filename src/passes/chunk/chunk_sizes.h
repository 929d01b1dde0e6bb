// The size nodes of a chunked graph: how many rows each part has.
//
//   %u0_tokens = sym_size(%x, 0)   %u0_part = floordiv(%u0_tokens, 2)   %u0_part_x3 = mul(%u0_part, 3)
//
// behind the inputs, one for the whole graph; sizes that no input has for an extent are read off a
// tensor where they are needed. Parts of different sizes begin where the ones before end; part 0
// has %u0_cut1 rows:
//
//   %u0_cut1 = floordiv(%u0_tokens, 3)
//   %u0_x2 = mul(%u0_tokens, 2)        %u0_cut2 = floordiv(%u0_x2, 3)   %u0_part1 = sub(%u0_cut2, %u0_cut1)
//   %u0_part2 = sub(%u0_tokens, %u0_cut2)
//
// Sizes that the user gave are numbers, but for the last part, which has the rest.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "passes/chunk/chunk_writer.h"
#include "placement/token_extent.h"

namespace epweave {

class PartSizes {
 public:
  PartSizes(const Graph& graph, const Graph& chunked, const ChunkPlan& plan, ChunkWriter& writer);

  // One for each part: a node, or a number.
  using Shares = std::vector<Arg>;

  // Where the sizes stand that are made for a use: the value whose size it is, and the node of a
  // region that wants it.
  struct SizeUse {
    NodeId origin, user;
  };
  // Whether every part has a share of the extent.
  bool is_divisible(ExprId extent) { return tokens_.is_linear(extent); }
  // The parts' shares of the number `whole`, which scales with the tokens. Throws PassError where
  // parts of different sizes have none.
  Shares of_number(NodeId whole, SizeUse place);
  // The parts' shares of the extent, where an input has the token count for an extent.
  std::optional<Shares> of_extent(ExprId extent, RegionId region);
  // The number of rows of the extent before part `part` > 0, where an input has the token count for
  // an extent.
  std::optional<Arg> first_row(ExprId extent, RegionId region, std::size_t part);
  // The parts' shares of the tensor's dimension.
  Shares of_dimension(NodeId tensor, int dim, SizeUse place);
  // The number, read off the inputs. Throws PassError where it is no multiple of a symbol that one
  // has for an extent.
  Arg of_inputs(PolyId number, NodeId wanted_for);
  // The same, or the next multiple of `step` where it is not known to be one.
  Arg rounded_up(ExprId extent, std::int64_t step, NodeId wanted_for);
  // The size of a dimension, read where it is needed, in the name of a value and of a region.
  struct SizeReader {
    NodeId origin;
    RegionId region;
  };
  NodeId read_size(NodeId tensor, int dim, SizeReader reader);
  // Puts the nodes that serve the whole graph behind the inputs.
  void place_behind_inputs();

 private:
  using Key = std::tuple<std::uint32_t, std::int64_t, std::uint32_t>;  // symbol, factor, division

  const Shares& multiple(TokenMultiple multiple, std::uint32_t division);
  Shares equal_shares(StringId symbol, const Division& division);
  Shares given_shares(StringId symbol, const Division& division);
  Shares nearly_equal_shares(StringId symbol, const Division& division);
  NodeId tokens_of(StringId symbol);
  // The only token symbol that the divided number scales with, if its parts may have different
  // sizes.
  std::optional<StringId> unequal_symbol(NodeId number, SizeUse place);

  // A call on an operand and a number or a second operand.
  struct Operation {
    std::string name;
    std::string_view target;
    Arg left, right;
  };
  NodeId add_for_graph(const Operation& operation, StringId symbol);
  NodeId add_for_use(const Operation& operation, SizeUse place);

  const Graph& in_;
  const Graph& out_;
  const ChunkPlan& plan_;
  ChunkWriter& writer_;
  TokenExtents tokens_;
  std::vector<NodeId> behind_inputs_;
  std::map<Key, Shares> multiples_;
  std::map<Key, Shares> first_rows_;  // of part 1 and so on, as far as they are known
  SideTable<StringId, NodeId> token_nodes_;
  SideTable<PolyId, NodeId> input_numbers_;
};

}  // namespace epweave
