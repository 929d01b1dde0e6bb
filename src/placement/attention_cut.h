// What a divided FlexAttention call counts from the first row of its part: the batch of a cut along
// the batch, the query of one along the sequence, and the key where the keys are the part's own.
#pragma once

#include <vector>

#include "analysis/flex_attention.h"
#include "placement/placement.h"

namespace epweave {

// Which numbers count rows of the part after such a cut.
std::vector<FlexIndex> indices_of(const AttentionCut& cut);

}  // namespace epweave
