// The pairs of graphs in golden tests of `verify A B` (testdata/verify_rewrite/*.test).
#pragma once

#include <optional>
#include <string>

#include "ir/graph.h"

namespace epweave {

struct GoldenPair {
  std::string name;  // of the test
  Graph a, b;        // share a context
};

// Of the test at a path; none: it compares no two graphs in text form, or one cannot be read.
std::optional<GoldenPair> read_golden_pair(const std::string& path);

}  // namespace epweave
