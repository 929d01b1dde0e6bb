// Inputs of FlexAttention whose sizes follow the token count by a rule that no symbol states.
//
//   block tables   a row for each block of queries, or of keys:        i32[1, 1, 8] of 1024 tokens
//   looked up      by a mask function, as long as the keys, or a block longer: i32[1152] of 1024
//
// The first follows from the call's lengths and block sizes. The second is torchtitan's document of
// each token, and its padded list of where documents begin: that they keep the distance is an
// assumption.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace epweave {

// Sets them in `after`, which has the calls of `before` at other lengths. Throws PassError
// "resize.table" where a table is computed, or has another size than its call's.
void set_token_tables(const Graph& before, Graph& after, const std::string& reason,
                      std::vector<std::string>& notes);

}  // namespace epweave
