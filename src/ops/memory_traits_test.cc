#include "ops/memory_traits.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <sstream>

#include "ops/op.h"

namespace epweave {
namespace {

const std::map<std::string, unsigned, std::less<>> kTraits = {
    {"pointwise", kIsPointwise}, {"recomputable", kIsRecomputable},
    {"fusible", kIsFusible},     {"view", kIsTorchView},
    {"random", kIsTorchRandom},  {"compute-intensive", kIsComputeIntensive},
    {"flops", kCountsFlops},
};

// {name: traits}; testdata/kernels/torch_lists.txt, which scripts/dev/torch_lists.py writes.
std::map<std::string, unsigned, std::less<>> read_lists() {
  std::ifstream file(EPWEAVE_SOURCE_DIR "/testdata/kernels/torch_lists.txt");
  REQUIRE(file);
  std::map<std::string, unsigned, std::less<>> lists;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string name, trait;
    words >> name;
    unsigned& traits = lists[name];
    while (words >> trait) traits |= kTraits.at(trait);
  }
  return lists;
}

TEST_CASE("traits are what PyTorch lists, of ops with a row and of names without one") {
  unsigned listed = 0;
  for (const auto& [word, trait] : kTraits) listed |= trait;
  for (const auto& [name, expected] : read_lists()) {
    INFO(name);
    if (name.starts_with('*'))
      CHECK((memory_traits_of(std::string_view(name).substr(1)) & listed & ~kIsPointwise) == expected);
    else
      CHECK((memory_traits_of(name) & listed) == expected);
  }
}

TEST_CASE("every op of PyTorch's that has a row stands in its lists") {
  const auto lists = read_lists();
  for (const OpInfo& op : ops()) {
    INFO(op.target);
    if (op.target.starts_with("aten.") || op.target.starts_with("prims."))
      CHECK(lists.find(op.target) != lists.end());
  }
}

}  // namespace
}  // namespace epweave
