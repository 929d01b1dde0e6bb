// Which dimensions of user inputs count tokens, as options of symbolize name them.
//
//   tokens:0      dimension 0 of the input `tokens`
//   tokens:0/2    along which two micro-batches lie one behind the other
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "placement/scaling/scaling.h"

namespace epweave {

struct TokenDimensions {
  std::vector<TokenInput> inputs;
  std::int64_t micro_batches = 1;  // along the dimensions
};

// Of no names: the first dimensions of the inputs in kTokenInputs that there are. Throws PassError
// "symbolize.no-inputs" and "symbolize.input".
TokenDimensions find_token_dimensions(const Graph& graph, const std::vector<std::string>& names);

}  // namespace epweave
