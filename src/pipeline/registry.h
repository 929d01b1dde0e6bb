// All passes and presets. A pass with options has its row in pipeline/rows.
#pragma once

#include <string_view>
#include <vector>

#include "passes/pass.h"

namespace epweave {

struct Registry {
  std::vector<PassInfo> passes;
  std::vector<PresetInfo> presets;

  const PassInfo* find_pass(std::string_view name) const;
  const PresetInfo* find_preset(std::string_view name) const;
};

// The tool's own, in the order in which listings show them.
const Registry& registry();

}  // namespace epweave
