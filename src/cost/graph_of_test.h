// A graph of the nodes that a test writes. For tests.
#pragma once

#include <string>

#include "ir/text/text.h"

namespace epweave {

inline Graph graph_of(const std::string& nodes, const std::string& tables = "") {
  return parse_text("epweave text 1\ndevice cuda:0\n" + tables + "\ngraph\n" + nodes, "test.txt");
}

}  // namespace epweave
