// Which extents count tokens.
//
// Chunking cuts the token extent of the inputs. The token symbols are those of one dimension of the
// user inputs and those that torchtitan_chunk_symbol_hints name; an extent scales with the token
// count if it mentions one. Inputs are a flat row of tokens ([tokens], or [tokens, width] of
// activations) or a grid of [batch, sequence]; the dimension that counts is that of the tokens, or
// the one of the grid that is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

struct TokenMultiple {
  StringId symbol;
  std::int64_t factor;  // > 0
};

enum class GridDim : std::uint8_t { kBatch, kSequence };

class TokenExtents {
 public:
  TokenExtents(const Graph& graph, Facts& facts, GridDim dim = GridDim::kBatch);

  const std::vector<StringId>& symbols() const { return symbols_; }
  bool is_token(StringId symbol) const { return is_token_.contains(symbol); }
  // Whether the tokens are the inner dimension of a grid. Where dimensions are merged, the batch is
  // in front.
  bool is_inner() const { return is_inner_; }
  // Whether a user input is a grid with a symbol for its batch or its sequence.
  bool has_symbolic_grid() const { return has_symbolic_grid_; }
  // Whether the extent mentions a token symbol.
  bool scales(ExprId extent);
  bool scales(PolyId extent);
  // `factor * symbol`, if the extent is that.
  std::optional<TokenMultiple> multiple(ExprId extent);
  // Whether no input has the extent's token symbol alone: ranks share the tokens, which are
  // `factor` times it.
  bool is_shared(ExprId extent);
  // Whether it is a sum of whole multiples of products with one token symbol each (2*u*w): then
  // equal parts have equal shares of it.
  bool is_linear(ExprId extent);
  // The dimensions of a tensor that scale.
  std::vector<int> dimensions(const TensorType& tensor);
  // The placeholder and dimension whose extent is the symbol; `factor` times it where no input has
  // it alone.
  struct Source {
    NodeId node;
    int dim = 0;
    std::int64_t factor = 1;
  };
  Source source(StringId symbol) const { return sources_[symbol]; }

 private:
  void add_symbols(ExprId extent);

  Facts& facts_;
  bool has_symbolic_grid_ = false;
  bool is_inner_ = false;
  std::vector<StringId> symbols_;
  IdSet<StringId> is_token_;
  SideTable<StringId, Source> sources_;
};

}  // namespace epweave
