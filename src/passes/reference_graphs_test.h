// Real graphs of one stage of torchtitan's compiler. For tests.
#pragma once

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

namespace epweave {

// Paths by name, of $EPWEAVE_GRAPHS or testdata/graphs: files of any form that io reads.
inline std::map<std::string, std::string> find_graphs(const std::string& stage) {
  const char* env = std::getenv("EPWEAVE_GRAPHS");
  const std::filesystem::path folder = env != nullptr
                                           ? std::filesystem::path(env)
                                           : std::filesystem::path(EPWEAVE_SOURCE_DIR) / "testdata/graphs";
  std::map<std::string, std::string> paths;
  REQUIRE(std::filesystem::exists(folder));
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (const std::size_t dot = file.find(fmt::format(".{}.", stage)); dot != file.npos)
      paths.emplace(file.substr(0, dot), entry.path().string());
  }
  INFO("no graph of stage " << stage << " in " << folder);
  REQUIRE_FALSE(paths.empty());
  return paths;
}

}  // namespace epweave
