// Process groups of every rank (analysis/world.h), by the names that replay uses.
#pragma once

#include "analysis/world.h"

namespace epweave::replay {

using epweave::derive_world;
using epweave::find_coordinate;
using epweave::find_entry;
using epweave::GroupMembers;
using epweave::Mesh;
using epweave::Rank;
using epweave::RankRange;
using epweave::World;

}  // namespace epweave::replay
