// Which extents count tokens.
//
// Chunking cuts the token extent of the inputs. The token symbols are those of the first dimension of the
// user inputs (`dim=batch`) and those that torchtitan_chunk_symbol_hints name; an extent scales with the
// token count if it mentions one.
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

class TokenExtents {
 public:
  TokenExtents(const Graph& graph, Facts& facts);

  const std::vector<StringId>& symbols() const { return symbols_; }
  bool is_token(StringId symbol) const { return is_token_.contains(symbol); }
  // Whether the extent mentions a token symbol.
  bool scales(ExprId extent);
  bool scales(PolyId extent);
  // `factor * symbol`, if the extent is that.
  std::optional<TokenMultiple> multiple(ExprId extent);
  // Whether it is a sum of whole multiples of products with one token symbol each (2*u*w): then equal parts
  // have equal shares of it.
  bool is_linear(ExprId extent);
  // The dimensions of a tensor that scale.
  std::vector<int> dimensions(const TensorType& tensor);
  // The placeholder and dimension whose extent is the symbol; `factor` times it where no input has it alone.
  struct Source {
    NodeId node;
    int dim = 0;
    std::int64_t factor = 1;
  };
  const Source& source(StringId symbol) const { return sources_[symbol]; }

 private:
  Facts& facts_;
  std::vector<StringId> symbols_;
  IdSet<StringId> is_token_;
  SideTable<StringId, Source> sources_;
};

}  // namespace epweave
