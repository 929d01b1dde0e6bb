#include "base/nearest_name.h"

#include <catch2/catch.hpp>

namespace epweave {
namespace {

TEST_CASE("the nearest name has few other letters, or holds what was given") {
  CHECK(nearest_name("chnk", {"chunk", "dce"}) == "chunk");
  CHECK(nearest_name("mm1", {"mm_12", "mm"}) == "mm");
  CHECK(nearest_name("layers.*.moee", {"layers.*.moe", "layers.*"}) == "layers.*.moe");
  // Half of the letters say nothing.
  CHECK(nearest_name("nope", {"topk"}).empty());
  CHECK(nearest_name("mm", {"ab", "x"}).empty());
  CHECK(nearest_name("wait", {"cat", "wait_tensor_12", "wait_tensor"}) == "wait_tensor");
  CHECK(nearest_name("--js", {"--json", "--quiet"}) == "--json");
  CHECK(nearest_name("help", {"--help", "--version", "overlap"}) == "--help");
  // Too short to be told by.
  CHECK(nearest_name("wa", {"wait_tensor"}).empty());
  CHECK(nearest_name("", {"wait_tensor"}).empty());
}

}  // namespace
}  // namespace epweave
