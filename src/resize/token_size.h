// The token count of a graph: which input extent it is, and how it is set.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace epweave {

// A dimension of a user input that counts tokens.
struct TokenDim {
  std::string name;   // "tokens", "batch", "sequence"
  std::string input;  // as the user knows it
  NodeId node;
  std::size_t dim = 0;
  ExprId extent;
  StringId symbol;              // none: a number
  std::int64_t value = 0;       // when the graph was traced
  std::int64_t per_symbol = 1;  // tokens for each that the symbol counts: 2 of 2*s0
  std::int64_t divisor = 1;     // of the symbol, by its facts
};

// Those of the first user input of tokens; none where the graph has no such input, or its extent is
// an expression that is not a multiple of one symbol with a known number.
std::vector<TokenDim> find_token_dims(const Graph& graph);

// Sets it, and what follows from it. `notes` gets what changed and what is assumed.
Graph set_tokens(const Graph& graph, const TokenDim& dim, std::int64_t value,
                 std::vector<std::string>& notes);

}  // namespace epweave
