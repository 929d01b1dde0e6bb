// Pipelines under a name.
#pragma once

#include <vector>

#include "passes/pass.h"

namespace epweave {

std::vector<PresetInfo> make_presets();

}  // namespace epweave
