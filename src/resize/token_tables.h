// Inputs of FlexAttention whose sizes follow the token count by a rule that no symbol states.
//
//   block tables   a row for each block of queries, or of keys: i32[1, 1, 8] of 1024 tokens
//   looked up      by a mask function, as long as the keys or a block longer: i32[1152] of
//                  1024; of a grid [batch, the same]
//   numbers        that a function is given, equal to the number of keys or of sequences
//
// The first follows from the call's lengths and block sizes. The others are torchtitan's document
// of each token, its padded list of where documents begin, and the shape of that list: that they
// keep the distance is an assumption, which `notes` say.
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
