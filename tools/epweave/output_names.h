// Names of outputs that others may have chosen: a scheduler, a key of a store.
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"

namespace epweave::cli {

// Throws UsageError for a path that climbs out of its folder.
inline void require_plain_name(const std::string& path) {
  for (const std::filesystem::path& step : std::filesystem::path(path))
    if (step == "..")
      throw UsageError("-o " + path + ": a name with '..' leads out of its folder; name the folder itself");
}

}  // namespace epweave::cli
