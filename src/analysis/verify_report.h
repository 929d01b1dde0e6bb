// Recording a violation at a node, and what counts as damage; for those who verify.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/verify.h"

namespace epweave {

void report(const Graph& graph, const Body& body, const Node& node, std::string_view invariant,
            std::string message, std::vector<Violation>& out);

// Part of verify_communication: what launches move is waited on (verify_waits.cc).
void verify_waits(const Graph& graph, const Body& body, Facts& facts, std::vector<Violation>& out);

// Into how many parts a node of the step can be divided at most: what records say beyond that is
// damage. A step that was reduced to a few nodes keeps the parts that it had.
std::uint32_t most_parts(const Body& step);

}  // namespace epweave
