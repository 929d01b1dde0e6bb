// Recording a violation at a node; for the parts of the verifier.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/verify.h"

namespace epweave {

void report(const Graph& graph, const Body& body, const Node& node, std::string_view invariant,
            std::string message, std::vector<Violation>& out);

}  // namespace epweave
