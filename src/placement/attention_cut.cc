#include "placement/attention_cut.h"

namespace epweave {

std::vector<FlexIndex> indices_of(const AttentionCut& cut) {
  if (cut.dim == 0) return {FlexIndex::kBatch};
  if (cut.keys) return {FlexIndex::kQuery, FlexIndex::kKey};
  return {FlexIndex::kQuery};
}

}  // namespace epweave
