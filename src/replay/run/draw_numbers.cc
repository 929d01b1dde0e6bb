#include "replay/run/draw_numbers.h"

#include "ops/op.h"

namespace epweave::replay {

DrawNumbers::DrawNumbers(const Body& body, Rank rank) : numbers_(rank, "draws") {
  for (NodeId id : body.order)
    if (const OpInfo* op = body.nodes[id].op; op != nullptr && op->is_random)
      places_.emplace(id.index(), places_.size());
}

}  // namespace epweave::replay
