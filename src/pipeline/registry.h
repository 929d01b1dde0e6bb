// All passes and presets. Adding a pass is one file and one row here.
#pragma once

#include <string_view>
#include <vector>

#include "passes/chunk/chunk.h"
#include "passes/pass.h"

namespace epweave {

struct Registry {
  std::vector<PassInfo> passes;
  std::vector<PresetInfo> presets;

  const PassInfo* find_pass(std::string_view name) const;
  const PresetInfo* find_preset(std::string_view name) const;
};

// What the options of a call of chunk mean.
ChunkOptions read_chunk_options(const Options& options);

// The tool's own, in the order in which listings show them.
const Registry& registry();

}  // namespace epweave
