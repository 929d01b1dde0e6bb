// Mappings of calls, each made once: the layers of a model repeat calls of the same extents.
#pragma once

#include <deque>

#include "base/word_table.h"
#include "ops/mapping.h"

namespace epweave {

class MappingMemo {
 public:
  // As map_dimensions. The mapping stays where it is.
  const CallMapping& map(const MappedCall& call);

 private:
  void push_key(const MappedCall& call);

  WordTable keys_;
  std::deque<CallMapping> mappings_;  // of each key
};

}  // namespace epweave
