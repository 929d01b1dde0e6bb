#include "passes/chunk/chunk_values.h"

namespace epweave {

std::span<Arg> ChunkedValues::parts_of(NodeId id) {
  const std::size_t count = plan_.division(plan_.placements.region[id]).count();
  std::uint32_t& begin = parts_at_.at(id).begin;
  if (begin == kNoParts) {
    begin = static_cast<std::uint32_t>(parts_.size());
    parts_.resize(parts_.size() + count);
  }
  return {parts_.data() + begin, count};
}

}  // namespace epweave
